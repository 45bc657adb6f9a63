// The life of a parameter that FSDP2 shards along its rows: what a shard sends before a gather, the whole
// tensor that is built or refreshed after it, and the columns that are cleared after use (TE
// tensor/*_tensor.py, fsdp_pre_all_gather and fsdp_post_all_gather; module/linear.py). Identity and hybrid
// parameters go through training/formats/ops.h.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "training/formats/ops.h"

namespace assay::training {

// What FSDP2's parameter group reports. Only pre_backward counts as a backward pass.
enum class TrainingState : uint8_t { idle, forward, pre_backward, post_backward };
struct ParamGroup {
  bool reshard_after_forward = true;
  TrainingState state = TrainingState::forward;
};

// What one shard sends, and what stays on its rank for the hook after the gather.
struct FsdpSent {
  std::vector<ArrayPtr> buffers;                      // null: the shard lacks what its format sends
  Usages usages;                                      // of the gathered object
  ArrayPtr scale_inv, amax_rowwise, amax_columnwise;  // the shard's very objects
  HybridGather hybrid;                                // of a hybrid parameter
};

// Before the gather. `mesh` is noted as the group that refreshes reduce over (note_fsdp_group); without
// `group` the formats that ask for it throw a RuntimeError that names reshard_after_forward.
//
//   per-tensor FP8   the byte plane; resharded: rows in a forward pass, columns in a backward pass
//   MXFP8            the pairs of the directions that the usages need, scale rows without padding
//   blockwise FP8    rows of 2-D blocks, with the padding of their scales (NotImplementedError of 1-D,
//                    RuntimeError without rows)
//   NVFP4            rows; AssertionError for rows that are no multiple of 16, no row data, and columns of a
//                    1-D quantizer; columns always, whatever the state
//   Identity         its payload
//   hybrid           both directions that it has, in every pass
// NotImplementedError for swizzled scales.
FsdpSent fsdp_pre_all_gather(Storage& shard, const GroupPtr& mesh, const std::optional<ParamGroup>& group);

// After the gather: `gathered` is the concatenation of every rank's buffers. Without `out` the whole tensor
// is made, with a copy of the shard's quantizer; `out`, of an earlier call, is refreshed and returned itself.
// The shard's quantizer never changes. A transpose of per-tensor FP8 that `out` still holds is kept although
// it is stale, as in the original: clear_columns drops it after use.
StoragePtr fsdp_post_all_gather(Storage& shard, const FsdpSent& sent, const std::vector<ArrayPtr>& gathered,
                                DType parameter, const StoragePtr& out = nullptr);

// What a linear layer does to its weight after dgrad under FSDP2: derived columns go, with their scales, and
// a transpose is marked invalid; amaxes stay. A hybrid keeps everything, and so does Identity.
void clear_columns(Storage& weight);

}  // namespace assay::training
