#include "training/state/checkpoint.h"

#include <string>
#include <utility>

namespace assay::training {

RegionResult Checkpoint::run(bool grad_enabled, bool recompute) {
  RegionView view = surrounding_;
  view.grad_enabled = grad_enabled;
  view.recompute_phase = recompute;
  if (recompute) view.amax_reduction_group = nullptr;
  phase_.enter(true, recompute, true);
  try {
    RegionResult out = region_(view);
    phase_.leave();
    return out;
  } catch (...) {
    phase_.leave();
    throw;
  }
}

ArrayPtr Checkpoint::forward() {
  seed_ = session_.rng.seed;
  offset_ = session_.rng.offset;
  return run(!reentrant_, false).out;
}

ArrayPtr Checkpoint::backward(const ArrayPtr& grad, bool through_backward) {
  if (reentrant_ && !through_backward)
    throw SemanticError(ErrorClass::runtime_error,
                        "checkpoint: expected a backward through the whole graph, found a request for single "
                        "gradients; a reentrant region takes backward() alone");
  const uint64_t seed = session_.rng.seed, offset = session_.rng.offset;
  session_.rng.reseed(seed_, offset_);
  const RegionResult again = run(true, true);
  session_.rng.reseed(seed, offset);
  if (!again.pullback)
    throw SemanticError(ErrorClass::runtime_error,
                        "checkpoint: expected an output that requires a gradient, found none");
  return again.pullback(grad);
}

}  // namespace assay::training
