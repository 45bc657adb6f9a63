// Reads the command line and calls one function per command. The only place of this room that names both sides.
#include "compare/program.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "compare/commands/bench.h"
#include "compare/report/build.h"
#include "compare/commands/certify.h"
#include "compare/commands/check.h"
#include "compare/diagnosis/library/causes.h"
#include "compare/commands/explain.h"
#include "compare/diagnosis/identify/identify.h"
#include "compare/report/doctor.h"
#include "compare/subjects/plugin.h"
#include "compare/text/printable.h"
#include "compare/commands/record.h"
#include "compare/commands/run.h"
#include "compare/process/pool.h"
#include "compare/commands/selection.h"
#include "compare/debug/shrink.h"
#include "compare/debug/trace.h"
#include "compare/commands/vectors.h"
#include "contract/line.h"
#include "contract/recipes.h"
#include "contract/words.h"
#include "fast/device_memory.h"
#include "fast/subject_cublaslt.h"
#include "fast/subject_gpu.h"
#include "fast/subject_host.h"
#include "fast/subject_lanes.h"
#include "fixtures/headers/subject_headers.h"
#include "reference/subject.h"
#include "training/recipes/line_factory.h"

namespace {

using namespace assay;

constexpr int kBadUsage = 2;

// Bad usage, or input that cannot be read: said on standard error, exit status 2.
struct Refusal {
  std::string message;
};

const char kAbout[] =
    "Assay: a bit-exact test oracle for low-precision training.\n"
    "Runs the kernels and the reference on the same inputs, compares them bit for bit, and says where and why they part.\n";
const char kExamples[] =
    "What is judged: a suite by name or path (smoke, ci, fixtures/suites/ci.cases), or a line in quotes:\n"
    "  <op> <format>[/<column format>] <rows>x<cols> <source> key=value ...\n"
    "  quantize <format> ... role=<module>/<tensor> [recipe=<name>], quantize auto ... role=<module>/<tensor> factory=<name>\n"
    "or scenarios of the training layer: scenarios, S-21; or cells of the parity matrix: roles, 'roles factory=<name>',\n"
    "  'parity <module> factory=<name> [phase= arch= flavour= tokens= override= packed=]' (docs/custom-factories.md).\n"
    "Examples:\n"
    "  assay run smoke\n"
    "  assay run S-21 --subject reference,host -v\n"
    "  assay run 'quantize mxfp8 96x160 bf16 fill=ties seed=7' -v\n"
    "  assay run 'quantize nvfp4 64x256 bf16 role=linear/grad_output recipe=nvfp4 fill=wide'\n"
    "  assay run 'quantize auto 64x256 bf16 role=linear/weight factory=mxfp8_fwd_nvfp4_bwd_factory'\n"
    "  assay run 'roles factory=mxfp8_nvfp4' --html parity.html\n"
    "  assay run ci --subject gpu --require gpu --junit report.xml\n"
    "  assay list --keys\n"
    "Exit status: 0 all good; 1 something failed or is mistrusted; 2 bad usage or unreadable input; 3 nothing ran, or a required subject is absent.";

struct Common {
  std::vector<std::string> what;
  std::string filter, shard, subjects, environment, plugin, pack;
  double timeout = 60;
  int jobs = 0;
};

Subjects make_subjects(const Common& common) {
  Subjects s;
  s.owned.push_back(make_reference_subject());
  s.owned.push_back(make_host_subject());
  s.owned.push_back(make_gpu_subject());
  s.owned.push_back(make_cublaslt_subject());
  s.owned.push_back(make_headers_subject());
  s.owned.push_back(make_lanes_subject());
  s.owned.push_back(make_lanes_twin_subject());
  s.owned.push_back(make_general_host_subject());
  if (!common.plugin.empty()) {
    auto plugin = make_plugin_subject(common.plugin, make_device_memory());
    if (!plugin) throw Refusal{plugin.error().text()};
    s.owned.push_back(std::move(*plugin));
  }
  if (!common.pack.empty()) {
    auto pack = read_pack(common.pack);
    if (!pack) throw Refusal{pack.error().text()};
    s.owned.push_back(make_pack_subject(std::make_shared<const Pack>(std::move(*pack)), "pack"));
  }
  return s;
}

std::vector<Subject*> pointers(const Subjects& subjects) {
  std::vector<Subject*> out;
  for (const auto& s : subjects.owned) out.push_back(s.get());
  return out;
}

// The subjects that a command names: those of --subject, else the plugin or pack that was given, else `fallback`.
std::vector<std::string> chosen_subjects(const Common& common, const Subjects& subjects, const std::string& fallback) {
  std::vector<std::string> names = split_names(common.subjects);
  if (names.empty() && !common.plugin.empty())
    for (const auto& s : subjects.owned)
      if (s->name().starts_with("plugin:")) names = {std::string(s->name())};
  if (names.empty() && !common.pack.empty()) names = {"pack"};
  if (names.empty()) names = split_names(fallback);
  std::vector<std::string_view> known;
  for (const auto& s : subjects.owned) known.push_back(s->name());
  for (const std::string& name : names) {
    if (subjects.find(name)) continue;
    const std::string near = nearest_word(name, known);
    throw Refusal{fmt::format("unknown subject '{}' ({})", name, near.empty() ? fmt::format("there are {}", fmt::join(known, ", ")) : "did you mean '" + near + "'?")};
  }
  return names;
}

std::string one_subject(const Common& common, const Subjects& subjects, const std::string& fallback) {
  const std::vector<std::string> names = chosen_subjects(common, subjects, fallback);
  if (names.size() != 1) throw Refusal{"this command takes one --subject"};
  return names[0];
}

Environment environment_of(const Common& common) {
  const Result<Environment> env = parse_environment(common.environment);
  if (!env) throw Refusal{"--env: " + env.error().text()};
  return *env;
}

// What every command on one subject is told of it.
template <class Options>
void take_subject(Options& options, const Common& common, const Subjects& subjects) {
  options.subject = one_subject(common, subjects, "host");
  options.environment = environment_of(common);
  options.timeout = common.timeout;
}

std::vector<SuiteEntry> entries_of(const Common& common) {
  Result<std::vector<SuiteEntry>> entries = select({common.what, common.filter, common.shard});
  if (!entries) throw Refusal{entries.error().text()};
  return std::move(*entries);
}

// Takes scenarios and roles out of what was asked for.
std::vector<Story> stories_of(Common& common) {
  Result<std::vector<Story>> stories = take_stories(common.what, common.filter);
  if (!stories) throw Refusal{stories.error().text()};
  return std::move(*stories);
}

Problem line_of(const std::string& text) {
  const Result<Problem> p = training::read_line(text);
  if (!p) throw Refusal{p.error().text()};
  return *p;
}

bool on_terminal(int fd) { return ::isatty(fd) == 1; }

void add_what(CLI::App* c, Common& o) {
  c->add_option("what", o.what, "suites by name or path, and lines in quotes")->required();
  c->add_option("--filter", o.filter, "only lines that contain this; /.../ is a regular expression");
  c->add_option("--shard", o.shard, "i/n: every n-th line, beginning with the i-th");
}
void add_subjects(CLI::App* c, Common& o, const char* fallback) {
  c->add_option("--subject", o.subjects, fmt::format("reference, host, gpu, cublaslt, headers, lanes, lanes_twin, host_general, plugin:<name>, pack; several with commas (default: {})", fallback));
  c->add_option("--plugin", o.plugin, "a shared library to judge (contract/assay_plugin.h)");
  c->add_option("--pack", o.pack, "a recording as the subject `pack`");
}
void add_environment(CLI::App* c, Common& o) { c->add_option("--env", o.environment, "order=17,poison=7f,threads=2,alignment=16: decides no bit"); }
void add_timeout(CLI::App* c, Common& o) { c->add_option("--timeout", o.timeout, "seconds a case may take")->check(CLI::PositiveNumber)->capture_default_str(); }
void add_jobs(CLI::App* c, Common& o) { c->add_option("--jobs,-j", o.jobs, "worker processes (default: the cores)")->check(CLI::Range(1, 1024)); }
void add_reports(CLI::App* c, ReportOptions& o) {
  c->add_option("--junit", o.junit, "write JUnit XML here");
  c->add_flag("--github", o.github, "annotations for GitHub Actions on standard output");
  c->add_option("--jsonl", o.jsonl, "write JSON lines here, each as soon as its case has ended");
  c->add_flag("-v,--verbose", o.verbose, "print every line before it runs, and every outcome");
}

struct ListOptions {
  bool suites = false, keys = false, subjects = false, canonical = false, support = false;
};

int list(Common& common, const ListOptions& o, const Subjects& subjects) {
  bool any = false;
  if (o.suites) {
    any = true;
    for (const std::string& name : suite_names()) fmt::print("{}\n", name);
  }
  if (o.keys) {
    any = true;
    for (const std::span<const KeyInfo> table : {line_keys(), role_keys()})
      for (const KeyInfo& k : table) fmt::print("{:<16} {:<44} {}{}\n{:<16} ops: {}\n", k.name, k.values, k.summary, k.directional ? " (also row." + std::string(k.name) + ", col." + std::string(k.name) + ")" : "", "", fmt::join(k.ops, " "));
  }
  if (o.subjects) {
    any = true;
    for (const auto& s : subjects.owned) {
      const Support here = present_in_child(*s);
      fmt::print("{:<12} {}\n", s->name(), here.yes ? "present" : "absent: " + here.why);
    }
  }
  if (common.what.empty() && any) return 0;
  if (common.what.empty()) throw Refusal{"list needs a suite or a line, or --suites, --keys, --subjects"};
  const std::vector<Story> stories = stories_of(common);
  const std::vector<SuiteEntry> entries = common.what.empty() ? std::vector<SuiteEntry>{} : entries_of(common);
  const std::vector<std::string> names = chosen_subjects(common, subjects, "host");
  for (const Story& s : stories) fmt::print("{:<6} {}\n", s.entry.text, fmt::join(s.about, "\n       "));
  for (const SuiteEntry& e : entries) {
    std::string note;
    if (o.support)
      for (const std::string& name : names) {
        const Support s = subjects.find(name)->supports(e.problem);
        note += fmt::format("   {}: {}", name, s.yes ? "yes" : "no, " + s.why);
      }
    fmt::print("{}{}\n", o.canonical ? to_canonical_line(e.problem) : e.text, note);
  }
  return entries.empty() && stories.empty() ? 3 : 0;
}

int run_program(int argc, char** argv) {
  CLI::App app{kAbout, "assay"};
  app.footer(kExamples);
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("assay ") + build::kVersion);
  Common common;
  int status = 0;
  const char* no_colour = std::getenv("NO_COLOR");
  const bool colour = on_terminal(STDOUT_FILENO) && !(no_colour && *no_colour), progress = on_terminal(STDERR_FILENO);

