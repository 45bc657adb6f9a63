#include "compare/diagnosis/identify/choice_runs.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/equal_bytes.h"
#include "compare/packs/dump.h"
#include "compare/process/run_in_child.h"
#include "contract/flavours.h"
#include "contract/line.h"

namespace assay::identifying {

using std::string;

namespace {

// Bytes of the logical elements that agree. What a grouped plane holds beyond its members, and padding, is
// not looked at.
void compare_planes(const PlaneData& got, const PlaneData& want, Share& share) {
  const std::vector<PlaneData> gots = members_of(got), wants = members_of(want);
  for (size_t m = 0; m < wants.size() && m < gots.size(); ++m) {
    const Plane& plane = wants[m].plane;
    share.of += plane.logical.count();
    if (equal_bytes(gots[m].bytes, wants[m].bytes)) {
      share.agree += plane.logical.count();
      continue;
    }
    for (int64_t r = 0; r < plane.logical.rows; ++r)
      for (int64_t c = 0; c < plane.logical.cols; ++c) {
        const int64_t at = index_of(plane, r, c);
        share.agree += code_at(plane, gots[m].bytes, at) == code_at(plane, wants[m].bytes, at);
      }
  }
}

}  // namespace

ChoiceRuns::ChoiceRuns(const Group& group, Subject& reference, int jobs, double timeout)
    : group_(group), reference_(reference), timeout_(timeout) {
  environment_.threads =
      jobs > 0 ? jobs : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

Result<Problem> ChoiceRuns::problem(const Case& c, const string& keys) const {
  auto out = group_.side ? with_choice(c.problem, keys, *group_.side) : with_choice(c.problem, keys);
  if (!out || !c.tile) return out;
  // What a choice means is decided by the whole tensor's line, whose shape may choose a kernel.
  Tiling tiling{*out, {}, {}, {}};
  for (const Direction d : kDirections) {
    if (!tiling.needs_amax(d)) continue;
    const auto amax = amax_of_whole(c, tiling, d);
    if (!amax) return amax.error();
    (d == Direction::row ? tiling.row_amax : tiling.col_amax) = *amax;
  }
  return tiling.problem_of(*c.tile);
}

// What the choice's line makes of the amax of the whole tensor that a sample is of. Of a rotated one: the
// recorded amax, because a choice that makes all the bytes makes that.
Result<F32Bits> ChoiceRuns::amax_of_whole(const Case& c, const Tiling& tiling, Direction d) const {
  const string name = plane_name(d, "amax");
  if (tiling.problem.quantizer(d)->rht) {
    const PackPlane* recorded = c.dump->recorded->find(name);
    if (!recorded || !recorded->tensor) return Error{"the amax of the rotated tensor is not recorded", 0, ""};
    return code_at(Encoding::f32, recorded->tensor->bytes, 0);
  }
  if (!c.extremes) return Error{"the amax of the tensor is not known", 0, ""};
  Problem p = tiling.problem_of({0, 0, c.extremes->plane.logical});
  p.quantizer(d == Direction::row ? Direction::col : Direction::row).reset();
  p.col_source = ColSource::original;
  const auto known = amaxes_.find({&c, to_canonical_line(p)});
  if (known != amaxes_.end()) return known->second;
  const auto inputs = inputs_with(p, {*c.extremes}, reference_);
  if (!inputs) return inputs.error();
  const Execution run = execute(reference_, p, *inputs, Environment{});
  const PlaneData* amax = find_plane(run.planes, name);
  if (run.error || !amax) return Error{run.error.value_or("the line has no amax"), 0, ""};
  return amaxes_[{&c, to_canonical_line(p)}] = code_at(Encoding::f32, amax->bytes, 0);
}

const Outcome& ChoiceRuns::outcome(const string& keys) {
  string means;  // what the keys come to, so that te on a line where it is the default is not run again
  std::vector<Problem> problems;
  Outcome out;
  for (const Case& c : group_.cases) {
    auto p = problem(c, keys);
    if (!p) {
      out.trouble = p.error().text();
      return outcomes_[keys] = out;
    }
    p->flavour = Flavour::assay;
    means += to_canonical_line(*p) + "\n";
    problems.push_back(std::move(*p));
  }
  if (const auto known = outcomes_.find(means); known != outcomes_.end()) return known->second;
  string made;
  for (size_t i = 0; i < problems.size() && out.trouble.empty(); ++i)
    judge(group_.cases[i], problems[i], out, made);
  out.cut_short = cut_short_;
  out.bytes = digest(std::as_bytes(std::span(made)));
  return outcomes_[means] = out;
}

std::optional<std::vector<PlaneData>> ChoiceRuns::planes(const Case& c, const Problem& p) {
  std::vector<PlaneData> of_part;  // with the amax of the whole
  if (c.tile) {
    auto inputs = inputs_with(p, c.inputs, reference_);
    if (!inputs) {
      trouble_ = inputs.error().text();
      return {};
    }
    of_part = std::move(*inputs);
  }
  IsolatedRun run = run_isolated(reference_, p, c.tile ? of_part : c.inputs, environment_, timeout_);
  if (!run.sound()) {
    trouble_ = run.trouble();
    cut_short_ = run.status == IsolatedRun::Status::interrupted;
    return {};
  }
  for (PlaneData& plane : run.execution.planes) clear_spare(plane);
  return std::move(run.execution.planes);
}

void ChoiceRuns::judge(const Case& c, const Problem& p, Outcome& out, string& made) {
  const auto want = planes(c, p);
  if (!want) {
    out.trouble = trouble_;
    return;
  }
  for (const PlaneData& plane : *want) {
    if (group_.side && plane.plane.direction != group_.side) continue;
    if (c.tile) {
      if (is_scalar(plane.plane)) continue;  // it is of the whole tensor
      const PlaneData* got = find_plane(c.got, plane.plane.name);
      if (!got) continue;
      made += plane.plane.name + digest(plane.bytes);
      compare_planes(*got, plane, out.planes[plane.plane.name]);
      continue;
    }
    const PackPlane* recorded = c.dump->recorded->find(plane.plane.name);
    if (!recorded) continue;
    Share& share = out.planes[plane.plane.name];
    const string bytes = digest(plane.bytes);
    made += plane.plane.name + bytes;
    if (!recorded->tensor) {
      const int64_t n = plane.plane.logical.count();
      share.of += n;
      if (recorded->digest == bytes) share.agree += n;
    } else if (const auto got = dump_plane(*recorded->tensor, plane.plane, &plane)) {
      compare_planes(*got, plane, share);
    } else {
      out.trouble = plane.plane.name + ": " + got.error().text();
    }
  }
}

namespace {

// Whether a pack of the group says that the library of this name was there: "torchao=0.18.0" of
// torchao.float8. A package may be called otherwise than its library.
bool pack_names(const Group& group, std::string_view name) {
  string library(name.substr(0, name.find('.')));
  if (library == "pytorch") library = "torch";
  std::vector<string> packages{library, "nvidia-" + library};
  std::replace(library.begin(), library.end(), '_', '-');
  packages.push_back(library);
  for (const Case& c : group.cases)
    for (const string& package : packages)
      if ((" " + c.dump->pack->fingerprint).find(" " + package + "=") != string::npos) return true;
  return false;
}

// What other libraries stand on is there beside them, and says less.
bool is_framework(std::string_view name) {
  constexpr std::string_view kFrameworks[] = {"pytorch", "triton", "jax", "ml_dtypes"};
  return std::ranges::find(kFrameworks, name.substr(0, name.find('.'))) != std::end(kFrameworks);
}

// How near the choice stands to the libraries that the group's packs name: 0 a library, 1 what it stands on,
// 2 none of them. Writes what that library calls the choice, where the row has another name.
int nearness(const Group& group, Choice& choice) {
  constexpr int kNone = 2;
  const auto of_name = [&](std::string_view name) {
    return !pack_names(group, name) ? kNone : is_framework(name) ? 1 : 0;
  };
  int nearest = of_name(choice.name);
  for (const FlavourName& other : flavour_names()) {
    const FlavourInfo* row = info(other.flavour);
    const bool same = row ? choice.keys == "flavour=" + string(row->name) : choice.keys.empty();
    if (!same || !other.is_of(group.format) || of_name(other.name) >= nearest) continue;
    nearest = of_name(other.name);
    choice.called = other.name;
  }
  return nearest;
}

}  // namespace

std::vector<Class> rank(ChoiceRuns& runs, const std::vector<Choice>& choices, size_t* tried) {
  std::vector<Class> out;
  for (size_t i = 0; i < choices.size(); ++i) {
    const Choice& choice = choices[i];
    const Outcome& outcome = runs.outcome(choice.keys);
    if (outcome.cut_short) break;
    if (tried) ++*tried;
    if (runs.on_progress) runs.on_progress(i + 1, choices.size());
    if (!outcome.trouble.empty() || outcome.planes.empty()) continue;
    const auto same = std::find_if(out.begin(), out.end(),
                                   [&](const Class& c) { return c.outcome.bytes == outcome.bytes; });
    if (same != out.end()) same->choices.push_back(choice);
    else out.push_back({{choice}, outcome});
  }
  for (Class& c : out) {
    std::vector<std::pair<int, Choice>> near;
    for (Choice& choice : c.choices) {
      const int nearest = nearness(runs.group(), choice);
      near.emplace_back(nearest, std::move(choice));
    }
    std::ranges::stable_sort(near, {}, &std::pair<int, Choice>::first);
    c.choices.clear();
    for (auto& [nearest, choice] : near) c.choices.push_back(std::move(choice));
  }
  std::stable_sort(out.begin(), out.end(), [](const Class& a, const Class& b) {
    return std::pair(a.outcome.all(), a.outcome.agreement()) >
           std::pair(b.outcome.all(), b.outcome.agreement());
  });
  return out;
}

}  // namespace assay::identifying
