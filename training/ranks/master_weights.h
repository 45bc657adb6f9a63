// From masters in f32 to quantized parameters without an optimizer in between: every rank has a fragment of a
// flat master, all ranks of a group agree about the amaxes, and each casts its fragment into the parameter
// (TE tensor/utils.py, quantize_master_weights). What happens after a gather, and where the bytes lie.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "fixtures/json.h"
#include "training/formats/ops.h"

namespace assay::training {

// One parameter of a batch.
struct MasterWeight {
  StoragePtr weight;
  ArrayPtr master;                // flat, f32; null: none of it lies on this rank
  std::optional<int64_t> offset;  // of the fragment, in elements of the flat parameter
  // Where the bytes go instead of into the parameter: flat planes of the fragment's own length, of the rows
  // and, for MXFP8 and for a hybrid with both directions, of the columns. Empty: into the parameter.
  std::vector<ArrayPtr> shard;
};

// Every kernel and collective in order: ["compute_amax"], ["all_reduce", [3], "float32"], ... Empty: nothing
// is recorded.
using MasterLog = std::function<void(json::Value)>;

// First the whole batch is checked: NotImplementedError for a transpose alone of per-tensor FP8 with a shard,
// also in a hybrid, and for columns of a hybrid that come from its dequantized rows; ValueError for a partial
// fragment of a hybrid with both directions. Nothing has happened by then. Then, weight by weight, the
// preserved initial value goes and the master is rounded to the nominal dtype; a child of a hybrid that is
// neither per-tensor FP8 nor Identity is a NotImplementedError, a format that the original does not know and
// a hybrid without a direction a ValueError. Then by format: delayed scaling, current scaling, blockwise FP8,
// MXFP8, NVFP4, Identity. An error of a later format leaves the earlier ones written.
//
//   delayed    bytes by the present scale; amaxes are reduced afterwards. ValueError for a bad offset
//   current    one scale from the group's amax. ValueError unless all quantizers agree in FP8 type, pow2 and
//              eps; offsets are not checked: TypeError without one, RuntimeError where the fragment does not
//              fit. ValueError for a bad offset into a transpose alone
//   blockwise  the amax of each tile over the group; bytes of rows. Outside the fragment the original leaves
//              them undefined; here they stay. ValueError unless all quantizers agree, as above
//   MXFP8      both directions (AttributeError without), E4M3; scales from the group's amaxes in bf16
//   NVFP4      2D blocks (ValueError), 4-bit codes. From an odd offset on pairs land a byte too low, as in
//              the original. Empty fragments start no kernel
//   Identity   copied. ValueError for a bad offset, or a shard that is too short
// The three with block scales take matrices alone (ValueError), and a fragment outside of the parameter is a
// RuntimeError.
//
// `manual`: derived columns are kept, stale, until post_all_gather_processing; else they are dropped.
void quantize_master_weights(Session&, const std::vector<MasterWeight>& batch, ProcessGroup& group,
                             bool manual = false, const MasterLog& log = {});

// What a gather of row bytes calls for: the transpose of per-tensor FP8 where GEMMs need one, the columns of
// blockwise FP8 (AssertionError for 1D blocks) and of NVFP4; of a hybrid, child by child. Nothing for others.
void post_all_gather_processing(Session&, const std::vector<StoragePtr>& weights);

// Puts the bytes of the rows into `memory`, which the parameter holds from then on. ValueError unless the
// dtype is theirs, and for a format that the original does not know; NotImplementedError for MXFP8, and for a
// hybrid without rows; AttributeError for another tensor without rows.
void replace_raw_data(Storage&, const ArrayPtr& memory);

}  // namespace assay::training
