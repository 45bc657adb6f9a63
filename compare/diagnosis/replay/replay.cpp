#include "compare/diagnosis/replay/replay.h"

#include <algorithm>
#include <utility>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/patterns/layouts.h"
#include "compare/diagnosis/replay/steps.h"

namespace assay {

// The lane's problem with the keys of these, of any part.
std::optional<Problem> Replay::keyed(Hypotheses hypotheses) const {
  std::string all;
  for (const Hypothesis* h : hypotheses)
    if (!h->keys.empty()) all += h->keys + ";";
  if (all.empty()) return lane().problem;
  {
    const std::lock_guard lock(keyed_mutex_);
    if (const auto known = keyed_.find(all); known != keyed_.end()) return known->second;
  }
  std::optional<Problem> p = lane().problem;
  for (const Hypothesis* h : hypotheses)
    if (p && !h->keys.empty()) p = with_keys(*p, h->keys);
  const std::lock_guard lock(keyed_mutex_);
  keyed_.emplace(all, p);
  return p;
}

Problem Replay::part_of(const Selection& s) const {
  Problem p = lane().problem;
  if (s.everything) return p;
  const int64_t lines = static_cast<int64_t>(s.lines.size()), places = static_cast<int64_t>(s.places.size());
  p.x.shape = lane().direction == Direction::row ? Shape{lines, places} : Shape{places, lines};
  return p;
}

// Another op than a quantize has its line and its outputs alone.
std::optional<std::vector<PlaneData>> Replay::run_other_op(const Problem& p, Hypotheses hypotheses) const {
  const std::vector<Plane> before = output_planes(lane().problem), after = output_planes(p);
  if (before.size() != after.size()) return {};
  for (size_t i = 0; i < before.size(); ++i)
    if (before[i].bytes() != after[i].bytes()) return {};
  AttentionChange change;
  for (const Hypothesis* h : hypotheses) {
    if (h->attention && change != AttentionChange{}) return {};  // one of the core at a time
    if (h->attention) change = *h->attention;
    else if (h->keys.empty() && h->layout.empty() && !h->remake && !h->read && !h->rerun) return {};
  }
  std::vector<PlaneData> read;
  const bool reads = std::ranges::any_of(hypotheses, [](const Hypothesis* h) { return bool(h->read); });
  if (reads) read = lane().inputs;
  for (const Hypothesis* h : hypotheses)
    if (h->read && !h->read(p, read)) return {};
  const std::vector<PlaneData>& inputs = reads ? read : lane().inputs;
  const RunLine run = [&](const Problem& line, const std::vector<PlaneData>& in) {
    return whole_.execute(line, in);
  };
  const auto rerun = std::ranges::find_if(hypotheses, [](const Hypothesis* h) { return bool(h->rerun); });
  if (rerun != hypotheses.end() && (hypotheses.size() > 1 || lane().observed)) return {};
  if (rerun != hypotheses.end()) return (*rerun)->rerun(p, inputs, run);
  if (p.as<Attention>() && (change != AttentionChange{} || lane().observed))
    return attention_planes(p, inputs, change, run, lane().observed ? &*lane().observed : nullptr);
  auto planes = whole_.execute(p, inputs);
  for (const Hypothesis* h : hypotheses)
    if (planes && h->remake) h->remake(p, inputs, *planes);
  return planes;
}

std::optional<std::vector<PlaneData>> Replay::run(const Selection& chosen, Hypotheses hypotheses) const {
  std::optional<Problem> p = keyed(hypotheses);
  if (!p) return {};
  const Problem own = part_of(chosen);
  p->x.shape = own.x.shape;
  if (!lane().direction) return run_other_op(*p, hypotheses);
  Run run(whole_, chosen, hypotheses, std::move(*p));
  if (!set_tensor_amax(run, observed_amax_) || !couple_draws(run)) return {};
  give_inputs(run);
  if (!choose_block_edits(run) || !make_planes(run)) return {};
  if (!change_scales(run) || !take_codes_of_line(run) || !change_codes(run)) return {};
  if (!move_codes(run) || !repack_codes(run) || !change_stored_scales(run)) return {};
  if (!keep_own_planes(run, own) || !take_from_other(run)) return {};
  change_scalars(run);
  if (!flip_bits(run)) return {};
  return std::move(run.planes);
}

bool lay_out(const Hypothesis& hypothesis, std::vector<PlaneData>& planes) {
  const size_t colon = hypothesis.layout.find(':');
  if (colon == std::string::npos) return false;
  for (PlaneData& data : planes) {
    if (!data.plane.name.ends_with("." + hypothesis.layout.substr(0, colon))) continue;
    const auto fit = layout_named(hypothesis.layout.substr(colon + 1), data.plane);
    if (!fit || static_cast<int64_t>(fit->source.size()) != data.plane.padded.count()) return false;
    std::vector<std::byte> moved(data.bytes.size());
    for (size_t i = 0; i < fit->source.size(); ++i)
      if (fit->source[i] >= 0)
        set_code(data.plane, moved, static_cast<int64_t>(i), code_at(data.plane, data.bytes, fit->source[i]));
    data.bytes = std::move(moved);
    return true;
  }
  return false;
}

}  // namespace assay
