#include "compare/diagnosis/search/stage_verdicts.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/expected_values.h"
#include "compare/diagnosis/patterns/fingerprints.h"
#include "compare/diagnosis/search/codes.h"

namespace assay::cause {

namespace {

using std::string;
using Prints = std::set<string>;

// The fingerprints of one plane of a lane.
Prints prints_of(const JudgedLane& lane, const JudgedPlane& plane) {
  std::vector<PlaneData> got_all;
  for (const JudgedPlane& j : lane.judged) got_all.push_back(j.got);
  Prints out;
  for (const Fingerprint& f :
       fingerprints(lane.lane().problem, plane.got, plane.want, lane.lane().inputs, got_all))
    out.insert(f.id);
  return out;
}
bool any(const Prints& have, std::initializer_list<const char*> of) {
  return std::any_of(of.begin(), of.end(), [&](const char* id) { return have.contains(id); });
}
bool permuted(const Prints& have) { return any(have, {"multiset", "multiset_rows", "multiset_columns"}); }

// Whether all bytes that differ hold the same two codes, the other way round.
bool nibbles_swapped(const JudgedPlane& data) {
  for (size_t i = 0; i < data.got.bytes.size(); ++i) {
    const std::byte g = data.got.bytes[i], w = data.want.bytes[i];
    if (g != w && g != (w << 4 | w >> 4)) return false;
  }
  return true;
}

}  // namespace

Stage stage_of_unexplained(const JudgedLane& lane) {
  const JudgedPlane *amax = lane.find(".amax"), *scale = lane.find(".scale"), *data = lane.find(".data");
  const JudgedPlane* stored = lane.find(".scale_inv");
  if (!stored) stored = lane.find(".scale_gemm");
  if (amax && amax->differ > 0) return Stage::amax;
  if (!lane.lane().direction) return Stage::code;
  if (scale && scale->differ > 0) return Stage::tensor_scale;
  if (stored && stored->differ > 0) {
    if (!info(lane.quantizer().format).has_blocks()) return Stage::tensor_scale;
    const Prints have = prints_of(lane, *stored);
    if (permuted(have)) return Stage::layout;
    return any(have, {"amax_index", "amax_tail", "amax_outside"}) ? Stage::amax : Stage::block_scale;
  }
  if (!data) return Stage::code;
  if (data->want.plane.bits() == 4 && nibbles_swapped(*data)) return Stage::packing;
  return permuted(prints_of(lane, *data)) ? Stage::layout : Stage::code;
}

// ---- verdicts ---------------------------------------------------------------------------------------------

namespace {

// The stages of one direction, while its lanes are counted.
class Verdicts {
 public:
  Verdicts(const Quantizer& q, Direction d, const Diagnosis& found);
  void count(const JudgedLane& lane);
  std::vector<StageVerdict> finish();

 private:
  void see(Stage s, int64_t differ, int64_t of);
  void count_good_blocks(const JudgedPlane& scales, const JudgedPlane& data);
  void apply_explanation(StageVerdict& v) const;

