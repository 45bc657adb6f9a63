// Operations of a framework that give another shape over the same elements (TE tensor/*_tensor.py,
// __torch_dispatch__, view and reshape). The answer is quantized where the class cuts its bytes, else the
// dequantized tensor, cut. Errors have the original's classes; NVFP4 with columns alone cannot be dequantized
// (NotImplementedError) and warns the caller that asks for its size.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "training/formats/ops.h"

namespace assay::training::dispatch {

// The logical size as the framework's handlers ask for it: a UserWarning of columns-only NVFP4, also within a
// hybrid without rows.
Dims asked_size(Session&, const Storage&);

// The operation aten.view. Another shape: per-tensor FP8 with its byte plane, MXFP8 (ValueError unless the
// last dimension stays), NVFP4, Identity, and hybrids through the method of their children; blockwise FP8
// keeps its shape and needs its rows (NotImplementedError).
Piece view(Session&, const StoragePtr&, const Dims& shape);
// The method .view(...), where one dimension may be -1: plain where the class cannot show the shape. Of a
// hybrid the result is a light storage, also for the same shape.
Piece method_view(Session&, const StoragePtr&, const Dims& shape);
// The method .reshape(...): as the method view, but AttributeError of per-tensor FP8 without a byte plane,
// and the operation view for hybrids and Identity.
Piece method_reshape(Session&, const StoragePtr&, const Dims& shape);

// Elements [start, end) of a dimension; `end` may lie beyond it. All of it gives another object over the same
// buffers, where MXFP8, blockwise FP8 and hybrids want `end` to be the very size; NVFP4 gives nothing else
// (NotImplementedError).
Piece slice(Session&, const StoragePtr&, int64_t dim, int64_t start, int64_t end);
// One element of a dimension, which goes away: of per-tensor FP8 both planes, else plain.
Piece select(Session&, const StoragePtr&, int64_t dim, int64_t index);
// As training::split, plain where that one has an error of a class without pieces.
std::vector<Piece> split(Session&, const StoragePtr&, int64_t size, int64_t dim);
// As training::as_strided, but NVFP4 takes its own geometry alone (NotImplementedError), and the transpose of
// per-tensor FP8 is strided like the plane with its sizes turned: the bytes of another tensor wherever
// `offset` is not 0, as in the original.
Piece as_strided(Session&, const StoragePtr&, const Dims& shape, const Dims& strides, int64_t offset);

}  // namespace assay::training::dispatch
