// What says more than a verdict: explain, identify, coherence and trace.
#include <algorithm>
#include <optional>
#include <utility>

#include "compare/arithmetic/codes.h"
#include "compare/debug/trace.h"
#include "compare/diagnosis/identify/answer.h"
#include "compare/diagnosis/identify/coherence.h"
#include "compare/diagnosis/identify/groups.h"
#include "compare/diagnosis/report/html_sections.h"
#include "compare/diagnosis/report/text.h"
#include "compare/diagnosis/search/diagnose.h"
#include "compare/judge/unpinned.h"
#include "compare/packs/dump.h"
#include "compare/process/pool.h"
#include "compare/subjects/forwarding.h"
#include "contract/line.h"
#include "python/case.h"
#include "python/given.h"
#include "python/line.h"

namespace assay::python {

namespace {

using std::string;

Observation observed(const GivenCase& c, const Inputs& inputs, const CaseSettings& settings) {
  return {c.problem, settings.subject, inputs.copies(), given_outputs(c),
          unpinned_of(c.recorded, c.problem).has_value()};
}

// The caller's bytes as a subject; what was not given is the reference's.
class Outputs final : public Subject {
 public:
  Outputs(std::vector<PlaneData> got, std::vector<PlaneData> want)
      : got_(std::move(got)), want_(std::move(want)) {}
  std::string_view name() const override { return "outputs"; }
  Support supports(const Problem&) const override { return {}; }
  Served run(const Problem&, std::span<const ConstBuffer>, std::span<const Buffer> out,
             const Environment&) override {
    for (size_t i = 0; i < out.size(); ++i) {
      const PlaneData* given = find_plane(got_, out[i].plane->name);
      const std::vector<std::byte>& bytes = given ? given->bytes : want_[i].bytes;
      std::copy(bytes.begin(), bytes.end(), out[i].bytes.begin());
    }
    return {"arrays", 0};
  }

