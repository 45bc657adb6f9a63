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
#include "compare/packs/accepted_tile.h"
#include "compare/packs/dump.h"
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
json::Value planes_facts(const Problem& problem, const std::vector<PlaneData>& got, const Judgement& j) {
  json::Value out = json::object();
  for (const PlaneData& p : got) out.set(p.plane.name, plane_facts(p.plane));
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
string cause_of(const GivenCase& c, const Inputs& inputs, const std::vector<PlaneData>& got,
                const CaseSettings& settings) {
  DiagnoseOptions search;
  search.budget = settings.budget;
  search.jobs = settings.threads;
  search.pairs = settings.pairs;
  search.stop = settings.stop;
  const auto found =
      diagnose(Observation{c.problem, settings.subject, inputs.copies(), got}, *c.reference, search);
  return found ? cause_line(*found) : "";
}

// The reference's planes of a large case that the vectorised method knows to be right, but for the blocks
// that the reference looked at: then they are the given ones, and its own where a plane has one value.
// `judges`: who judged how many blocks. Nothing: the reference has to make them.
std::optional<std::vector<PlaneData>> known_planes(const GivenCase& c, const std::vector<PlaneData>& got,
                                                   string& judges) {
  Acceptor* const simd = acceptor();
  if (!simd || !c.problem.as<Quantize>() || c.problem.x.shape.count() < kLargeCase) return {};
  const std::vector<Plane> planes = output_planes(c.problem);
  const auto in = views_of(c.recorded, input_planes(c.problem)), out = views_of(c.recorded, planes);
  if (!in || !out) return {};
  const auto tile = accept_tile(c.problem, {0, 0, c.problem.x.shape}, *in, *out, *simd, *c.reference);
  if (!tile || tile->blocks.accepted == 0) return {};
  judges = judges_text(tile->blocks, *simd);
  std::vector<PlaneData> known;
  for (const Plane& plane : planes) {
    const PlaneData* given = find_plane(got, plane.name);
    known.push_back(given ? *given : PlaneData{plane, {}});
    if (const auto value = tile->scalars.find(plane.name); given && value != tile->scalars.end())
      set_code(plane, known.back().bytes, 0, value->second);
  }
  return known;
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
    std::fill(at->bytes.begin(), at->bytes.end(), std::byte{0});
    to.push_back({&planes[i], at->bytes});
    made.push(planes[i].name);
  }
  try {
    c.reference->run(c.problem, inputs.views(), to, c.environment);
  } catch (const std::exception& e) {
    throw Failure("run", {string("the reference: ") + e.what(), 0, ""});
  }
  return json::object({{"made", made}});
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
  const std::vector<PlaneData> got = given_outputs(c);
  if (got.empty()) {
    std::vector<std::string_view> names;
    const std::vector<Plane> expected = output_planes(c.problem);
    for (const Plane& p : expected) names.push_back(p.name);
    throw Failure("plane", {"expected an output plane of this line, found none", 0,
                            "they are " + assay::join(names, ", ")});
  }
  const Inputs inputs(c);
  CaseReport report;
  auto known = settings.exact ? std::nullopt : known_planes(c, got, report.judges);
  std::vector<PlaneData> want;
  std::vector<string> missing;
  for (PlaneData& w : known ? *known : known.emplace(wanted(c, inputs))) {
    if (find_plane(got, w.plane.name)) want.push_back(std::move(w));
    else missing.push_back(w.plane.name);
  }
  std::vector<PlaneData> padded;  // compact planes that came without their padding have the reference's
  for (const PlaneData& w : want) {
    auto data = dump_plane(*c.recorded.find(w.plane.name)->tensor, w.plane, &w);
    if (!data) throw Failure("plane", data.error(), w.plane.name);
    clear_spare(padded.emplace_back(std::move(*data)));
  }
  const Judgement judgement = judge(&c.problem, padded, want);
  for (const PlaneData& p : padded) report.judged.push_back(p.plane.name);
  if (const auto why = unpinned_of(c.recorded, c.problem))
    report.breach = unpinned_breach(c, inputs, padded, want, *why, report.notes);
  else report.breach = breach_of(c.problem, judgement, settings.subject, "reference");
  if (!missing.empty()) report.notes.push_back("not given, so not judged: " + assay::join(missing));
  string cause;
  if (report.breach && !report.breach->plane.empty() && !report.breach->in_padding && settings.budget > 0)
    cause = cause_of(c, inputs, padded, settings);
  std::ostringstream screen;
  CasePrinter(screen).print(settings.subject, line, settings.subject + " == reference", report);
  return json::object({{"ok", !report.breach},
                       {"line", to_line(c.problem)},
                       {"screen", screen.str()},
                       {"judged", list_of(report.judged)},
                       {"missing", list_of(missing)},
                       {"notes", list_of(report.notes)},
                       {"first", report.breach ? breach_facts(*report.breach) : json::Value()},
                       {"planes", planes_facts(c.problem, padded, judgement)},
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
