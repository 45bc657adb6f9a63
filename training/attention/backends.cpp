#include "training/attention/backends.h"

namespace assay::training {

namespace {

using Version = std::array<int, 3>;
constexpr std::array<int, 2> kHopper{9, 0}, kBlackwell{10, 0}, kConsumerBlackwell{12, 0};
// cuDNN's first deterministic FP8 backward, its first forward and backward with 16-bit O, and MXFP8.
constexpr Version kDeterministic{9, 18, 0}, kCurrentScaling{9, 14, 0}, kMxfp8{9, 21, 0};
constexpr Version kMxfp8Broken[] = {{9, 23, 0}, {9, 23, 1}};

bool fused(const Recipe& recipe, const AttentionRequest& r) {
  const bool blackwell = r.compute_capability >= kBlackwell;
  const auto broken = [&] {
    for (const Version& v : kMxfp8Broken)
      if (r.cudnn == v) return true;
    return false;
  };
  if (recipe.float8_current_scaling() && (!blackwell || r.cudnn < kCurrentScaling)) return false;
  if (recipe.mxfp8() && (!blackwell || r.cudnn < kMxfp8 || broken() || recipe.fp8_mha ||
                         r.qkv_layout.find("thd") != std::string_view::npos || r.qkv_layout[0] == 't'))
    return false;
  if (r.deterministic && r.is_training && (r.compute_capability < kHopper || r.cudnn < kDeterministic))
    return false;
  return recipe.float8_per_tensor_scaling() || recipe.mxfp8();
}

}  // namespace

AttentionBackends fp8_attention_backends(const Recipe& recipe, const AttentionRequest& r) {
  AttentionBackends left;
  if (r.return_max_logit) return left;
  const bool consumer = r.compute_capability == kConsumerBlackwell;
  left.flash = r.flash_attention_3 && !r.is_training && recipe.float8_per_tensor_scaling() && !consumer;
  left.fused = !left.flash && !consumer && fused(recipe, r);
  left.unfused = !left.flash && !left.fused && r.emulate;
  return left;
}

bool runs_in_fp8(const AttentionBackends& chosen, bool emulate_at_call) {
  return chosen.flash || chosen.fused || (chosen.unfused && emulate_at_call);
}

}  // namespace assay::training
