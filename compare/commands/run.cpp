#include "compare/commands/run.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "compare/commands/options.h"
#include "compare/commands/selection.h"
#include "compare/process/interrupt.h"
#include "compare/process/pool.h"

namespace assay {

namespace {

// Whether every required subject is present; says which is not.
bool required_present(const RunOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err) {
  for (const std::string& name : options.require) {
    Subject* s = subjects.find(name);
    const Support p = s ? present_in_child(*s) : Support{false, "no subject has this name"};
    if (p.yes) continue;
    fmt::print(err, "assay: the required subject {} is absent: {}\n", name, p.why);
    fmt::print(out, "0 passed, 0 failed, {} skipped\n",
               options.entries.size() + options.training_cases.size());
    return false;
  }
  return true;
}

void run_all(const RunOptions& options, const Subjects& subjects, Reports& reports, std::FILE* err) {
  RunSettings settings = options.settings;
  if (options.report.verbose)
    settings.on_start = [&](const SuiteEntry& e) {
      fmt::print(err, "running     {}\n", e.text);
      std::fflush(err);
    };
  size_t done = 0;
  bool red = false;
  const size_t count = options.entries.size() + options.training_cases.size() * settings.subjects.size();
  run_cases(options.entries, subjects, settings, [&](const CaseResult& r) {
    for (const Verdict& v : r.verdicts) {
      reports.result(options.entries[r.index], v);
      red |= is_red(v.outcome);
    }
    reports.progress(++done, count, options.entries[r.index].text);
  });
  if (interrupted()) return reports.ended_at(done, count);
  if (red && settings.stop_at_first) return;
  run_training_cases(options.training_cases, subjects, settings,
                     [&](const TrainingCase& s, const Verdict& v) {
                       reports.result(s.entry, v);
                       reports.cell(s, v);
                       reports.progress(++done, count, s.entry.text);
                       return !(settings.stop_at_first && is_red(v.outcome));
                     });
  reports.ended_at(done, count);
}

// The word "roles" stands for the whole matrix, or for what its choice leaves out.
void choose_roles(CommonOptions& common, bool left_out) {
  const auto roles = std::find(common.what.begin(), common.what.end(), "roles");
  if (roles == common.what.end())
    throw Refusal{"--all and --list-left-out choose among the cells of roles: assay run roles --all"};
  *roles = left_out ? "roles left-out" : "roles all";
}

}  // namespace

int run_run(const RunOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err) {
  if (!required_present(options, subjects, out, err)) return 3;
  Reports reports(options.report, options.settings.claims.environment, subjects, out, err);
  if (reports.error()) {
    fmt::print(err, "assay: {}\n", reports.error()->text());
    return 2;
  }
  const InterruptScope scope;
  run_all(options, subjects, reports, err);
  const int status = reports.finish();
  if (status == 3) {
    const bool nothing_left = options.entries.empty() && options.training_cases.empty();
    fmt::print(err, "assay: nothing was judged{}\n",
               nothing_left ? ": no line matches what you asked for" : "");
  }
  return status;
}

void register_run(Program& program) {
  struct Given {
    RunOptions run;
    std::string require;
    bool all = false, left_out = false;
  };
  const auto given = std::make_shared<Given>();
  RunOptions& run = given->run;
  CommonOptions& common = program.common;
  Command c(program.app, "run", "judge subjects against the reference and against the laws");
  c.footer(
      "Examples:\n"
      "  assay run smoke\n"
      "  assay run ci --jobs 2 --jsonl report.jsonl --shard 1/4\n"
      "  assay run 'quantize mxfp8 64x256 bf16 fill=ties' --env order=17,threads=2\n"
      "  assay run ci --subject host,gpu --require gpu\n"
      "  assay run roles --all --jobs 4\n"
      "  assay run smoke --plugin ./libmine.so\n"
      "A plugin's own output is shown under --in-process only.");
  add_what(c, common);
  add_subjects(c, common, "host");
  c.option("--require", given->require, "subjects that must be present; otherwise the exit status is 3");
  add_environment(c, common);
  add_timeout(c, common);
  add_jobs(c, common);
  c.flag("--first", run.settings.stop_at_first, "stop at the first failure");
  c.flag("--in-process", run.settings.in_process, "no worker processes: for debuggers");
  add_reports(c, run.report);
  c.option("--html", run.report.html,
           "write the parity matrix of `roles` or `roles factory=<name>` here, as one page");
  c.flag("--all", given->all, "with roles: the cells that the choice of `roles` leaves out as well");
  c.flag("--list-left-out", given->left_out,
         "with roles: print the cells that are left out, and run nothing");
  c.callback([&program, given] {
    RunOptions& run = given->run;
    CommonOptions& common = program.common;
    if (given->all || given->left_out) choose_roles(common, given->left_out);
    if (given->left_out) {
      for (const TrainingCase& cell : training_cases_of(common)) fmt::print("{}\n", cell.entry.text);
      return;
    }
    const Subjects subjects = program.make_subjects(common);
    run.settings.subjects = chosen_subjects(common, subjects, "host");
    run.settings.claims.environment = environment_of(common);
    run.settings.jobs = common.jobs;
    run.settings.timeout = common.timeout;
    run.require = split_names(given->require);
    run.report.colour = program.colour;
    run.report.progress = program.progress;
    run.training_cases = training_cases_of(common);
    if (!common.what.empty()) run.entries = entries_of(common);
    program.status = run_run(run, subjects, stdout, stderr);
  });
}

}  // namespace assay