 private:
  std::vector<PlaneData> got_, want_;
};

json::Value code_facts(const std::optional<std::pair<Encoding, uint32_t>>& code) {
  if (!code) return {};
  return json::object({{"encoding", info(code->first).name},
                       {"code", code->second},
                       {"hex", code_hex(code->first, code->second)},
                       {"value", value_text(code->first, code->second)}});
}

json::Value rows_facts(const std::vector<TraceRow>& rows) {
  json::Value out = json::array();
  for (const TraceRow& r : rows)
    out.push(json::object({{"clause", r.clause},
                           {"what", r.what},
                           {"reference", code_facts(r.left)},
                           {"outputs", code_facts(r.right)},
                           {"differs", r.differs()}}));
  return out;
}

Result<Trace> traced(const GivenCase& c, const Inputs& inputs, std::optional<std::pair<int64_t, int64_t>> at,
                     std::optional<Direction> direction) {
  const InThisProcess here;
  const std::vector<PlaneData> copies = inputs.copies();
  Subjects subjects;
  subjects.owned.push_back(std::make_unique<ForwardingSubject>(*c.reference));
  subjects.owned.push_back(std::make_unique<Outputs>(given_outputs(c), wanted(c, inputs)));
  TraceOptions options;
  options.problem = c.problem;
  options.inputs = &copies;
  options.subject = "outputs";
  options.at = at;
  options.direction = direction;
  return assay::trace(options, subjects);
}

json::Value classes_facts(const std::vector<identifying::Class>& classes) {
  json::Value out = json::array();
  for (const identifying::Class& c : classes) {
    json::Value choices = json::array(), planes = json::array();
    for (const Choice& choice : c.choices)
      choices.push(json::object({{"name", choice.name}, {"keys", choice.keys}}));
    for (const auto& [name, share] : c.outcome.planes)
      planes.push(json::object({{"plane", name}, {"agree", share.agree}, {"of", share.of}}));
    out.push(json::object({{"choices", choices}, {"exact", c.outcome.all()}, {"planes", planes}}));
  }
  return out;
}

json::Value answer_facts(const identifying::Group& group, const identifying::Answer& a) {
  json::Value missing = json::array(), layouts = json::array(), kernels = json::array(),
              apart = json::array();
  for (const string& m : group.missing) missing.push(m);
  for (const identifying::Fit& f : a.layouts)
    layouts.push(json::object({{"name", f.choice.name}, {"plane", f.plane}, {"description", f.description}}));
  for (const identifying::Approximation& x : a.approximate) kernels.push(x.kernel->name);
  for (const auto& [fill, parts] : a.apart) {
    json::Value lists = json::array();
    for (const auto& part : parts) {
      json::Value names = json::array();
      for (const string& name : part) names.push(name);
      lists.push(names);
    }
    apart.push(json::object({{"fill", fill}, {"parts", lists}}));
  }
  return json::object({{"named", a.named()},
                       {"formats", group.formats},
                       {"direction", group.side ? name_of(*group.side) : std::string_view{}},
                       {"not_judged", missing},
                       {"ranking", classes_facts(a.ranking)},
                       {"with_more_keys", classes_facts(a.changed)},
                       {"layouts", layouts},
                       {"consistent", kernels},
                       {"told_apart_by", apart}});
}

}  // namespace

json::Value explain(const string& line, const std::vector<GivenPlane>& planes, const CaseSettings& settings) {
  const GivenCase c(line, planes, settings);
  const Inputs inputs(c);
  DiagnoseOptions options;
  options.jobs = settings.threads;
  options.pairs = settings.pairs;
  options.budget = settings.budget;
  options.stop = settings.stop;
  const Observation seen = observed(c, inputs, settings);
  auto d = diagnose(seen, *c.reference, options);
  if (!d) throw Failure("plane", d.error());
  if (const auto why = unpinned_of(c.recorded, c.problem)) {
    Verdict v;
    v.subject = settings.subject;
    const bool vacuous =
        judge_unpinned(c.problem, seen.inputs, seen.got, wanted(c, inputs), *why, *c.reference, v);
    d->unpinned = unpinned_text(v);
    if (v.breaches.empty() && !vacuous) {
      d->confidence = Confidence::equal;
      d->explanations.clear();
    }
  }
  if (d->confidence != Confidence::equal && !d->of_padding() && !c.problem.as<Split>())
    if (auto t = traced(c, inputs, {}, {})) d->trace = std::move(*t);
  return json::object({{"diagnosis", to_json(*d)},
                       {"screen", diagnosis_screen(*d)},
                       {"cause", cause_line(*d)},
                       {"headline", headline(*d)},
                       {"html", sections::verdict(*d) + sections::stages(*d)}});
}

json::Value identify(const string& line, const std::vector<GivenPlane>& planes,
                     const CaseSettings& settings) {
  const InThisProcess here;
  const GivenCase c(line, planes, settings);
  Dump dump;
  auto pack = std::make_unique<Pack>();
  pack->path = settings.subject;
  pack->cases.push_back(c.recorded);
  dump.packs.push_back(std::move(pack));
  dump.cases.push_back({DumpKey{}, dump.packs.front().get(), &dump.packs.front()->cases.front()});
  json::Value groups = json::array();
  for (const identifying::Group& group : identifying::groups_of(dump, "", *c.reference))
    groups.push(answer_facts(
        group, group.cases.empty() ? identifying::Answer{}
                                   : identifying::answer(group, *c.reference, c.environment.threads, 3600)));
  return json::object({{"groups", groups}});
}

json::Value coherence(const string& line, const std::vector<GivenPlane>& planes) {
  const GivenCase c(line, planes, {});
  std::vector<PlaneData> recorded = given_outputs(c);
  for (const Plane& plane : input_planes(c.problem))
    if (const PackPlane* given = c.recorded.find(plane.name); given && plane.name.ends_with("given.amax")) {
      auto data = dump_plane(*given->tensor, plane);
      if (!data) throw Failure("plane", data.error(), plane.name);
      recorded.push_back(std::move(*data));
    }
  const Coherence found = assay::coherence(c.problem, recorded);
  json::Value notes = json::array(), where = json::array();
  for (const string& n : found.notes) notes.push(n);
  for (const Coordinate& w : found.where)
    where.push(json::object({{"what", w.what},
                             {"differ", w.differ},
                             {"differ_of", w.differ_of},
                             {"inside", w.inside},
                             {"inside_of", w.inside_of}}));
  return json::object(
      {{"ok", found.coherent()},
       {"undecidable", found.undecidable},
       {"of", found.of},
       {"apart", found.apart},
       {"open", found.open},
       {"verdict", found.verdict},
       {"notes", notes},
       {"first", found.first ? json::array({found.first->row, found.first->col}) : json::Value()},
       {"first_text", found.first_text},
       {"where", where}});
}

json::Value trace(const string& line, const std::vector<GivenPlane>& planes, int64_t row, int64_t col,
                  const string& direction) {
  const GivenCase c(line, planes, {});
  const Inputs inputs(c);
  std::optional<Direction> d;
  if (!direction.empty()) d = direction == "col" ? Direction::col : Direction::row;
  auto t = traced(c, inputs, std::pair(row, col), d);
  if (!t) throw Failure("plane", t.error());
  return json::object({{"line", to_line(c.problem)},
                       {"direction", name_of(t->direction)},
                       {"row", t->row},
                       {"col", t->col},
                       {"steps", rows_facts(t->steps)},
                       {"outputs", rows_facts(t->outputs)}});
}

}  // namespace assay::python
