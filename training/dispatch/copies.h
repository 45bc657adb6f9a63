// Operations of a framework that make another tensor of a quantized one: clones, casts, empty and zero
// tensors (TE quantized_tensor.py and tensor/*_tensor.py, __torch_dispatch__).
#pragma once
#include <optional>

#include "training/formats/ops.h"

namespace assay::training::dispatch {

// The method .clone(): data of its own, scales and amaxes shared. AssertionError of NVFP4 without rows; a
// hybrid clones its children by the operation.
StoragePtr method_clone(Session&, const StoragePtr&);
// The operation aten.clone: the method for per-tensor FP8, MXFP8 and Identity; plain for blockwise FP8 and
// NVFP4. A hybrid with such a child has no result (AttributeError), except that of NVFP4 columns
// (NotImplementedError).
Piece clone(Session&, const StoragePtr&);
// copy.deepcopy: every buffer its own; the errors of the method clone, which comes first.
StoragePtr deep_copy(Session&, const StoragePtr&);
// .to(dtype): the tensor itself for its own dtype, else the dequantized tensor cast; per-tensor FP8 warns
// that its class is lost.
Piece to(Session&, const StoragePtr&, DType dtype);
// .to_dtype(dtype): the same bytes under another nominal dtype.
StoragePtr to_dtype(const StoragePtr&, DType dtype);
// The operation new_zeros. Per-tensor FP8 keeps a copy of its scale; MXFP8 needs multiples of 32, and its
// buffers take the dtype asked for; blockwise FP8 and NVFP4 give a plain tensor; Identity and hybrids as
// training::new_zeros.
Piece new_zeros(Session&, const StoragePtr&, const Dims& shape, std::optional<DType> dtype = std::nullopt);
// The operation new_empty, by the tensor's quantizer with its usages. RuntimeError without a quantizer.
StoragePtr new_empty(Session&, const Storage&, const Dims& shape);
// The operation empty_like: the directions that exist, and the nominal dtype whatever is asked for. NVFP4
// gives the dtype that is asked for to every buffer, and amaxes of zero, as in the original.
StoragePtr empty_like(Session&, const Storage&, std::optional<DType> dtype = std::nullopt);

}  // namespace assay::training::dispatch