  ListOptions list_options;
  CLI::App* c = app.add_subcommand("list", "print what would run");
  c->footer("Examples:\n  assay list ci --filter mxfp8\n  assay list 'quantize mxfp8 {32,64}x96 bf16 flavour=te' --canonical\n  assay list smoke --support --subject host,gpu");
  c->add_option("what", common.what, "suites by name or path, and lines in quotes");
  c->add_option("--filter", common.filter, "only lines that contain this; /.../ is a regular expression");
  c->add_option("--shard", common.shard, "i/n: every n-th line, beginning with the i-th");
  add_subjects(c, common, "host");
  c->add_flag("--canonical", list_options.canonical, "every key, resolved");
  c->add_flag("--support", list_options.support, "say of each subject whether it runs the line");
  c->add_flag("--suites", list_options.suites, "the suites that are found by name");
  c->add_flag("--keys", list_options.keys, "every key of the line, with its values");
  c->add_flag("--subjects", list_options.subjects, "the subjects, and whether they are present");
  c->callback([&] { status = list(common, list_options, make_subjects(common)); });

  RunOptions run;
  std::string require;
  c = app.add_subcommand("run", "judge: subjects against the reference, and against the laws");
  c->footer("Examples:\n  assay run smoke\n  assay run ci --jobs 2 --jsonl report.jsonl --shard 1/4\n  assay run 'quantize mxfp8 64x256 bf16 fill=ties' --env order=17,threads=2\n"
            "  assay run ci --subject host,gpu --require gpu\n  assay run smoke --plugin ./libmine.so\nA plugin's own output is shown under --in-process only.");
  add_what(c, common);
  add_subjects(c, common, "host");
  c->add_option("--require", require, "subjects that must be present, else exit status 3");
  add_environment(c, common);
  add_timeout(c, common);
  add_jobs(c, common);
  c->add_flag("--first", run.settings.stop_at_first, "stop at the first failure");
  c->add_flag("--in-process", run.settings.in_process, "no worker processes: for debuggers");
  add_reports(c, run.report);
  c->add_option("--html", run.report.html, "write the parity matrix of `roles` or `roles factory=<name>` here, as one page");
  c->callback([&] {
    const Subjects subjects = make_subjects(common);
    run.settings.subjects = chosen_subjects(common, subjects, "host");
    run.settings.claims.environment = environment_of(common);
    run.settings.jobs = common.jobs;
    run.settings.timeout = common.timeout;
    run.require = split_names(require);
    run.report.colour = colour;
    run.report.progress = progress;
    run.stories = stories_of(common);
    if (!common.what.empty()) run.entries = entries_of(common);
    status = run_run(run, subjects, stdout, stderr);
  });

