#include "python/case.h"

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/places.h"
#include "compare/commands/case_screen.h"
#include "compare/commands/checked_case.h"
#include "compare/diagnosis/report/text.h"
#include "compare/diagnosis/search/diagnose.h"
#include "compare/judge/judge.h"
#include "compare/judge/parity.h"
#include "compare/judge/runs.h"
#include "compare/judge/unpinned.h"
#include "compare/judge/verdict.h"
#include "compare/packs/dump.h"
#include "compare/packs/tiled_case.h"
#include "compare/process/pool.h"
#include "compare/report/screen.h"
#include "contract/line.h"
#include "contract/words.h"
#include "python/given.h"
#include "python/line.h"
#include "python/subjects.h"

namespace assay::python {

namespace {

using std::string;

json::Value breach_facts(const Breach& breach) {
  Verdict v;
  v.breaches.push_back(breach);
  return to_json(v).find("breaches")->array()->front();
}

json::Value plane_facts(const Plane& plane) {
  return json::object({{"encoding", info(plane.encoding).name},
                       {"rows", plane.logical.rows},
                       {"cols", plane.logical.cols},
                       {"differ", 0},
                       {"of", plane.logical.count()}});
}

json::Value difference_facts(const Problem* problem, const PlaneDifference& d) {
  json::Value out = plane_facts(d.plane);
  const Encoding e = d.plane.encoding;
  out.set("differ", d.differ);
  out.set("of", d.of);
  out.set("in_padding", d.in_padding);
  out.set("first", json::array({d.place.row, d.place.col}));
  out.set("where", place_text(problem, d.plane, d.place));
  out.set("got", d.got);
  out.set("want", d.want);
  out.set("got_value", value_text(e, d.got));
  out.set("want_value", value_text(e, d.want));
  if (d.apart) out.set("apart", *d.apart);
  return out;
}

// How each plane that was judged came out, by name.
json::Value planes_facts(const Problem& problem, const std::vector<Plane>& judged, const Judgement& j) {
  json::Value out = json::object();
  for (const Plane& p : judged) out.set(p.name, plane_facts(p));
  const auto add = [&](const PlaneDifference& d) {
    if (!d.in_padding || d.plane.layout == ScaleLayout::gemm)
      out.set(d.plane.name, difference_facts(&problem, d));
  };
  for (const PlaneDifference& d : j.padding) add(d);
  if (j.cause) add(*j.cause);
  for (const PlaneDifference& d : j.after) add(d);
  for (const PlaneDifference& d : j.beside) add(d);
  return out;
}

// A plane that is none of the line's would be passed over in silence.
void refuse_unknown_planes(const GivenCase& c) {
  std::set<string> known;
  for (const Plane& plane : input_planes(c.problem)) known.insert(plane.name);
  for (const Plane& plane : output_planes(c.problem)) known.insert(plane.name);
  const std::vector<std::string_view> names(known.begin(), known.end());
  for (const PackPlane& plane : c.recorded.planes)
    if (!known.contains(plane.name)) {
      Error e = unknown("plane", plane.name, names);
      throw Failure("plane", {"expected a plane of this line, found '" + plane.name + "'", 0, e.hint},
                    plane.name);
    }
}

// N16.13: bits that are not pinned are held to the bound.
std::optional<Breach> unpinned_breach(const GivenCase& c, const Inputs& inputs,
                                      const std::vector<PlaneData>& got, const std::vector<PlaneData>& want,
                                      const string& why, std::vector<string>& notes) {
  Verdict v;
  v.subject = c.recorded.id;
  const bool vacuous = judge_unpinned(c.problem, inputs.copies(), got, want, why, *c.reference, v);
  notes.push_back(unpinned_text(v));
  if (vacuous) return message_breach(string(kNoBound));
  if (!v.breaches.empty()) return v.breaches.front();
  return {};
}

// The cause in one line, where a short search finds one.
string cause_of(const GivenCase& c, const CaseSettings& settings) {
  DiagnoseOptions search;
  search.budget = settings.budget;
  search.jobs = settings.threads;
  search.pairs = settings.pairs;
  search.stop = settings.stop;
  const auto found = diagnose(Observation{c.problem, settings.subject, Inputs(c).copies(), given_outputs(c)},
                              *c.reference, search);
  return found ? cause_line(*found) : "";
}

// A large case part by part, as `assay check` judges a pack: its planes are read where the caller has them,
// and the vectorised method is asked before the reference. Nothing: its line has to be judged as a whole.
// `judges`: who judged how many blocks.
std::optional<Judgement> judged_in_tiles(const GivenCase& c, const CaseSettings& settings, string& judges) {
  if (c.problem.x.shape.count() < kLargeCase || unpinned_of(c.recorded, c.problem)) return {};
  auto tiling = tiling_of_case(c.recorded, c.problem);
  if (!tiling) return {};
  const InThisProcess here;
  TiledOptions options;
  options.jobs = c.environment.threads;
  options.acceptor = settings.exact ? nullptr : acceptor();
  options.stop = settings.stop;
  auto judged = judge_in_tiles(c.recorded, *tiling, *c.reference, options);
  if (!judged) throw Failure("run", judged.error());
  if (options.acceptor && judged->blocks.accepted + judged->blocks.referred > 0)
    judges = judges_text(judged->blocks, *options.acceptor);
  return std::move(judged->judgement);
}

// Every given plane against all of the reference's. A compact one that came without its padding has the
// reference's.
Judgement judged_whole(const GivenCase& c, CaseReport& report) {
  const Inputs inputs(c);
  std::vector<PlaneData> got, want;
  for (PlaneData& w : wanted(c, inputs)) {
    const PackPlane* const given = c.recorded.find(w.plane.name);
    if (!given) continue;
    auto data = dump_plane(*given->tensor, w.plane, &w);
    if (!data) throw Failure("plane", data.error(), w.plane.name);
    clear_spare(got.emplace_back(std::move(*data)));
    want.push_back(std::move(w));
  }
  Judgement judgement = judge(&c.problem, got, want);
  if (const auto why = unpinned_of(c.recorded, c.problem))
    report.breach = unpinned_breach(c, inputs, got, want, *why, report.notes);
  else report.breach = breach_of(c.problem, judgement, c.recorded.id, "reference");
  return judgement;
}

// The output planes of the line that were given. Throws Failure "plane": there is none, or a plane does not
// fit. `missing`: the names of the others.
std::vector<Plane> planes_to_judge(const GivenCase& c, std::vector<string>& missing) {
  const auto refuse_misfit = [&](const Plane& plane) {
    const PackPlane* const found = c.recorded.find(plane.name);
    if (!found) return false;
    const auto view = dump_view(*found->tensor, plane);
    if (!view) throw Failure("plane", view.error(), plane.name);
    return true;
  };
  for (const Plane& plane : input_planes(c.problem)) refuse_misfit(plane);
  std::vector<Plane> given;
  for (Plane& plane : output_planes(c.problem))
    if (refuse_misfit(plane)) given.push_back(std::move(plane));
    else missing.push_back(plane.name);
  if (given.empty())
    throw Failure("plane", {"expected an output plane of this line, found none", 0,
                            "they are " + assay::join(missing)});
  return given;
}

json::Value list_of(const std::vector<string>& words) {
  json::Value out = json::array();
  for (const string& w : words) out.push(w);
  return out;
}

}  // namespace

json::Value run(const string& line, const std::vector<GivenPlane>& given,
                const std::vector<OutputPlane>& outputs, const CaseSettings& settings) {
  const GivenCase c(line, given, settings);
  refuse_unknown_planes(c);
  const Inputs inputs(c);
  const std::vector<Plane> planes = output_planes(c.problem);
  std::vector<std::vector<std::byte>> dropped(planes.size());
  std::vector<Buffer> to;
  json::Value made = json::array();
  for (size_t i = 0; i < planes.size(); ++i) {
    const auto at = std::find_if(outputs.begin(), outputs.end(),
                                 [&](const OutputPlane& o) { return o.name == planes[i].name; });
    if (at == outputs.end()) {
      dropped[i].resize(planes[i].bytes());
      to.push_back({&planes[i], dropped[i]});
      continue;
    }
    if (at->bytes.size() != planes[i].bytes())
      throw Failure(
          "plane",
          {fmt::format("expected room for {} bytes, found {}", planes[i].bytes(), at->bytes.size()), 0, ""},
          at->name);
    to.push_back({&planes[i], at->bytes});
    made.push(planes[i].name);
  }
  Subject* const fast = settings.exact ? nullptr : vectorised();
  if (fast && fast->supports(c.problem).yes)
    return json::object({{"made", made}, {"by", fast->run(c.problem, inputs.views(), to, c.environment).by}});
  for (const Buffer& b : to) std::fill(b.bytes.begin(), b.bytes.end(), std::byte{0});
  try {
    c.reference->run(c.problem, inputs.views(), to, c.environment);
  } catch (const std::exception& e) {
    throw Failure("run", {string("the reference: ") + e.what(), 0, ""});
  }
  return json::object({{"made", made}, {"by", "reference"}});
}

json::Value inputs(const string& line, const std::vector<OutputPlane>& outputs) {
  const GivenCase c(line, {}, {});
  const auto made = make_inputs(c.problem, *c.reference);
  if (!made) throw Failure("run", made.error());
  for (const OutputPlane& o : outputs) {
    const PlaneData* plane = find_plane(*made, o.name);
    if (!plane || plane->bytes.size() != o.bytes.size())
      throw Failure("plane",
                    {"'" + o.name + "' is not an input plane of this line, or has a different size", 0, ""},
                    o.name);
    std::copy(plane->bytes.begin(), plane->bytes.end(), o.bytes.begin());
  }
  return json::object();
}

json::Value check(const string& line, const std::vector<GivenPlane>& planes, const CaseSettings& settings) {
  const GivenCase c(line, planes, settings);
  if (writes_nothing(c.problem))
    throw Failure("line",
                  {"under noop=1 nothing is written, so there is nothing to judge", 0, "leave noop= out"});
  refuse_unknown_planes(c);
  std::vector<string> missing;
  const std::vector<Plane> given = planes_to_judge(c, missing);
  CaseReport report;
  for (const Plane& plane : given) report.judged.push_back(plane.name);
  auto judgement = judged_in_tiles(c, settings, report.judges);
  if (!judgement) judgement = judged_whole(c, report);
  else report.breach = breach_of(c.problem, *judgement, settings.subject, "reference");
  if (!missing.empty()) report.notes.push_back("not given, so not judged: " + assay::join(missing));
  string cause;
  if (report.breach && !report.breach->plane.empty() && !report.breach->in_padding && settings.budget > 0)
    cause = cause_of(c, settings);
  std::ostringstream screen;
  CasePrinter(screen).print(settings.subject, line, settings.subject + " == reference", report);
  return json::object({{"ok", !report.breach},
                       {"line", to_line(c.problem)},
                       {"screen", screen.str()},
                       {"judged", list_of(report.judged)},
                       {"missing", list_of(missing)},
                       {"notes", list_of(report.notes)},
                       {"first", report.breach ? breach_facts(*report.breach) : json::Value()},
                       {"planes", planes_facts(c.problem, given, *judgement)},
                       {"cause", cause}});
}

json::Value compare(const string& encoding, int64_t rows, int64_t cols, std::span<const std::byte> got,
                    std::span<const std::byte> want) {
  const auto e = encoding_named(encoding);
  if (!e) throw Failure("plane", {"'" + encoding + "' is no encoding", 0, ""});
  Plane plane;
  plane.name = "array";
  plane.encoding = *e;
  plane.logical = plane.padded = {rows, cols};
  for (const auto bytes : {got, want})
    if (bytes.size() != plane.bytes())
      throw Failure("plane",
                    {fmt::format("expected {} bytes, found {}", plane.bytes(), bytes.size()), 0, ""});
  if (rows * cols == 0) return json::object({{"ok", true}, {"screen", ""}, {"differ", 0}, {"of", 0}});
  const Judgement j =
      judge(nullptr, {{plane, {got.begin(), got.end()}}}, {{plane, {want.begin(), want.end()}}});
  if (!j.error.empty()) throw Failure("run", {j.error, 0, ""});
  json::Value out = j.cause ? difference_facts(nullptr, *j.cause) : plane_facts(plane);
  out.set("ok", !j.cause);
  const auto breach = parity_breach(Problem{}, j, "actual", "expected");
  out.set("screen", breach ? cause_text(*breach) : "");
  return out;
}

}  // namespace assay::python
