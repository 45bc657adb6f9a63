// Movements of whole bytes that storages share, and the one road from their buffers to a plain tensor. No
// arithmetic on elements.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "training/formats/storage.h"

namespace assay::training {

// (d0, .., K) to (K, d0, ..) and back, the bytes moved along: a new contiguous Array. Of any dtype; a scalar
// or vector is copied.
ArrayPtr last_to_front(const ArrayPtr&);
ArrayPtr front_to_last(const ArrayPtr&);
// [rows, cols] to [cols, rows]: a new contiguous Array.
ArrayPtr swapped(const ArrayPtr&);
// The first rows x cols of a matrix in a zeroed matrix of `padded`; a new Array.
ArrayPtr padded_with_zeros(const ArrayPtr&, const Dims& padded);
// The first `rows` of dim 0: the very Array where it has no more, else an aliasing slice.
ArrayPtr first_rows(const ArrayPtr&, int64_t rows);
// `wanted` with its -1, if any, worked out from `count` elements; RuntimeError where that is impossible.
Dims resolved(const Dims& wanted, int64_t count);
void copy_optional(const ArrayPtr& from, const ArrayPtr& to);  // where both exist
// The answer of get_data_tensors: both, or the one that is asked for; ValueError where neither is.
std::vector<ArrayPtr> chosen(const ArrayPtr& rows, const ArrayPtr& columns, bool rowwise, bool columnwise);
// The checks that copy_from_storage shares: RuntimeError "`what` differs" where `same` is false.
void expect_same(bool same, std::string_view storage, std::string_view what);

// The buffers of one direction; amax only for NVFP4.
struct Codes {
  ArrayPtr data, scale, amax;
};
// The codes as a plain tensor of shape `logical` by op dequantize. Scales of another padding are fitted to
// the plane; data must have its bytes. Throws RuntimeError where a buffer is missing or does not hold the
// plane.
ArrayPtr dequantized(Session&, const assay::Quantizer& settings, Direction, const Dims& logical, DType to,
                     const Codes&);

[[noreturn]] void raise_runtime_error(const std::string& what);
// "a Float8Tensor", "an MXFP8Tensor".
std::string with_article(std::string_view class_name);

// The field list of a gather as JSON.
json::Value names_as_json(const std::vector<std::string>&);

}  // namespace assay::training