  BenchOptions bench;
  c = app.add_subcommand("bench", "judge, then time: no number without a verdict");
  c->footer("Examples:\n  assay bench 'quantize mxfp8 {1024,4096}x4096 bf16'\n  assay bench smoke --output results.json\n  assay bench smoke --against results.json\n"
            "  assay bench 'quantize mxfp8 4096x4096 bf16 dir=row' --plugin ./libmine.so");
  add_what(c, common);
  add_subjects(c, common, "reference,host");
  add_environment(c, common);
  c->add_option("--timeout", bench.timeout, "seconds a case may take on one subject")->check(CLI::PositiveNumber)->capture_default_str();
  c->add_option("--repetitions", bench.repetitions, "samples")->check(CLI::Range(1, 1000))->capture_default_str();
  c->add_option("--min-time", bench.min_time, "seconds a sample lasts at least")->check(CLI::PositiveNumber)->capture_default_str();
  c->add_option("--output,-o", bench.output, "write the results as JSON");
  c->add_option("--against", bench.against, "results of an earlier run: fail where a case is slower");
  c->add_option("--noise", bench.noise, "the share that counts as slower")->check(CLI::PositiveNumber)->capture_default_str();
  c->callback([&] {
    const Subjects subjects = make_subjects(common);
    bench.subjects = chosen_subjects(common, subjects, "reference,host");
    bench.environment = environment_of(common);
    bench.entries = entries_of(common);
    status = run_bench(bench, subjects, std::cout, std::cerr);
  });

