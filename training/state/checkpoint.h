// A region of a forward that is run again in backward instead of keeping what it made (TE distributed.py,
// checkpoint). What a framework's autograd does around it is modelled by two calls: forward and backward.
#pragma once
#include <functional>
#include <optional>
#include <vector>

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
  std::vector<ArrayPtr> saved = {};  // what it keeps for backward, in order; read where it is not reentrant
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

  // Whether the input that a reentrant region keeps is to be cut over the ranks, and whether there are ranks.
  // It is gathered before it is used, so no byte depends on it.
  void distribute_saved(bool has_ranks) { distributes_ = true, has_ranks_ = has_ranks; }

  // Runs the region, without gradients where it is reentrant; keeps where the random numbers stood.
  // RuntimeError where a reentrant region distributes what it saves and there are no ranks; a UserWarning,
  // and nothing else, where one that is not reentrant does.
  ArrayPtr forward();
  // Puts the random numbers back to where they stood, runs the region again with gradients, in the phase of a
  // recompute and without the group of amax reductions (the original does not pass it on), then its pullback;
  // the random numbers then go on as if nothing had run. RuntimeError where no output requires a gradient,
  // and `through_backward` false: asked for single gradients, as autograd.grad does, of a reentrant region.
  ArrayPtr backward(const ArrayPtr& grad, bool through_backward = true);

  // What a region that is not reentrant saved as number `index`: a first forward keeps numbers alone, and the
  // first that is taken runs all of the region again. Each may be taken once; a second time there is none.
  // IndexError where the region saved fewer.
  ArrayPtr take(size_t index);

 private:
  RegionResult run(bool grad_enabled, bool recompute);
  RegionResult run_again();
  Session& session_;
  RecomputePhase& phase_;
  Region region_;
  bool reentrant_;
  RegionView surrounding_;
  bool distributes_ = false, has_ranks_ = false;
  std::vector<ArrayPtr> recomputed_;
  uint64_t seed_ = 0, offset_ = 0;
};

}  // namespace assay::training
