#include "training/base/padding.h"

#include <numeric>
#include <string>

#include "training/base/errors.h"

namespace assay::training {

namespace {

void expect_rows(const char* what, const Array& x, const std::vector<int64_t>& splits) {
  const int64_t all = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  const std::string found = x.shape.size() == 2
                                ? std::to_string(x.shape[0])
                                : "a tensor of " + std::to_string(x.shape.size()) + " dimensions";
  if (x.shape.size() != 2 || x.shape[0] != all)
    throw SemanticError(ErrorClass::runtime_error, std::string(what) + ": expected a matrix of " +
                                                       std::to_string(all) +
                                                       " rows, as the splits add up to, found " + found);
}

}  // namespace

std::vector<int64_t> padded_splits(const std::vector<int64_t>& splits, int64_t align) {
  if (align <= 0)
    throw SemanticError(ErrorClass::value_error,
                        "padding: expected a positive multiple, found " + std::to_string(align));
  std::vector<int64_t> out;
  for (const int64_t rows : splits) out.push_back((rows + align - 1) / align * align);
  return out;
}

ArrayPtr pad_rows(const ArrayPtr& x, const std::vector<int64_t>& splits, int64_t align) {
  expect_rows("pad_rows", *x, splits);
  const std::vector<int64_t> padded = padded_splits(splits, align);
  std::vector<ArrayPtr> parts;
  int64_t at = 0;
  for (size_t i = 0; i < splits.size(); ++i) {
    parts.push_back(slice(x, 0, at, at + splits[i]));
    parts.push_back(zeros({padded[i] - splits[i], x->shape[1]}, x->dtype));
    at += splits[i];
  }
  return concatenate(parts);
}

ArrayPtr unpad_rows(const ArrayPtr& x, const std::vector<int64_t>& splits, int64_t align) {
  const std::vector<int64_t> padded = padded_splits(splits, align);
  expect_rows("unpad_rows", *x, padded);
  std::vector<ArrayPtr> parts;
  int64_t at = 0;
  for (size_t i = 0; i < splits.size(); ++i) {
    parts.push_back(slice(x, 0, at, at + splits[i]));
    at += padded[i];
  }
  return concatenate(parts);
}

}  // namespace assay::training