  CheckOptions check;
  c = app.add_subcommand("check", "somebody's tensors against the reference (docs/packs.md)");
  c->footer("Examples:\n  assay check dump.safetensors\n  assay check dumps/     names the first divergence by step, module, role and direction");
  c->add_option("pack", check.paths, "safetensors files, or folders of them")->required();
  c->add_flag("--coherence", check.coherence, "rows against columns of each case, without the tensor that both were made from");
  c->add_flag("--github", check.github, "annotations for GitHub Actions on standard output");
  c->add_option("--timeout", check.timeout, "seconds a case may take")->check(CLI::PositiveNumber)->capture_default_str();
  c->callback([&] { status = run_check(check, make_subjects(common), std::cout, std::cerr); });

  ReplayOptions replay;
  c = app.add_subcommand("replay", "recordings of `assay record` against the reference");
  c->footer("Examples:\n  assay replay fixtures/packs/gpu.safetensors\nA recording is stale where its line has changed its meaning, or other kernels made it.");
  c->add_option("pack", replay.packs, "packs that assay record wrote")->required();
  add_environment(c, common);
  add_timeout(c, common);
  add_jobs(c, common);
  add_reports(c, replay.report);
  c->callback([&] {
    replay.environment = environment_of(common);
    replay.kernels = build::kKernels;
    replay.jobs = common.jobs;
    replay.timeout = common.timeout;
    replay.report.colour = colour;
    replay.report.progress = progress;
    status = run_replay(replay, make_subjects(common), stdout, stderr);
  });

