// Which implementation of attention a module may choose where its core is to run in FP8 (TE
// attention/dot_product_attention/utils.py). Only filters that depend on FP8 are told here; shapes, masks and
// what a kernel library refuses by itself are not.
#pragma once
#include <array>
#include <string_view>

#include "training/recipes/recipe.h"

namespace assay::training {

struct AttentionRequest {
  std::array<int, 2> compute_capability{10, 0};  // {9, 0} is sm90
  std::array<int, 3> cudnn{9, 23, 2};
  bool is_training = true, deterministic = false, return_max_logit = false;
  std::string_view qkv_layout = "bshd_bshd_bshd";
  bool flash_attention_3 = false;  // installed
  bool emulate = false;            // AttentionSwitches::emulate
};

// Of several only the one that would run is left: flash, else fused, else unfused.
struct AttentionBackends {
  bool flash = false, fused = false, unfused = false;
  bool operator==(const AttentionBackends&) const = default;
};

// For a core under `recipe` with fp8_dpa: what is left. None left means that the original refuses to run.
AttentionBackends fp8_attention_backends(const Recipe& recipe, const AttentionRequest&);

// Whether a core that chose `chosen` casts at all. The unfused one reads the switch again at every call:
// where it is off by then, the core runs without FP8 although the module says FP8.
bool runs_in_fp8(const AttentionBackends& chosen, bool emulate_at_call);

}  // namespace assay::training
