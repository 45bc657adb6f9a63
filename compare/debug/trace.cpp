#include "compare/debug/trace.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "compare/judge/claims.h"
#include "compare/arithmetic/codes.h"
#include "compare/process/run_in_child.h"
#include "compare/process/pool.h"
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

// How well two steps fit. The sides report at different grain and cite the clause that they perform, so equal values weigh more than equal clauses.
int likeness(const TraceStep& l, const TraceStep& r) {
  if (l.encoding != r.encoding) return 0;
  const bool clause = l.clause == r.clause, value = l.bits == r.bits;
  return clause && value ? 4 : value ? 2 : clause ? 1 : 0;
}

// Lines the two lists up, in order, for the greatest likeness; a step that only one side reports gets a row of its own. Of equally good partners the last
// is taken: the last step under a clause is its result.
std::vector<TraceRow> align(const std::vector<TraceStep>& left, const std::vector<TraceStep>& right) {
  const size_t n = left.size(), m = right.size();
  std::vector<int> best((n + 1) * (m + 1), 0);   // of left[i..] against right[j..]
  auto at = [&](size_t i, size_t j) -> int& { return best[i * (m + 1) + j]; };
  auto pair = [&](size_t i, size_t j) { return likeness(left[i], right[j]) ? likeness(left[i], right[j]) + at(i + 1, j + 1) : 0; };
  for (size_t i = n; i-- > 0;)
    for (size_t j = m; j-- > 0;) at(i, j) = std::max({at(i + 1, j), at(i, j + 1), pair(i, j)});
  std::vector<TraceRow> out;
  for (size_t i = 0, j = 0; i < n || j < m;) {
    if (i < n && (j == m || at(i, j) == at(i + 1, j))) {
      out.push_back({left[i].clause, left[i].what, value_of_step(left[i]), {}});
      ++i;
    } else if (j < m && (i == n || at(i, j) == at(i, j + 1))) {
      out.push_back({right[j].clause, right[j].what, {}, value_of_step(right[j])});
      ++j;
    } else {
      out.push_back({left[i].clause, left[i].what, value_of_step(left[i]), value_of_step(right[j])});
      ++i;
      ++j;
    }
  }
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

}  // namespace

Result<Trace> trace(const TraceOptions& options, const Subjects& subjects) {
  Subject *subject = subjects.find(options.subject), *other = subjects.find(options.other);
  for (const auto& [s, name] : {std::pair{subject, options.subject}, {other, options.other}}) {
    if (!s) return Error{"no subject '" + name + "'", 0, ""};
    if (const Support here = present_in_child(*s); !here.yes) return Error{"subject " + name + " is absent: " + here.why, 0, ""};
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
  if (const auto why = subject->unpinned(p)) {
    out.unpinned = *why;
    if (const auto outside = check_laws(p, *inputs, got.execution.planes, options.subject, nullptr, GemmOrder::any); !outside.empty()) std::tie(out.row, out.col) = std::pair(outside[0].row, outside[0].col);
  }
  if (options.direction) out.direction = *options.direction;
  if (options.at) std::tie(out.row, out.col) = *options.at;
  const bool product = p.as<Gemm>() != nullptr;
  if (product && options.direction) return Error{"a gemm has no directions: expected --at n,m of d alone, found --direction " + std::string(name_of(*options.direction)), 0, "leave --direction out"};
  if (!product && !p.as<Cast>() && !p.quantizer(out.direction)) return Error{"this line has no direction " + std::string(name_of(out.direction)), 0, ""};
  if (out.row < 0 || out.row >= p.x.shape.rows || out.col < 0 || out.col >= p.x.shape.cols)
    return Error{fmt::format("element ({}, {}) is outside {}{}x{}{}", out.row, out.col, product ? "d, which is [N, M] = " : "the ", p.x.shape.rows, p.x.shape.cols, product ? "" : " tensor"), 0,
                 product ? "--at n,m counts from 0" : "--at row,col counts from 0"};

  if (!out.unpinned.empty()) {
    const PlaneData& d = *find_plane(got.execution.planes, "d");
    const auto interval = GemmBounds(p, *inputs, GemmOrder::any).at(out.row, out.col);
    out.inside = interval && interval->holds(value_of(d.plane.encoding, code_at(d.plane, d.bytes, index_of(d.plane, out.row, out.col))));
  }
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
    out.outputs.push_back({"", fmt::format("{} {}", w.plane.name, place_text(&p, w.plane, *place)), std::pair{e, code_at(w.plane, w.bytes, index)}, std::pair{e, code_at(w.plane, g.bytes, index)}});
  }
  return out;
}

}  // namespace assay
