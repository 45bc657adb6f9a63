// The fused entry points of a group: one launch for all members, on a 2-D tensor in which they lie one after
// the other (TE csrc/extensions/cast.cpp). Each is one `split` Problem on the Session's Subject; what the
// original's kernels refuse is refused here, with a RuntimeError.
#pragma once
#include <optional>
#include <utility>

#include "training/groups/grouped.h"

namespace assay::training {

struct GroupQuantizeOptions {
  ArrayPtr first_dims = {}, last_dims = {};  // int64 [n]; null: all the same
  ArrayPtr tensor_offsets = {};              // int64 [n + 1], adopted; null: computed
  std::optional<F32Bits> noop =
      {};  // exactly 1.0: every buffer keeps its bytes, amax and scale too; NVFP4 is not handed the flag
  GroupedTensorPtr output = {};  // reused where nothing varies; same n, logical shape and quantizer object
  std::optional<Rng> rng =
      {};  // the state for stochastic rounding; nothing: drawn from the Session's generator, with room for n
  int64_t nvfp4_rows = 128;  // what NVFP4's members must be multiples of; the entry for lists takes 64
};
// x [R, C] holds n members; it may be larger than they are, and what stands beyond them is not read. No
// elements: buffers come back unquantized.
//   MXFP8             1-D and 2-D blocks, first and last dimensions may vary
//   current scaling   first or last dimensions may vary, not both; amaxes are reduced over the quantizer's
//                     group, all in one call
//   blockwise FP8     first dimensions may vary; members of a multiple of 128 rows; sm90
//   NVFP4             with RHT and the amax after it; no 2-D blocks, no four over six, no amax reduction;
//                     first dimensions may vary; bf16, members of multiples of 128
//                     rows and columns; sm100 and sm110. Draws one state of the generator where it rounds
//                     stochastically
// All others are refused, as are members of MXFP8 that are no multiples of 32.
GroupedTensorPtr group_quantize(Session&, const ArrayPtr& x, const QuantizerPtr& quantizer,
                                int64_t num_tensors, const GroupQuantizeOptions& options = {});

// With the sums of each member's rows, [n, C] in x's dtype, zeros for a member without rows. MXFP8 and
// blockwise FP8, last dimensions all the same.
std::pair<GroupedTensorPtr, ArrayPtr> bgrad_group_quantize(Session&, const ArrayPtr& x,
                                                           const QuantizerPtr& quantizer, int64_t num_tensors,
                                                           const ArrayPtr& first_dims = nullptr);

// A high-precision group of dtype `to`. MXFP8 and blockwise FP8 with exactly one direction.
GroupedTensorPtr group_dequantize(Session&, GroupedTensor& group, DType to);

// Makes a group whose rows came quantized ready for GEMMs, in place: row data stay, row scales move to GEMM
// layout, and where `quantizer` uses columns these are quantized from the rows dequantized to `to`. A group
// that is ready already is left as it is. MXFP8 of one encoding, members of multiples of 128 rows and
// columns. Returns the dequantized rows, [R, C], where `return_dequantized` asks for them (bias gradients are
// summed from them), else null.
ArrayPtr group_requantize_inplace(Session&, GroupedTensor& group, const QuantizerPtr& quantizer, DType to,
                                  bool return_dequantized = false);

}  // namespace assay::training
