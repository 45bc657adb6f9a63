// A gather along the first dimension: every rank hands in its shard, plain or quantized, and gets the whole
// tensor, quantized where a quantizer is given (TE distributed.py, gather_along_first_dim). Formats that can
// travel in their own bytes do so, scales before data and rows before columns; transposed planes arrive rank
// by rank and are de-interleaved; padding stays behind and is made anew.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "training/formats/ops.h"

namespace assay::training {

// What a gather does, in order, where somebody listens.
struct GatherLog {
  // "all_gather" with the shard's shape and dtype, "coalesce_begin", "coalesce_end".
  std::function<void(std::string_view what, const Array* sent, bool async)> collective;
  // A quantizer is about to quantize a tensor of this shape.
  std::function<void(const Quantizer&, const Dims&)> quantize;
};

struct Gathered {
  Piece tensor;
  // The class of what the original hands back to be waited for, "" where the gather is done when it returns:
  // "Work", "CM" (a coalesced group), "_AsyncHandle", "_NVFP4AllGatherAsyncHandle". Virtual ranks have
  // gathered by then in any case.
  std::string handle;
};

// Collective: every rank of `group` calls it with a shard of the same shape. `quantizer` may be null; its
// usages say which directions the result has, and are as before afterwards.
//
//   per-tensor FP8   rows alone travel; the scale is the local shard's very object, so shards must share one
//   blockwise FP8    vectors of 128 in multiples of 128 rows and columns; else in high precision
//   MXFP8, NVFP4     a plain shard that cannot be quantized travels in high precision
//   others           a UserWarning, and high precision
//
// A quantized shard that lacks a direction is dequantized and quantized anew, with a UserWarning; NVFP4 then
// fails: NotImplementedError without rows, TypeError without columns. ValueError or TypeError where the shard
// and the quantizer are of different formats. A group of one rank quantizes a plain shard and returns
// anything else as it is.
Gathered gather_along_first_dim(Session&, const Piece& shard, ProcessGroup& group,
                                const QuantizerPtr& quantizer, bool async = false, const GatherLog& log = {});

}  // namespace assay::training
