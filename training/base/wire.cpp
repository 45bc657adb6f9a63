#include "training/base/wire.h"

#include <algorithm>
#include <stdexcept>

namespace assay::training {

namespace {

[[noreturn]] void broken(const std::string& found) {
  throw std::runtime_error("a message between ranks: expected a whole value, found " + found);
}

// The number of `object` in `known`, where it is put if it is new; of null it is -1.
template <class Pointer> int64_t number_of(const Pointer& object, std::vector<Pointer>& known) {
  if (!object) return -1;
  const int64_t at = std::find(known.begin(), known.end(), object) - known.begin();
  if (at == static_cast<int64_t>(known.size())) known.push_back(object);
  return at;
}

}  // namespace

void Wire::raw(std::span<std::byte> bytes) {
  if (!reading_) {
    written_.insert(written_.end(), bytes.begin(), bytes.end());
    return;
  }
  if (left_.size() < bytes.size())
    broken("its first " + std::to_string(left_.size()) + " of " + std::to_string(bytes.size()) + " bytes");
  std::copy_n(left_.begin(), bytes.size(), bytes.begin());
  left_ = left_.subspan(bytes.size());
}

size_t Wire::count(size_t n) {
  uint64_t number = n;
  (*this)(number);
  // Every element but an empty aggregate takes a byte at least.
  if (reading_ && number > left_.size()) broken("a list of " + std::to_string(number) + " elements");
  return number;
}

void wire(Wire& w, std::string& text) {
  text.resize(w.count(text.size()));
  w.raw(std::as_writable_bytes(std::span(text)));
}

void wire(Wire& w, std::vector<std::byte>& bytes) {
  bytes.resize(w.count(bytes.size()));
  w.raw(bytes);
}

void wire(Wire& w, json::Value& value) {
  std::string text = json::dump(value);
  w(text);
  if (!w.reading()) return;
  Result<json::Value> read = json::parse(text);
  if (!read) broken(read.error().text());
  value = std::move(*read);
}

void wire(Wire& w, ArrayPtr& array) {
  const size_t known = w.arrays_.size();
  int64_t number = w.reading_ ? 0 : number_of(array, w.arrays_);
  w(number);
  if (w.reading_) {
    if (number < -1 || number > static_cast<int64_t>(known)) broken("an array that was never sent");
    if (number == static_cast<int64_t>(known)) w.arrays_.push_back(std::make_shared<Array>());
    array = number < 0 ? nullptr : w.arrays_[static_cast<size_t>(number)];
  }
  if (number != static_cast<int64_t>(known)) return;  // null, or one that has travelled before
  const size_t blocks = w.memories_.size();
  int64_t block = w.reading_ ? 0 : number_of(array->memory, w.memories_);
  w(array->dtype, array->shape, array->strides, array->offset, block);
  if (w.reading_) {
    if (block < -1 || block > static_cast<int64_t>(blocks)) broken("memory that was never sent");
    if (block == static_cast<int64_t>(blocks))
      w.memories_.push_back(std::make_shared<std::vector<std::byte>>());
    array->memory = block < 0 ? nullptr : w.memories_[static_cast<size_t>(block)];
  }
  if (block != static_cast<int64_t>(blocks)) return;
  w(*array->memory);
}

}  // namespace assay::training
