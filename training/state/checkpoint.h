// A region of a forward that is run again in backward instead of keeping what it made (TE distributed.py,
// checkpoint). What a framework's autograd does around it is modelled by two calls: forward and backward.
#pragma once
#include <functional>
#include <optional>

#include "training/base/array.h"
#include "training/base/session.h"
#include "training/state/recompute.h"

namespace assay::training {

// What the code of the region finds around it.
struct RegionView {
  bool grad_enabled = true;
  bool recompute_phase = false;
  bool quantization_on = false;
  GroupPtr amax_reduction_group;
};
// The output of a region, and what turns its gradient into that of the input; null where nothing in it
// requires a gradient.
struct RegionResult {
  ArrayPtr out;
  std::function<ArrayPtr(const ArrayPtr&)> pullback;
};

class Checkpoint {
 public:
  using Region = std::function<RegionResult(const RegionView&)>;
  // `surrounding` is what holds where the region is called: on or off, and the group of amax reductions.
  Checkpoint(Session& session, RecomputePhase& phase, Region region, bool reentrant, RegionView surrounding)
      : session_(session),
        phase_(phase),
        region_(std::move(region)),
        reentrant_(reentrant),
        surrounding_(std::move(surrounding)) {}

  // Runs the region, without gradients where it is reentrant; keeps where the random numbers stood.
  ArrayPtr forward();
  // Puts the random numbers back to where they stood, runs the region again with gradients, in the phase of a
  // recompute and without the group of amax reductions (the original does not pass it on), then its pullback;
  // the random numbers then go on as if nothing had run. RuntimeError where no output requires a gradient,
  // and `through_backward` false: asked for single gradients, as autograd.grad does, of a reentrant region.
  ArrayPtr backward(const ArrayPtr& grad, bool through_backward = true);

 private:
  RegionResult run(bool grad_enabled, bool recompute);
  Session& session_;
  RecomputePhase& phase_;
  Region region_;
  bool reentrant_;
  RegionView surrounding_;
  uint64_t seed_ = 0, offset_ = 0;
};

}  // namespace assay::training
