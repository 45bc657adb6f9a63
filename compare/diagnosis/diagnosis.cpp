#include "compare/diagnosis/diagnosis.h"

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "contract/format.h"

namespace assay {

std::string_view name_of(Stage s) {
  static constexpr std::string_view kNames[] = {
      "input", "rht", "amax", "tensor scale", "block scale", "scaled value", "code", "packing", "layout"};
  return kNames[static_cast<size_t>(s)];
}

std::string_view name_of(Confidence c) {
  static constexpr std::string_view kNames[] = {"equal",   "certain",     "equivalent",
                                                "partial", "unexplained", "random"};
  return kNames[static_cast<size_t>(c)];
}

namespace {

std::string_view name_of_outcome(StageOutcome o) {
  static constexpr std::string_view kNames[] = {"equal", "differs", "unseen", "follows"};
  return kNames[static_cast<size_t>(o)];
}

template <class List, class ToValue> json::Value list_of(const List& list, ToValue to_value) {
  json::Value out = json::array();
  for (const auto& item : list) out.push(to_value(item));
  return out;
}
json::Value strings(const std::vector<std::string>& list) {
  return list_of(list, [](const std::string& s) { return json::Value(s); });
}
json::Value histogram(const std::vector<std::pair<std::string, int64_t>>& buckets) {
  return list_of(buckets, [](const auto& b) {
    return json::object({{"bucket", b.first}, {"differ", b.second}});
  });
}

json::Value stage_value(const StageVerdict& s) {
  return json::object({{"stage", name_of(s.stage)},
                       {"direction", name_of(s.direction)},
                       {"outcome", name_of_outcome(s.outcome)},
                       {"differ", s.differ},
                       {"of", s.of},
                       {"note", s.note}});
}

json::Value plane_value(const PlaneSummary& p) {
  return json::object({{"plane", p.plane},
                       {"encoding", p.encoding},
                       {"differ", p.differ},
                       {"of", p.of},
                       {"code_distance", histogram(p.code_distance)},
                       {"exponent", histogram(p.exponent)},
                       {"tie_distance", list_of(p.tie_distance, [](const auto& b) {
                          return json::object({{"bucket", b.name}, {"differ", b.differ}, {"of", b.of}});
                        })}});
}

json::Value heat_value(const HeatMap& h) {
  const auto number = [](int64_t n) { return json::Value(n); };
  return json::object({{"plane", h.plane},
                       {"tile_rows", h.tile_rows},
                       {"tile_cols", h.tile_cols},
                       {"rows", h.rows},
                       {"cols", h.cols},
                       {"differ", list_of(h.differ, number)},
                       {"of", list_of(h.of, number)}});
}

json::Value explanation_value(const Explanation& e) {
  return json::object({{"ids", strings(e.ids)},
                       {"title", e.title},
                       {"stage", name_of(e.stage)},
                       {"line", e.line},
                       {"clause", e.clause},
                       {"exact", e.exact()},
                       {"agree", e.agree},
                       {"of", e.of},
                       {"repaired", e.repaired},
                       {"differ", e.differ}});
}

json::Value trace_row(const TraceRow& r) {
  const auto side = [](const std::optional<std::pair<Encoding, uint32_t>>& v) {
    return v ? json::object({{"encoding", info(v->first).name},
                             {"code", code_hex(v->first, v->second)},
                             {"value", value_text(v->first, v->second)}})
             : json::Value();
  };
  return json::object({{"clause", r.clause},
                       {"what", r.what},
                       {"reference", side(r.left)},
                       {"got", side(r.right)},
                       {"differs", r.differs()}});
}

}  // namespace

json::Value to_json(const Diagnosis& d) {
  json::Value out = json::object({{"assay.diagnosis", kDiagnosisVersion},
                                  {"line", d.line},
                                  {"subject", d.subject},
                                  {"command", d.command},
                                  {"confidence", name_of(d.confidence)}});
  out.set("deterministic", d.deterministic ? json::Value(*d.deterministic) : json::Value());
  if (!d.unwritten.empty()) out.set("unwritten", strings(d.unwritten));
  if (!d.runs.empty()) out.set("runs", strings(d.runs));
  if (!d.unpinned.empty()) out.set("unpinned", d.unpinned);
  out.set("first_stage", d.first ? json::Value(name_of(*d.first)) : json::Value());
  out.set("direction", d.direction ? json::Value(name_of(*d.direction)) : json::Value());
  out.set("stages", list_of(d.stages, stage_value));
  out.set("planes", list_of(d.planes, plane_value));
  out.set("heat", d.heat ? heat_value(*d.heat) : json::Value());
  out.set("where", list_of(d.where, [](const Coordinate& c) {
            return json::object({{"what", c.what},
                                 {"differ", c.differ},
                                 {"differ_of", c.differ_of},
                                 {"inside", c.inside},
                                 {"inside_of", c.inside_of}});
          }));
  out.set("fingerprints", strings(d.fingerprints));
  out.set("explanations", list_of(d.explanations, explanation_value));
  out.set("separating", strings(d.separating));
  out.set("invisible", strings(d.invisible));
  out.set("trace", json::object({{"direction", name_of(d.trace.direction)},
                                 {"row", d.trace.row},
                                 {"col", d.trace.col},
                                 {"steps", list_of(d.trace.steps, trace_row)},
                                 {"outputs", list_of(d.trace.outputs, trace_row)}}));
  out.set("reproducer", d.reproducer);
  if (d.reproducer_limited) out.set("reproducer_limited", true);
  out.set("reproducer_files", strings(d.reproducer_files));
  if (!d.part.empty()) out.set("part", d.part);
  if (d.cut_short) out.set("cut_short", true);
  out.set("elements", d.elements);
  out.set("hypotheses", d.hypotheses);
  out.set("evaluations", d.evaluations);
  out.set("seconds", d.seconds);
  return out;
}

std::string headline(const Diagnosis& d) {
  const Explanation* best = d.explanations.empty() ? nullptr : &d.explanations.front();
  switch (d.confidence) {
    case Confidence::equal: return d.unpinned.empty() ? "Nothing differs" : "Nothing lies outside the bound";
    case Confidence::random:
      return d.unwritten.empty() ? "Two runs on the same input differ" : "Elements are never written";
    case Confidence::certain:
    case Confidence::equivalent:
      if (best) {
        std::string title = best->title;
        if (!title.empty() && title[0] >= 'a' && title[0] <= 'z')
          title[0] = static_cast<char>(title[0] - 'a' + 'A');
        return title;
      }
      break;
    case Confidence::partial:
      if (best) return "In part: " + best->title;
      break;
    case Confidence::unexplained: break;
  }
  return d.first ? fmt::format("Unexplained, and first seen in the {}", name_of(*d.first)) : "Unexplained";
}

}  // namespace assay
