#include "training/attention/local_recipes.h"

#include <memory>

namespace assay::training {

namespace {

// A recipe of attention's own, with the attention switches of the user's.
template <class R> std::shared_ptr<R> own(const Recipe& user, Fp8Format format) {
  auto r = std::make_shared<R>();
  r->fp8_format = format;
  r->fp8_dpa = user.fp8_dpa;
  r->fp8_mha = user.fp8_mha;
  return r;
}

RecipePtr own_delayed(const Recipe& user, Fp8Format format, const AttentionSwitches& s) {
  auto r = own<DelayedScaling>(user, format);
  r->amax_history_len = s.amax_history_len;
  r->amax_compute_algo = s.amax_compute_algo;
  r->reduce_amax = s.reduce_amax;
  return r;
}

}  // namespace

std::vector<RecipePtr> attention_recipes(const RecipePtr& user, const AttentionSwitches& s) {
  Recipe& r = *user;
  if (r.custom()) return {user};
  if (s.recipe == "F16") {
    r.fp8_dpa = r.fp8_mha = false;
    return {user};
  }
  // The format of NVFP4's recipe is that of its block scales, so the switch says what FP8 tensors are.
  const Fp8Format format = r.nvfp4() ? s.format : r.fp8_format;
  const bool current = r.float8_current_scaling(), blocks = r.mxfp8() || r.nvfp4();
  if (s.recipe == "DelayedScaling" && (current || blocks)) return {own_delayed(r, format, s)};
  if (s.recipe == "Float8CurrentScaling" && r.delayed()) return {own<Float8CurrentScaling>(r, format), user};
  if (s.recipe == "Float8CurrentScaling" && blocks)
    return {own<Float8CurrentScaling>(r, format), own_delayed(r, format, s)};
  if (s.recipe == "MXFP8BlockScaling" && (r.float8_per_tensor_scaling() || r.nvfp4()))
    return {own<MXFP8BlockScaling>(r, format)};
  // S and dP live and die within the kernel, which cannot know their amax before it writes them.
  if (current && (s.recipe.empty() || s.recipe == "Float8CurrentScaling") && (r.fp8_dpa || r.fp8_mha))
    return {user, own_delayed(r, format, s)};
  return {user};
}

}  // namespace assay::training
