// What the tests of groups share: tensors of varied values, and the comparison of two storages buffer by
// buffer.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "reference/subject.h"
#include "training/groups/grouped.h"

namespace assay::training {

// bfloat16 values of both signs and several magnitudes, no two neighbours alike; the same for the same seed.
inline ArrayPtr varied(Dims shape, uint32_t seed = 1) {
  const ArrayPtr out = zeros(std::move(shape), DType::bfloat16);
  uint32_t state = seed * 2654435761u + 12345;
  for (int64_t i = 0; i < out->count(); ++i) {
    state = state * 1664525u + 1013904223u;
    const auto bits = static_cast<uint16_t>((state >> 31) << 15 | (0x3C00 + ((state >> 8) & 0x3FF)));
    std::memcpy(out->bytes().data() + i * 2, &bits, 2);
  }
  return out;
}

// "" where both hold the same buffers with the same shapes and bytes; else the field that differs.
inline std::string difference(Storage& a, Storage& b) {
  if (a.class_name() != b.class_name())
    return std::string(a.class_name()) + " and " + std::string(b.class_name());
  const auto x = a.fields(), y = b.fields();
  for (size_t i = 0; i < x.size(); ++i) {
    const ArrayPtr &p = *x[i].slot, &q = *y[i].slot;
    if (!p != !q) return x[i].name + " is present in one of them";
    if (p && !equal_bytes(*p, *q)) return x[i].name;
  }
  return {};
}
inline std::string difference(const Tensorlike& a, const StoragePtr& b) {
  return difference(*std::get<StoragePtr>(a), *b);
}

template <class Act> std::string error_of(Act&& act) {
  try {
    act();
  } catch (const SemanticError& e) {
    return std::string(name_of(e.error_class));
  }
  return "none";
}

struct Grouped : testing::Test {
  std::unique_ptr<Subject> subject = make_reference_subject();
  Session session{*subject};
};

}  // namespace assay::training
