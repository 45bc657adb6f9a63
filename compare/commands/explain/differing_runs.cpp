#include "compare/commands/explain/differing_runs.h"

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/places.h"
#include "compare/diagnosis/patterns/coordinates.h"
#include "compare/diagnosis/patterns/summaries.h"
#include "compare/judge/judge.h"
#include "compare/judge/unwritten.h"
#include "compare/process/interrupt.h"
#include "compare/text/printable.h"
#include "contract/line.h"

namespace assay {

using std::string;

Environment changed(Environment environment) {
  environment.order = environment.order == 17 ? 23 : 17;
  environment.poison = static_cast<uint8_t>(~environment.poison);
  environment.threads = 2;
  return environment;
}

bool made(const IsolatedRun& run, const Problem& problem, const std::vector<PlaneData>& planes) {
  return run.sound() &&
         !judge(problem.x.shape.count() ? &problem : nullptr, run.execution.planes, planes).cause;
}

namespace {

// Two runs of the subject against each other: how much of each plane differs, and where.
Diagnosis differing_runs(const Observation& seen, const IsolatedRun& second) {
  Diagnosis d;
  d.line = to_line(seen.problem);
  d.subject = seen.subject;
  d.confidence = Confidence::random;
  if (!second.sound()) return d;
  const std::vector<Problem> members =
      seen.problem.as<Split>() ? member_problems(seen.problem) : std::vector<Problem>{};
  for (const PlaneData& whole : seen.got) {
    const std::vector<PlaneData> ours = members_of(whole),
                                 theirs = members_of(*find_plane(second.execution.planes, whole.plane.name));
    for (size_t m = 0; m < ours.size(); ++m) {
      const PlaneData &a = ours[m], &b = theirs[m];
      PlaneSummary s{
          a.plane.name, string(info(a.plane.encoding).name), 0, a.plane.logical.count(), {}, {}, {}};
      for (int64_t k = 0; k < a.plane.padded.count(); ++k)
        if (!place_of(a.plane, k).padding)
          s.differ += code_at(a.plane, a.bytes, k) != code_at(a.plane, b.bytes, k);
      if (const bool whole_case = members.empty();
          s.differ && !d.heat && (whole_case || m < members.size())) {
        const Problem& own = whole_case ? seen.problem : members[m];
        d.heat = heat_map(own, a, b);
        d.where = coordinates(own, a, b);
      }
      d.elements += s.of;
      d.planes.push_back(std::move(s));
    }
  }
  return d;
}

// ---- where nothing is written -----------------------------------------------------------------------------

// The first run with what the reference makes in place of what was never written, so that a second fault
// beside it is still seen. Nothing where more differs between the two runs than that.
std::optional<Observation> as_if_written(ExplainSession& s, const Observation& seen,
                                         const IsolatedRun& second, const std::vector<Unwritten>& gaps) {
  const IsolatedRun want =
      run_isolated(s.subjects.reference(), seen.problem, seen.inputs, Environment{}, s.options.timeout);
  if (!want.sound() || seen.problem.as<Split>()) return {};
  Observation out = seen;
  for (PlaneData& p : out.got) {
    const PlaneData &right = *find_plane(want.execution.planes, p.plane.name),
                    &again = *find_plane(second.execution.planes, p.plane.name);
    int64_t left = 0;  // of the differences between the two runs
    for (int64_t i = 0; i < p.plane.padded.count(); ++i)
      left +=
          code_at(p.plane, p.bytes, i) != code_at(p.plane, again.bytes, i) && !place_of(p.plane, i).padding;
    for (const Unwritten& u : gaps) {
      if (u.plane != p.plane.name) continue;
      left -= static_cast<int64_t>(u.elements.size());
      for (const int64_t i : u.elements) set_code(p.plane, p.bytes, i, code_at(p.plane, right.bytes, i));
    }
    if (left != 0) return {};
  }
  return out;
}

// What neither run wrote, and what else is wrong.
Result<Diagnosis> of_gaps(ExplainSession& s, const Observation& seen, const IsolatedRun& second, Diagnosis d,
                          const std::vector<Unwritten>& gaps) {
  int64_t random = 0;  // differences between the two runs that are no gaps
  for (const PlaneSummary& p : d.planes) random += p.differ;
  for (const Unwritten& u : gaps) {
    d.unwritten.push_back(unwritten_text(u));
    random -= static_cast<int64_t>(u.elements.size());
  }
  if (random > 0)
    d.unwritten.push_back(
        fmt::format("{} other elements differ between the two runs too: look for a race as well", random));
  s.progress.wipe();
  fmt::print(s.out, "{}\n", d.unwritten.front());
  std::fflush(s.out);
  const auto written = as_if_written(s, seen, second, gaps);
  if (!written) return d;
  auto beside = diagnosed(s, *written, {});
  if (!beside || beside->confidence == Confidence::equal) return d;
  beside->unwritten = d.unwritten;
  return beside;
}

// ---- on what the bytes depend -----------------------------------------------------------------------------

// One thing that the second run had otherwise, and whether a subject of that name heeds it.
struct Change {
  void (*make)(Environment& to, const Environment& other);
  const char *what, *means;
  bool (*heeded)(std::string_view name);
};
bool begins_with(std::string_view name, std::initializer_list<const char*> words) {
  for (const char* word : words)
    if (name.starts_with(word)) return true;
  return false;
}
constexpr Change kChanges[] = {
    {[](Environment& to, const Environment& other) { to.order = other.order; },
     "the order in which blocks and threads run",
     "two of them write one place, or one reads what another has yet to write",
     [](std::string_view name) {
       return !begins_with(name,
                           {"plugin:", "python:", "gpu", "cublaslt", "simd", "lanes", "headers", "mpfr"});
     }},
    {[](Environment& to, const Environment& other) { to.poison = other.poison; },
     "what stood in its memory before", "something is read that it did not write",
     [](std::string_view name) { return !name.starts_with("python:"); }},
    {[](Environment& to, const Environment& other) { to.threads = other.threads; }, "the number of threads",
     "threads race, or share the work otherwise",
     [](std::string_view name) {
       return !begins_with(name, {"plugin:", "python:", "gpu", "cublaslt", "ptx"});
     }},
};
constexpr std::string_view kRaces =
    "threads race, sums are made in the order of their arrival, or memory is read that nothing has written";

// " (--env order=17)".
string conditions(const Environment& e) {
  const string text = to_text(e);
  return text.empty() ? " (without --env)" : " (--env " + text + ")";
}
string ended(const Environment& e, const IsolatedRun& run) {
  return fmt::format("another run{}: {}", conditions(e), run.trouble());
}

// The runs after the first two, which differ.
class MoreRuns {
 public:
  MoreRuns(ExplainSession& s, Subject& subject, const Observation& seen)
      : s_(s), subject_(subject), seen_(seen) {}

