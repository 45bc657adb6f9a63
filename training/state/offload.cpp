#include "training/state/offload.h"

#include <algorithm>

namespace assay::training {

namespace {

using std::string;

}  // namespace

void OffloadedLayer::expect(std::string_view what, std::initializer_list<std::string_view> allowed) const {
  if (std::find(allowed.begin(), allowed.end(), state_) != allowed.end()) return;
  string words;
  for (const std::string_view w : allowed) words += (words.empty() ? "" : " or ") + string(w);
  fail(ErrorClass::runtime_error, "Invalid state of an offloaded layer for " + string(what) + ": expected " +
                                      words + ", found " + string(state_));
}

bool OffloadedLayer::moves(Session& session, const ArrayPtr& a, bool is_parameter, bool marked) const {
  if (a->count() < kOffloadThreshold || is_parameter) return false;
  if (a->contiguous() || marked) return true;
  session.warn("UserWarning", "A non-contiguous tensor is not offloaded: it stays where it is");
  return false;
}

size_t OffloadedLayer::put(const ArrayPtr& a, const ViewOf& view) {
  waiting_.push_back(a);
  views_.push_back(view);
  return waiting_.size() - 1;
}

Pushed OffloadedLayer::push(Session& session, const Piece& tensor, bool is_parameter, const ViewOf& view) {
  expect("push", {"not_offloaded"});
  session_ = &session;
  if (const ArrayPtr* plain = std::get_if<ArrayPtr>(&tensor)) {
    if (moves(session, *plain, is_parameter, view.marked)) return put(*plain, view);
    return tensor;
  }
  const StoragePtr& s = std::get<StoragePtr>(tensor);
  if (is_parameter || count_of(s->size()) < kOffloadThreshold) return tensor;
  PushedParts out;
  out.husk = detach(*s);
  for (const ArrayPtr& part : out.husk->prepare_for_saving()) {
    if (!part) out.parts.emplace_back(std::monostate{});
    else if (moves(session, part, false, false)) out.parts.emplace_back(put(part, {}));
    else out.parts.emplace_back(part);
  }
  return out;
}

ArrayPtr OffloadedLayer::taken(size_t number) const {
  return (state_ == "not_offloaded" ? waiting_ : back_).at(number);
}

Piece OffloadedLayer::pop(const Pushed& pushed) {
  expect("pop", {"not_offloaded", "reload_started"});
  if (const Piece* stayed = std::get_if<Piece>(&pushed)) return *stayed;
  if (const size_t* number = std::get_if<size_t>(&pushed)) return taken(*number);
  const PushedParts& parts = std::get<PushedParts>(pushed);
  Saved saved;
  for (const auto& part : parts.parts) {
    const ArrayPtr* kept = std::get_if<ArrayPtr>(&part);
    const size_t* number = std::get_if<size_t>(&part);
    saved.push_back(kept ? *kept : number ? taken(*number) : nullptr);
  }
  parts.husk->restore_from_saved(saved, 0);
  return parts.husk;
}

void OffloadedLayer::start_offload() {
  expect("start_offload", {"not_offloaded"});
  state_ = "offload_started";
  std::vector<ArrayPtr> once;
  origins_.clear();
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const ViewOf& view = views_[i];
    const bool moves_base = view.marked || (view.base && view.base->count() == waiting_[i]->count());
    if (moves_base && !view.base)
      fail(ErrorClass::runtime_error,
           "offload: expected a view, whose base can move, found a tensor of its own");
    const ArrayPtr& moved = moves_base ? view.base : waiting_[i];
    const auto at = std::find(once.begin(), once.end(), moved);  // the same object is copied once
    origins_.push_back({static_cast<size_t>(at - once.begin()), moves_base ? waiting_[i] : nullptr});
    if (at == once.end()) once.push_back(moved);
  }
  waiting_ = std::move(once);
  views_.clear();
  const bool fresh = !retain_ || on_cpu_.empty();
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const ArrayPtr& a = waiting_[i];
    if (!a->contiguous())
      fail(ErrorClass::value_error,
           "offload: expected a contiguous tensor, found one with gaps or another order");
    if (fresh) {
      on_cpu_.push_back(clone(a));
      continue;
    }
    if (on_cpu_.at(i)->shape != a->shape)
      fail(ErrorClass::value_error,
           "offload: expected tensors of the shapes that the kept buffers have, found another shape");
    copy_into(*cast(*session_, a, on_cpu_[i]->dtype), *on_cpu_[i]);
  }
}

void OffloadedLayer::release() {
  expect("release", {"offload_started"});
  state_ = "offload_finished";
  waiting_.clear();
}

void OffloadedLayer::start_reload() {
  expect("start_reload", {"offload_finished"});
  state_ = "reload_started";
  std::vector<ArrayPtr> copies;
  for (const ArrayPtr& a : on_cpu_) copies.push_back(clone(a));
  for (const Origin& o : origins_) {
    const ArrayPtr& copy = copies.at(o.copy);
    back_.push_back(o.view ? as_strided(copy, o.view->shape, o.view->strides, o.view->offset) : copy);
  }
}

void OffloadedLayer::release_all() {
  waiting_.clear();
  views_.clear();
  origins_.clear();
  if (!retain_) on_cpu_.clear();
  back_.clear();
  state_ = "not_offloaded";
}

OffloadSchedule offload_schedule(int64_t layers, int64_t offloaded) {
  OffloadSchedule out;
  for (int64_t i = 0; i < std::min(layers, offloaded); ++i) {
    out.offloaded.push_back(i);
    out.released_at_forward_of[layers - offloaded + i].push_back(i);
    out.reload_starts_at_backward_of[layers - 1 - offloaded + i].push_back(i);
  }
  return out;
}

int OffloadContext::checked(Session& session) const {
  const int results = manual_synchronization ? 3 : 2;
  if (!enabled) return results;
  if (!offload_weights && !offload_activations)
    fail(ErrorClass::value_error,
         "offload: expected activations or weights, found neither: say what to offload");
  if (offload_weights) {
    session.warn("DeprecationWarning", "Offload of weights is deprecated and does nothing");
    if (!offload_activations) return results;
  }
  if (debug) fail(ErrorClass::runtime_error, "offload: debug mode does not support it; turn one of them off");
  if (!manual_synchronization && num_layers > model_layers - 1)
    fail(ErrorClass::value_error,
         "offload: expected at most all layers but the last without manual "
         "synchronization, found " +
             std::to_string(num_layers) + " of " + std::to_string(model_layers));
  if (!manual_synchronization && num_layers == model_layers - 1)
    session.warn("UserWarning",
                 "Offload of all layers but the last is not recommended: nothing overlaps with the copies");
  if (stream && !manual_synchronization)
    fail(ErrorClass::value_error, "offload: expected manual synchronization for a stream of the caller");
  return results;
}

}  // namespace assay::training
