#include "compare/commands/replay.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "compare/commands/options.h"
#include "compare/commands/worker_verdict.h"
#include "compare/judge/verdict.h"
#include "compare/packs/pack.h"
#include "compare/packs/replay.h"
#include "compare/process/interrupt.h"
#include "compare/process/pool.h"
#include "compare/report/build.h"
#include "compare/text/printable.h"
#include "compare/text/shell.h"
#include "contract/line.h"
#include "fixtures/json.h"

namespace assay {

namespace {

struct Task {
  const Pack* pack;
  const PackCase* recorded;
  SuiteEntry entry;
};

// Tensors of somebody else: they bring their x, and were not written by this program.
bool is_dump(const Pack& pack) {
  return pack.line_version == 0 && std::any_of(pack.cases.begin(), pack.cases.end(),
                                               [](const PackCase& c) { return c.find("x") != nullptr; });
}

std::vector<Task> tasks_of(const std::vector<Pack>& packs) {
  std::vector<Task> tasks;
  for (const Pack& pack : packs)
    for (const PackCase& c : pack.cases) {
      SuiteEntry e;
      e.file = pack.path + "#" + c.id;
      e.text = c.line;
      if (const Result<Problem> p = parse_line(c.line)) {
        e.problem = *p;
        e.text = to_line(*p);
      }
      tasks.push_back({&pack, &c, std::move(e)});
    }
  return tasks;
}

}  // namespace

int run_replay(const ReplayOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err) {
  std::vector<Pack> packs;
  for (const std::string& path : options.packs) {
    Result<Pack> pack = read_pack(path);
    if (!pack) {
      fmt::print(err, "assay: {}\n", printable(pack.error().text()));
      return 2;
    }
    if (is_dump(*pack)) {
      fmt::print(
          err,
          "assay: {0} is a dump, and no recording of `assay record`, whose inputs are drawn from its lines: "
          "assay check {1} judges it\n",
          printable(path), shell_word(path));
      return 2;
    }
    packs.push_back(std::move(*pack));
  }
  const std::vector<Task> tasks = tasks_of(packs);
  Reports reports(options.report, options.environment, subjects, out, err);
  if (reports.error()) {
    fmt::print(err, "assay: {}\n", reports.error()->text());
    return 2;
  }
  TaskHooks hooks;
  hooks.task = [&](size_t i) {
    return json::dump(to_json(
        judge_replay(*tasks[i].pack, *tasks[i].recorded, subjects, options.kernels, options.environment)));
  };
  hooks.crashed = [](const std::string& why) {
    Verdict v = crashed_verdict(why);
    v.subject = "reference";
    return json::dump(to_json(v));
  };
  hooks.result = [&](size_t i, const std::string& text) {
    reports.result(tasks[i].entry, verdict_of_worker(text));
    reports.progress(i + 1, tasks.size(), tasks[i].entry.text);
    return true;
  };
  const InterruptScope scope;
  const size_t done = run_tasks(tasks.size(), options.jobs, options.timeout, std::move(hooks));
  reports.ended_at(done, tasks.size());
  return reports.finish();
}

void register_replay(Program& program) {
  const auto replay = std::make_shared<ReplayOptions>();
  CommonOptions& common = program.common;
  Command c(program.app, "replay", "judge recordings of `assay record` against the reference");
  c.footer(
      "Examples:\n"
      "  assay replay fixtures/packs/gpu.safetensors\n"
      "A recording is stale if the meaning of its line has changed, or if other kernels made it.\n"
      "Exit status: 0 every recording is the reference's; 1 one is not, or is stale; 2 bad input; 3 nothing "
      "was judged; 130 it was interrupted before one was found that is not.");
  c.option("pack", replay->packs, "packs that assay record wrote").required();
  add_environment(c, common);
  add_timeout(c, common);
  add_jobs(c, common);
  add_reports(c, replay->report);
  c.callback([&program, replay] {
    const CommonOptions& common = program.common;
    replay->environment = environment_of(common);
    replay->kernels = build::kKernels;
    replay->jobs = common.jobs;
    replay->timeout = common.timeout;
    replay->report.colour = program.colour;
    replay->report.progress = program.progress;
    program.status = run_replay(*replay, program.make_subjects(common), stdout, stderr);
  });
}

}  // namespace assay
