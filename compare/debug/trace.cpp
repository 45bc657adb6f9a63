#include "compare/debug/trace.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/gemm_bounds.h"
#include "compare/debug/slice_rows.h"
#include "compare/judge/claims.h"
#include "compare/judge/judge.h"
#include "compare/process/pool.h"
#include "compare/process/run_in_child.h"
#include "contract/attention.h"
#include "contract/line.h"
#include "fixtures/json.h"

namespace assay {

namespace {

// The steps of one side, made in a child process.
Result<std::vector<TraceStep>> steps_of(Subject& subject, const Problem& problem,
                                        const std::vector<PlaneData>& inputs, Direction d, int64_t row,
                                        int64_t col, double timeout) {
  const auto text = in_child(
      [&] {
        json::Value list = json::array();
        for (const TraceStep& s : subject.trace(problem, views(inputs), d, row, col))
          list.push(json::object({{"clause", s.clause},
                                  {"what", s.what},
                                  {"encoding", info(s.encoding).name},
                                  {"bits", s.bits}}));
        return json::dump(list);
      },
      timeout);
  if (!text) return Error{"tracing on " + std::string(subject.name()) + ": " + text.error().text(), 0, ""};
  const auto list = json::parse(*text);
  if (!list || !list->array())
    return Error{"tracing on " + std::string(subject.name()) + " gave no list", 0, ""};
  std::vector<TraceStep> out;
  for (const json::Value& s : *list->array())
    out.push_back({std::string(s.text("clause")), std::string(s.text("what")),
                   encoding_named(s.text("encoding")).value_or(Encoding::f32),
                   static_cast<uint32_t>(s.find("bits")->to_int().value_or(0))});
  return out;
}

std::pair<Encoding, uint32_t> value_of_step(const TraceStep& s) { return {s.encoding, s.bits}; }

// How well two steps fit. The sides report at different grain and cite the clause that they perform, so equal
// values weigh more than equal clauses.
int likeness(const TraceStep& l, const TraceStep& r) {
  if (l.encoding != r.encoding) return 0;
  const bool clause = l.clause == r.clause, value = l.bits == r.bits;
  return clause && value ? 4 : value ? 2 : clause ? 1 : 0;
}

// Lines the two lists up, in order, for the greatest likeness; a step that only one side reports gets a row
// of its own. Of equally good partners the last is taken: the last step under a clause is its result.
std::vector<TraceRow> align(const std::vector<TraceStep>& left, const std::vector<TraceStep>& right) {
  const size_t n = left.size(), m = right.size();
  std::vector<int> best((n + 1) * (m + 1), 0);  // of left[i..] against right[j..]
  auto at = [&](size_t i, size_t j) -> int& { return best[i * (m + 1) + j]; };
  auto pair = [&](size_t i, size_t j) {
    return likeness(left[i], right[j]) ? likeness(left[i], right[j]) + at(i + 1, j + 1) : 0;
  };
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

// The logical place in `plane` of what belongs to element (row, col) of x; nothing where it has no such
// element.
std::optional<Place> place_in(const Problem& problem, const Plane& plane, int64_t row, int64_t col) {
  const auto region = [&](int64_t r, int64_t c) { return region_of(&problem, plane, {false, r, c}); };
  for (int64_t r = 0; r < plane.logical.rows && plane.logical.cols > 0; ++r) {
    // The regions of one row of a plane lie between those of its ends, which spares a look at the rest. They
    // need not share their rows: scales of 1x128 blocks stand block by block, [ceil(C / 128), R].
    const Region first = region(r, 0), last = region(r, plane.logical.cols - 1);
    const Region between{std::min(first.row0, last.row0), std::max(first.row1, last.row1),
                         std::min(first.col0, last.col0), std::max(first.col1, last.col1)};
    if (!between.contains(row, col)) continue;
    for (int64_t c = 0; c < plane.logical.cols; ++c)
      if (region(r, c).contains(row, col)) return Place{false, r, c};
  }
  return std::nullopt;
}

// What both sides made of the line.
struct Runs {
  std::vector<PlaneData> inputs, got, want;
};
Result<Runs> run_both(const TraceOptions& options, Subject& subject, Subject& other, Subject& reference) {
  const Problem& p = options.problem;
  auto inputs = options.inputs ? *options.inputs : make_inputs(p, reference);
  if (!inputs) return inputs.error();
  IsolatedRun got = run_isolated(subject, p, *inputs, options.environment, options.timeout);
  IsolatedRun want = run_isolated(other, p, *inputs, Environment{}, options.timeout);
  for (const auto& [run, name] : {std::pair{&got, options.subject}, {&want, options.other}})
    if (run->status != IsolatedRun::Status::ran || run->execution.error)
      return Error{name + ": " + run->trouble(), 0, ""};
  return Runs{std::move(*inputs), std::move(got.execution.planes), std::move(want.execution.planes)};
}

// Every plane that differs, of the wanted direction alone where one is asked for.
std::vector<PlaneDifference> differences_of(const TraceOptions& options, const Runs& runs) {
  const Judgement judgement = judge(&options.problem, runs.got, runs.want);
  std::vector<PlaneDifference> out;
  if (judgement.cause) out.push_back(*judgement.cause);
  out.insert(out.end(), judgement.after.begin(), judgement.after.end());
  out.insert(out.end(), judgement.beside.begin(), judgement.beside.end());
  const auto elsewhere = [&](const PlaneDifference& d) {
    return options.direction && d.plane.direction && d.plane.direction != options.direction;
  };
  std::erase_if(out, elsewhere);
  return out;
}

// N20.2: the element of o that an element of another plane of an attention leads to: of a logit or a
// probability the first one of its query and head, of o itself that element, of any other plane the first of
// all.
std::pair<int64_t, int64_t> result_of(const Problem& p, const PlaneDifference& d) {
  const AttentionSizes n = attention_sizes(p);
  const int64_t row = d.place.row;
  if (d.plane.name == "o" || d.plane.name == "o.data") return {row, d.place.col};
  if (!(d.plane.logical == Shape{n.rows(), n.kv})) return {0, 0};
  return {row % n.q * n.batch + row / (n.q * n.heads), row / n.q % n.heads * n.depth};
}

// The element that is traced, and its direction: the one that is asked for, or the first that differs.
void choose_element(const TraceOptions& options, const Runs& runs, Subject& subject, Trace& out) {
  const Problem& p = options.problem;
  out.direction = p.row || !p.col ? Direction::row : Direction::col;
  if (const std::vector<PlaneDifference> differences = differences_of(options, runs); !differences.empty()) {
    // An element of the first plane that differs; where one of its data elements differs as well, that one
    // shows more.
    const PlaneDifference& cause = differences.front();
    out.direction = cause.plane.direction.value_or(out.direction);
    Region region = region_of(&p, cause.plane, cause.place);
    for (const PlaneDifference& d : differences) {
      const Region here = region_of(&p, d.plane, d.place);
      if (region.contains(here.row0, here.col0)) region = here;
    }
    out.row = region.row0;
    out.col = region.col0;
    if (p.as<Attention>()) std::tie(out.row, out.col) = result_of(p, cause);
  }
  if (const auto why = p.as<Gemm>() ? subject.unpinned(p) : std::nullopt) {
    out.unpinned = *why;
    const auto outside = check_laws(p, runs.inputs, runs.got, options.subject, nullptr, GemmOrder::any);
    if (!outside.empty()) std::tie(out.row, out.col) = std::pair(outside[0].row, outside[0].col);
  }
  if (options.direction) out.direction = *options.direction;
  if (options.at) std::tie(out.row, out.col) = *options.at;
}

// Why this element cannot be traced, or nothing.
std::optional<Error> check_element(const TraceOptions& options, const Trace& out) {
  const Problem& p = options.problem;
  const bool product = p.as<Gemm>() != nullptr;
  if (product && options.direction)
    return Error{"a gemm has no directions: expected only --at n,m of d, found --direction " +
                     std::string(name_of(*options.direction)),
                 0, "leave --direction out"};
  if (!product && !p.as<Cast>() && !p.as<Adam>() && !p.as<Attention>() && !p.quantizer(out.direction))
    return Error{"this line has no direction " + std::string(name_of(out.direction)), 0, ""};
  Shape x = p.x.shape;
  if (p.as<Attention>())
    x.rows = attention_sizes(p).q * attention_sizes(p).batch;  // padded sequences (N20.2)
  if (out.row >= 0 && out.row < x.rows && out.col >= 0 && out.col < x.cols) return {};
  return Error{
      fmt::format("element ({}, {}) is outside {}{}x{}{}", out.row, out.col,
                  product ? "d, which is [N, M] = " : "the ", x.rows, x.cols, product ? "" : " tensor"),
      0, product ? "--at n,m counts from 0" : "--at row,col counts from 0"};
}

// N16.13: whether an element of d whose bits are not pinned lies inside the bound.
bool inside_bound(const Problem& p, const Runs& runs, const Trace& out) {
  const PlaneData& d = *find_plane(runs.got, "d");
  const auto interval = GemmBounds(p, runs.inputs, GemmOrder::any).at(out.row, out.col);
  const int64_t index = index_of(d.plane, out.row, out.col);
  return interval && interval->holds(value_of(d.plane.encoding, code_at(d.plane, d.bytes, index)));
}

// An output that belongs to the element: its row, and where it lies.
struct Output {
  TraceRow row;
  const PlaneData* plane = nullptr;
  Place place;
};
std::vector<Output> outputs_of(const Problem& p, const Runs& runs, const Trace& traced) {
  std::vector<Output> out;
  for (size_t i = 0; i < runs.want.size(); ++i) {
    const PlaneData &w = runs.want[i], &g = runs.got[i];
    if (w.plane.direction && *w.plane.direction != traced.direction) continue;
    const auto place = place_in(p, w.plane, traced.row, traced.col);
    if (!place) continue;
    const int64_t index = index_of(w.plane, place->row, place->col);
    const Encoding e = w.plane.encoding;
    out.push_back(
        {{"", fmt::format("{} {}", w.plane.name, place_text(&p, w.plane, *place)),
          std::pair{e, code_at(w.plane, w.bytes, index)}, std::pair{e, code_at(w.plane, g.bytes, index)}},
         &w,
         *place});
  }
  return out;
}

// The output whose slice is shown: the plane that is asked for, else the first that differs, else the last,
// which holds the data.
const Output* sliced_output(const TraceOptions& options, const std::vector<Output>& outputs) {
  for (const Output& o : outputs)
    if (options.plane.empty() ? o.row.differs() : o.plane->plane.name == options.plane) return &o;
  return options.plane.empty() && !outputs.empty() ? &outputs.back() : nullptr;
}

// The slice behind an output, made in a child process; empty for subjects that have none.
Result<std::optional<Slice>> slice_of(const TraceOptions& options, Subject& subject, const Runs& runs,
                                      const Output& output, const std::vector<TraceStep>& other) {
  const Plane& plane = output.plane->plane;
  const int64_t bit = index_of(plane, output.place.row, output.place.col) * plane.bits();
  const auto text = in_child(
      [&] {
        return to_json(subject.slice(options.problem, views(runs.inputs), plane.name,
                                     static_cast<size_t>(bit), static_cast<size_t>(plane.bits()),
                                     options.environment));
      },
      options.timeout);
  if (!text) return Error{"the slice on " + std::string(subject.name()) + ": " + text.error().text(), 0, ""};
  auto steps = slice_steps_of(*text);
  if (!steps) return steps.error();
  if (steps->empty()) return std::optional<Slice>{};
  std::optional<Slice> out = beside(std::move(*steps), other, output.row);
  out->plane = plane.name;
  out->place = place_text(&options.problem, plane, output.place);
  return out;
}

}  // namespace

Result<Trace> trace(const TraceOptions& options, const Subjects& subjects) {
  Subject *subject = subjects.find(options.subject), *other = subjects.find(options.other);
  for (const auto& [s, name] : {std::pair{subject, options.subject}, {other, options.other}}) {
    if (!s) return Error{"no subject '" + name + "'", 0, ""};
    if (const Support here = present_in_child(*s); !here.yes)
      return Error{"subject " + name + " is absent: " + here.why, 0, ""};
  }
  const Problem& p = options.problem;
  const auto runs = run_both(options, *subject, *other, subjects.reference());
  if (!runs) return runs.error();
  Trace out;
  choose_element(options, *runs, *subject, out);
  if (const auto error = check_element(options, out)) return *error;
  if (!out.unpinned.empty()) out.inside = inside_bound(p, *runs, out);
  const auto steps = [&](Subject& s) {
    return steps_of(s, p, runs->inputs, out.direction, out.row, out.col, options.timeout);
  };
  const auto left = steps(*other);
  if (!left) return left.error();
  const auto right = steps(*subject);
  if (!right) return right.error();
  out.steps = align(*left, *right);
  const std::vector<Output> outputs = outputs_of(p, *runs, out);
  for (const Output& o : outputs) out.outputs.push_back(o.row);
  const Output* const sliced = sliced_output(options, outputs);
  if (!options.plane.empty() && !sliced)
    return Error{"this element has no output '" + options.plane + "'", 0, "--plane row.data"};
  if (!sliced || !options.slice) return out;
  auto slice = slice_of(options, *subject, *runs, *sliced, *left);
  if (slice) out.slice = std::move(*slice);
  else out.no_slice = slice.error().text();
  return out;
}

}  // namespace assay
