#include "compare/commands/explain/session.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/places.h"
#include "compare/commands/recorded_case.h"
#include "compare/debug/reproducer.h"
#include "compare/debug/shrink.h"
#include "compare/diagnosis/report/github.h"
#include "compare/diagnosis/report/html.h"
#include "compare/diagnosis/report/text.h"
#include "compare/judge/unpinned.h"
#include "compare/judge/verdict.h"
#include "compare/process/interrupt.h"
#include "compare/process/run_in_child.h"
#include "compare/report/doctor.h"
#include "compare/text/printable.h"
#include "contract/line.h"
#include "fixtures/files.h"

namespace assay {

using std::string;

namespace {

// What a smaller line may cost: under a second where the subject is as fast as the reference. It is counted
// in elements so that every machine, however busy, gives the same line; the clock is for subjects that are
// slower.
constexpr size_t kShrinkRuns = 400;
constexpr int64_t kShrinkElements = 8 << 20;
constexpr double kShrinkSeconds = 10, kShrinkLeast = 0.25, kShrinkTimeout = 20;

Result<Diagnosis> search(ExplainSession& s, const Observation& seen) {
  DiagnoseOptions o;
  o.jobs = s.options.jobs;
  o.pairs = s.options.pairs;
  o.flips = names_pack(s.options.what);
  o.budget = s.options.budget;
  if (!s.options.cause) o.budget = 0;
  o.on_progress = [&s](const string& text) { s.progress.show(text); };
  o.on_difference = [&](const PlaneDifference& d) { print_difference(s, seen.problem, d); };
  return diagnose(seen, s.subjects.reference(), o);
}

// What differs, all of it inside the bound.
Diagnosis inside_the_bound(const Observation& seen, const string& text) {
  Diagnosis d;
  d.line = to_line(seen.problem);
  d.subject = seen.subject;
  d.unpinned = text;
  d.elements = seen.got.front().plane.logical.count();
  return d;
}

ShrinkOptions shrink_options(const ExplainSession& s, const Problem& problem, const string& subject) {
  ShrinkOptions o;
  o.problem = problem;
  o.subject = subject;
  o.environment = s.options.environment;
  o.timeout = std::min(s.options.timeout, kShrinkTimeout);
  o.max_runs = kShrinkRuns;
  o.max_elements = kShrinkElements;
  o.max_seconds = std::clamp(s.options.budget - s.elapsed(), kShrinkLeast, kShrinkSeconds);
  o.known = true;
  return o;
}

}  // namespace

int ExplainSession::fail(const string& message, int status) {
  progress.wipe();
  fmt::print(err, "assay: {}\n", printable(message));
  return status;
}

void print_difference(ExplainSession& s, const Problem& problem, const PlaneDifference& d) {
  if (s.difference_told) return;
  s.difference_told = true;
  s.progress.wipe();
  const Encoding e = d.plane.encoding;
  fmt::print(s.out, "{} ({})   {} of {} differ, first at {}: {} ({}), should be {} ({})\n", d.plane.name,
             info(e).name, d.differ, d.of, place_text(&problem, d.plane, d.place), code_hex(e, d.got),
             value_text(e, d.got), code_hex(e, d.want), value_text(e, d.want));
  std::fflush(s.out);
}

int ExplainSession::interrupted_before(bool any_equal) {
  return fail(any_equal ? "interrupted: the judged cases are right; the others were not judged"
                        : "interrupted before a case was judged",
              kInterrupted);
}

Result<Diagnosis> diagnosed(ExplainSession& s, const Observation& seen,
                            const std::optional<string>& unpinned) {
  if (!unpinned || seen.got.empty()) return search(s, seen);
  const IsolatedRun want =
      run_isolated(s.subjects.reference(), seen.problem, seen.inputs, Environment{}, s.options.timeout);
  if (!want.sound()) return Error{"the reference: " + want.trouble(), 0, ""};
  Verdict v;
  v.subject = seen.subject;
  const bool vacuous = judge_unpinned(seen.problem, seen.inputs, seen.got, want.execution.planes, *unpinned,
                                      s.subjects.reference(), v);
  const string text = unpinned_text(v) + (vacuous ? fmt::format(": {}", kNoBound) : "");
  if (v.breaches.empty() && !vacuous) return inside_the_bound(seen, text);
  Observation bounded = seen;
  bounded.unpinned = true;
  auto found = search(s, bounded);
  if (found) found->unpinned = text;
  return found;
}

int reduce(ExplainSession& s, Diagnosis& d, const Problem& problem, const string& subject,
           const Subjects& subjects, const string& argument) {
  if (interrupted() || (problem.as<Split>() && problem.x.fill.kind == FillKind::pack)) return 0;
  const auto shrunk = shrink(shrink_options(s, problem, subject), subjects,
                             [&s](const string& text) { s.progress.show("shrinking, " + text); });
  if (!shrunk) return 0;  // the case itself is the smallest that is known
  d.reproducer = to_line(shrunk->bad);
  d.reproducer_limited = shrunk->exhausted;
  d.evaluations += static_cast<int>(shrunk->runs);
  const string& folder = s.options.reproducer;
  if (folder.empty()) return 0;
  if (interrupted()) {
    s.progress.wipe();
    fmt::print(s.err, "note: no reproducer was written, because it was interrupted\n");
    return 0;
  }
  const auto inputs = make_inputs(shrunk->bad, subjects.reference());
  if (!inputs) return s.fail(inputs.error().text(), 2);
  const IsolatedRun got =
      run_isolated(*subjects.find(subject), shrunk->bad, *inputs, s.options.environment, s.options.timeout);
  const IsolatedRun want =
      run_isolated(subjects.reference(), shrunk->bad, *inputs, Environment{}, s.options.timeout);
  if (const auto error = write_reproducer(folder, shrunk->bad, argument, *inputs, got.execution.planes,
                                          want.execution.planes))
    return s.fail(error->text(), 2);
  for (const char* name : {"reproduce.cpp", "case.safetensors", "README"})
    d.reproducer_files.push_back((std::filesystem::path(folder) / name).string());
  return 0;
}

int report(ExplainSession& s, Diagnosis& d) {
  s.progress.wipe();
  d.seconds = s.elapsed();
  fmt::print(s.out, "{}", diagnosis_screen(d, s.options.colour));
  if (!s.options.json.empty())
    if (const auto error = write_file(s.options.json, json::dump(to_json(d), 1) + "\n"))
      return s.fail(error->text(), 2);
  if (!s.options.html.empty())
    if (const auto error = write_diagnosis_page(d, s.options.html, doctor_facts_in_child(s.subjects)))
      return s.fail(error->text(), 2);
  if (s.options.github) annotate_diagnosis(d, s.out);
  std::fflush(s.out);
  return d.confidence == Confidence::equal ? 0 : 1;
}

}  // namespace assay
