#include "compare/diagnosis/search/judged_case.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/search/codes.h"
#include "compare/diagnosis/search/parallel.h"
#include "contract/line.h"

namespace assay::cause {

namespace {

using std::string;

// Whether the planes that came are those of the line.
std::optional<Error> check_planes(const Observation& seen) {
  if (seen.got.empty())
    return Error{"the pack holds no output plane of this line, so there is nothing to judge", 0, ""};
  const std::vector<Plane> planes = output_planes(seen.problem);
  for (const PlaneData& g : seen.got) {
    const auto plane =
        std::find_if(planes.begin(), planes.end(), [&](const Plane& p) { return p.name == g.plane.name; });
    if (plane == planes.end())
      return Error{"plane '" + g.plane.name + "' is not an output plane of this line", 0, ""};
    if (g.bytes.size() != plane->bytes())
      return Error{
          fmt::format("plane {}: expected {} bytes, found {}", plane->name, plane->bytes(), g.bytes.size()),
          0, ""};
  }
  for (const Plane& plane : input_planes(seen.problem)) {
    const PlaneData* in = find_plane(seen.inputs, plane.name);
    if (!in || in->bytes.size() != plane.bytes())
      return Error{fmt::format("input plane {}: expected {} bytes, found {}", plane.name, plane.bytes(),
                               in ? in->bytes.size() : 0),
                   0, ""};
  }
  return {};
}

}  // namespace

JudgedCase::JudgedCase(const Observation& o, Subject& r, const DiagnoseOptions& with)
    : seen(o),
      reference(r),
      options(with),
      jobs(with.jobs > 0 ? with.jobs : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))) {}

std::vector<JudgedLane*> JudgedCase::lanes_of(std::optional<Direction> d, bool differing) {
  std::vector<JudgedLane*> out;
  for (JudgedLane& l : lanes)
    if (l.lane().direction == d && (!differing || l.differs())) out.push_back(&l);
  return out;
}

std::optional<Error> JudgedCase::gather() {
  if (const auto error = validate(seen.problem)) return *error;
  if (const Support s = reference.supports(seen.problem); !s.yes)
    return Error{"the reference does not run this line: " + s.why, 0, ""};
  if (const auto error = check_planes(seen)) return *error;
  auto all = assay::lanes_of(seen.problem, seen.inputs, seen.got, reference);
  if (!all) return all.error();
  if (seen.unpinned && seen.problem.as<Attention>()) all->front().observed = seen.got;
  for (Lane& lane : *all) lanes.emplace_back().replay = std::make_unique<Replay>(std::move(lane), reference);
  std::atomic<bool> failed = false;
  parallel(jobs, lanes.size(), [&](size_t n) {
    if (!judge(lanes[n])) failed = true;
  });
  if (failed) return Error{"the reference does not run this line", 0, ""};
  if (std::any_of(lanes.begin(), lanes.end(), [](const JudgedLane& l) { return l.differs(); }))
    parallel(jobs, lanes.size(), [&](size_t n) { add_rows(lanes[n]); });
  return seen.problem.as<Split>() ? judge_beside() : std::nullopt;
}

// Fills the lane's planes. False where the reference does not run it.
bool JudgedCase::judge(JudgedLane& lane) const {
  auto want = lane.replay->run({}, {});
  if (!want) return false;
  const bool split = seen.problem.as<Split>() != nullptr;
  const std::vector<PlaneData> got = split ? planes_of_member(seen.got, *lane.lane().member) : seen.got;
  for (size_t i = 0; i < want->size(); ++i) {
    PlaneData& w = (*want)[i];
    const PlaneData* g = find_plane(got, w.plane.name);
    if (!g) continue;
    JudgedPlane j{i, {w.plane, g->bytes}, std::move(w), 0, 0};
    j.count();
    if (j.is_scalar() && j.want.plane.name.ends_with(".amax"))
      lane.replay->observe_amax(value_of(Encoding::f32, Codes(j.got)[0]));
    lane.judged.push_back(std::move(j));
  }
  return true;
}

// The rows that can change a lane's bytes.
void JudgedCase::add_rows(JudgedLane& lane) const {
  const Lane& l = lane.lane();
  const std::optional<Direction> d = l.direction;
  for (Hypothesis& h : d ? hypotheses(l.problem, *d) : line_hypotheses(l.problem)) {
    if (!h.keys.empty() && !h.element) {
      const auto changed = with_keys(l.problem, h.keys);
      if (!changed || *changed == l.problem) continue;
    }
    const Hypothesis& row = lane.library.emplace_back(std::move(h));
    lane.by_id.emplace(row.id, &row);
  }
  if (d == Direction::row && l.other && l.other->rht)
    for (const char* how : {"", ",own_amax", ",unrounded", ",unrounded,own_amax"})
      lane.row(fmt::format("input.rotated:0x{:04X}{}", l.other->sign_mask, how));
  if (const JudgedPlane* amax = lane.find(".amax"); d && amax && amax->is_scalar()) {
    const uint32_t got = Codes(amax->got)[0], want = Codes(amax->want)[0];
    if (got > want && got < info(Encoding::f32).infinity)  // codes of amaxes order as they do
      for (const char* how : {"at_least", "is"}) lane.row(fmt::format("tensor_amax.{}={:08X}", how, got));
  }
}

// Offsets: planes that are the case's, not a member's.
std::optional<Error> JudgedCase::judge_beside() {
  std::vector<PlaneData> want;
  std::vector<Buffer> out;
  for (const Plane& plane : output_planes(seen.problem))
    want.push_back({plane, std::vector<std::byte>(plane.bytes())});
  for (PlaneData& w : want) out.push_back({&w.plane, w.bytes});
  try {
    reference.run(seen.problem, views(seen.inputs), out, Environment{});
  } catch (const std::exception& e) {
    return Error{e.what(), 0, ""};
  }
  for (const PlaneData& w : want) {
    const PlaneData* g = find_plane(seen.got, w.plane.name);
    if (!g || !w.plane.members.empty()) continue;
    int64_t differ = 0;
    for (int64_t i = 0; i < w.plane.logical.count(); ++i)
      differ += Codes(w.plane, g->bytes)[i] != Codes(w)[i];
    beside_of += w.plane.logical.count();
    beside_differ += differ;
    if (differ) beside.push_back({*g, w});
  }
  return {};
}

}  // namespace assay::cause