  // On what the bytes depend, in sentences; changes one thing after the other. They say nothing
  // where the user ended a run.
  std::vector<string> dependences(const IsolatedRun& second) {
    const Environment own = s_.options.environment, other = changed(own);
    for (int i = 0; i < 3 && !over(); ++i)
      if (auto differs = unlike(own, seen_.got)) return {*differs};
    std::vector<string> out;
    int heeded = 0;
    for (const Change& change : kChanges) {
      if (!change.heeded(seen_.subject)) continue;
      ++heeded;
      if (over()) return untried(std::move(out));
      Environment e = own;
      change.make(e, other);
      if (e == own) continue;
      const IsolatedRun one = run(e);
      if (made(one, seen_.problem, seen_.got)) continue;
      if (!one.sound()) out.push_back(ended(e, one));
      else if (auto differs = unlike(e, one.execution.planes)) return {*differs};
      else
        out.push_back(fmt::format("the bytes depend on {}{}: {}", change.what, conditions(e), change.means));
    }
    if (!out.empty()) return out;
    if (over()) return untried(std::move(out));
    if (heeded < 2) return {"two runs differed, and later ones did not: " + string(kRaces)};
    if (auto differs = unlike(other, second.execution.planes)) return {*differs};
    return {fmt::format("the bytes depend on several things together{}; runs under the same conditions agree",
                        conditions(other))};
  }

