// A module in training over several steps: weights that FSDP2 shards or that are whole, a region that is
// recomputed or not, and FusedAdam on what this rank holds.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "training/modules/module.h"
#include "training/ranks/fsdp.h"
#include "training/state/checkpoint.h"
#include "training/state/fused_adam.h"

namespace assay::training {

struct TrainedSettings {
  RecipePtr quantized_weights;  // weights are quantized by this recipe from the start; null: they stay plain
  GroupPtr mesh;                // FSDP2: this rank keeps its rows of every weight; null: weights are whole
  bool reshard = true;          // FSDP2's reshard_after_forward
  bool recompute = false;       // every forward is a region that runs again in backward
  bool reentrant = true;
};

// One rank's module. All ranks of the mesh call everything in the same order. Norms and biases are not
// sharded; their gradients are summed over the mesh.
class TrainedModule {
 public:
  // Rows of a weight must divide by the size of the mesh, and each part must be what its format takes. Both
  // references outlive the object.
  TrainedModule(Session&, Module&, TrainedSettings);

  // What Module::step does, between the gathers of FSDP2; the gradients of sharded weights are then this
  // rank's rows of the sum over the mesh. The record is that of the forward that backward belongs to.
  const StepRecord& step(const ArrayPtr& x, const ArrayPtr& dy, const StepOptions&);
  ArrayPtr forward(const ArrayPtr& x, const StepOptions&);
  ArrayPtr backward(const ArrayPtr& dy);
  // FusedAdam with f32 masters, on this rank's shards and on what is not sharded.
  void update();
  // By parameter: buffers of the shard or the value, then master, exp_avg and exp_avg_sq once there was an
  // update.
  std::vector<NamedArray> state();

 private:
  struct Weight {
    Parameter* parameter;
    TrainedPtr trained;  // of a sharded weight the shard
    bool sharded = false;
    StoragePtr whole;  // what FSDP2 gathered, refreshed in place
  };
  void shard(Weight&);
  void gather(TrainingState);
  RegionResult run_region(const RegionView&, const ArrayPtr& x, StepOptions);

  Session& session_;
  Module& module_;
  TrainedSettings settings_;
  std::vector<Weight> weights_;
  std::unique_ptr<FusedAdam> adam_;
  StepOptions options_;
  RecomputePhase phase_;
  RecomputeStash stash_;
  std::unique_ptr<Checkpoint> region_;
  Forward open_;
};

}  // namespace assay::training
