// The runs of the search for a smaller failure: which candidates fail like the line that was given.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compare/debug/shrink.h"
#include "compare/debug/shrink_state.h"
#include "compare/judge/claims.h"
#include "compare/process/guarded_run.h"
#include "compare/process/run_in_child.h"
#include "contract/result.h"
#include "fixtures/inputs.h"

namespace assay::shrinking {

// What one candidate does.
struct Trial {
  bool valid = false;            // the subject could be run
  std::optional<Breach> breach;  // nothing: passes
  std::string why;               // not valid: why
};

bool same_failure(const Breach& a, const Breach& b);

class Trials {
 public:
  using Progress = std::function<void(const std::string&)>;
  Trials(const ShrinkOptions& options, const Subjects& subjects, const Progress& on_progress)
      : options_(options),
        subjects_(subjects),
        subject_(*subjects.find(options.subject)),
        on_progress_(on_progress) {}

  // Runs a candidate on both sides.
  Trial run(const State& state);
  // From here on a candidate fails where it does so like this, as the options' line does.
  void look_for(const Breach& failure) {
    original_ = kept_ = failure;
    failing_line_ = {options_.problem, failure};
  }
  // Whether a candidate fails in the same way. Answers are remembered, because the steps ask for some parts
  // more than once. False where a limit was reached.
  bool fails(const State& state);
  // Makes the candidate the state where it fails in the same way.
  bool keep(State& state, State candidate);
  // Whether a limit of the options was reached.
  bool spent() const;

  // Puts the data beside the line, of the tensor as it is or of another shape. False where the op has no x.
  bool load(State& state) { return load(state, drawn(state).x.shape); }
  bool load(State& state, Shape shape);
  // Whether two candidates have the same inputs, every plane of them.
  bool same_inputs(const State& a, const State& b);
  // Turns the data beside the line into a literal in the line. False where they are too many elements, or
  // where the line draws its other inputs otherwise by that fill, as an adam does p, m and v.
  bool express_exactly(State& state);
  // The same, or false where the line no longer fails in the same way.
  bool express_failing(State& state);
  // The tensor's amax in one direction, as the reference has it; nothing where it cannot be run.
  std::optional<uint32_t> amax_of(const State& state, Direction d);

  const Breach& breach() const { return kept_; }  // of the state that is kept
  // The last line that was kept and needs no data beside it, and how it fails: what an interrupt leaves.
  const std::pair<Problem, Breach>& failing_line() const { return failing_line_; }
  const std::optional<State>& last_passed() const { return passed_; }
  size_t runs() const { return runs_; }

 private:
  using Clock = std::chrono::steady_clock;
  Result<std::vector<PlaneData>> inputs_of(const State& state);
  std::optional<Breach> difference(const Problem& problem, const std::vector<PlaneData>& inputs,
                                   const std::vector<PlaneData>& got, const std::vector<PlaneData>& want);
  IsolatedRun run_reference(const Problem& problem, const std::vector<PlaneData>& inputs);

  const ShrinkOptions& options_;
  const Subjects& subjects_;
  Subject& subject_;
  const Progress& on_progress_;
  Breach original_, kept_, failed_;  // failed_: of the last that failed
  std::map<std::string, std::optional<Breach>>
      failures_;  // of what was run: nothing where it did not fail in the same way
  std::pair<Problem, Breach> failing_line_;
  std::optional<State> passed_;
  size_t runs_ = 0;
  int64_t elements_ = 0;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace assay::shrinking