 private:
  IsolatedRun run(const Environment& e) {
    s_.progress.show("running " + seen_.subject + " once more");
    return run_isolated(subject_, seen_.problem, seen_.inputs, e, s_.options.timeout);
  }
  // What is said where a run under conditions that gave these planes does not give them again.
  std::optional<string> unlike(const Environment& e, const std::vector<PlaneData>& planes) {
    const IsolatedRun again = run(e);
    if (made(again, seen_.problem, planes)) return {};
    return again.sound() ? "runs under the same conditions differ: " + string(kRaces) : ended(e, again);
  }
  bool over() const { return interrupted() || s_.elapsed() > s_.options.budget; }
  static std::vector<string> untried(std::vector<string> out) {
    out.emplace_back("on what else the bytes depend was not tried: --budget was over");
    return out;
  }

  ExplainSession& s_;
  Subject& subject_;
  const Observation& seen_;
};

// "696 of 1500 elements of row.scale_gemm".
string between_runs(const Diagnosis& d) {
  string out;
  for (const PlaneSummary& p : d.planes)
    if (p.differ > 0)
      out += fmt::format("{}{} of {} elements of {}", out.empty() ? "" : ", ", p.differ, p.of, p.plane);
  return out;
}

// What makes the first run's bytes, under what is said of the runs.
Diagnosis with_cause_of_first(ExplainSession& s, Subject& subject, const Observation& seen, Diagnosis d) {
  auto first = diagnosed(s, seen, subject.unpinned(seen.problem));
  if (!first) return d;
  d.hypotheses = first->hypotheses, d.evaluations = first->evaluations, d.cut_short = first->cut_short;
  d.seconds = first->seconds;
  if (first->confidence == Confidence::equal) {
    d.runs.emplace_back("the first run's bytes are right");
    return d;
  }
  if (first->confidence != Confidence::certain && first->confidence != Confidence::equivalent) {
    const bool searched = s.options.cause && !first->cut_short;
    d.runs.emplace_back(searched ? "the first run's bytes are wrong, and no cause makes all of them"
                                 : "the first run's bytes are wrong");
    return d;
  }
  if (const string differ = between_runs(d); !differ.empty())
    d.runs.push_back(differ + " differ between the two runs");
  d.runs.emplace_back("what follows is of the first run's bytes, beside the right ones");
  first->confidence = Confidence::random;
  first->runs = std::move(d.runs);
  return std::move(*first);
}

}  // namespace

Result<Diagnosis> diagnosis_of_runs(ExplainSession& s, Subject& subject, const Observation& seen,
                                    const IsolatedRun& second) {
  Diagnosis d = differing_runs(seen, second);
  const Environment other = changed(s.options.environment);
  if (second.sound()) {
    const std::vector<Unwritten> gaps = unwritten(seen.problem, seen.got, s.options.environment.poison,
                                                  second.execution.planes, other.poison);
    if (!gaps.empty()) return of_gaps(s, seen, second, std::move(d), gaps);
    d.runs = MoreRuns(s, subject, seen).dependences(second);
  } else {
    d.runs = {ended(other, second)};
  }
  s.progress.wipe();
  if (interrupted()) {  // a run that was ended is no answer
    d.runs.clear();
    d.cut_short = true;
    return d;
  }
  fmt::print(s.out, "{}\n", printable(d.runs.front()));
  std::fflush(s.out);
  return with_cause_of_first(s, subject, seen, std::move(d));
}

}  // namespace assay
