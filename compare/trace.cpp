#include "compare/trace.h"

#include <algorithm>
#include <ostream>
#include <tuple>

#include <fmt/format.h>

#include "compare/describe.h"
#include "compare/isolated.h"
#include "compare/runner.h"
#include "contract/line.h"
#include "fixtures/json.h"

namespace assay {

namespace {

// The steps of one side, made in a child process.
Result<std::vector<TraceStep>> steps_of(Subject& subject, const Problem& problem, const std::vector<PlaneData>& inputs, Direction d, int64_t row, int64_t col, double timeout) {
  const auto text = in_child(
      [&] {
        json::Value list = json::array();
        for (const TraceStep& s : subject.trace(problem, views(inputs), d, row, col))
          list.push(json::object({{"clause", s.clause}, {"what", s.what}, {"encoding", info(s.encoding).name}, {"bits", s.bits}}));
        return json::dump(list);
      },
      timeout);
  if (!text) return Error{"tracing on " + std::string(subject.name()) + ": " + text.error().text(), 0, ""};
  const auto list = json::parse(*text);
  if (!list || !list->array()) return Error{"tracing on " + std::string(subject.name()) + " gave no list", 0, ""};
  std::vector<TraceStep> out;
  for (const json::Value& s : *list->array())
    out.push_back({std::string(s.text("clause")), std::string(s.text("what")), encoding_named(s.text("encoding")).value_or(Encoding::f32),
                   static_cast<uint32_t>(s.find("bits")->to_int().value_or(0))});
  return out;
}

std::pair<Encoding, uint32_t> value_of_step(const TraceStep& s) { return {s.encoding, s.bits}; }

// Lines the two lists up by clause; a step that only one side reports gets a row of its own.
std::vector<TraceRow> align(const std::vector<TraceStep>& left, const std::vector<TraceStep>& right) {
  std::vector<TraceRow> out;
  size_t r = 0;
  for (const TraceStep& l : left) {
    const auto same = std::find_if(right.begin() + static_cast<std::ptrdiff_t>(r), right.end(), [&](const TraceStep& s) { return s.clause == l.clause && s.what == l.what; });
    const auto partner = same != right.end() ? same : std::find_if(right.begin() + static_cast<std::ptrdiff_t>(r), right.end(), [&](const TraceStep& s) { return s.clause == l.clause; });
    if (partner == right.end()) {
      out.push_back({l.clause, l.what, value_of_step(l), {}});
      continue;
    }
    for (; right.begin() + static_cast<std::ptrdiff_t>(r) != partner; ++r) out.push_back({right[r].clause, right[r].what, {}, value_of_step(right[r])});
    out.push_back({l.clause, l.what, value_of_step(l), value_of_step(right[r++])});
  }
  for (; r < right.size(); ++r) out.push_back({right[r].clause, right[r].what, {}, value_of_step(right[r])});
  return out;
}

// The logical place in `plane` of what belongs to element (row, col) of x; nothing where it has no such element.
std::optional<Place> place_in(const Problem& problem, const Plane& plane, int64_t row, int64_t col) {
  for (int64_t r = 0; r < plane.logical.rows; ++r) {
    // Regions of one row of a plane share their rows or, transposed, their columns: one look at the ends spares the rest.
    for (int64_t c = 0; c < plane.logical.cols; ++c) {
      const Region region = region_of(&problem, plane, {false, r, c});
      if (region.contains(row, col)) return Place{false, r, c};
      if (!plane.transposed && (row < region.row0 || row >= region.row1)) break;
      if (plane.transposed && (col < region.col0 || col >= region.col1)) break;
    }
  }
  return std::nullopt;
}

std::string cell(const std::optional<std::pair<Encoding, uint32_t>>& v) {
  if (!v) return "-";
  return fmt::format("{:<8}  {}", code_hex(v->first, v->second), value_text(v->first, v->second));
}

}  // namespace

Result<Trace> trace(const TraceOptions& options, const Subjects& subjects) {
  Subject *subject = subjects.find(options.subject), *other = subjects.find(options.other);
  for (const auto& [s, name] : {std::pair{subject, options.subject}, {other, options.other}}) {
    if (!s) return Error{"no subject '" + name + "'", 0, ""};
    if (const Support here = s->present(); !here.yes) return Error{"subject " + name + " is absent: " + here.why, 0, ""};
  }
  const Problem& p = options.problem;
  const auto inputs = make_inputs(p, subjects.reference());
  if (!inputs) return inputs.error();
  const IsolatedRun got = run_isolated(*subject, p, *inputs, options.environment, options.timeout), want = run_isolated(*other, p, *inputs, Environment{}, options.timeout);
  for (const auto& [run, name] : {std::pair{&got, options.subject}, {&want, options.other}})
    if (run->status != IsolatedRun::Status::ran || run->execution.error) return Error{name + ": " + run->trouble(), 0, ""};

  Trace out;
  out.direction = p.row || !p.col ? Direction::row : Direction::col;
  const Judgement judgement = judge(&p, got.execution.planes, want.execution.planes);
  std::vector<PlaneDifference> differences;
  if (judgement.cause) differences.push_back(*judgement.cause);
  differences.insert(differences.end(), judgement.after.begin(), judgement.after.end());
  differences.insert(differences.end(), judgement.beside.begin(), judgement.beside.end());
  if (options.direction)
    std::erase_if(differences, [&](const PlaneDifference& d) { return d.plane.direction && d.plane.direction != options.direction; });
  if (!differences.empty()) {
    // An element of the first plane that differs; where one of its data elements differs as well, that one shows more.
    const PlaneDifference& cause = differences.front();
    out.direction = cause.plane.direction.value_or(out.direction);
    Region region = region_of(&p, cause.plane, cause.place);
    for (const PlaneDifference& d : differences) {
      const Region here = region_of(&p, d.plane, d.place);
      if (region.contains(here.row0, here.col0)) region = here;
    }
    out.row = region.row0;
    out.col = region.col0;
  }
  if (options.direction) out.direction = *options.direction;
  if (options.at) std::tie(out.row, out.col) = *options.at;
  if (!p.as<Cast>() && !p.quantizer(out.direction)) return Error{"this line has no direction " + std::string(name_of(out.direction)), 0, ""};
  if (out.row < 0 || out.row >= p.x.shape.rows || out.col < 0 || out.col >= p.x.shape.cols)
    return Error{fmt::format("element ({}, {}) is outside the {}x{} tensor", out.row, out.col, p.x.shape.rows, p.x.shape.cols), 0, "--at row,col counts from 0"};

  const auto left = steps_of(*other, p, *inputs, out.direction, out.row, out.col, options.timeout);
  if (!left) return left.error();
  const auto right = steps_of(*subject, p, *inputs, out.direction, out.row, out.col, options.timeout);
  if (!right) return right.error();
  out.steps = align(*left, *right);
  for (size_t i = 0; i < want.execution.planes.size(); ++i) {
    const PlaneData &w = want.execution.planes[i], &g = got.execution.planes[i];
    if (w.plane.direction && *w.plane.direction != out.direction) continue;
    const auto place = place_in(p, w.plane, out.row, out.col);
    if (!place) continue;
    const int64_t index = index_of(w.plane, place->row, place->col);
    const Encoding e = w.plane.encoding;
    out.outputs.push_back({"", fmt::format("{} {}", w.plane.name, place_text(&p, w.plane, *place)), std::pair{e, code_at(e, w.bytes, index)}, std::pair{e, code_at(e, g.bytes, index)}});
  }
  return out;
}

int run_trace(const TraceOptions& options, const Subjects& subjects, std::ostream& out, std::ostream& err) {
  const auto traced = trace(options, subjects);
  if (!traced) {
    err << "error: " << traced.error().text() << "\n";
    return 2;
  }
  out << fmt::format("trace    {}\n  element  ({}, {}) {}\n\n", to_line(options.problem), traced->row, traced->col, name_of(traced->direction));
  size_t what = 4, left = options.other.size();
  for (const auto* rows : {&traced->steps, &traced->outputs})
    for (const TraceRow& r : *rows) {
      what = std::max(what, r.what.size());
      left = std::max(left, cell(r.left).size());
    }
  bool found = false;
  auto print = [&](const TraceRow& r) {
    const bool first = r.differs() && !found;
    found |= first;
    out << fmt::format("{} {:<6} {:<{}}  {:<{}}  {}{}\n", first ? "->" : r.differs() ? " *" : "  ", r.clause, r.what, what, cell(r.left), left, cell(r.right), first ? "   <- parts here" : "");
  };
  out << fmt::format("   {:<6} {:<{}}  {:<{}}  {}\n", "clause", "step", what, options.other, left, options.subject);
  for (const TraceRow& r : traced->steps) print(r);
  if (traced->steps.empty()) out << "   neither side reports its steps for this op\n";
  if (!traced->outputs.empty()) out << "   outputs\n";
  for (const TraceRow& r : traced->outputs) print(r);
  if (!found) out << "\nno step and no output of this element differs\n";
  return found ? 1 : 0;
}

}  // namespace assay
