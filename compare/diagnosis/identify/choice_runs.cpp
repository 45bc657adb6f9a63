#include "compare/diagnosis/identify/choice_runs.h"

#include <algorithm>
#include <span>
#include <thread>
#include <utility>

#include "compare/arithmetic/codes.h"
#include "compare/packs/dump.h"
#include "compare/process/run_in_child.h"
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
    if (gots[m].bytes == wants[m].bytes) {
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
  return group_.side ? with_choice(c.problem, keys, *group_.side) : with_choice(c.problem, keys);
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
  out.bytes = digest(std::as_bytes(std::span(made)));
  return outcomes_[means] = out;
}

std::optional<std::vector<PlaneData>> ChoiceRuns::planes(const Case& c, const Problem& p) {
  IsolatedRun run = run_isolated(reference_, p, c.inputs, environment_, timeout_);
  if (!run.sound()) {
    trouble_ = run.trouble();
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

// Whether a pack of the group says that the library of this choice was there: "torchao=0.18.0" of
// torchao.float8.
bool pack_names(const Group& group, const Choice& choice) {
  string library = choice.name.substr(0, choice.name.find('.'));
  if (library == choice.name) return false;
  for (const bool dashes : {false, true}) {
    if (dashes) std::replace(library.begin(), library.end(), '_', '-');
    for (const Case& c : group.cases)
      if ((" " + c.dump->pack->fingerprint).find(" " + library + "=") != string::npos) return true;
  }
  return false;
}

}  // namespace

std::vector<Class> rank(ChoiceRuns& runs, const std::vector<Choice>& choices) {
  std::vector<Class> out;
  for (const Choice& choice : choices) {
    const Outcome& outcome = runs.outcome(choice.keys);
    if (!outcome.trouble.empty() || outcome.planes.empty()) continue;
    const auto same = std::find_if(out.begin(), out.end(),
                                   [&](const Class& c) { return c.outcome.bytes == outcome.bytes; });
    if (same != out.end()) same->choices.push_back(choice);
    else out.push_back({{choice}, outcome});
  }
  for (Class& c : out)
    std::stable_partition(c.choices.begin(), c.choices.end(),
                          [&](const Choice& choice) { return pack_names(runs.group(), choice); });
  std::stable_sort(out.begin(), out.end(), [](const Class& a, const Class& b) {
    return std::pair(a.outcome.all(), a.outcome.agreement()) >
           std::pair(b.outcome.all(), b.outcome.agreement());
  });
  return out;
}

}  // namespace assay::identifying
