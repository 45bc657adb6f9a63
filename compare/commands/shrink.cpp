#include "compare/commands/shrink.h"

#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "compare/commands/options.h"
#include "compare/commands/recorded_case.h"
#include "compare/debug/reproducer.h"
#include "compare/judge/cases.h"
#include "compare/process/interrupt.h"
#include "compare/process/pool.h"
#include "compare/process/run_in_child.h"
#include "compare/report/screen.h"
#include "compare/text/shell.h"
#include "compare/text/terminal.h"
#include "contract/line.h"

namespace assay {

namespace {

// Both lines, with the failure of the first.
std::string shrunk_text(const ShrinkCommandOptions& options, const Subjects& subjects, const Shrunk& shrunk,
                        double seconds) {
  const std::string subject =
      options.subject == "host" ? "" : " " + subjects.find(options.subject)->argument();
  const std::string environment =
      to_text(options.environment).empty() ? "" : " --env " + to_text(options.environment);
  const Breach& breach = shrunk.breach;
  std::string out = fmt::format("shrunk   {} to {} in {} runs, {:.1f} s{}\n", sizes_text(options.problem),
                                sizes_text(shrunk.bad), shrunk.runs, seconds,
                                interrupted()      ? "; it was interrupted, and smaller lines may fail too"
                                : shrunk.exhausted ? "; stopped at the limit of runs"
                                                   : "");
  out += fmt::format("  from     {}\n  fails    {}\n  claim    {}: {}\n", to_line(options.problem),
                     to_line(shrunk.bad), breach.claim,
                     breach.want.empty() ? breach.got : breach.got + " == " + breach.want);
  out += cause_text(breach);
  if (shrunk.good)
    out += fmt::format("  passes   {}\n           {}\n", to_line(*shrunk.good), shrunk.good_differs);
  else out += "  passes   no line that was tried\n";
  return out + fmt::format("  repro    assay run{}{} '{}'\n", subject, environment, to_line(shrunk.bad));
}

}  // namespace

std::optional<Error> reproduce(const ShrinkCommandOptions& options, const Subjects& subjects,
                               const Problem& bad) {
  const auto inputs = make_inputs(bad, subjects.reference());
  if (!inputs) return inputs.error();
  Subject& subject = *subjects.find(options.subject);
  const IsolatedRun got = run_isolated(subject, bad, *inputs, options.environment, options.timeout);
  const IsolatedRun want = run_isolated(subjects.reference(), bad, *inputs, Environment{}, options.timeout);
  if (!want.sound()) return Error{"reference " + want.trouble(), 0, ""};
  return write_reproducer(options.reproducer, bad, subject.argument(), *inputs, got.execution.planes,
                          want.execution.planes);
}

int run_shrink(const ShrinkCommandOptions& options, const Subjects& subjects, std::ostream& out,
               std::ostream& err) {
  if (Subject* subject = subjects.find(options.subject))
    if (const Support here = present_in_child(*subject); !here.yes) {
      err << "assay: subject " << options.subject << " is absent: " << here.why << "\n";
      return 3;
    }
  const InterruptScope scope;
  const auto start = std::chrono::steady_clock::now();
  ProgressLine progress(err, options.progress);
  const auto shrunk = shrink(options, subjects, [&](const std::string& text) { progress.show(text); });
  progress.wipe();
  if (!shrunk && interrupted()) {
    err << "assay: interrupted before the line was seen to fail\n";
    return kInterrupted;
  }
  if (!shrunk) {
    err << "assay: " << shrunk.error().text() << "\n";
    return 2;
  }
  out << shrunk_text(options, subjects, *shrunk,
                     std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  if (interrupted()) {
    if (!options.reproducer.empty()) out << "  wrote    no reproducer, because it was interrupted\n";
    return kInterrupted;
  }
  if (options.reproducer.empty()) return 0;
  if (const auto error = reproduce(options, subjects, shrunk->bad)) {
    err << "assay: " << error->text() << "\n";
    return 2;
  }
  out << fmt::format("  wrote    {}: reproduce.cpp, case.safetensors, README\n", options.reproducer);
  return 0;
}

namespace {

// A pack is refused, with the command that was meant.
void refuse_pack(std::string what, std::string case_id) {
  split_case(what, case_id);
  std::error_code ignored;
  if (what.ends_with(".safetensors") && !std::filesystem::exists(what, ignored))
    throw Refusal{fmt::format("{} does not exist", what)};
  if (!names_pack(what)) {
    if (case_id.empty()) return;
    throw Refusal{fmt::format("--case names a case of a pack, and '{}' is none", what)};
  }
  throw Refusal{
      fmt::format("a recording holds the bytes of one input and cannot be run on a smaller one: "
                  "assay explain {}{} names the cause, and shrinks the case with what it named",
                  shell_quoted(what), case_id.empty() ? "" : " --case " + shell_quoted(case_id))};
}

}  // namespace

void register_shrink(Program& program) {
  struct Given {
    ShrinkCommandOptions shrink;
    std::string line, case_id;
  };
  const auto given = std::make_shared<Given>();
  CommonOptions& common = program.common;
  Command c(program.app, "shrink", "find the smallest failing line and the nearest passing line");
  c.footer(
      "Examples:\n"
      "  assay shrink 'quantize mxfp8 96x160 bf16 fill=ties' --plugin ./libmine.so\n"
      "Exit status: 0 a smaller line was looked for to the end; 2 bad input, or the line passes; 3 the "
      "subject is "
      "absent; 130 it was interrupted, and the smallest line so far is printed.");
  c.option("line", given->line, "a line in quotes").required();
  c.option("--case", given->case_id, "a case of a pack: refused with the `assay explain` that shrinks it");
  add_subjects(c, common, "host");
  add_environment(c, common);
  add_timeout(c, common);
  c.option("--max-runs", given->shrink.max_runs, "maximum number of runs of the subject").show_default();
  c.option("--reproducer", given->shrink.reproducer,
           "write the result into this folder: a pack and a C++ program");
  c.callback([&program, given] {
    refuse_pack(given->line, given->case_id);
    const Subjects subjects = program.make_subjects(program.common);
    given->shrink.problem = problem_of_line(given->line);
    refuse_too_large({entry_of(given->shrink.problem)});
    take_subject(given->shrink, program.common, subjects);
    given->shrink.progress = program.progress;
    program.status = run_shrink(given->shrink, subjects, std::cout, std::cerr);
  });
}

}  // namespace assay
