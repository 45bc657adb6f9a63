// A training step of a module: what goes in, what comes out, and everything about it that two routes are
// compared by.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fixtures/json.h"
#include "training/base/session.h"
#include "training/formats/matmul.h"
#include "training/formats/storage.h"
#include "training/modules/module_state.h"
#include "training/recipes/recipe.h"
#include "training/recipes/role.h"

namespace assay::training {

// What vanilla quantizers fuse with their producer. A route that is off quantizes a materialised, rounded
// tensor, or sums it plainly: the causes E1 and E13 of docs/parity.md removed. Hybrids, Identity and
// references never fuse.
// `gathers` is off where shards travel between ranks unquantized, of hybrids too: the cause E14 removed.
struct Fusions {
  bool norm = true, activation = true, bias_gradient = true, gathers = true;
};
// Where built-in and custom recipes differ at the edges between attention's core and its projections. Off:
// the causes E16 and E17 removed.
//   built_in      under fp8_dpa alone a built-in recipe quantizes the edges of the core; off: it needs
//                 fp8_mha for that, as a custom one does
//   early_names   under fp8_mha a custom recipe names the consumer at every edge before it is known which are
//                 quantized, and the names stay; off: they go where an edge is not
struct EdgeRules {
  bool built_in = true, early_names = true;
};

// The circumstances of one forward.
struct StepOptions {
  RecipePtr recipe;          // of the autocast; null: no quantization
  bool grad_enabled = true;  // off: nothing is saved, weights are quantized in rows alone
  bool input_requires_grad = true;
  std::optional<bool>
      is_first_microbatch;  // nothing: no weight workspace is kept; true refreshes it, false uses it as it is
  std::optional<F32Bits> skip_weight_update;  // a noop flag for cached workspaces: 1.0 keeps their bytes
  std::optional<DType> autocast_dtype;        // nothing: activations have the input's dtype
  GroupPtr tp_group;                          // of parallel modules
  GroupPtr amax_reduction_group;              // of the autocast: delayed scaling's histories
  bool fp8_output = false, fp8_grad = false;  // quantize the module's output and grad input
  bool fsdp2 = false;                         // weights are gathered by FSDP2 (training/ranks/fsdp.h)
  bool first_of_recompute = false;            // the forward of a region that runs again in backward
  Fusions fusions;
  EdgeRules edges;
};

// A weight, bias, or a norm's scale or shift.
struct Parameter {
  std::string name;  // "weight", "weight3", "fc1_bias", "layer_norm_weight"
  Tensorlike value;  // quantized where the module was built under quantized_model_init
  DType dtype = DType::bfloat16;
  bool requires_grad = true;
  ArrayPtr grad;                     // of the last backward; null where main_grad took it
  ArrayPtr main_grad;                // float32: where set, wgrads are accumulated here
  bool preserve_init_value = false;  // a quantized parameter keeps the values that it was made from
};

struct NamedArray {
  std::string name;
  ArrayPtr array;
};
// What became of a weight's workspace, or a quantized weight, in a forward.
struct CacheEvent {
  std::string weight;  // "weight", "fc1_weight"
  std::string
      what;  // "built", "built and kept", "reused", "updated", "update skipped", "invalid", "parameter"
};
struct NamedUsages {
  std::string name;  // "weight", "saved input", "weight's own quantizer"
  Usages usages;
  bool operator==(const NamedUsages&) const = default;
};

// Everything that one forward and its backward left behind, in order. Names are equal on every route through
// the same module.
struct StepRecord {
  RoleList forward_roles, backward_roles;
  std::vector<json::Value> forward_quantizers,
      backward_quantizers;  // Quantizer::describe by slot; null where a slot has none
  std::vector<GemmRecord>
      gemms;  // "fprop", "dgrad", "wgrad"; of LayerNormMLP "fc1.fprop"; of expert 2 "fprop.2"
  std::vector<NamedArray>
      outputs;  // "output", "dgrad", then "<parameter>.grad"; a quantized output dequantized
  std::vector<NamedUsages> usages;  // of weights in their GEMM and of saved inputs, as forward left them
  std::vector<CacheEvent> cache;
  std::vector<RngDraw> draws;
  uint64_t rng_offset = 0;  // after the step
  std::vector<Collective> collectives;
  Warnings warnings;
};

// A copy of every buffer of `tensor`, by direction and name; what a record of usages and planes is made of.
std::vector<NamedArray> snapshot(const Tensorlike& tensor);

// The optimizer's write of a new value: `master` (any float dtype) is rounded to the parameter's dtype; a
// plain parameter takes it, a quantized one is refreshed in place through its own quantizer, so that its
// usages decide which directions are new (TE optimizers/fused_adam.py).
void write_back(Session&, Parameter&, const ArrayPtr& master);
// The first buffer of a quantized parameter that is not what its own quantizer with both usages makes of
// `master`, or nothing: a direction that an earlier step left behind. Draws no random number; parameters that
// round stochastically are refused with ValueError.
std::optional<std::string> stale_buffer(Session&, const Parameter&, const ArrayPtr& master);

}  // namespace assay::training