  DiffOptions diff;
  c = app.add_subcommand("diff", "two dumps against each other, trusting neither");
  c->footer("Examples:\n  assay diff before.safetensors after.safetensors");
  c->add_option("a", diff.a, "a pack")->required();
  c->add_option("b", diff.b, "another")->required();
  c->callback([&] { status = run_diff(diff, std::cout, std::cerr); });

  VectorOptions vectors;
  c = app.add_subcommand("vectors", "third-party vectors against the subjects");
  c->footer("Examples:\n  assay vectors fixtures/vectors\n  assay vectors fixtures/vectors --filter mxfp8 --subject reference");
  c->add_option("directory", vectors.directory, "safetensors files with an index.json")->required();
  c->add_option("--filter", vectors.filter, "only tensors whose <file>#<tensor> contains this");
  add_subjects(c, common, "reference,host");
  add_environment(c, common);
  add_timeout(c, common);
  c->callback([&] {
    const Subjects subjects = make_subjects(common);
    vectors.subjects = chosen_subjects(common, subjects, "reference,host");
    vectors.environment = environment_of(common);
    vectors.timeout = common.timeout;
    status = run_vectors(vectors, subjects, std::cout, std::cerr);
  });

  ExplainOptions explain;
  bool hypotheses = false;
  c = app.add_subcommand("explain", "where, which stage first, which cause; with the evidence (docs/debugging-a-divergence.md)");
  c->footer("Replays some hundred causes on the reference, single ones and then pairs, and takes one that gives every byte; where none fits, it says so.\n"
            "Examples:\n  assay explain 'quantize mxfp8 64x256 bf16' --plugin ./libmine.so\n  assay explain dump.safetensors\n  assay explain dumps/step12.safetensors --case fc1.weight --html why.html\n"
            "Exit status: 0 nothing differs; 1 something does; 2 bad input; 3 the subject is absent or does not run the line.");
  c->add_option("what", explain.what, "a line in quotes, or a pack");
  c->add_option("--case", explain.case_id, "a case of the pack (default: the first that differs)");
  c->add_flag("--hypotheses", hypotheses, "instead: the causes that can be named; what may be a format (docs/causes.md)");
  add_subjects(c, common, "host");
  c->add_option("--html", explain.html, "write the report page here, one file");
  c->add_option("--json", explain.json, "write the diagnosis here");
  c->add_option("--reproducer", explain.reproducer, "write the smallest case that still differs into this folder: a pack and a C++ program");
  c->add_flag_callback("--no-pairs", [&] { explain.pairs = false; }, "single causes only");
  c->add_flag("--github", explain.github, "annotations for GitHub Actions on standard output");
  c->add_option("--budget", explain.budget, "seconds for the search")->check(CLI::PositiveNumber)->capture_default_str();
  add_environment(c, common);
  add_timeout(c, common);
  add_jobs(c, common);
  c->callback([&] {
    if (hypotheses) {
      const auto format = std::find_if(kFormats.begin(), kFormats.end(), [&](const FormatInfo& f) { return f.name == explain.what; });
      if (!explain.what.empty() && format == kFormats.end()) throw CLI::ValidationError("what", "with --hypotheses: a format, or nothing; found " + explain.what);
      std::cout << causes_page(explain.what.empty() ? std::nullopt : std::optional(format->id));
      return;
    }
    if (explain.what.empty()) throw CLI::RequiredError("what");
    const Subjects subjects = make_subjects(common);
    take_subject(explain, common, subjects);
    explain.jobs = common.jobs;
    explain.progress = progress;
    explain.colour = colour;
    status = run_explain(explain, subjects, stdout, stderr);
  });

