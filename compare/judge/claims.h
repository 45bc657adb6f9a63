// Claims: what is asserted about one case, evaluated in this process. A claim is "got equals want on these planes", where want is
// another subject, the same subject under another Environment, or a law that holds for any correct result.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/process/guarded_run.h"
#include "compare/arithmetic/gemm_bounds.h"
#include "compare/judge/judge.h"
#include "contract/problem.h"
#include "fixtures/json.h"
#include "fixtures/suite.h"

namespace assay {

// passed      every claim holds
// failed      a claim does not
// mistrusted  every claim holds, and could hardly have failed
// unsupported the subject does not run this Problem, and says why
// skipped     the subject is not on this machine
// crashed     the process ended, or ran out of time
// stale       a recording of another line, or of other kernels
enum class Outcome : uint8_t { passed, failed, mistrusted, unsupported, skipped, crashed, stale };
std::string_view name_of(Outcome);
std::optional<Outcome> outcome_named(std::string_view);
// Counts as failed on the last line.
constexpr bool is_red(Outcome o) { return o == Outcome::failed || o == Outcome::mistrusted || o == Outcome::crashed || o == Outcome::stale; }

// One claim that does not hold, as data: it crosses a pipe, goes to the JSONL report, and text is made from it.
struct Breach {
  // parity repeat guard padding untouched hybrid.row hybrid.col hybrid.same member | half-step adjacent monotone range coherent round-trip
  // orthogonal injective bound integer | device replay run witness expect crash | scenario roles
  std::string claim;
  std::string got, want;               // names: "host", "reference"; for laws want is empty
  std::string message;                 // for laws and errors: what was expected and what was found
  std::string plane;                   // where it begins; empty when no plane is to blame
  std::string encoding;                // of that plane
  std::string where;                   // "row 12, columns 32..63"
  int64_t row = -1, col = -1;          // coordinates in the plane; -1: none
  bool in_padding = false;
  int64_t differ = 0, of = 0;
  std::optional<uint32_t> got_code, want_code;
  std::optional<int64_t> apart;
  std::vector<std::string> after;      // "row.data (e4m3)  41 of 16384 differ, all inside that block"
  std::string hint;
  std::string environment;             // Environment text, when not the default
  bool operator==(const Breach&) const = default;
};

// One line on one subject.
struct Verdict {
  std::string subject;                 // "host"
  std::string argument;                // Subject::argument(); set by run_cases, empty where there is no subject to run again
  Outcome outcome = Outcome::passed;
  std::string reason;                  // unsupported, skipped, crashed, mistrusted, stale: why; passed as expected: "as expected: ..."
  std::vector<Breach> breaches;        // the first is the cause that is printed
  std::vector<std::string> claims;     // kinds that were evaluated
  int launches = 0;
  std::string served;                  // Served::by
  std::string witness;                 // one line of statistics
  std::string unpinned;                // N16.13: why d was judged by the bound and not bit for bit; empty: it was not
  int64_t inside = 0;                  // unpinned: elements that differ from the reference's, all inside the bound where the outcome is passed
  std::string excluded;                // of a cell of the parity matrix: the causes that were removed to make it equal; `reason` says what they are
  std::vector<std::string> about;      // of a story (compare/commands/training_cases.h): what is given, done and expected; empty for lines
  double seconds = 0;                  // all runs of the subject in this case
  bool operator==(const Verdict&) const = default;
};

json::Value to_json(const Verdict&);
Result<Verdict> verdict_from_json(const json::Value&);

struct ClaimOptions {
  Environment environment;
  bool laws = true;                    // padding, guard, laws, repeat; without: parity alone
};

// The line's noop flag is 1.0: nothing is written, and nothing can be compared (N6.7).
bool writes_nothing(const Problem& problem);

// Judges one line on each of the named subjects, in their order; one Verdict each. The reference runs once. Expectations of the suite
// (`expect unsupported`, `expect fail`, `trust any`) are applied. Never throws; a crash takes the process with it (runner.h).
std::vector<Verdict> judge_case(const SuiteEntry& entry, const Subjects& subjects, const std::vector<std::string>& names, const ClaimOptions& options);

// The parity breach between two output sets, or nothing; `got` and `want` name them.
std::optional<Breach> parity_breach(const Problem& problem, const Judgement& judgement, std::string_view got, std::string_view want);

// Laws of one subject's outputs: what any correct result obeys, whatever made it. `inputs` as made by make_inputs; `order`: of what follows a gemm's sum.
// Returns the breaches; appends the kinds evaluated to `evaluated` where it is not null.
std::vector<Breach> check_laws(const Problem& problem, const std::vector<PlaneData>& inputs, const std::vector<PlaneData>& outputs,
                               std::string_view subject, std::vector<std::string>* evaluated = nullptr, GemmOrder order = GemmOrder::pinned);

// N16.13: what a subject whose bits are not pinned, for the reason `why`, made of a gemm: in place of parity its laws in any order. Fills `unpinned`, `inside`, `claims` and
// `breaches`. True where nothing could be judged: no element of a d that is not empty has a bound, and the bytes are not the reference's.
bool judge_unpinned(const Problem& problem, const std::vector<PlaneData>& inputs, const std::vector<PlaneData>& got, const std::vector<PlaneData>& want, const std::string& why, Verdict& v);
inline constexpr std::string_view kNoBound = "no element of d has a bound (N16.13): sums or products may overflow";
// "bits not pinned (N16.13), judged by the bound: <why>; 3 elements differ from the reference's"; empty where they are pinned.
std::string unpinned_text(const Verdict& v);

}  // namespace assay
