// Activation recompute: a forward runs again in backward and must see what it saw the first time (TE
// distributed.py, quantization.py). Only delayed scaling has a state that changed meanwhile: its history and
// scale are stashed at the first forward and lent back for the second.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "training/recipes/delayed.h"

namespace assay::training {

// What one process knows about regions. A pair of flags, not a stack: where an inner region ends, the outer
// one is forgotten too, as in the original.
class RecomputePhase {
 public:
  // Enters a region; `first_module` is pushed at a first forward, and popped, oldest first, at a recompute
  // (IndexError is a RuntimeError here: recompute without a push). Returns the flag that holds inside.
  bool enter(bool activation_recompute, bool recompute_phase, bool first_module);
  void leave() { recompute_ = phase_ = false; }
  // In a region while quantization is on.
  bool enabled(bool quantization_on) const { return recompute_ && quantization_on; }
  bool in_recompute() const { return phase_; }
  bool in_region() const { return recompute_; }
  const std::deque<bool>& queue() const { return queue_; }

 private:
  bool recompute_ = false, phase_ = false;
  std::deque<bool> queue_;
};

// History and scale of the forward states of a process's modules. A module is known by its state; one without
// delayed scaling is passed over.
class RecomputeStash {
 public:
  // Before a first forward: what the state holds goes to the end of the module's queue.
  void copy(const DelayedStatePtr&);
  // Before a recompute: what the state holds now is put aside, and the oldest stash is written into the live
  // tensors. Throws std::out_of_range of a module that never stashed (Python's KeyError) and
  // std::underflow_error of an empty queue (IndexError).
  void get(const DelayedStatePtr&);
  // After a recompute: what was put aside comes back, so amaxes measured meanwhile are lost. Throws
  // std::out_of_range without a get before.
  void restore(const DelayedStatePtr&);
  // The place of a module's queue, in the order of their first copies; nothing for others.
  std::optional<size_t> position(const DelayedStatePtr&) const;
  size_t left(size_t position) const { return queues_.at(position).size(); }
  size_t modules() const { return queues_.size(); }

 private:
  struct Values {
    ArrayPtr history, scale;
  };
  static Values values_of(const DelayedScalingRecipeState&);
  static void write(const Values&, DelayedScalingRecipeState&);
  std::map<const DelayedScalingRecipeState*, size_t> positions_;
  std::vector<std::deque<Values>> queues_;
  std::map<const DelayedScalingRecipeState*, Values> aside_;
};

}  // namespace assay::training
