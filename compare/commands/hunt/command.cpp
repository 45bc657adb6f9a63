// The command line of `assay hunt`.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compare/choices/draw.h"
#include "compare/commands/command_line.h"
#include "compare/commands/hunt.h"
#include "compare/commands/options.h"
#include "compare/commands/sharing.h"
#include "contract/subject.h"
#include "fixtures/suite.h"

namespace assay {

namespace {

constexpr int kMostBatches = 1'000'000'000;

}  // namespace

void register_hunt(Program& program) {
  const auto hunt = std::make_shared<HuntOptions>();
  CommonOptions& common = program.common;
  Command c(program.app, "hunt", "draw lines and judge them for a given time; keep what fails, by its cause");
  c.footer(
      "Lines are drawn from the table of keys, guided by the pairs of choices, rounding cases and codes that "
      "no line had yet (docs/hunt.md).\n"
      "Examples:\n"
      "  assay hunt --plugin ./libmine.so --minutes 10 --to hunt-mine\n"
      "  assay hunt --subject host --only 'quantize nvfp4' --seed 7\n"
      "  mpirun -n 16 build/mpi/bin/assay hunt --mpi --plugin ./libmine.so --minutes 60 --to hunt-mine\n"
      "  assay hunt --edges build/fuzz/bin/assay_edges --minutes 60\n"
      "  assay hunt smoke --python mine:quantize --python-spec 'mxfp8 dir=row'\n"
      "The same command with the same --to goes on where it ended, also after a kill.\n"
      "Exit status: 0 nothing found; 1 something fails; 2 bad usage, or the folder cannot be used; 3 nothing "
      "ran; 130 the user "
      "ended it and nothing had failed.");
  add_what(c, common, false);
  add_subjects(c, common, "host");
  c.option("--to", hunt->folder, "the folder of the hunt: its state, found.cases, and a pack of each finding")
      .show_default();
  c.option(
       "--minutes", hunt->minutes,
       "how long lines are judged; a line that is judged then, and a cause that is looked for, come to their "
       "end (default: 5, or no end with --batches)")
      .positive();
  c.option("--batches", hunt->batches,
           "end after so many batches of 96 lines; the same lines on every machine")
      .range(1, kMostBatches);
  c.option("--seed", hunt->seed, "of the lines").show_default();
  c.option("--max-elements", hunt->max_elements,
           "elements of a tensor of a line; one line in 24 has up to 16 times as many")
      .range(1, choices::kMostElements)
      .show_default();
  c.option("--only", hunt->only, "only ops with a format that contain this: 'quantize mxfp8'");
  c.option("--edges", hunt->edges,
           "the program assay_edges (ci/build fuzz assay_edges): libFuzzer looks for lines that reach new "
           "edges of the kernels, or of a plugin that counts its own (docs/hunt.md)");
  c.option("--edges-plugin", hunt->plugin, "for --edges: the plugin once more, compiled to count its edges");
  c.option("--budget", hunt->budget, "seconds for the search of one cause").seconds().show_default();
  c.option("--jsonl", hunt->jsonl, "write each batch and each finding here as a JSON line");
  add_environment(c, common);
  add_timeout(c, common);
  add_jobs(c, common);
  add_mpi(c, hunt->mpi);
  c.callback([&program, hunt] {
    settle(hunt->mpi, program);
    const CommonOptions& common = program.common;
    const Subjects subjects = program.make_subjects(common);
    const std::vector<std::string> names = chosen_subjects(common, subjects, "host");
    if (names.size() != 1) throw Refusal{"this command takes one --subject"};
    hunt->subject = names[0];
    const bool is_plugin = hunt->subject.starts_with("plugin:");
    if (!hunt->edges.empty() && hunt->subject != "host" && !is_plugin)
      throw Refusal{"--edges is for the subject host and for plugins: " + hunt->subject + " counts no edges"};
    if (is_plugin && !hunt->edges.empty() && hunt->plugin.empty())
      throw Refusal{
          "a plugin with --edges needs --edges-plugin: the same sources once more, compiled by clang++-14 "
          "with -fsanitize=fuzzer-no-link,address, or by g++ with -fsanitize-coverage=trace-pc,trace-cmp"};
    if (!hunt->plugin.empty() && (!is_plugin || hunt->edges.empty()))
      throw Refusal{"--edges-plugin goes with --plugin and --edges"};
    hunt->settings.claims.environment = environment_of(common);
    hunt->settings.timeout = common.timeout;
    hunt->settings.jobs = common.jobs;
    if (common.what.empty() && (!common.filter.empty() || !common.shard.empty()))
      throw Refusal{
          "--filter and --shard choose among lines and suites that you give: give some, or use --only for "
          "what "
          "is drawn"};
    if (!common.what.empty())
      for (const SuiteEntry& e : entries_of(common)) hunt->given.push_back(e.problem);
    hunt->progress = program.progress;
    hunt->digest = digest_of({}, common, fmt::format("hunt {}", hunt->subject));
    program.status = run_hunt(*hunt, subjects, stdout, stderr);
  });
}

}  // namespace assay
