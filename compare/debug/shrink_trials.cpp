#include "compare/debug/shrink_trials.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/judge/judge.h"
#include "compare/judge/unpinned.h"
#include "compare/process/interrupt.h"
#include "contract/dispatch.h"
#include "contract/line.h"

namespace assay::shrinking {

namespace {

// Of whichever member: a split that loses members counts the others anew.
std::string_view plane_of(const Breach& b) { return std::string_view(b.plane).substr(0, b.plane.find('[')); }

// Of a split x is no matrix of the line's shape, and its members are drawn one by one.
bool has_x(const Problem& p) {
  const std::vector<Plane> planes = input_planes(p);
  return !planes.empty() && planes.front().name == "x" && !p.as<Split>();
}

// A run that wrote nothing that could be judged.
Breach trouble_of(const IsolatedRun& run, const std::string& subject) {
  Breach b;
  b.claim = run.status == IsolatedRun::Status::crashed ? "crash" : run.execution.error ? "run" : "guard";
  b.got = subject;
  b.message = run.trouble();
  if (b.claim == "guard") b.plane = b.message.substr(0, b.message.find(':'));
  return b;
}

}  // namespace

bool same_failure(const Breach& a, const Breach& b) {
  return a.claim == b.claim && plane_of(a) == plane_of(b) && a.in_padding == b.in_padding;
}

// ---- one run ----------------------------------------------------------------------------------------------

Trial Trials::run(const State& s) {
  ++runs_;
  if (on_progress_) on_progress_(fmt::format("run {}: {}", runs_, sizes_text(s.problem)));
  if (const std::optional<Error> invalid = validate(s.problem)) return {false, {}, invalid->text()};
  // What `run` would skip is no line to print, though a subject that knows nothing of the flavour runs it.
  if (std::string why = te_rejection(s.problem); !why.empty()) return {false, {}, std::move(why)};
  if (options_.failure) {  // it is asked about lines alone
    State line = s;
    if (line.loaded && !express_exactly(line)) return {false, {}, "no line has these elements"};
    return {true, options_.failure(line.problem), ""};
  }
  const auto inputs = inputs_of(s);
  if (!inputs) return {false, {}, inputs.error().text()};
  const IsolatedRun got = run_isolated(subject_, s.problem, *inputs, options_.environment, options_.timeout);
  if (got.status == IsolatedRun::Status::interrupted) --runs_;
  if (got.status == IsolatedRun::Status::interrupted || got.status == IsolatedRun::Status::unsupported)
    return {false, {}, got.trouble()};
  elements_ += s.problem.x.shape.count();
  if (!got.sound()) return {true, trouble_of(got, options_.subject), ""};
  const IsolatedRun want = run_reference(s.problem, *inputs);
  if (!want.sound()) return {false, {}, "reference " + want.trouble()};
  return {true, difference(s.problem, *inputs, got.execution.planes, want.execution.planes), ""};
}

IsolatedRun Trials::run_reference(const Problem& problem, const std::vector<PlaneData>& inputs) {
  return run_isolated(subjects_.reference(), problem, inputs, Environment{}, options_.timeout);
}

std::optional<Breach> Trials::difference(const Problem& p, const std::vector<PlaneData>& inputs,
                                         const std::vector<PlaneData>& got,
                                         const std::vector<PlaneData>& want) {
  const bool unpinned = subject_.unpinned(p).has_value();  // N16.13: what lies inside the bound is no failure
  if (unpinned && p.as<Attention>()) {
    Verdict v;
    v.subject = options_.subject;
    judge_unpinned(p, inputs, got, want, *subject_.unpinned(p), subjects_.reference(), v);
    return v.breaches.empty() ? std::nullopt : std::optional(v.breaches.front());
  }
  if (!unpinned)
    if (auto breach = parity_breach(p, judge(&p, got, want), options_.subject, "reference")) return breach;
  // Where a difference of bytes is looked for, a law that is broken instead would be another failure.
  if (options_.known && original_.claim == "parity") return {};
  const GemmOrder order = unpinned ? GemmOrder::any : GemmOrder::pinned;
  const auto laws = check_laws(p, inputs, got, options_.subject, nullptr, order);
  return laws.empty() ? std::nullopt : std::optional(laws.front());
}

// The inputs of a candidate, the data beside the line among them.
Result<std::vector<PlaneData>> Trials::inputs_of(const State& s) {
  if (!s.loaded) return make_inputs(s.problem, subjects_.reference());
  const Problem line = drawn(s);
  auto inputs = inputs_with(line, {{input_planes(line).front(), s.x}}, subjects_.reference());
  if (!inputs || !s.side) return inputs;
  const IsolatedRun made = run_reference(line, *inputs);
  if (!made.sound()) return Error{"making an operand, reference " + made.trouble(), 0, ""};
  const Direction d = s.problem.as<Gemm>()->direction(*s.side);
  std::vector<PlaneData> given;
  for (const Plane& plane : input_planes(s.problem)) {
    if (!plane.name.starts_with(std::string(name_of(*s.side)) + ".")) continue;
    const std::string stem = plane.name.substr(2);
    const PlaneData* own = find_plane(made.execution.planes, plane_name(d, stem));
    if (!own) own = find_plane(*inputs, plane_name(d, "given." + stem));  // a given amax is no output
    given.push_back({plane, own->bytes});
  }
  return inputs_with(s.problem, given, subjects_.reference());
}

// ---- answers ----------------------------------------------------------------------------------------------

bool Trials::spent() const {
  if (interrupted()) return true;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  return runs_ >= options_.max_runs || (options_.max_elements > 0 && elements_ >= options_.max_elements) ||
         (options_.max_seconds > 0 && seconds >= options_.max_seconds);
}

bool Trials::fails(const State& s) {
  if (spent()) return false;
  std::string key = to_line(s.problem) + (s.side ? std::string(name_of(*s.side)) : "");
  if (s.loaded) {
    const std::string_view data(reinterpret_cast<const char*>(s.x.data()), s.x.size());
    key += fmt::format(" {:x}", std::hash<std::string_view>()(data));
  }
  auto known = failures_.find(key);
  if (known == failures_.end()) {
    const Trial trial = run(s);
    if (interrupted()) return false;  // it ended the run, and is no answer
    if (trial.valid && !trial.breach) passed_ = s;
    const bool same = trial.valid && trial.breach && same_failure(*trial.breach, original_);
    known = failures_.emplace(key, same ? trial.breach : std::nullopt).first;
  }
  if (known->second) failed_ = *known->second;
  return known->second.has_value();
}

bool Trials::keep(State& state, State candidate) {
  if (!fails(candidate)) return false;
  kept_ = failed_;
  state = std::move(candidate);
  if (!state.loaded) failing_line_ = {state.problem, kept_};
  return true;
}

// ---- data -------------------------------------------------------------------------------------------------

bool Trials::load(State& state, Shape shape) {
  if (state.loaded) return true;
  Problem whole = drawn(state);
  if (!has_x(whole)) return false;
  whole.x.shape = shape;
  const auto inputs = make_inputs(whole, subjects_.reference());
  if (!inputs) return false;
  state.x = find_plane(*inputs, "x")->bytes;
  return state.loaded = true;
}

bool Trials::same_inputs(const State& a, const State& b) {
  const auto of_a = inputs_of(a), of_b = inputs_of(b);
  return of_a && of_b && std::ranges::equal(*of_a, *of_b, {}, &PlaneData::bytes, &PlaneData::bytes);
}

bool Trials::express_exactly(State& state) {
  State line = state;
  if (!express(line) || !same_inputs(state, line)) return false;
  state = std::move(line);
  return true;
}

bool Trials::express_failing(State& state) {
  if (express_exactly(state)) return true;
  State line = state;
  return express(line) && keep(state, std::move(line));
}

std::optional<uint32_t> Trials::amax_of(const State& state, Direction d) {
  const auto inputs = inputs_of(state);
  if (!inputs) return {};
  const IsolatedRun run = run_reference(state.problem, *inputs);
  const PlaneData* amax = find_plane(run.execution.planes, plane_name(d, "amax"));
  if (!run.sound() || !amax) return {};
  return code_at(Encoding::f32, amax->bytes, 0);
}

}  // namespace assay::shrinking