  IdentifyOptions identify;
  c = app.add_subcommand("identify", "whose choices made these bytes");
  c->footer("Examples:\n  assay identify dump.safetensors\n  assay identify fixtures/packs/libraries --filter mxfp4\nExit status: 0 every group of cases has a flavour that makes its bytes; 1 one has none; 2 bad input; 3 no case.");
  c->add_option("pack", identify.paths, "safetensors files, or folders of them")->required();
  c->add_option("--filter", identify.filter, "only cases whose name contains this");
  c->add_option("--most", identify.most, "flavours shown for a group")->check(CLI::Range(1, 1000))->capture_default_str();
  c->add_option("--json", identify.json, "write the ranking here");
  add_timeout(c, common);
  add_jobs(c, common);
  c->callback([&] {
    identify.timeout = common.timeout;
    identify.jobs = common.jobs;
    identify.progress = progress;
    identify.colour = colour;
    status = run_identify(identify, make_subjects(common), stdout, stderr);
  });

  FlavoursOptions flavours_options;
  c = app.add_subcommand("flavours", "sets of choices that have a name, and how far they lie apart");
  c->footer("Examples:\n  assay flavours\n  assay flavours mxfp8 --measure");
  c->add_option("format", flavours_options.format, "of this format only");
  c->add_flag("--measure", flavours_options.measure, "the share of scales and codes in which each pair differs");
  c->add_option("--json", flavours_options.json, "write them here");
  add_jobs(c, common);
  c->callback([&] {
    flavours_options.jobs = common.jobs;
    flavours_options.colour = colour;
    status = run_flavours(flavours_options, make_subjects(common), stdout, stderr);
  });

  ShrinkOptions shrink_options;
  std::string line;
  c = app.add_subcommand("shrink", "the smallest failing line, and the nearest passing one");
  c->footer("Examples:\n  assay shrink 'quantize mxfp8 96x160 bf16 fill=ties' --plugin ./libmine.so");
  c->add_option("line", line, "a line in quotes")->required();
  add_subjects(c, common, "host");
  add_environment(c, common);
  add_timeout(c, common);
  c->add_option("--max-runs", shrink_options.max_runs, "runs of the subject in all")->capture_default_str();
  c->add_option("--reproducer", shrink_options.reproducer, "write the result into this folder: a pack and a C++ program");
  c->callback([&] {
    const Subjects subjects = make_subjects(common);
    shrink_options.problem = line_of(line);
    take_subject(shrink_options, common, subjects);
    shrink_options.progress = progress;
    status = run_shrink(shrink_options, subjects, std::cout, std::cerr);
  });

  TraceOptions trace_options;
  std::string at, direction;
  c = app.add_subcommand("trace", "both sides clause by clause for one element");
  c->footer("Examples:\n  assay trace 'quantize mxfp8 64x256 bf16 fill=ties' --at 12,48\n  assay trace 'quantize fp8_current 8x8 f32 dir=both' --direction col");
  c->add_option("line", line, "a line in quotes")->required();
  c->add_option("--at", at, "row,column of the tensor, of a gemm n,m of d (default: the first that differs)");
  c->add_option("--direction", direction, "row or col")->check(CLI::IsMember({"row", "col"}));
  add_subjects(c, common, "host");
  add_environment(c, common);
  add_timeout(c, common);
  c->callback([&] {
    const Subjects subjects = make_subjects(common);
    trace_options.problem = line_of(line);
    take_subject(trace_options, common, subjects);
    if (!at.empty()) {
      long long row = 0, col = 0;
      char tail = 0;
      if (std::sscanf(at.c_str(), "%lld,%lld%c", &row, &col, &tail) != 2) throw Refusal{fmt::format("--at '{}': expected <row>,<column>", at)};
      trace_options.at = {row, col};
    }
    if (!direction.empty()) trace_options.direction = direction == "row" ? Direction::row : Direction::col;
    status = run_trace(trace_options, subjects, std::cout, std::cerr);
  });

