#include "training/state/recompute.h"

#include <stdexcept>

namespace assay::training {

bool RecomputePhase::enter(bool activation_recompute, bool recompute_phase, bool first_module) {
  recompute_ = activation_recompute;
  phase_ = recompute_phase;
  if (activation_recompute && !recompute_phase) queue_.push_back(first_module);
  if (!activation_recompute || !recompute_phase) return first_module;
  if (queue_.empty()) throw std::underflow_error("recompute: expected a first forward before it, found none");
  const bool first = queue_.front();
  queue_.pop_front();
  return first;
}

RecomputeStash::Values RecomputeStash::values_of(const DelayedScalingRecipeState& s) {
  return {clone(s.amax_history), clone(s.scale)};
}

void RecomputeStash::write(const Values& v, DelayedScalingRecipeState& s) {
  copy_into(*v.history, *s.amax_history);
  copy_into(*v.scale, *s.scale);
}

void RecomputeStash::copy(const DelayedStatePtr& s) {
  if (!s) return;
  const auto [at, is_new] = positions_.try_emplace(s.get(), queues_.size());
  if (is_new) queues_.emplace_back();
  queues_[at->second].push_back(values_of(*s));
}

void RecomputeStash::get(const DelayedStatePtr& s) {
  if (!s) return;
  const Values now = values_of(*s);
  aside_[s.get()] = now;
  std::deque<Values>& queue = queues_[positions_.at(s.get())];
  if (queue.empty())
    throw std::underflow_error("recompute: expected a stash for every recompute, found none left");
  write(queue.front(), *s);
  queue.pop_front();
}

void RecomputeStash::restore(const DelayedStatePtr& s) {
  if (s) write(aside_.at(s.get()), *s);
}

std::optional<size_t> RecomputeStash::position(const DelayedStatePtr& s) const {
  const auto at = positions_.find(s.get());
  return at == positions_.end() ? std::nullopt : std::optional(at->second);
}

}  // namespace assay::training
