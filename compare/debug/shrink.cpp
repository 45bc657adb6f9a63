#include "compare/debug/shrink.h"

#include <tuple>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/debug/shrink_crop.h"
#include "compare/debug/shrink_state.h"
#include "compare/debug/shrink_steps.h"
#include "compare/debug/shrink_trials.h"
#include "compare/process/interrupt.h"
#include "compare/process/pool.h"
#include "contract/line.h"
#include "fixtures/fill.h"

namespace assay {

using namespace shrinking;

std::string sizes_text(const Problem& p) {
  const Gemm* op = p.as<Gemm>();
  return op ? fmt::format("{}x{}x{}", p.x.shape.cols, p.x.shape.rows, op->k)
            : fmt::format("{}x{}", p.x.shape.rows, p.x.shape.cols);
}

namespace {

// How the line fails that was given.
Result<Breach> failure_of(const ShrinkOptions& options, Trials& trials) {
  const State line{options.problem, false, {}, {}};
  const Trial first = trials.run(line), second = options.known ? first : trials.run(line);
  for (const Trial* one : {&first, &second})
    if (!one->valid) return Error{one->why, 0, ""};
  if (first.breach.has_value() != second.breach.has_value() ||
      (first.breach && !(*first.breach == *second.breach)))
    return Error{"two runs of this line on " + options.subject +
                     " differ: the subject is not deterministic, so the line cannot be shrunk",
                 0, "assay run judges claim repeat with other orders"};
  if (!first.breach)
    return Error{"this line passes on " + options.subject + ": there is nothing to shrink", 0, ""};
  return *first.breach;
}

// The shape: of a large tensor a window around the first difference comes first, or that difference alone.
void make_narrow(Trials& trials, State& state) {
  const bool of_pack = state.problem.as<Quantize>() && fill_of(state).kind == FillKind::pack;
  if (of_pack) trials.load(state);  // once, and not for every part
  if (is_large(state.problem) && !crop_to_window(trials, state))
    if (State few = state; trials.load(few) && zero_around(trials, few) && trials.express_failing(few))
      state = few;
  for (const bool aligned : {true, false}) crop(trials, state, aligned);
}

// The data: elements that are left become a literal of the line.
void make_plain(Trials& trials, State& state) {
  for (const auto& side : sides_of(state.problem)) {
    state.side = side;
    const State window = state;
    if (!trials.load(state)) continue;
    zero(trials, state);
    simplify(trials, state);
    if (trials.express_failing(state)) continue;
    state = window;  // too many elements are left for a literal, or the line fails no longer
    if (state.loaded && trials.express_failing(state)) continue;
    if (fill_of(state).kind == FillKind::pack) state.loaded = false, state.x.clear();
    // A crop of a literal has its data beside the line: without them the last line that was kept is the
    // answer.
    if (state.loaded) state = {trials.failing_line().first, false, {}, {}};
  }
}

// ---- the nearest that passes ------------------------------------------------------------------------------

// The line with one element changed where it then passes, and what that changes.
bool pass_by_one_element(Trials& trials, const State& loaded, int64_t i, uint32_t code, Shrunk& out) {
  const uint32_t own = element(loaded, i);
  if (code == own || interrupted()) return false;
  State candidate = loaded;
  set_code(source(loaded), candidate.x, i, code);
  const Trial trial = trials.run(candidate);
  if (!trial.valid || trial.breach || !trials.express_exactly(candidate)) return false;
  out.good = candidate.problem;
  const int64_t cols = drawn(loaded).x.shape.cols;
  const std::string operand = loaded.side ? std::string(name_of(*loaded.side)) + " " : "";
  out.good_differs = fmt::format("{}element ({}, {}): {} instead of {}", operand, i / cols, i % cols,
                                 hex(loaded, code), hex(loaded, own));
  return true;
}

void find_nearest(Trials& trials, const State& bad, Shrunk& out) {
  for (const auto& side : sides_of(bad.problem)) {
    State loaded = bad;
    loaded.side = side;
    // A line that draws its other inputs by its fill is another one with x beside it.
    if (!trials.load(loaded) || !trials.same_inputs(bad, loaded)) continue;
    const std::vector<int64_t> live = set_elements(loaded);
    if (live.size() > kMaxLiteral) continue;
    for (const int step : {1, 2, 3})  // one code up, one down, zero
      for (int64_t i : live) {
        const uint32_t code = element(loaded, i);
        const uint32_t other = step == 1 ? code + 1 : step == 2 ? code - 1 : 0;
        if (pass_by_one_element(trials, loaded, i, other, out)) return;
      }
  }
  if (!trials.last_passed()) return;
  State last = *trials.last_passed();
  if (last.loaded && !trials.express_exactly(last)) return;
  out.good = last.problem;
  out.good_differs = "the last part that was tried and passes";
}

}  // namespace

Result<Shrunk> shrink(const ShrinkOptions& options, const Subjects& subjects,
                      const std::function<void(const std::string&)>& on_progress) {
  Subject* subject = subjects.find(options.subject);
  if (!subject) return Error{"no subject '" + options.subject + "'", 0, ""};
  if (const Support here = present_in_child(*subject); !here.yes)
    return Error{"subject " + options.subject + " is absent: " + here.why, 0, ""};
  Trials trials(options, subjects, on_progress);
  const auto original = failure_of(options, trials);
  if (!original) return original.error();
  trials.look_for(*original);

  State state{options.problem, false, {}, {}};
  drop_members(trials, state);
  drop_direction(trials, state);
  drop_epilogue(trials, state);
  drop_attention(trials, state);
  const State line = state;
  make_narrow(trials, state);
  make_plain(trials, state);
  if (state.problem.as<Gemm>())
    crop(trials, state, false);  // K that neither operand has elements in any more

  Shrunk out;
  out.exhausted = trials.spent();
  state.loaded = false, state.x.clear();
  Trial last = trials.run(state);  // the line itself
  // A tensor of a pack that has another shape than the line's has no windows.
  if (state.problem.x.fill.kind == FillKind::pack && (!last.breach || !same_failure(*last.breach, *original)))
    last = trials.run(state = line);
  if (interrupted()) {  // no line is run any more: the last that was seen to fail is the answer
    std::tie(out.bad, out.breach) = trials.failing_line();
    out.runs = trials.runs();
    return out;
  }
  if (!last.breach || !same_failure(*last.breach, *original))
    return Error{"the shrunk line does not fail: " + to_line(state.problem), 0,
                 "report this as a defect of assay shrink"};
  out.bad = state.problem;
  out.breach = *last.breach;
  if (!options.known) find_nearest(trials, state, out);
  out.runs = trials.runs();
  return out;
}

}  // namespace assay