  RecordOptions record;
  c = app.add_subcommand("record", "write a subject's outputs, to be judged elsewhere");
  c->footer("Examples:\n  assay record ci --subject gpu -o gpu.safetensors\n  assay record smoke --subject reference --all-bytes -o smoke.safetensors");
  add_what(c, common);
  add_subjects(c, common, "host");
  c->add_option("--output,-o", record.output, "the pack; more than 12 MiB go to <name>.1.safetensors, ...")->required();
  c->add_flag("--all-bytes", record.all_bytes, "bytes of every case, not only of small and failing ones");
  add_environment(c, common);
  add_timeout(c, common);
  add_jobs(c, common);
  c->callback([&] {
    const Subjects subjects = make_subjects(common);
    take_subject(record, common, subjects);
    record.jobs = common.jobs;
    const std::vector<Subject*> all = pointers(subjects);
    const Result<std::string> print = in_child([&] { return fingerprint(all); }, 60);
    record.fingerprint = print ? *print : "unknown";
    record.kernels = build::kKernels;
    record.entries = entries_of(common);
    status = run_record(record, subjects, stdout, stderr);
  });

  CertifyOptions certify;
  c = app.add_subcommand("certify", "the exhaustive certificate: every float, every code, every amax (docs/certify.md)");
  c->footer("Examples:\n  assay certify --quick\n  assay certify -o certificate.json\n  assay certify --only 'cast e4m3 f32' -o e4m3.json --resume\n  assay certify --list\n  assay certify --quick --subject gpu\n"
            "Exit status: 0 every claim holds; 1 one does not; 2 bad usage, or a certificate that cannot be written; 3 nothing was compared.");
  c->add_flag("--quick", certify.quick, "rounding boundaries instead of every float: for continuous integration");
  c->add_option("--output,-o", certify.output, "write the certificate here as JSON, again after every part");
  c->add_option("--only", certify.only, "only parts whose name contains this");
  c->add_flag("--list", certify.list, "print the parts and what goes into them");
  c->add_flag("--resume", certify.resume, "take over the parts that the certificate at -o holds already, where the same build made it");
  add_subjects(c, common, "those that each part names");
  c->add_option("--timeout", certify.timeout, "seconds that 2^22 elements may take")->check(CLI::PositiveNumber)->capture_default_str();
  add_jobs(c, common);
  c->callback([&] {
    const Subjects subjects = make_subjects(common);
    certify.subjects = chosen_subjects(common, subjects, "");
    certify.jobs = common.jobs;
    certify.progress = progress;
    certify.colour = colour;
    status = run_certify(certify, subjects, stdout, stderr);
  });

  DoctorOptions doctor;
  c = app.add_subcommand("doctor", "compiler, flags, float environment, CUDA, GPU, witnesses");
  c->footer("Examples:\n  assay doctor\n  assay doctor --json");
  c->add_flag("--json", doctor.json, "as JSON");
  c->add_option("--plugin", common.plugin, "a shared library to judge (contract/assay_plugin.h)");
  c->callback([&] {
    const Subjects subjects = make_subjects(common);
    const std::vector<Subject*> all = pointers(subjects);
    status = run_doctor(doctor, all, std::cout);
  });

  // What stands where a command belongs: CLI11 would only say that some command is missing, or take the help that follows for its own.
  if (const std::string first = argc > 1 ? argv[1] : ""; !first.empty() && first[0] != '-') {
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
    if (std::find(names.begin(), names.end(), first) == names.end()) {
      const std::vector<std::string_view> words(names.begin(), names.end());
      const std::string near = nearest_word(first, words);
      throw Refusal{fmt::format("no command '{}'{}; `assay --help` lists the commands", first, near.empty() ? "" : ": did you mean " + near + "?")};
    }
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {   // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    app.exit(e, std::cout, std::cerr);
    return kBadUsage;
  }
  return status;
}

}  // namespace

int assay::program_main(int argc, char** argv) {
  try {
    return run_program(argc, argv);
  } catch (const Refusal& r) {
    fmt::print(stderr, "assay: {}\n", printable(r.message));
  } catch (const std::exception& e) {
    fmt::print(stderr, "assay: {}\n", printable(e.what()));
  }
  return kBadUsage;
}
