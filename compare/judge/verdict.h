// What became of one line on one subject, as data: it crosses a pipe and goes to the reports.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/arithmetic/places.h"
#include "contract/planes.h"
#include "contract/problem.h"
#include "contract/result.h"
#include "fixtures/json.h"

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
constexpr bool is_red(Outcome o) {
  return o == Outcome::failed || o == Outcome::mistrusted || o == Outcome::crashed || o == Outcome::stale;
}

// One claim that does not hold, as data: it crosses a pipe, goes to the JSONL report, and text is made from
// it.
struct Breach {
  // parity repeat guard padding untouched hybrid.row hybrid.col hybrid.same member | half-step adjacent
  // monotone range coherent round-trip orthogonal injective bound integer | device replay run witness expect
  // crash | scenario roles ranks
  std::string claim;
  std::string got, want;       // names: "host", "reference"; for laws want is empty
  std::string message;         // for laws and errors: what was expected and what was found
  std::string plane;           // where it begins; empty when no plane is to blame
  std::string encoding;        // of that plane
  std::string where;           // "row 12, columns 32..63"
  int64_t row = -1, col = -1;  // coordinates in the plane; -1 where none are known
  bool in_padding = false;
  int64_t differ = 0, of = 0;
  std::optional<uint32_t> got_code, want_code;
  std::optional<int64_t> apart;
  std::vector<std::string> after;  // "row.data (e4m3)  41 of 16384 differ, all inside that block"
  std::string hint;
  std::string environment;  // Environment text, when not the default
  bool operator==(const Breach&) const = default;

  // Says which plane is to blame, and where in it. Of a plane of unknown origin `problem` is null.
  Breach& of_plane(const Plane&);
  Breach& at(const Problem* problem, const Plane&, Place);
};
// A breach that blames no plane, or not yet.
Breach complaint(std::string claim, std::string_view got, std::string message, std::string_view want = {});

// The reason of a passed case whose tensor has no element.
inline constexpr std::string_view kNoElement = "the tensor has no element: nothing was compared";

// One line on one subject.
struct Verdict {
  std::string subject;   // "host"
  std::string argument;  // Subject::argument(); set by run_cases, empty where no subject can run again
  Outcome outcome = Outcome::passed;
  // unsupported, skipped, crashed, mistrusted, stale: why; passed: what was expected, or kNoElement.
  std::string reason;
  std::vector<Breach> breaches;     // the first is the cause that is printed
  std::vector<std::string> claims;  // kinds that were evaluated
  int launches = 0;
  std::string served;    // Served::by
  std::string witness;   // one line of statistics
  std::string unpinned;  // N16.13: why d was judged by the bound and not bit for bit; empty: it was not
  int64_t inside =
      0;  // unpinned: elements that differ from the reference's, inside the bound where it passed
  std::string
      excluded;  // parity matrix: the causes that were removed to make it equal; `reason` explains them
  std::vector<std::string> about;  // of a story: what is given, done and expected; empty for lines
  std::string ranks;   // of a case of several ranks: what each did, as JSON; goes to the transcript alone
  double seconds = 0;  // all runs of the subject in this case
  bool operator==(const Verdict&) const = default;
};

// Notes that claims of this kind were evaluated; each kind is kept once.
void add_kind(std::vector<std::string>& kinds, std::string_view kind);

json::Value to_json(const Verdict&);
Result<Verdict> verdict_from_json(const json::Value&);

}  // namespace assay
