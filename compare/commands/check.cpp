#include "compare/commands/check.h"

#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "compare/commands/case_screen.h"
#include "compare/commands/check_json.h"
#include "compare/commands/checked_case.h"
#include "compare/commands/coherence.h"
#include "compare/commands/options.h"
#include "compare/commands/shared_check.h"
#include "compare/commands/sharing.h"
#include "compare/commands/simd_certificate.h"
#include "compare/packs/dump.h"
#include "compare/process/crew.h"
#include "compare/process/interrupt.h"
#include "compare/report/report.h"
#include "compare/text/printable.h"
#include "compare/text/shell.h"
#include "compare/text/terminal.h"
#include "contract/line.h"
#include "fixtures/files.h"

namespace assay {

namespace {

using std::string;

// One run of the command.
class Check {
 public:
  Check(const CheckOptions& options, const Dump& dump, const Subjects& subjects, std::ostream& out,
        std::ostream& err)
      : options_(options),
        dump_(dump),
        subjects_(subjects),
        err_(err),
        printer_(out, options.github),
        progress_(err, options.progress),
        acceptor_(options.exact ? nullptr : acceptor_of(subjects)),
        json_(options.json, acceptor_) {}

  int run() {
    if (crew() || !options_.kept.folder.empty()) share();
    else
      for (const DumpCase& c : dump_.cases)
        if (interrupted() || !take(c, judged(c, [&](const string& where) { early(c, where); }))) break;
    if (serves()) return 0;
    if (const auto unwritten = json_.write(dump_.cases.size())) return refuse(*unwritten);
    printer_.print_first();
    const int status = finish();
    return unkept_ ? refuse(*unkept_) : status;
  }

 private:
  // The first case whose bytes differ.
  struct FirstFailure {
    const DumpCase* place;
    CheckedCase checked;
  };

  int refuse(const Error& error) {
    err_ << "assay: " << printable(error.text()) << "\n";
    return 2;
  }

  int finish() {
    if (taken_ < dump_.cases.size()) return printer_.finish_interrupted(taken_, dump_.cases.size());
    if (first_) look_into(*first_);
    return printer_.finish();
  }

  CheckedCase judged(const DumpCase& c, std::function<void(const string&)> on_first) {
    const auto problem = problem_of(*c.recorded);
    if (!problem) {
      CheckedCase out;
      out.report.breach = message_breach(problem.error().text());
      return out;
    }
    CaseSettings settings;
    settings.jobs = crew() ? 1 : options_.jobs;  // a process of several has its share of the cores
    settings.timeout = options_.timeout;
    settings.large = options_.large;
    settings.acceptor = acceptor_;
    settings.on_first = std::move(on_first);
    settings.on_progress = [&](const string& text) { progress_.show(printable(text)); };
    return check_case(c, *problem, subjects_, settings);
  }

  void early(const DumpCase& c, const string& where) {
    progress_.wipe();
    printer_.print_early(c.where(), where);
  }

  // Each case in a worker, which says with its result what was to be said earlier.
  void share() {
    const auto judge = [&](const DumpCase& c) {
      string where;
      CheckedCase out = judged(c, [&](const string& first) { where = first; });
      out.early = std::move(where);
      return out;
    };
    unkept_ = share_cases(dump_, options_, acceptor_, judge, [&](const DumpCase& c, CheckedCase checked) {
      if (!checked.early.empty()) early(c, checked.early);
      return take(c, std::move(checked));
    });
  }

  // False where the user has ended it before all of the case was judged.
  bool take(const DumpCase& c, CheckedCase checked) {
    progress_.wipe();
    if (checked.cut_short && !checked.report.breach) return false;
    taken_ += !checked.cut_short;
    printer_.print(c.where(), c.recorded->line, "pack == reference", checked.report);
    json_.add(c, checked);
    if (checked.explainable && !first_) first_ = FirstFailure{&c, std::move(checked)};
    return true;
  }

  void look_into(FirstFailure& first) {
    const DumpCase& c = *first.place;
    if (options_.cause) {
      if (first.checked.elsewhere) first.checked = judged(c, {});
      printer_.print_cause(first_cause(c, *problem_of(*c.recorded), first.checked, subjects_.reference(),
                                       options_.budget, options_.jobs, options_.timeout));
    }
    printer_.print_next(
        fmt::format("assay explain {} --case {}", shell_quoted(c.pack->path), shell_quoted(c.recorded->id)));
  }

  const CheckOptions& options_;
  const Dump& dump_;
  const Subjects& subjects_;
  std::ostream& err_;
  CasePrinter printer_;
  ProgressLine progress_;
  Acceptor* acceptor_;
  CheckJson json_;
  std::optional<FirstFailure> first_;
  std::optional<Error> unkept_;
  size_t taken_ = 0;
};

}  // namespace

int run_check(const CheckOptions& options, const Subjects& subjects, std::ostream& out, std::ostream& err) {
  const auto refuse = [&](const Error& error) {
    err << "assay: " << printable(error.text()) << "\n";
    return 2;
  };
  std::vector<Error> unread;
  const auto dump = read_dump(options.paths, &unread);
  if (!dump) return refuse(dump.error());
  // What could not be read of a folder is said beside the verdicts of the rest, and makes them none of the
  // whole.
  const auto with_unread = [&](int status) {
    if (unread.empty() || serves()) return status;
    for (const Error& e : unread) err << "assay: not read: " << printable(e.text()) << "\n";
    return status == kInterrupted ? status : 2;
  };
  if (options.coherence) return serves() ? 0 : with_unread(run_coherence(*dump, out));
  if (!options.json.empty() && !serves())
    if (const auto why = cannot_write(options.json, "--json")) return refuse(*why);
  const InterruptScope scope;
  return with_unread(Check(options, *dump, subjects, out, err).run());
}

void register_check(Program& program) {
  const auto check = std::make_shared<CheckOptions>();
  check->budget = 2;
  Command c(program.app, "check", "judge dumped tensors against the reference (docs/packs.md)");
  c.footer(
      "Examples:\n"
      "  assay check dump.safetensors\n"
      "  assay check dumps/     names the first divergence by step, module, role and direction\n"
      "  mpirun -n 64 build/mpi/bin/assay check dumps/ --mpi --resume dumps-results\n"
      "Exit status: 0 every plane that was judged is the reference's; 1 one is not, or a case cannot be "
      "judged; 2 bad input, which a file of a folder is that cannot be read, after the others were judged; 3 "
      "nothing was judged; 130 it was interrupted before a difference was found.");
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
  add_resume(c, check->kept);
  add_mpi(c, check->mpi);
  c.callback([&program, check] {
    settle(check->mpi, program);
    check->kept.digest = digest_of(check->kept, program.common, "check");
    check->jobs = program.common.jobs;
    check->progress = program.progress;
    const Subjects subjects = program.make_subjects(program.common);
    if (Acceptor* acceptor = acceptor_of(subjects))
      acceptor->use_certified(certified_targets(simd_certificate_path(), *acceptor));
    program.status = run_check(*check, subjects, std::cout, std::cerr);
  });
}

}  // namespace assay
