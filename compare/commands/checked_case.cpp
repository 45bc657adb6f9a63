#include "compare/commands/checked_case.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/places.h"
#include "compare/commands/whole_layout.h"
#include "compare/diagnosis/report/text.h"
#include "compare/judge/judge.h"
#include "compare/judge/unpinned.h"
#include "compare/packs/tiled_case.h"
#include "compare/process/interrupt.h"
#include "compare/process/memory.h"
#include "compare/process/run_in_child.h"
#include "contract/words.h"

namespace assay {

namespace {

using std::string;

// The output planes that a pack holds of a case, beside the reference's.
struct JudgedPlanes {
  std::vector<PlaneData> got, wanted;
  std::vector<string> digests;  // planes of which only a digest was recorded, and which differ
};

// Error: a tensor that does not fit its plane.
Result<JudgedPlanes> judged_planes(const PackCase& c, const std::vector<PlaneData>& reference,
                                   CaseReport& report) {
  JudgedPlanes out;
  for (const PlaneData& plane : reference) {
    const string& name = plane.plane.name;
    const PackPlane* recorded = c.find(name);
    if (!recorded) continue;
    if (recorded->tensor) {
      auto data = dump_plane(*recorded->tensor, plane.plane, &plane);
      if (!data) return Error{name + ": " + data.error().text(), 0, ""};
      out.got.push_back(std::move(*data));
      out.wanted.push_back(plane);
    } else if (recorded->digest != digest(plane.bytes)) {
      out.digests.push_back(name);
    }
    report.judged.push_back(name);
  }
  return out;
}

// Bits that are not pinned are held to the bound (N16.13).
void check_unpinned(const Problem& problem, const std::vector<PlaneData>& inputs, const JudgedPlanes& planes,
                    const string& unpinned, Subject& reference, CaseReport& report) {
  if (planes.got.empty()) {
    report.breach = message_breach(
        "d: bits that are not pinned are judged by the bound (N16.13), which needs bytes: "
        "a digest alone was recorded, and it is not the reference's");
    return;
  }
  Verdict v;
  v.subject = "pack";
  const bool vacuous = judge_unpinned(problem, inputs, planes.got, planes.wanted, unpinned, reference, v);
  report.notes.push_back(unpinned_text(v));
  if (vacuous) report.breach = message_breach(string(kNoBound));
  else if (!v.breaches.empty()) report.breach = v.breaches.front();
}

constexpr std::string_view kNothing = "the pack holds no plane of this line, so there is nothing to judge";

// A case as one run of the reference. Error: what cannot be judged, and why.
std::optional<Error> check_whole(const PackCase& c, const Problem& problem, const Subjects& subjects,
                                 double timeout, CheckedCase& out) {
  CaseReport& report = out.report;
  auto inputs = dump_inputs(c, problem, subjects.reference());
  if (!inputs) return inputs.error();
  IsolatedRun want = run_isolated(subjects.reference(), problem, *inputs, Environment{}, timeout);
  if (!want.sound()) return Error{"reference: " + want.trouble(), 0, ""};
  for (PlaneData& plane : want.execution.planes) clear_spare(plane);  // as recordings are
  auto planes = judged_planes(c, want.execution.planes, report);
  if (!planes) return planes.error();
  if (report.judged.empty()) return Error{string(kNothing), 0, ""};
  if (const auto unpinned = unpinned_of(c, problem);
      unpinned && !(planes->got.empty() && planes->digests.empty())) {
    check_unpinned(problem, *inputs, *planes, *unpinned, subjects.reference(), report);
    return {};
  }
  if (!planes->got.empty())
    report.breach = breach_of(problem, judge(&problem, planes->got, planes->wanted), "pack", "reference");
  out.explainable = report.breach && !report.breach->plane.empty() && !report.breach->in_padding;
  if (!report.breach && !planes->digests.empty())
    report.breach = message_breach(join(planes->digests) +
                                   ": the digest differs from the reference's; the bytes were not recorded");
  return {};
}

// ", 12 s left", by the speed so far; empty before there is one.
string left_text(double seconds, size_t done, size_t of) {
  constexpr double kSteady = 1;  // seconds
  if (seconds < kSteady || done == 0) return {};
  return fmt::format(", {:.0f} s left", seconds * static_cast<double>(of - done) / static_cast<double>(done));
}

// A case in tiles, which stay within some hundred megabytes whatever its size.
std::optional<Error> check_tiles(const DumpCase& c, Tiling tiling, const Subjects& subjects,
                                 const CaseSettings& settings, CheckedCase& out) {
  TiledOptions options{settings.jobs, settings.timeout, {}, {}, settings.acceptor};
  if (settings.on_first)
    options.on_first = [&](const PlaneDifference& d) {
      settings.on_first(
          fmt::format("plane {}, {}", d.plane.name, place_text(&tiling.problem, d.plane, d.place)));
    };
  if (settings.on_progress)
    options.on_progress = [&, start = std::chrono::steady_clock::now()](size_t tiles, size_t of) {
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      settings.on_progress(
          fmt::format("{} % of {}{}", 100 * tiles / of, c.recorded->id, left_text(seconds, tiles, of)));
    };
  auto judged = judge_in_tiles(*c.recorded, tiling, subjects.reference(), options);
  if (!judged) return judged.error();
  CaseReport& report = out.report;
  report.judged = judged->judged;
  if (report.judged.empty()) return Error{string(kNothing), 0, ""};
  if (settings.acceptor && judged->blocks.accepted + judged->blocks.referred > 0) {
    out.blocks = judged->blocks;
    report.judges = judges_text(judged->blocks, *settings.acceptor);
  }
  const Judgement& j = judged->judgement;
  report.breach = breach_of(tiling.problem, j, "pack", "reference");
  out.explainable = report.breach && !report.breach->plane.empty() && !report.breach->in_padding;
  out.cut_short = judged->tiles < judged->of;
  if (out.cut_short)
    report.notes.push_back(
        fmt::format("interrupted after {} of {} parts of the tensor; the counts cover these parts",
                    judged->tiles, judged->of));
  if (out.explainable && judged->first)
    out.window = window_around(tiling, region_of(&tiling.problem, j.cause->plane, j.cause->place));
  out.tiling = std::move(tiling);
  return {};
}

// Says what a large case takes that cannot be judged in tiles. Error: more than there is.
std::optional<Error> admit_whole(const Problem& problem, const string& why, CaseReport& report) {
  if (const auto lacking = lacks_memory(problem))
    return Error{fmt::format("this case is too large to be judged as a whole, {}; {}", *lacking, why), 0, ""};
  report.notes.push_back(
      fmt::format("judged as a whole, in about {} of memory: {}", gib_text(bytes_as_a_whole(problem)), why));
  return {};
}

}  // namespace

namespace {

// The plane that a word may have been meant for: one that is nearly written so, or that begins as it does
// behind the direction, such as row.scale_inv for row.scales.
string plane_meant(std::string_view word, const std::vector<std::string_view>& names) {
  constexpr size_t kStem = 3;  // letters behind the dot
  if (string near = nearest_word(word, names); !near.empty()) return near;
  const size_t dot = word.find('.');
  if (dot == word.npos || word.size() < dot + 1 + kStem) return {};
  for (const std::string_view name : names)
    if (name.starts_with(word.substr(0, dot + 1 + kStem))) return string(name);
  return {};
}

// Says where x or codes came in the line's shape with rows and columns exchanged: the bytes are read in the
// line's order.
void note_swapped_shapes(const PackCase& c, const Problem& problem, CaseReport& report) {
  const auto look = [&](const Plane& plane) {
    const PackPlane* recorded = c.find(plane.name);
    if (!recorded || !recorded->tensor || (plane.name != "x" && !plane.name.ends_with(".data"))) return;
    const std::vector<int64_t>& found = recorded->tensor->shape;
    const Shape is = plane.stored();
    if (is.rows != is.cols && found == std::vector<int64_t>{is.cols, is.rows})
      report.notes.push_back(
          fmt::format("{} is stored as [{}, {}], where this line has [{}, {}]: it was read as "
                      "rows of {}",
                      plane.name, found[0], found[1], is.rows, is.cols, is.cols));
  };
  for (const Plane& plane : input_planes(problem)) look(plane);
  for (const Plane& plane : output_planes(problem)) look(plane);
}

}  // namespace

namespace {

// Planes of the case that the line does not have, each with the one that was probably meant, or nothing.
std::vector<std::pair<string, string>> strays_of(const PackCase& c, const Problem& problem) {
  std::set<string> known;
  for (const Plane& plane : input_planes(problem)) known.insert(plane.name);
  for (const Plane& plane : output_planes(problem)) known.insert(plane.name);
  const std::vector<std::string_view> names(known.begin(), known.end());
  std::vector<std::pair<string, string>> out;
  for (const PackPlane& plane : c.planes)
    if (!known.contains(plane.name)) out.emplace_back(plane.name, plane_meant(plane.name, names));
  return out;
}

string stray_text(const string& stray, const string& meant) {
  return "plane '" + stray + "' is not a plane of this line, and is not judged" +
         (meant.empty() ? "" : " (did you mean '" + meant + "'?)");
}

}  // namespace

std::vector<string> misspelt_planes(const PackCase& c, const Problem& problem) {
  std::vector<string> out;
  for (const auto& [stray, meant] : strays_of(c, problem))
    if (!meant.empty() && !c.find(meant)) out.push_back(stray_text(stray, meant));
  return out;
}

CaseReport noted_planes(const PackCase& c, const Problem& problem) {
  CaseReport report;
  for (const Plane& plane : output_planes(problem))
    if (!c.find(plane.name)) report.missing.push_back(plane.name);
  for (const auto& [stray, meant] : strays_of(c, problem)) report.notes.push_back(stray_text(stray, meant));
  note_swapped_shapes(c, problem, report);
  return report;
}

CheckedCase check_case(const DumpCase& c, const Problem& problem, const Subjects& subjects,
                       const CaseSettings& settings) {
  CheckedCase out;
  out.report = noted_planes(*c.recorded, problem);
  std::optional<Error> error;
  bool whole = problem.x.shape.count() < settings.large;
  if (!whole) {
    auto tiling = tiling_of_case(*c.recorded, problem);
    if (tiling) error = check_tiles(c, std::move(*tiling), subjects, settings, out);
    else error = admit_whole(problem, tiling.error().text(), out.report);
    whole = !tiling && !error;
  }
  if (whole) error = check_whole(*c.recorded, problem, subjects, settings.timeout, out);
  if (error && interrupted()) out.cut_short = true;
  else if (error) out.report.breach = message_breach(error->text());
  // A misspelt plane would pass unseen: what was to be judged was not.
  const std::vector<string> misspelt = misspelt_planes(*c.recorded, problem);
  if (!misspelt.empty() && !out.report.breach && !out.cut_short) {
    std::erase(out.report.notes, misspelt.front());
    out.report.breach = message_breach(misspelt.front());
  }
  return out;
}

Result<Observation> observed(const DumpCase& c, const Problem& problem, const CheckedCase& checked,
                             Subject& reference) {
  Observation seen{problem, "pack " + c.where(), {}, {}};
  if (checked.window) {
    auto part = planes_of_tile(*c.recorded, *checked.tiling, *checked.window, reference);
    if (!part) return part.error();
    seen.problem = std::move(part->problem);
    seen.inputs = std::move(part->inputs);
    seen.got = std::move(part->got);
    return seen;
  }
  auto inputs = dump_inputs(*c.recorded, problem, reference);
  if (!inputs) return inputs.error();
  seen.inputs = std::move(*inputs);
  for (const Plane& plane : output_planes(problem))
    if (const PackPlane* recorded = c.recorded->find(plane.name); recorded && recorded->tensor) {
      auto data = dump_plane(*recorded->tensor, plane);
      if (!data) return Error{plane.name + ": " + data.error().text(), 0, ""};
      seen.got.push_back(std::move(*data));
    }
  return seen;
}

string first_cause(const DumpCase& c, const Problem& problem, const CheckedCase& checked, Subject& reference,
                   double budget, int jobs, double timeout) {
  if (!checked.window && checked.tiling)
    return "a value of the whole tensor is wrong, but only parts of a tensor of this size are searched";
  if (checked.window && may_be_layout(problem, *checked.report.breach))
    if (const auto whole = layout_of_whole(c, problem, reference, timeout)) return cause_line(*whole);
  const auto seen = observed(c, problem, checked, reference);
  if (!seen) return {};
  DiagnoseOptions search;
  search.budget = budget;
  search.jobs = jobs;
  search.flips = true;
  const auto found = diagnose(*seen, reference, search);
  string text = found ? cause_line(*found) : "";
  const string part = looked_at(checked);
  if (!text.empty() && !part.empty())
    text += " in " + part + ", the part that was searched (a place in it counts from its first element)";
  if (interrupted()) text += text.empty() ? "the search was interrupted" : " (the search was interrupted)";
  else if (text.empty() && found && found->cut_short)
    text = fmt::format("none was found in {:g} s (--budget)", budget);
  const bool open =
      !found || found->confidence == Confidence::unexplained || found->confidence == Confidence::partial;
  if (const string more = checked.window && open ? layouts_untried(c, problem, *checked.report.breach) : "";
      !more.empty())
    text += (text.empty() ? "none was found; " : "; ") + more;
  return text;
}

string looked_at(const CheckedCase& checked) {
  if (!checked.window) return {};
  const Tile& w = *checked.window;
  return fmt::format("rows {}..{}, columns {}..{}", w.row, w.row + w.shape.rows - 1, w.col,
                     w.col + w.shape.cols - 1);
}

}  // namespace assay
