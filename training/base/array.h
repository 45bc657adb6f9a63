// Array: the plain tensor of the semantic layer. It has a dtype, a shape and strides over shared memory,
// because aliasing is behaviour here: members of a grouped tensor are views of one buffer, and a delayed
// quantizer's amax is a view of its state's history.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "contract/encoding.h"
#include "contract/problem.h"

namespace assay::training {

enum class DType : uint8_t { uint8, boolean, int16, int32, int64, float16, bfloat16, float32 };
std::string_view name_of(DType);  // "bfloat16"
std::optional<DType> dtype_named(std::string_view);
int64_t bytes_of(DType);
// The encoding of a float dtype and uint8; throws SemanticError(TypeError) for the others.
Encoding encoding_of(DType);
DType dtype_of(Encoding);  // f32, bf16, f16; all codes of 8 bits or less are uint8

using Dims = std::vector<int64_t>;
int64_t count_of(const Dims&);  // 1 for a scalar's empty shape
// [product of the leading dimensions, last dimension], as quantizers flatten; a scalar is [1, 1].
Shape flattened(const Dims&);

struct Array;
// Two pointers are equal where the original would say `a is b`.
using ArrayPtr = std::shared_ptr<Array>;

struct Array {
  DType dtype = DType::float32;
  Dims shape, strides;  // strides in elements
  int64_t offset = 0;   // in elements
  std::shared_ptr<std::vector<std::byte>> memory;

  int64_t count() const { return count_of(shape); }
  bool contiguous() const;  // row-major without gaps; true for an empty one
  // The elements of a contiguous array, in row-major order; throws std::logic_error of another.
  std::span<std::byte> bytes();
  std::span<const std::byte> bytes() const;
  // The address of the first element: two arrays alias where their memory and offset ranges overlap.
  const std::byte* data() const { return memory->data() + offset * bytes_of(dtype); }
};

ArrayPtr empty(Dims shape, DType dtype,
               std::byte poison = std::byte{0x7F});  // uninitialised memory reads as poison
ArrayPtr zeros(Dims shape, DType dtype);
ArrayPtr from_bytes(Dims shape, DType dtype, std::span<const std::byte> bytes);
// Same memory, another shape of as many elements; throws SemanticError(RuntimeError) where strides do not
// allow it or counts differ.
ArrayPtr view(const ArrayPtr&, Dims shape);
ArrayPtr as_strided(const ArrayPtr&, Dims shape, Dims strides, std::optional<int64_t> offset = std::nullopt);
// Elements [start, end) along `dim`, aliasing.
ArrayPtr slice(const ArrayPtr&, size_t dim, int64_t start, int64_t end);
ArrayPtr transpose(const ArrayPtr&, size_t a, size_t b);  // aliasing
ArrayPtr contiguous(const ArrayPtr&);                     // itself where it is
ArrayPtr clone(const ArrayPtr&);                          // a contiguous copy
void copy_into(const Array& from, Array& to);             // same shape and dtype, any strides
ArrayPtr concatenate(std::span<const ArrayPtr> parts);    // along dim 0
// Whether both show the same elements, bit for bit, with the same dtype and shape.
bool equal_bytes(const Array&, const Array&);
bool share_memory(const Array&, const Array&);

}  // namespace assay::training
