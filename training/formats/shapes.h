// Which buffers a quantizer allocates, and their shapes: the one table behind make_empty, the checks of
// gathered shards and the synthesis of a missing direction (TE tensor/*.py make_empty, get_scale_shape and
// get_columnwise_shape; csrc/quantizer.cpp create_tensor).
#pragma once
#include <string_view>
#include <vector>

#include "contract/encoding.h"
#include "contract/planes.h"
#include "training/formats/quantizer.h"

namespace assay::training {

// One buffer of a storage: "_rowwise_data", its shape and dtype.
struct BufferShape {
  std::string_view name;
  Dims shape;
  DType dtype = DType::uint8;
  bool operator==(const BufferShape&) const = default;
};

// The buffers of a storage of logical shape `shape` in the directions of `usages`, in no order that matters.
// `dtype` is the nominal dtype, which only Identity stores; `tn_only` matters to per-tensor FP8 alone
// (Session::tn_only). Shapes that a format cannot quantize still have buffers, as the original computes them:
// MXFP8 drops a partial block, NVFP4 a half-filled byte. Throws NotImplementedError for quantizers that
// allocate none (hybrids allocate per child, references not at all).
std::vector<BufferShape> allocated(const Quantizer& quantizer, const Dims& shape, Usages usages, DType dtype,
                                   bool tn_only);

// The padded compact scales of one direction of a block-scaled quantizer. Throws NotImplementedError for the
// others.
Dims scale_shape(const Quantizer& quantizer, const Dims& shape, Direction direction);
// The same from a line's settings, where no quantizer is at hand.
Dims scale_shape(const assay::Quantizer& settings, const Dims& shape, Direction direction);
// The shape of the columns' codes before two of them share a byte: turned in the formats that store columns
// transposed, else `shape`.
Dims columnwise_shape(const Quantizer& quantizer, const Dims& shape);

// (d0, .., K) to (K, d0, ..) and back; an empty or 1-D shape stays.
Dims turned(const Dims& shape);
Dims turned_back(const Dims& shape);
// Whether the rows and the columns of the matrix are both multiples of n.
bool multiples_of(const Dims& shape, int64_t n);
// The bytes of packed codes (N6.8): the last dimension, times the code's bits over 8, rounded down.
Dims packed(Dims shape, Encoding code);

}  // namespace assay::training
