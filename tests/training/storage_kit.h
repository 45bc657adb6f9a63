// What tests of storages share: a session on the reference, inputs, and how errors are caught.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reference/subject.h"
#include "training/formats/hybrid.h"
#include "training/formats/storage.h"

namespace assay::training {

struct Setting {
  explicit Setting(Arch arch = Arch::sm100) { session.arch = arch; }
  std::unique_ptr<Subject> subject = make_reference_subject();
  Session session{*subject};
};

// bfloat16 of both signs: powers of two between 1/4 and 4 with `exact`, which MXFP8 keeps, else any mantissa.
inline ArrayPtr bf16(Dims shape, bool exact = false, uint32_t state = 7) {
  std::vector<uint16_t> bits(static_cast<size_t>(count_of(shape)));
  for (uint16_t& b : bits) {
    state = state * 1664525u + 1013904223u;
    b = static_cast<uint16_t>((state >> 16 & 0x8000) | (125 + (state >> 8) % 5) << 7 |
                              (exact ? 0 : state >> 24 & 0x7F));
  }
  return from_bytes(std::move(shape), DType::bfloat16, std::as_bytes(std::span(bits)));
}

// The same with magnitudes that differ from one 16 x 16 tile of the flattened matrix to the next, along rows
// and columns unlike.
inline ArrayPtr tiled(const Dims& shape) {
  const ArrayPtr out = bf16(shape);
  const auto bytes = out->bytes();
  for (size_t i = 0, cols = static_cast<size_t>(shape.back()); i < bytes.size() / 2; ++i) {
    const size_t row = i / cols / 16, col = i % cols / 16;
    const auto binades = static_cast<uint8_t>(row % 16 + 2 * (row / 16) + 3 * (col % 8) + 5 * (col / 8));
    bytes[2 * i + 1] = static_cast<std::byte>(static_cast<uint8_t>(bytes[2 * i + 1]) -
                                              binades / 2);  // a step of the upper byte is two binades
  }
  return out;
}

template <class F> ErrorClass raised(F f) {
  try {
    f();
  } catch (const SemanticError& e) {
    return e.error_class;
  }
  ADD_FAILURE() << "nothing was raised";
  return ErrorClass::frozen_instance_error;
}

template <class Q, class... Args>
StoragePtr quantized(Session& session, const ArrayPtr& x, Usages usages, Args... args) {
  auto q = std::make_shared<Q>(args...);
  q->set_usage(usages.rowwise, usages.columnwise);
  return q->quantize(session, x);
}

inline std::map<std::string, ArrayPtr> buffers(Storage& s) {
  std::map<std::string, ArrayPtr> out;
  for (const Field& f : s.fields())
    if (*f.slot) out[f.name] = *f.slot;
  return out;
}

// The same buffers with the same bytes.
inline void expect_equal(Storage& a, Storage& b) {
  const auto left = buffers(a), right = buffers(b);
  EXPECT_EQ(left.size(), right.size());
  for (const auto& [name, array] : left) {
    const auto other = right.find(name);
    ASSERT_NE(other, right.end()) << name;
    EXPECT_EQ(array->shape, other->second->shape) << name;
    EXPECT_TRUE(equal_bytes(*array, *other->second)) << name;
  }
}

inline constexpr Usages kBoth{true, true}, kRows{true, false}, kColumns{false, true}, kNeither{false, false};

}  // namespace assay::training
