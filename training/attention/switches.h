// The settings of attention that the original reads from environment variables. Here they belong to a module,
// so that two modules of one process may differ.
#pragma once
#include <cstdint>
#include <string>

#include "training/recipes/recipe.h"

namespace assay::training {

struct AttentionSwitches {
  // NVTE_DPA_FP8_RECIPE: the class of the recipe that attention works by instead of the autocast's; "F16"
  // turns quantized attention off; empty, and any other text, follow the autocast.
  std::string recipe;
  // NVTE_DPA_FP8_FORMAT, NVTE_DPA_FP8DS_AMAX_ALGO, _AMAX_HISTLEN, _REDUCE_AMAX: of the recipes that attention
  // makes for itself.
  Fp8Format format = Fp8Format::HYBRID;
  std::string amax_compute_algo = "most_recent";
  int64_t amax_history_len = 1;
  bool reduce_amax = true;

  bool fp8_backward = true;  // NVTE_FP8_DPA_BWD: backward multiplies FP8 tensors too
  bool o_in_16_bits = true;  // NVTE_DPA_FP8CS_O_in_F16: current scaling saves O as the kernel wrote it
  bool emulate = false;      // NVTE_UnfusedDPA_Emulate_FP8: the unfused core may stand in for a fused FP8 one
};

}  // namespace assay::training
