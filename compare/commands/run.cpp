#include "compare/commands/run.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>

#include <fmt/format.h>

#include "compare/commands/common_cause.h"
#include "compare/commands/options.h"
#include "compare/commands/selection.h"
#include "compare/commands/sharing.h"
#include "compare/commands/training_cases/processes.h"
#include "compare/commands/transcript.h"
#include "compare/process/crew.h"
#include "compare/process/interrupt.h"
#include "compare/process/pool.h"
#include "compare/text/printable.h"
#include "training/base/rank_engine.h"
#include "training/base/ranks.h"

namespace assay {

namespace {

// Whether every required subject is present; says which is not.
bool required_present(const RunOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err) {
  for (const std::string& name : options.require) {
    Subject* s = subjects.find(name);
    const Support p = s ? present_in_child(*s) : Support{false, "no subject has this name"};
    if (p.yes) continue;
    fmt::print(err, "assay: the required subject {} is absent: {}\n", printable(name), printable(p.why));
    fmt::print(out, "0 passed, 0 failed, {} skipped\n",
               options.entries.size() + options.training_cases.size());
    return false;
  }
  return true;
}

// False where processes lost one another.
bool run_all(const RunOptions& options, const Subjects& subjects, Journal* journal, Reports& reports,
             Transcript& transcript, std::FILE* err) {
  using Clock = std::chrono::steady_clock;
  RunSettings settings = options.settings;
  if (journal || crew()) settings.numbered = NumberedTasks{0, journal};
  std::map<const SuiteEntry*, Clock::time_point> begun;  // cases that have no result yet
  size_t done = 0;
  bool red = false;
  const size_t count = options.entries.size() + options.training_cases.size() * settings.subjects.size();
  settings.on_start = [&](const SuiteEntry& e) {
    begun.emplace(&e, Clock::now());
    if (!options.report.verbose) return;
    fmt::print(err, "running     {}\n", e.text);
    std::fflush(err);
  };
  settings.on_wait = [&] {
    if (begun.empty()) return;
    const auto& [first, since] = *begun.begin();
    reports.waiting(done, count, first->text, std::chrono::duration<double>(Clock::now() - since).count());
  };
  run_cases(options.entries, subjects, settings, [&](const CaseResult& r) {
    begun.erase(&options.entries[r.index]);
    for (const Verdict& v : r.verdicts) {
      reports.result(options.entries[r.index], v);
      red |= is_red(v.outcome);
    }
    reports.progress(++done, count, options.entries[r.index].text);
  });
  if (interrupted()) {
    reports.ended_at(done, count);
    return true;
  }
  if (red && settings.stop_at_first) return true;
  if (settings.numbered) settings.numbered->first = options.entries.size();
  const bool whole = run_training_cases(options.training_cases, subjects, settings,
                                        [&](const TrainingCase& s, const Verdict& with_ranks) {
                                          const Verdict v = transcript.take(s.entry, with_ranks);
                                          reports.result(s.entry, v);
                                          reports.cell(s, v);
                                          reports.progress(++done, count, s.entry.text);
                                          return !(settings.stop_at_first && is_red(v.outcome));
                                        });
  reports.ended_at(done, count);
  return whole;
}

// The word "roles" stands for the whole matrix, or for what its choice leaves out.
void choose_roles(CommonOptions& common, bool left_out) {
  const auto roles = std::find(common.what.begin(), common.what.end(), "roles");
  if (roles == common.what.end())
    throw Refusal{"--all and --list-left-out choose among the cells of roles: assay run roles --all"};
  *roles = left_out ? "roles left-out" : "roles all";
}

// Why the processes of a launcher cannot run this together; empty where they can.
std::string refusal_of_processes(const RunOptions& options) {
  if (!options.entries.empty())
    return fmt::format(
        "a launcher's processes judge cases of several ranks: `assay run ranks`, or scenarios by "
        "name; run '{}' without mpirun",
        options.entries.front().text);
  return disagreement_of_processes(options.training_cases, options.settings);
}

// Every process calls it before the first case: whether the first one is ready to report.
bool starts(bool ready) {
  return training::rank_engine().processes() == 1 ||
         training::texts_of_processes("the start", ready ? "" : "end").front().empty();
}

// The processes after the first judge like it, and say nothing.
int run_silently(const RunOptions& options, const Subjects& subjects) {
  if (starts(true))
    run_training_cases(options.training_cases, subjects, options.settings,
                       [](const TrainingCase&, const Verdict&) { return true; });
  return 0;
}

// What a process does that the first one gives its tasks: the lines, and after them the training cases.
int serve_run(const RunOptions& options, const Subjects& subjects) {
  const RunSettings& settings = options.settings;
  const size_t lines = options.entries.size();
  crew()->serve(
      [&](size_t i) {
        return i < lines ? judged_text(options.entries[i], subjects, settings)
                         : judged_text(options.training_cases, i - lines, subjects, settings);
      },
      settings.jobs, settings.timeout, options.kept.digest);
  return 0;
}

// What keeps a report from being opened, said on `err`; true where nothing does.
bool opened(const std::optional<Error>& error, std::FILE* err) {
  if (error) fmt::print(err, "assay: {}\n", error->text());
  return !error;
}

int run_and_report(const RunOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err) {
  if (!required_present(options, subjects, out, err)) return starts(false), 3;
  const Result<std::unique_ptr<Journal>> journal = journal_of(options.kept, err);
  if (!journal) return opened(journal.error(), err), 2;
  Transcript transcript(options.transcript);
  const RunSettings& settings = options.settings;
  const Environment& environment = settings.claims.environment;
  CommonCause cause(subjects, environment, settings.timeout, settings.jobs, options.budget);
  ReportOptions report = options.report;
  report.common_cause = [&](const std::vector<Failure>& failures) { return cause.of(failures); };
  Reports reports(report, environment, subjects, out, err);
  if (!opened(transcript.trouble(), err) || !opened(reports.error(), err)) return starts(false), 2;
  std::optional<InterruptScope> scope;
  // A launcher's signals end the meeting that waits.
  if (training::rank_engine().processes() == 1) scope.emplace();
  const bool whole = !starts(true) || run_all(options, subjects, journal->get(), reports, transcript, err);
  int status = reports.finish();
  if (!opened(transcript.trouble(), err)) status = 2;
  if (*journal && !opened((*journal)->trouble(), err)) status = 2;
  if (status == 3) {
    const bool nothing_left = options.entries.empty() && options.training_cases.empty();
    fmt::print(err, "assay: nothing was judged{}\n",
               nothing_left ? ": no line matches what you asked for" : "");
  }
  if (!whole) training::rank_engine().abort(status, "");
  return status;
}

// What a suite says of a line: the line, and the outcome that it expects.
std::string text_of(const SuiteEntry& e) {
  std::string text = fmt::format("\n{}:{} {}", e.file, e.line, e.text);
  if (e.expect.unsupported) text += " # expect unsupported";
  if (e.expect.fail)
    text += fmt::format(" # expect fail {} {}", e.expect.fail->plane, e.expect.fail->because);
  if (e.expect.trust) text += " # trust " + *e.expect.trust;
  return text;
}

// All that decides the results, for their digest. A time limit decides none that is kept.
std::string tasks_text(const RunOptions& options) {
  std::string all = fmt::format("run\n{}", fmt::join(options.settings.subjects, ","));
  for (const SuiteEntry& e : options.entries) all += text_of(e);
  for (const TrainingCase& c : options.training_cases) all += "\n" + c.entry.text;
  return all;
}

// The program as a launcher finds it: no alias of a shell helps there.
std::string own_path() {
  std::error_code absent;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", absent);
  if (absent) return "assay";
  const std::filesystem::path near = self.lexically_proximate(std::filesystem::current_path(absent));
  return near.empty() || near.native().starts_with("..") ? self.string() : near.string();
}

}  // namespace

int run_run(const RunOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err) {
  if (serves()) return serve_run(options, subjects);
  if (crew()) crew()->agree_on(options.kept.digest);
  training::RankEngine& ranks = training::rank_engine();
  ranks.deadline = std::chrono::duration<double>(options.deadline);
  if (ranks.processes() == 1) return run_and_report(options, subjects, out, err);
  const InThisProcess no_forks;
  if (const std::string why = refusal_of_processes(options); !why.empty()) {
    if (ranks.process() == 0) fmt::print(err, "assay: {}\n", why);
    return 2;
  }
  if (ranks.process() != 0) return run_silently(options, subjects);
  RunOptions told = options;
  told.report.launched = fmt::format("mpirun -n {} {}", ranks.processes(), own_path());
  return run_and_report(told, subjects, out, err);
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
      "  assay run nightly --resume nightly-results\n"
      "  mpirun -n 4 build/mpi/bin/assay run ranks --transcript ranks.jsonl\n"
      "  mpirun -n 64 build/mpi/bin/assay run nightly --mpi --resume nightly-results\n"
      "A plugin's own output is shown under --in-process only.\n"
      "Exit status: 0 all good; 1 something failed or is mistrusted; 2 bad usage or unreadable input; 3 "
      "nothing ran, or a required subject is absent; 130 it was interrupted before something failed.");
  add_what(c, common);
  add_subjects(c, common, "host");
  c.option("--require", given->require, "subjects that must be present; otherwise the exit status is 3");
  add_environment(c, common);
  add_timeout(c, common);
  add_jobs(c, common);
  add_resume(c, run.kept);
  add_mpi(c, run.mpi);
  c.option("--deadline", run.deadline, "seconds that a rank waits for the others in a collective")
      .positive()
      .show_default();
  c.option("--budget", run.budget,
           "seconds for telling whether failures of several patterns have one cause; 0: no search")
      .seconds_or_zero()
      .show_default();
  c.flag("--first", run.settings.stop_at_first, "stop at the first failure");
  c.flag("--in-process", run.settings.in_process, "no worker processes: for debuggers");
  add_reports(c, run.report);
  c.option("--html", run.report.html,
           "write the parity matrix of `roles` or `roles factory=<name>` here, as one page");
  c.flag("--all", given->all, "with roles: the cells that the choice of `roles` leaves out as well");
  c.flag("--list-left-out", given->left_out,
         "with roles: print the cells that are left out, and run nothing");
  c.option("--transcript", run.transcript,
           "write what every rank did here: its process, its collectives and digests of its shards");
  c.callback([&program, given] {
    RunOptions& run = given->run;
    CommonOptions& common = program.common;
    if (given->all || given->left_out) choose_roles(common, given->left_out);
    if (given->left_out) {
      for (const TrainingCase& cell : training_cases_of(common)) fmt::print("{}\n", cell.entry.text);
      return;
    }
    settle(run.mpi, program);
    const Subjects subjects = program.make_subjects(common);
    run.settings.subjects = chosen_subjects(common, subjects, "host");
    run.settings.claims.environment = environment_of(common);
    run.settings.jobs = common.jobs;
    run.settings.timeout = common.timeout;
    CommonOptions required;
    required.subjects = given->require;
    if (!given->require.empty()) run.require = chosen_subjects(required, subjects, "");
    run.report.colour = program.colour;
    run.report.progress = program.progress;
    run.training_cases = training_cases_of(common);
    if (!common.what.empty()) run.entries = entries_of(common);
    refuse_too_large(run.entries);
    if (run.settings.in_process && (run.mpi || !run.kept.folder.empty()))
      throw Refusal{"--in-process has no tasks to share or to keep; leave out --mpi and --resume"};
    if (training::rank_engine().processes() > 1 && !run.kept.folder.empty())
      throw Refusal{"--resume: ranks that are processes keep no results; leave it out"};
    run.kept.digest = digest_of(run.kept, common, tasks_text(run));
    program.status = run_run(run, subjects, stdout, stderr);
  });
}

}  // namespace assay
