// `assay explain <line>`: runs the subject twice, and looks for the cause of what differs from the reference.
#include <optional>

#include <fmt/format.h>

#include "compare/commands/explain/differing_runs.h"
#include "compare/commands/explain/session.h"
#include "compare/commands/options.h"
#include "compare/debug/trace.h"
#include "compare/judge/cases.h"
#include "compare/process/interrupt.h"
#include "compare/process/memory.h"
#include "compare/process/pool.h"
#include "compare/process/run_in_child.h"
#include "compare/text/shell.h"
#include "contract/line.h"
#include "training/recipes/line_factory.h"

namespace assay {

using std::string;

namespace {

// The step on which both sides part, and a smaller line. There is nothing to trace in padding, and no smaller
// line says more about it.
int look_closer(ExplainSession& s, Diagnosis& d, const Problem& problem, const Subject& subject) {
  const bool wanted = s.options.cause && s.options.look_closer;
  if (d.confidence == Confidence::equal || d.of_padding() || !wanted || interrupted()) return 0;
  const TraceOptions t{problem, s.options.subject,     "reference",      {},
                       {},      s.options.environment, s.options.timeout};
  if (auto traced = trace(t, s.subjects); traced && traced->differs()) d.trace = std::move(*traced);
  return reduce(s, d, problem, s.options.subject, s.subjects, subject.argument());
}

// What a run says of the line where every element is as it should be: a claim that fails all the same, such
// as memory that was to stay as it was.
std::optional<Breach> other_breach(const ExplainSession& s, const Problem& problem) {
  RunSettings settings;
  settings.subjects = {s.options.subject};
  settings.claims.environment = s.options.environment;
  settings.timeout = s.options.timeout;
  for (const Verdict& v : run_one(problem, s.subjects, settings))
    if (v.outcome == Outcome::failed && !v.breaches.empty()) return v.breaches.front();
  return {};
}

int explain_problem(ExplainSession& s, Subject& subject, const Problem& problem,
                    const std::vector<PlaneData>& inputs) {
  const string& name = s.options.subject;
  // Determinism first, because of two runs that differ each may have another cause.
  s.progress.show("running " + name);
  IsolatedRun first = run_isolated(subject, problem, inputs, s.options.environment, s.options.timeout);
  if (first.status == IsolatedRun::Status::interrupted) return s.interrupted_before(false);
  if (first.status == IsolatedRun::Status::unsupported) return s.fail(name + ": " + first.trouble(), 3);
  if (!first.sound()) {
    s.fail(name + (first.execution.trespass ? ": " : " ") + first.trouble(), 1);
    fmt::print(s.err, "       assay shrink {}{} finds the smallest line that does this\n",
               shell_quoted(to_line(problem)), name == "host" ? "" : " " + subject.argument());
    return 1;
  }
  const IsolatedRun second =
      run_isolated(subject, problem, inputs, changed(s.options.environment), s.options.timeout);
  if (second.status == IsolatedRun::Status::interrupted) return s.interrupted_before(false);
  const Observation seen{.problem = problem,
                         .subject = name,
                         .inputs = inputs,
                         .got = std::move(first.execution.planes),
                         .ran = name != "pack"};
  const bool repeats = made(second, problem, seen.got);
  auto d =
      repeats ? diagnosed(s, seen, subject.unpinned(problem)) : diagnosis_of_runs(s, subject, seen, second);
  if (!d && interrupted()) return s.interrupted_before(false);
  if (!d) return s.fail(d.error().text(), 2);
  d->deterministic = repeats;
  d->argument = name == "host" ? "" : subject.argument();
  d->command =
      "assay explain " + shell_quoted(to_line(problem)) + (d->argument.empty() ? "" : " " + d->argument);
  const bool equal = d->confidence == Confidence::equal && seen.ran && !interrupted();
  if (const auto b = equal ? other_breach(s, problem) : std::nullopt)
    return s.fail(
        fmt::format("{}: every element is as it should be, but the claim {}{} fails: {}", name, b->claim,
                    b->plane.empty() ? "" : " of " + b->plane, b->message.empty() ? b->where : b->message),
        1);
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
