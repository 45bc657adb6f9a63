// Operations of a framework that write into a quantized tensor: arithmetic in place, copies, the noop flag,
// and assignment of .data (TE quantized_tensor.py and tensor/*_tensor.py).
#pragma once
#include <functional>
#include <optional>

#include "training/formats/ops.h"

namespace assay::training::dispatch {

// The method quantize_ of a tensor, from a plain or a quantized source. With a flag of exactly 1 nothing
// changes; a quantized source makes MXFP8, blockwise FP8 and NVFP4 forget the flag, as in the original.
// ValueError of a tensor without quantizer, as per-tensor FP8 is after a load.
void quantize_(Session&, const Piece& source, Storage& dst, std::optional<F32Bits> noop = std::nullopt);

// An operation in place: dequantized, changed by `act`, quantized again. NVFP4's zero_ (`is_zero`) makes
// another tensor and changes nothing.
void apply(Session&, Storage& dst, const std::function<ArrayPtr(const ArrayPtr&)>& act, bool is_zero = false);

// dst.copy_(src). Of one class: the buffers; what a direction lacks differs by class. Per-tensor FP8 copies
// bytes and scale even of another FP8 type; MXFP8 quantizes anew where the source lacks a direction; NVFP4
// leaves out what either lacks; blockwise FP8 copies where the usages agree (RuntimeError where its scales
// then differ in shape) and quantizes anew elsewhere; hybrids need the same directions (NotImplementedError)
// and copy child by child. Else quantize_.
void copy_(Session&, const Piece& src, const StoragePtr& dst);

// dst.data = plain. Per-tensor FP8 and MXFP8 take new buffers, blockwise FP8 and NVFP4 are refreshed in
// place; of Hybrid and Identity nothing changes and nothing is raised, as in the original.
void set_data(Session&, const ArrayPtr& plain, Storage& dst);

}  // namespace assay::training::dispatch
