#include "compare/commands/check.h"

#include <iostream>
#include <memory>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "compare/commands/case_screen.h"
#include "compare/commands/coherence.h"
#include "compare/commands/options.h"
#include "compare/diagnosis/report/text.h"
#include "compare/diagnosis/search/diagnose.h"
#include "compare/judge/judge.h"
#include "compare/judge/unpinned.h"
#include "compare/judge/verdict.h"
#include "compare/packs/dump.h"
#include "compare/process/run_in_child.h"
#include "compare/report/report.h"
#include "compare/text/printable.h"
#include "contract/line.h"
#include "contract/words.h"

namespace assay {

namespace {

using std::string;

constexpr double kCauseBudget = 5;  // seconds of looking for the cause of the first divergence

struct CheckedCase {
  CaseReport report;
  std::optional<Observation> seen;  // of a case whose bytes differ
};

// The output planes that a pack holds of a case, beside the reference's.
struct JudgedPlanes {
  std::vector<PlaneData> got, wanted;
  std::vector<string> digests;  // planes of which only a digest was recorded, and which differ
};

// Error: a tensor that does not fit its plane.
Result<JudgedPlanes> judged_planes(const PackCase& c, const std::vector<PlaneData>& reference,
                                   CaseReport& report) {
  JudgedPlanes out;
  for (const PlaneData& plane : reference) {
    const string& name = plane.plane.name;
    const PackPlane* recorded = c.find(name);
    if (!recorded) {
      report.missing.push_back(name);
      continue;
    }
    if (recorded->tensor) {
      auto data = dump_plane(*recorded->tensor, plane.plane, &plane);
      if (!data) return Error{name + ": " + data.error().text(), 0, ""};
      out.got.push_back(std::move(*data));
      out.wanted.push_back(plane);
    } else if (recorded->digest != digest(plane.bytes)) {
      out.digests.push_back(name);
    }
    report.judged.push_back(name);
  }
  return out;
}

// Planes of the pack that the line does not have.
void note_unknown_planes(const PackCase& c, const Problem& problem, CaseReport& report) {
  std::set<string> known;
  for (const Plane& plane : input_planes(problem)) known.insert(plane.name);
  for (const Plane& plane : output_planes(problem)) known.insert(plane.name);
  const std::vector<std::string_view> names(known.begin(), known.end());
  for (const PackPlane& plane : c.planes) {
    if (known.contains(plane.name)) continue;
    const string near = nearest_word(plane.name, names);
    const string hint = near.empty() ? "" : " (did you mean '" + near + "'?)";
    report.notes.push_back("plane '" + plane.name + "' is none of this line" + hint);
  }
}

// Bits that are not pinned are held to the bound (N16.13).
void check_unpinned(const Problem& problem, const std::vector<PlaneData>& inputs, const JudgedPlanes& planes,
                    const string& unpinned, CaseReport& report) {
  if (planes.got.empty()) {
    report.breach = message_breach(
        "d: bits that are not pinned are judged by the bound (N16.13), which needs bytes: "
        "a digest alone was recorded, and it is not the reference's");
    return;
  }
  Verdict v;
  v.subject = "pack";
  const bool vacuous = judge_unpinned(problem, inputs, planes.got, planes.wanted, unpinned, v);
  report.notes.push_back(unpinned_text(v));
  if (vacuous) report.breach = message_breach(string(kNoBound));
  else if (!v.breaches.empty()) report.breach = v.breaches.front();
}

CheckedCase check_case(const PackCase& c, const Problem& problem, const Subjects& subjects, double timeout) {
  CheckedCase out;
  CaseReport& report = out.report;
  auto failed = [&](string message) {
    report.breach = message_breach(std::move(message));
    return out;
  };
  auto inputs = dump_inputs(c, problem, subjects.reference());
  if (!inputs) return failed(inputs.error().text());
  IsolatedRun want = run_isolated(subjects.reference(), problem, *inputs, Environment{}, timeout);
  if (!want.sound()) return failed("reference: " + want.trouble());
  for (PlaneData& plane : want.execution.planes) clear_spare(plane);  // as recordings are
  auto planes = judged_planes(c, want.execution.planes, report);
  if (!planes) return failed(planes.error().text());
  note_unknown_planes(c, problem, report);
  if (report.judged.empty()) return failed("no plane of this line is in the pack: there is nothing to judge");
  if (const auto unpinned = unpinned_of(c, problem);
      unpinned && !(planes->got.empty() && planes->digests.empty())) {
    check_unpinned(problem, *inputs, *planes, *unpinned, report);
    return out;
  }
  if (!planes->got.empty())
    report.breach = breach_of(problem, judge(&problem, planes->got, planes->wanted), "pack", "reference");
  if (report.breach && !report.breach->plane.empty() && !report.breach->in_padding)
    out.seen = Observation{problem, "pack", std::move(*inputs), std::move(planes->got)};
  if (!report.breach && !planes->digests.empty())
    report.breach = message_breach(join(planes->digests) +
                                   ": the digest differs from the reference's; the bytes were not recorded");
  return out;
}

// The first divergence comes with its cause, where a short search finds one.
void tell_cause(const DumpCase& c, const Observation& seen, Subject& reference, CasePrinter& printer) {
  DiagnoseOptions search;
  search.budget = kCauseBudget;
  const auto found = diagnose(seen, reference, search);
  printer.cause(
      found ? cause_line(*found) : "",
      fmt::format("assay explain {} --case {}", shell_quoted(c.pack->path), shell_quoted(c.recorded->id)));
}

}  // namespace

int run_check(const CheckOptions& options, const Subjects& subjects, std::ostream& out, std::ostream& err) {
  const auto dump = read_dump(options.paths);
  if (!dump) {
    err << "assay: " << printable(dump.error().text()) << "\n";
    return 2;
  }
  if (options.coherence) return run_coherence(*dump, out);
  CasePrinter printer(out, options.github);
  for (const DumpCase& c : dump->cases) {
    const auto problem = problem_of(*c.recorded);
    CheckedCase checked;
    if (problem) checked = check_case(*c.recorded, *problem, subjects, options.timeout);
    else checked.report.breach = message_breach(problem.error().text());
    if (checked.seen && !printer.failed()) tell_cause(c, *checked.seen, subjects.reference(), printer);
    printer.print(c.where(), c.recorded->line, "pack == reference", checked.report);
  }
  return printer.finish();
}

void register_check(Program& program) {
  const auto check = std::make_shared<CheckOptions>();
  Command c(program.app, "check", "somebody's tensors against the reference (docs/packs.md)");
  c.footer(
      "Examples:\n"
      "  assay check dump.safetensors\n"
      "  assay check dumps/     names the first divergence by step, module, role and direction");
  c.option("pack", check->paths, "safetensors files, or folders of them").required();
  c.flag("--coherence", check->coherence,
         "rows against columns of each case, without the tensor that both were made from");
  c.flag("--github", check->github, "annotations for GitHub Actions on standard output");
  c.option("--timeout", check->timeout, "seconds a case may take").positive().show_default();
  c.callback([&program, check] {
    program.status = run_check(*check, program.make_subjects(program.common), std::cout, std::cerr);
  });
}

}  // namespace assay
