#include "compare/commands/check.h"

#include <iostream>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "compare/commands/case_screen.h"
#include "compare/commands/check_json.h"
#include "compare/commands/checked_case.h"
#include "compare/commands/coherence.h"
#include "compare/commands/options.h"
#include "compare/commands/simd_certificate.h"
#include "compare/packs/dump.h"
#include "compare/process/interrupt.h"
#include "compare/report/report.h"
#include "compare/text/printable.h"
#include "compare/text/terminal.h"
#include "contract/line.h"
#include "fixtures/files.h"

namespace assay {

namespace {

using std::string;

// The first case whose bytes differ.
struct FirstFailure {
  const DumpCase* place;
  Problem problem;
  CheckedCase checked;
};

}  // namespace

int run_check(const CheckOptions& options, const Subjects& subjects, std::ostream& out, std::ostream& err) {
  const auto dump = read_dump(options.paths);
  if (!dump) {
    err << "assay: " << printable(dump.error().text()) << "\n";
    return 2;
  }
  if (options.coherence) return run_coherence(*dump, out);
  if (!options.json.empty())
    if (const auto why = cannot_write(options.json, "--json")) {
      err << "assay: " << printable(why->text()) << "\n";
      return 2;
    }
  const InterruptScope scope;
  CasePrinter printer(out, options.github);
  ProgressLine progress(err, options.progress);
  CaseSettings settings;
  settings.jobs = options.jobs;
  settings.timeout = options.timeout;
  settings.large = options.large;
  if (!options.exact) settings.acceptor = acceptor_of(subjects);
  CheckJson json(options.json, settings.acceptor);
  settings.on_progress = [&](const string& text) { progress.show(printable(text)); };
  std::optional<FirstFailure> first;
  size_t judged = 0;
  for (const DumpCase& c : dump->cases) {
    if (interrupted()) break;
    const auto problem = problem_of(*c.recorded);
    CheckedCase checked;
    settings.on_first = [&](const string& where) {
      progress.wipe();
      printer.print_early(c.where(), where);
    };
    if (problem) checked = check_case(c, *problem, subjects, settings);
    else checked.report.breach = message_breach(problem.error().text());
    progress.wipe();
    if (checked.cut_short && !checked.report.breach) break;
    judged += !checked.cut_short;
    printer.print(c.where(), c.recorded->line, "pack == reference", checked.report);
    json.add(c, checked);
    if (checked.explainable && !first) first = FirstFailure{&c, *problem, std::move(checked)};
  }
  if (const auto unwritten = json.write(dump->cases.size())) {
    err << "assay: " << printable(unwritten->text()) << "\n";
    return 2;
  }
  printer.print_first();
  if (judged < dump->cases.size()) return printer.finish_interrupted(judged, dump->cases.size());
  if (first) {
    if (options.cause)
      printer.print_cause(first_cause(*first->place, first->problem, first->checked, subjects.reference(),
                                      options.budget, options.jobs));
    printer.print_next(fmt::format("assay explain {} --case {}", shell_quoted(first->place->pack->path),
                                   shell_quoted(first->place->recorded->id)));
  }
  return printer.finish();
}

void register_check(Program& program) {
  const auto check = std::make_shared<CheckOptions>();
  check->budget = 2;
  Command c(program.app, "check", "judge dumped tensors against the reference (docs/packs.md)");
  c.footer(
      "Examples:\n"
      "  assay check dump.safetensors\n"
      "  assay check dumps/     names the first divergence by step, module, role and direction");
  c.option("pack", check->paths, "safetensors files, or folders of them").required();
  c.flag("--coherence", check->coherence,
         "compare the rows of each case with its columns, without the tensor that both were made from");
  c.flag("--github", check->github, "annotations for GitHub Actions on standard output");
  c.flag("--exact", check->exact,
         "the reference judges every block; else it judges those that the vectorised method does not know to "
         "be right, and one in a hundred of the others; where more differ, that method counts them");
  c.option("--json", check->json, "write the verdicts here");
  c.option("--timeout", check->timeout, "time limit of a case, or of a part of a large case, in seconds")
      .seconds()
      .show_default();
  c.option("--budget", check->budget,
           "time limit of the search for the cause of the first divergence, in seconds")
      .seconds()
      .show_default();
  c.flag(
      "--no-cause", [check] { check->cause = false; }, "do not search for that cause");
  add_jobs(c, program.common);
  c.callback([&program, check] {
    check->jobs = program.common.jobs;
    check->progress = program.progress;
    const Subjects subjects = program.make_subjects(program.common);
    if (Acceptor* acceptor = acceptor_of(subjects))
      acceptor->use_certified(certified_targets(simd_certificate_path(), *acceptor));
    program.status = run_check(*check, subjects, std::cout, std::cerr);
  });
}

}  // namespace assay
