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

// With the random numbers of the first forward, which then go on as if nothing had run.
RegionResult Checkpoint::run_again() {
  const uint64_t seed = session_.rng.seed, offset = session_.rng.offset;
  session_.rng.reseed(seed_, offset_);
  RegionResult again = run(true, true);
  session_.rng.reseed(seed, offset);
  return again;
}

ArrayPtr Checkpoint::forward() {
  if (distributes_ && reentrant_ && !has_ranks_)
    throw SemanticError(ErrorClass::runtime_error,
                        "checkpoint: expected ranks to distribute saved activations over, found none");
  if (distributes_ && !reentrant_)
    session_.warn("UserWarning",
                  "distribute_saved_activations has no effect in a region that is not reentrant");
  seed_ = session_.rng.seed;
  offset_ = session_.rng.offset;
  return run(!reentrant_, false).out;
}

ArrayPtr Checkpoint::backward(const ArrayPtr& grad, bool through_backward) {
  if (reentrant_ && !through_backward)
    throw SemanticError(ErrorClass::runtime_error,
                        "checkpoint: expected a backward through the whole graph, found a request for single "
                        "gradients; a reentrant region takes backward() alone");
  const RegionResult again = run_again();
  if (!again.pullback)
    throw SemanticError(ErrorClass::runtime_error,
                        "checkpoint: expected an output that requires a gradient, found none");
  return again.pullback(grad);
}

ArrayPtr Checkpoint::take(size_t index) {
  if (recomputed_.empty()) recomputed_ = run_again().saved;
  if (index >= recomputed_.size())
    throw SemanticError(ErrorClass::index_error, "checkpoint: expected a saved tensor " +
                                                     std::to_string(index) + ", found " +
                                                     std::to_string(recomputed_.size()) + " of them");
  return std::exchange(recomputed_[index], nullptr);
}

}  // namespace assay::training
