#include "compare/commands/explain.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "compare/commands/explain/session.h"
#include "compare/commands/options.h"
#include "compare/commands/recorded_case.h"
#include "compare/debug/reproducer.h"
#include "compare/debug/shrink.h"
#include "compare/debug/trace.h"
#include "compare/diagnosis/library/causes.h"
#include "compare/diagnosis/report/github.h"
#include "compare/diagnosis/report/html.h"
#include "compare/diagnosis/report/text.h"
#include "compare/diagnosis/search/diagnose.h"
#include "compare/diagnosis/search/predict.h"
#include "compare/packs/dump.h"
#include "compare/process/interrupt.h"
#include "compare/process/pool.h"
#include "compare/process/run_in_child.h"
#include "compare/report/doctor.h"
#include "compare/report/github.h"
#include "compare/report/report.h"
#include "compare/text/printable.h"
#include "contract/line.h"
#include "fixtures/files.h"
#include "fixtures/sha256.h"
#include "training/recipes/line_factory.h"

namespace assay {

using std::string;

namespace {

// --hypotheses: the page of causes, of one format or of all.
void print_causes(const std::string& name) {
  const auto format =
      std::find_if(kFormats.begin(), kFormats.end(), [&](const FormatInfo& f) { return f.name == name; });
  if (!name.empty() && format == kFormats.end())
    refuse_argument("what", "with --hypotheses: a format, or nothing; found " + name);
  std::cout << causes_page(name.empty() ? std::nullopt : std::optional(format->id));
}

}  // namespace

int run_explain(const ExplainOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err) {
  const std::pair<const string&, const char*> files[] = {{options.html, "--html"}, {options.json, "--json"}};
  for (const auto& [path, option] : files)
    if (const auto error = path.empty() ? std::nullopt : cannot_write(path, option)) {
      fmt::print(err, "assay: {}\n", error->text());
      return 2;
    }
  if (!options.reproducer.empty())
    if (const auto error = cannot_write_reproducer(options.reproducer, "--reproducer")) {
      fmt::print(err, "assay: {}\n", error->text());
      return 2;
    }
  const InterruptScope scope;
  ExplainSession session(options, subjects, out, err);
  return names_pack(options.what) ? explain_pack(session) : explain_line(session);
}

void register_explain(Program& program) {
  struct Given {
    ExplainOptions explain;
    bool hypotheses = false;
  };
  const auto given = std::make_shared<Given>();
  ExplainOptions& explain = given->explain;
  explain.budget = 10;
  CommonOptions& common = program.common;
  Command c(program.app, "explain",
            "say where a difference begins, at which stage, and what causes it, with the evidence "
            "(docs/debugging-a-divergence.md)");
  c.footer(
      "Replays some hundred causes on the reference, first singly and then in pairs, and accepts a cause "
      "that gives every byte. If no cause fits, it says so.\n"
      "Examples:\n"
      "  assay explain 'quantize mxfp8 64x256 bf16' --plugin ./libmine.so\n"
      "  assay explain dump.safetensors\n"
      "  assay explain dumps/step12.safetensors --case fc1.weight --html why.html\n"
      "Exit status, as that of check: 0 nothing differs; 1 something does, or a case of a pack cannot be "
      "judged; 2 bad input; 3 the subject is absent or does not run the line; 130 it was "
      "interrupted before a difference was found.");
  c.option("what", explain.what, "a line in quotes, or a pack");
  c.option("--case", explain.case_id, "a case of the pack (default: the first that differs)");
  c.flag("--hypotheses", given->hypotheses,
         "list the causes that can be named, instead of searching; the argument may be a format "
         "(docs/causes.md)");
  add_subjects(c, common, "host");
  c.option("--html", explain.html, "write the report page here, one file");
  c.option("--json", explain.json, "write the diagnosis here");
  c.option("--reproducer", explain.reproducer,
           "write the smallest case that still differs into this folder: a pack and a C++ program");
  c.flag(
      "--no-pairs", [given] { given->explain.pairs = false; }, "single causes only");
  c.flag("--github", explain.github, "annotations for GitHub Actions on standard output");
  c.option("--budget", explain.budget, "seconds for the search").seconds().show_default();
  c.flag(
      "--no-cause", [given] { given->explain.cause = false; },
      "say only what differs and where the first difference is");
  add_environment(c, common);
  add_timeout(c, common);
  add_jobs(c, common);
  c.callback([&program, given] {
    ExplainOptions& explain = given->explain;
    if (given->hypotheses) return print_causes(explain.what);
    if (explain.what.empty())
      throw Refusal{
          "explain takes a line in quotes or a pack: assay explain 'quantize mxfp8 64x256 bf16' --plugin "
          "./libmine.so, or assay explain dump.safetensors"};
    split_case(explain.what, explain.case_id);
    const Subjects subjects = program.make_subjects(program.common);
    take_subject(explain, program.common, subjects);
    explain.jobs = program.common.jobs;
    explain.progress = program.progress;
    explain.colour = program.colour;
    program.status = run_explain(explain, subjects, stdout, stderr);
  });
}

}  // namespace assay
