// `assay explain <line>`: runs the subject twice, and looks for the cause of what differs from the reference.
#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/places.h"
#include "compare/commands/explain/session.h"
#include "compare/commands/options.h"
#include "compare/debug/trace.h"
#include "compare/diagnosis/patterns/coordinates.h"
#include "compare/diagnosis/patterns/summaries.h"
#include "compare/judge/judge.h"
#include "compare/judge/unwritten.h"
#include "compare/process/interrupt.h"
#include "compare/process/memory.h"
#include "compare/process/pool.h"
#include "compare/process/run_in_child.h"
#include "compare/report/report.h"
#include "contract/line.h"
#include "training/recipes/line_factory.h"

namespace assay {

using std::string;

namespace {

// Another order, poison and number of threads than those of `environment`: nothing that decides a bit.
Environment changed(Environment environment) {
  environment.order = environment.order == 17 ? 23 : 17;
  environment.poison = static_cast<uint8_t>(~environment.poison);
  environment.threads = 2;
  return environment;
}

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

// Two runs that differ: where nothing is written, and what else is wrong.
Result<Diagnosis> of_differing_runs(ExplainSession& s, const Observation& seen, const IsolatedRun& second,
                                    uint8_t other_poison) {
  Diagnosis d = differing_runs(seen, second);
  if (!second.sound()) return d;
  const std::vector<Unwritten> gaps =
      unwritten(seen.problem, seen.got, s.options.environment.poison, second.execution.planes, other_poison);
  if (gaps.empty()) return d;
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

// The step on which both sides part, and a smaller line. There is nothing to trace in padding, and no smaller
// line says more about it.
int look_closer(ExplainSession& s, Diagnosis& d, const Problem& problem, const Subject& subject) {
  if (d.confidence == Confidence::equal || d.of_padding() || !s.options.cause || interrupted()) return 0;
  const TraceOptions t{problem, s.options.subject,     "reference",      {},
                       {},      s.options.environment, s.options.timeout};
  if (auto traced = trace(t, s.subjects)) d.trace = std::move(*traced);
  return reduce(s, d, problem, s.options.subject, s.subjects, subject.argument());
}

int explain_problem(ExplainSession& s, Subject& subject, const Problem& problem,
                    const std::vector<PlaneData>& inputs) {
  const string& name = s.options.subject;
  // Determinism first, because two runs that differ have no cause in the numbers.
  s.progress.show("running " + name);
  IsolatedRun first = run_isolated(subject, problem, inputs, s.options.environment, s.options.timeout);
  if (first.status == IsolatedRun::Status::interrupted) return s.interrupted_before(false);
  if (first.status == IsolatedRun::Status::unsupported) return s.fail(name + ": " + first.trouble(), 3);
  if (!first.sound()) {
    s.fail(name + " " + first.trouble(), 1);
    fmt::print(s.err, "       assay shrink {}{} finds the smallest line that does this\n",
               shell_quoted(to_line(problem)), name == "host" ? "" : " " + subject.argument());
    return 1;
  }
  const Environment other = changed(s.options.environment);
  const IsolatedRun second = run_isolated(subject, problem, inputs, other, s.options.timeout);
  if (second.status == IsolatedRun::Status::interrupted) return s.interrupted_before(false);
  const Observation seen{.problem = problem,
                         .subject = name,
                         .inputs = inputs,
                         .got = std::move(first.execution.planes),
                         .ran = name != "pack"};
  const bool repeats =
      second.sound() &&
      !judge(problem.x.shape.count() ? &problem : nullptr, second.execution.planes, seen.got).cause;
  auto d = repeats ? diagnosed(s, seen, subject.unpinned(problem))
                   : of_differing_runs(s, seen, second, other.poison);
  if (!d && interrupted()) return s.interrupted_before(false);
  if (!d) return s.fail(d.error().text(), 2);
  d->deterministic = repeats;
  d->argument = name == "host" ? "" : subject.argument();
  d->command =
      "assay explain " + shell_quoted(to_line(problem)) + (d->argument.empty() ? "" : " " + d->argument);
  if (repeats)
    if (const int status = look_closer(s, *d, problem, subject)) return status;
  return report(s, *d);
}

}  // namespace

int explain_line(ExplainSession& s) {
  const string& name = s.options.subject;
  const auto problem = training::read_line(s.options.what);
  if (!problem) return s.fail(not_a_line(s.options.what, problem.error()), 2);
  if (const auto lacking = lacks_memory(*problem)) return s.fail(s.options.what + ": " + *lacking, 2);
  Subject* subject = s.subjects.find(name);
  if (!subject) return s.fail("no subject '" + name + "'", 3);
  if (const Support here = present_in_child(*subject); !here.yes)
    return s.fail("subject " + name + " is absent: " + here.why, 3);
  if (const Support support = supports_in_child(*subject, *problem); !support.yes)
    return s.fail(name + " does not run this line: " + support.why, 3);
  const auto inputs = make_inputs(*problem, s.subjects.reference());
  if (!inputs) return s.fail(inputs.error().text(), 2);
  return explain_problem(s, *subject, *problem, *inputs);
}

}  // namespace assay
