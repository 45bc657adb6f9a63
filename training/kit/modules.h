// The modules that steps are compared on, by name.
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "training/modules/activations.h"
#include "training/modules/module.h"
#include "training/recipes/producers.h"

namespace assay::training {

inline constexpr std::string_view kModules[] = {"linear",         "layernorm_linear", "layernorm_mlp",
                                                "grouped_linear", "ops_linear",       "ops_grouped_linear"};
// Multi-head attention: self attention, the same behind a norm, and cross attention; and a whole layer.
inline constexpr std::string_view kAttentionModules[] = {"mha", "layernorm_mha", "cross_mha",
                                                         "transformer_layer"};
bool is_attention_module(std::string_view module);
// The producer of roles that a module of kModules is. std::logic_error of another name.
Producer producer_of(std::string_view module);

// The default sizes are a multiple of 128 for fused kernels, and a partial block of 128 beside it. The
// default activation is a square because its result has twice the bits of its root and must be rounded to
// bfloat16, so that E1 of docs/parity.md shows; GELU's results need no such rounding.
struct ModuleSettings {
  std::string_view module = "linear";  // one of kModules or kAttentionModules
  int64_t rows = 64, in = 128, out = 96, hidden = 160;
  bool bias = true, save_original_input = false;
  DType dtype = DType::bfloat16;  // of parameters, input and gradient
  ParallelMode parallel = ParallelMode::none;
  bool sequence = true;  // sequence parallel, where the module is parallel
  int tp_size = 1;       // of grouped_linear, which shares nothing with those ranks and then takes no bias
  Activation activation = Activation::srelu;
  std::vector<int64_t> splits = {};  // of grouped modules; empty: see splits_of
  bool packed = false;               // grouped_linear: all weights in one parameter
  // Of attention modules `hidden` is the width of all heads of 32 that this rank has, of a layer the rows of
  // its fc1 as well, and `out` says nothing.
  bool checkpoint_core = false;
};

// Called "m".
std::unique_ptr<Module> make_module(Session&, const ModuleSettings&);
// Rows per expert: where the settings give none, three experts of which one has no rows. Grouped NVFP4 needs
// multiples of 64. With 64 rows the experts' rows are no multiple of 128; with more rows the first expert's
// are.
std::vector<int64_t> splits_of(const ModuleSettings&);
// Rows of the module's input, and columns of its output.
int64_t input_rows(const ModuleSettings&);
int64_t output_columns(const ModuleSettings&);

}  // namespace assay::training