  const Quantizer& q_;
  const Direction direction_;
  const Diagnosis& found_;
  const bool blocks_;
  std::map<Stage, StageVerdict> verdicts_;
  bool wrong_scales_ = false;
  int64_t good_blocks_ = 0;
};

Verdicts::Verdicts(const Quantizer& q, Direction d, const Diagnosis& found)
    : q_(q), direction_(d), found_(found), blocks_(info(q.format).has_blocks()) {
  for (const Stage s : kStages) {
    if (s == Stage::rht && !q.rht && !(found.first == s && found.direction == d)) continue;
    if (s == (blocks_ ? Stage::tensor_scale : Stage::block_scale)) continue;
    if (s == Stage::amax && q.format == FormatId::identity) continue;
    verdicts_[s] = {s, d, StageOutcome::unseen, 0, 0, ""};
  }
}

void Verdicts::see(Stage s, int64_t differ, int64_t of) {
  StageVerdict& v = verdicts_[s];
  v.stage = s;
  v.direction = direction_;
  v.differ += differ;
  v.of += of;
  v.outcome = v.differ > 0 ? StageOutcome::differs : StageOutcome::equal;
}

void Verdicts::count(const JudgedLane& lane) {
  const JudgedPlane* scales = nullptr;
  bool tensor_wrong = false;
  for (const JudgedPlane& j : lane.judged) {
    const string& name = j.want.plane.name;
    tensor_wrong |= j.is_scalar() && j.differ > 0;
    if (name.ends_with(".amax")) {
      see(Stage::amax, j.differ, j.of);
    } else if (name.find(".scale") != string::npos) {
      see(blocks_ ? Stage::block_scale : Stage::tensor_scale, j.differ, j.of);
      scales = &j;
    }
  }
  const JudgedPlane* data = lane.find(".data");
  if (!data) return;
  if ((!scales || scales->differ == 0) && !tensor_wrong) return see(Stage::code, data->differ, data->of);
  wrong_scales_ = true;
  if (blocks_ && scales) count_good_blocks(*scales, *data);
}

// Codes count where their block's scale agrees.
void Verdicts::count_good_blocks(const JudgedPlane& scales, const JudgedPlane& data) {
  const Plane &p = data.want.plane, &sp = scales.want.plane;
  const Codes got(data.got), want(data.want), scales_got(scales.got), scales_want(scales.want);
  int64_t differ = 0, of = 0;
  std::vector<int8_t> equal(static_cast<size_t>(sp.padded.count()), -1);
  for_places(p, [&](int64_t r, int64_t c, int64_t at) {
    const int64_t s = scale_index(q_, sp, r, c);
    int8_t& known = equal[static_cast<size_t>(s)];
    if (known < 0) {
      known = scales_got[s] == scales_want[s];
      good_blocks_ += known;
    }
    if (!known) return;
    ++of;
    differ += got[at] != want[at];
  });
  see(Stage::code, differ, of);
}

// What an explanation says of a stage: it begins there, or what differs there follows.
void Verdicts::apply_explanation(StageVerdict& v) const {
  const Confidence sure = found_.confidence;
  if (!found_.first || sure == Confidence::unexplained) return;
  if (*found_.first == v.stage && (!found_.direction || found_.direction == direction_)) {
    if (v.outcome == StageOutcome::unseen) v.note = "no plane shows it: the explanation says so";
    v.outcome = StageOutcome::differs;
    return;
  }
  if (!(*found_.first < v.stage) || v.outcome != StageOutcome::differs || sure == Confidence::partial) return;
  const std::vector<string>& ids = found_.explanations.front().ids;
  if (ids.size() == 1 && !ids[0].starts_with("flavour.")) v.outcome = StageOutcome::follows;
}

std::vector<StageVerdict> Verdicts::finish() {
  if (wrong_scales_) {
    StageVerdict& v = verdicts_[Stage::code];
    v.note = blocks_ ? fmt::format("in {} blocks whose scale agrees", good_blocks_)
                     : "the scale of the tensor differs";
    if (v.differ == 0) v.outcome = StageOutcome::follows;
  }
  std::vector<StageVerdict> out;
  for (auto& [stage, v] : verdicts_) {
    apply_explanation(v);
    out.push_back(v);
  }
  return out;
}

}  // namespace

void judge_stages(JudgedCase& judged_case, Diagnosis& out) {
  for (const Direction d : kDirections) {
    const std::vector<JudgedLane*> lanes = judged_case.lanes_of(d, false);
    if (lanes.empty()) continue;
    Verdicts verdicts(lanes.front()->quantizer(), d, out);
    for (const JudgedLane* l : lanes) verdicts.count(*l);
    for (StageVerdict& v : verdicts.finish()) out.stages.push_back(std::move(v));
  }
}

}  // namespace assay::cause
