// `assay explain <pack>`: looks for the cause of the first case of a pack that differs from the reference.
#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "compare/commands/checked_case.h"
#include "compare/commands/explain/session.h"
#include "compare/commands/recorded_case.h"
#include "compare/commands/whole_layout.h"
#include "compare/debug/trace.h"
#include "compare/diagnosis/search/predict.h"
#include "compare/judge/unpinned.h"
#include "compare/packs/dump.h"
#include "compare/packs/tiled_case.h"
#include "compare/process/interrupt.h"
#include "compare/process/run_in_child.h"
#include "compare/report/report.h"
#include "compare/report/screen.h"
#include "compare/subjects/forwarding.h"
#include "compare/text/printable.h"
#include "compare/text/shell.h"
#include "contract/line.h"

namespace assay {

using std::string;

namespace {

// The trace and the reproducer of a recorded case: its bytes stand for the subject, and where they are
// explained, the explanation does.
int look_closer(ExplainSession& s, Diagnosis& d, const Observation& seen, const DumpCase& c) {
  Subject& reference = s.subjects.reference();
  const auto drawn = drawn_from(c, seen.problem);
  if (!drawn) return 0;
  Subjects subjects;
  subjects.owned.push_back(std::make_unique<ForwardingSubject>(reference));
  std::optional<Problem> explained;
  const bool exact = !d.explanations.empty() && d.explanations.front().exact();
  if (exact && !d.explanations.front().line.empty())
    if (auto p = parse_line(d.explanations.front().line)) explained = std::move(*p);
  const IsolatedRun want =
      run_isolated(reference, seen.problem, seen.inputs, Environment{}, s.options.timeout);
  if (!want.sound()) return 0;
  subjects.owned.push_back(make_recorded_subject(seen, want.execution.planes, explained, reference));
  TraceOptions t{*drawn, "pack", "reference", {}, {}, Environment{}, s.options.timeout};
  t.inputs = &seen.inputs;  // what was given came with the pack, and a line would draw other scales
  if (auto traced = trace(t, subjects); traced && traced->differs()) d.trace = std::move(*traced);
  if (!exact) return 0;
  subjects.owned.push_back(make_explained_subject(d.explanations.front(), "explained", reference));
  return reduce(s, d, *drawn, "explained", subjects, "");
}

// One case that was looked at.
struct Explained {
  Diagnosis diagnosis;
  std::optional<Observation> seen;  // of a case that is small enough to be looked at as a whole
};

// What is to be known of a case before its verdict.
void print_notes(ExplainSession& s, const DumpCase& c, const CaseReport& report) {
  const string text = notes_text(c.where(), report);
  if (text.empty()) return;
  s.progress.wipe();
  fmt::print(s.out, "{}", text);
  std::fflush(s.out);
}

// A large case: judged in tiles, and searched where the first difference lies.
Result<Explained> explain_large(ExplainSession& s, const DumpCase& c, const Problem& problem) {
  CaseSettings settings;
  settings.jobs = s.options.jobs;
  settings.timeout = s.options.timeout;
  settings.large = s.options.large;
  settings.on_progress = [&](const string& text) { s.progress.show(text); };
  const CheckedCase checked = check_case(c, problem, s.subjects, settings);
  s.progress.wipe();
  const CaseReport& report = checked.report;
  print_notes(s, c, report);
  if (!report.breach && checked.cut_short) return Error{"interrupted before it was judged", 0, ""};
  if (report.breach && report.breach->plane.empty()) return Error{report.breach->message, 0, ""};
  Explained out;
  Diagnosis& d = out.diagnosis;
  d.line = to_line(problem);
  d.subject = "pack " + c.where();
  for (const Plane& plane : output_planes(problem))
    if (c.recorded->find(plane.name)) d.elements += plane.logical.count();
  if (!report.breach) return out;
  fmt::print(s.out, "{}", cause_text(*report.breach));
  s.difference_told = true;
  std::fflush(s.out);
  d.confidence = Confidence::unexplained;
  if (!checked.window) return out;  // a value of the whole tensor, or padding: no part tells what made it
  if (s.options.cause && may_be_layout(problem, *report.breach)) {
    s.progress.show("looking for orders of the whole tensor");
    if (auto whole = layout_of_whole(c, problem, s.subjects.reference(), s.options.timeout)) {
      d = std::move(*whole);
      return out;
    }
  }
  auto seen = observed(c, problem, checked, s.subjects.reference());
  if (!seen) return seen.error();
  auto found = diagnosed(s, *seen, {});
  if (!found) return found.error();
  d = std::move(*found);
  d.part = looked_at(checked);
  if (d.confidence == Confidence::unexplained || d.confidence == Confidence::partial)
    if (string untried = layouts_untried(c, problem, *report.breach); !untried.empty())
      d.fingerprints.push_back(std::move(untried));
  return out;
}

Result<Explained> explain_case(ExplainSession& s, const DumpCase& c) {
  const auto problem = problem_of(*c.recorded);
  if (!problem) return problem.error();
  if (problem->x.shape.count() >= s.options.large && tiling_of_case(*c.recorded, *problem))
    return explain_large(s, c, *problem);
  print_notes(s, c, noted_planes(*c.recorded, *problem));
  auto seen = observed(c, *problem, {}, s.subjects.reference());
  if (!seen) return seen.error();
  auto found = diagnosed(s, *seen, unpinned_of(*c.recorded, *problem));
  if (!found) return found.error();
  return Explained{std::move(*found), std::move(*seen)};
}

}  // namespace

int explain_pack(ExplainSession& s) {
  std::vector<Error> unread;
  const auto dump = read_dump({s.options.what}, &unread);
  if (!dump) return s.fail(dump.error().text(), 2);
  const auto cases = cases_named(*dump, s.options.what, s.options.case_id);
  if (!cases) return s.fail(cases.error().text(), 2);
  std::optional<Diagnosis> chosen;  // the first that differs, or the last that holds an element
  std::vector<string> missed;       // cases that cannot be compared, and why
  for (const DumpCase* one : *cases) {
    const DumpCase& c = *one;
    if (interrupted()) return s.interrupted_before(chosen.has_value());
    auto found = explain_case(s, c);
    if (!found && interrupted()) return s.interrupted_before(chosen.has_value());
    if (!found) {
      missed.push_back(c.where() + ": " + found.error().text());
      continue;
    }
    Diagnosis& d = found->diagnosis;
    d.command =
        fmt::format("assay explain {} --case {}", shell_quoted(c.pack->path), shell_quoted(c.recorded->id));
    const bool differs = d.confidence != Confidence::equal;
    if (const auto problem = problem_of(*c.recorded); problem && !differs)
      for (const string& misspelt : misspelt_planes(*c.recorded, *problem))
        missed.push_back(c.where() + ": " + misspelt);
    if (!chosen || differs || d.elements > 0) chosen = std::move(d);
    if (!differs) continue;
    if (!chosen->of_padding() && found->seen && s.options.cause && !interrupted())
      if (const int status = look_closer(s, *chosen, *found->seen, c)) return status;
    break;
  }
  if (!chosen) {
    const string more =
        missed.size() > 1 ? fmt::format(" ({} more cases cannot be compared either)", missed.size() - 1) : "";
    return s.fail(missed.front() + more, 1);  // as `assay check` counts such a case: as failed
  }
  s.progress.wipe();
  for (const string& m : missed) fmt::print(s.err, "note: not compared: {}\n", printable(m));
  int status = report(s, *chosen);
  if (status == 0 && !missed.empty()) status = 1;
  for (const Error& e : unread) status = s.fail("not read: " + e.text(), 2);
  return status;
}

}  // namespace assay
