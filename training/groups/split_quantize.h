// One tensor into n quantized splits, one for each expert: what GroupedLinear calls for its inputs and
// gradients (TE module/_split_quantization.py), and the native entry under it that serves all splits at once
// (TE csrc/extensions/cast.cpp split_quantize).
#pragma once
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "training/base/session.h"
#include "training/formats/matmul.h"
#include "training/formats/quantizer.h"
#include "training/formats/storage.h"

namespace assay::training {

// What the dispatch calls for the work itself; each has the Session's own as default, a test counts with its
// own.
struct SplitEntries {
  // All splits of `x` along dim 0 in one call.
  using Bulk =
      std::function<std::vector<StoragePtr>(Session&, const ArrayPtr& x, const std::vector<int64_t>& splits,
                                            const std::vector<QuantizerPtr>&, bool disable_bulk_allocation)>;
  // One split quantized, with the sum of its rows [K] in its dtype.
  using Bgrad =
      std::function<std::pair<StoragePtr, ArrayPtr>(Session&, const ArrayPtr& x, const QuantizerPtr&)>;
  Bulk bulk;
  Bgrad bgrad;
  SplitEntries();
};

// The native entry. NVFP4 is served as a list where it has one scale per tensor, a multiple of 128 columns,
// some rows and bulk allocation; RuntimeError there for 2-D blocks, amax reduction, four over six with RHT or
// stochastic rounding, and RHT of anything but bf16, on every architecture. With RHT on sm100 and sm110 a
// list runs as one launch with one state of the generator, and is refused where group_quantize refuses it;
// all others run member by member. MXFP8, NVFP4 and blockwise FP8 members then share one buffer for each kind
// of plane, unless `disable_bulk_allocation`. RuntimeError where splits do not add up to the rows of `x`.
std::vector<StoragePtr> bulk_quantize(Session&, const ArrayPtr& x, const std::vector<int64_t>& splits,
                                      const std::vector<QuantizerPtr>& quantizers,
                                      bool disable_bulk_allocation);
// The gradient of a bias as the native entry of that quantizer sums it: [K] in x's dtype. x [R, K] of any
// size.
ArrayPtr fused_bias_gradient(Session&, const ArrayPtr& x, const Quantizer& quantizer);
// The native entry that fuses the gradient of a bias.
std::pair<StoragePtr, ArrayPtr> bgrad_quantize(Session&, const ArrayPtr& x, const QuantizerPtr& quantizer);

struct SplitOptions {
  DType activation_dtype = DType::bfloat16;  // plain splits and Python quantizers get `x` in this dtype;
                                             // native and hybrid ones as it is
  bool bias_gradient = false;
  bool disable_bulk_allocation = false;  // members do not share buffers, so that each can be offloaded alone
  bool with_quantized_output =
      true;  // false: plain splits in `activation_dtype`, whichever quantizers are given
};
struct SplitResult {
  std::vector<Tensorlike> outputs;
  std::vector<ArrayPtr> bias_gradients;  // [K] in x's dtype, of the uncast x; empty unless asked for
};
// Splits `x` [rows, K] along dim 0. Expert 0's quantizer decides the route: none, or Identity that casts to
// nothing else: plain views; a native class: one bulk call, or with a bias gradient of per-tensor FP8 and
// MXFP8 one fused call per split; a hybrid: a bulk call per direction that is wanted, columns from the
// concatenated dequantized rows where that is their source; anything else: its own quantize, split by split.
// ValueError where quantizers and splits differ in number.
SplitResult split_quantize(Session&, const ArrayPtr& x, const std::vector<int64_t>& splits,
                           const std::vector<QuantizerPtr>& quantizers, const SplitOptions& options,
                           const SplitEntries& entries = {});

// Whether experts' quantizers can be served by one call, once per generation of quantizers of a CustomRecipe.
// ValueError for: some null; some hybrid; a direction with Identity here and not there; unlike classes in a
// direction; unlike settings in a direction (usages, internal and optimize_for_gemm do not count; of delayed
// scaling and Identity only the dtype does); unlike columnwise sources.
void validate_split_quantizers(const std::vector<QuantizerPtr>& quantizers);

// Directions that are kept in high precision by Identity; neither for null.
Usages identity_directions(const Quantizer* quantizer);
bool uses_identity(const Quantizer* quantizer);

}  // namespace assay::training
