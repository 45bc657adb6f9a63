#include "compare/commands/options.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

#include "compare/commands/selection.h"
#include "compare/commands/training_cases.h"
#include "compare/process/memory.h"
#include "compare/text/printable.h"
#include "contract/line.h"
#include "contract/words.h"
#include "training/recipes/line_factory.h"

namespace assay {

void add_what(Command& c, CommonOptions& o, bool required) {
  c.option("what", o.what, "suites by name or path, and lines in quotes").required(required);
  c.option("--filter", o.filter, "only cases that contain this; /.../ is a regular expression");
  c.option("--shard", o.shard,
           "i/n: every n-th case, beginning with the i-th; lines and training cases are dealt apart");
}

void add_subjects(Command& c, CommonOptions& o, const char* fallback) {
  constexpr std::string_view kHelp =
      "reference, host, gpu, ptx, cublaslt, headers, mpfr, lanes, lanes_twin, host_general, simd, "
      "simd_accepts, plugin:<name>, "
      "ptx:<name>, python:<function>, "
      "pack; "
      "several with commas (default: {})";
  c.option("--subject", o.subjects, fmt::format(kHelp, fallback));
  add_plugin(c, o);
  c.option("--pack", o.pack, "a recording as the subject `pack`");
}

void add_compiled_subject(Command& c, CommonOptions& o) {
  c.option("--subject", o.subjects,
           "ptx, our own kernels, or ptx:<name> of --ptx-kernel or --ptx: no other subject carries out "
           "compiled kernels (default: ptx)");
  add_ptx(c, o);
}

void add_plugin(Command& c, CommonOptions& o) {
  c.option("--plugin", o.plugin, "a shared library to judge (contract/assay_plugin.h)");
  c.option("--python", o.python, "package.module:function, a Python function to judge (docs/python.md)");
  c.option("--python-spec", o.python_spec,
           "what that function promises: 'mxfp8', which is rows, or 'mxfp8 dir=both'");
  add_ptx(c, o);
}

void add_ptx(Command& c, CommonOptions& o) {
  c.option("--ptx-kernel", o.ptx_kernel, "PTX to judge: a launch file, run on the CPU (docs/ptx.md)");
  c.option("--ptx", o.ptx.ptx, "PTX to judge, with one launch that the next six options describe");
  c.option("--entry", o.ptx.entry, "the entry (default: the only entry of the text)");
  c.option("--grid", o.ptx.grid, "'cdiv(rows, 32), cols': one to three expressions");
  c.option("--block", o.ptx.block, "threads of a block (default: the entry's .reqntid)");
  c.option("--shared", o.ptx.shared, "bytes of dynamic shared memory");
  c.option("--args", o.ptx.args,
           "'x, row.data, row.scale_inv, i32:rows, null', in the order of the parameters");
  c.option("--zeroed", o.ptx.zeroed, "outputs that are zero before the launch");
}

void add_environment(Command& c, CommonOptions& o) {
  c.option("--env", o.environment,
           "order=17,poison=7f,threads=2,alignment=16,arch=sm_100a; it affects no bit of a right result");
}

void add_timeout(Command& c, CommonOptions& o) {
  c.option("--timeout", o.timeout, "time limit of a case, in seconds of processor time")
      .seconds()
      .show_default();
}

void add_jobs(Command& c, CommonOptions& o) {
  c.option("--jobs,-j", o.jobs, "number of worker processes (default: number of cores)").range(1, 1024);
}

std::vector<std::string> chosen_subjects(const CommonOptions& common, const Subjects& subjects,
                                         const std::string& fallback) {
  std::vector<std::string> names = split_names(common.subjects);
  if (names.empty())
    for (const auto& s : subjects.owned)
      if (s->name().starts_with("plugin:") || s->name().starts_with("ptx:") ||
          s->name().starts_with("python:"))
        names.push_back(std::string(s->name()));
  if (names.empty() && !common.pack.empty()) names = {"pack"};
  if (names.empty()) names = split_names(fallback);
  std::vector<std::string_view> known;
  for (const auto& s : subjects.owned) known.push_back(s->name());
  for (const std::string& name : names) {
    if (subjects.find(name)) continue;
    const std::string near = nearest_word(name, known);
    const std::string hint =
        near.empty() ? fmt::format("there are {}", fmt::join(known, ", ")) : "did you mean '" + near + "'?";
    throw Refusal{fmt::format("unknown subject '{}' ({})", name, hint)};
  }
  return names;
}

Environment environment_of(const CommonOptions& common) {
  const Result<Environment> env = parse_environment(common.environment);
  if (!env) throw Refusal{"--env: " + env.error().text()};
  return *env;
}

std::vector<SuiteEntry> entries_of(const CommonOptions& common) {
  Result<std::vector<SuiteEntry>> entries = select({common.what, common.filter, common.shard});
  if (!entries) throw Refusal{entries.error().text()};
  return std::move(*entries);
}

std::vector<TrainingCase> training_cases_of(CommonOptions& common) {
  Result<std::vector<TrainingCase>> cases = take_training_cases(common.what, common.filter, common.shard);
  if (!cases) throw Refusal{cases.error().text()};
  return std::move(*cases);
}

Problem problem_of_line(const std::string& text) {
  const Result<Problem> p = training::read_line(text);
  if (!p) throw Refusal{not_a_line(text, p.error())};
  return *p;
}

std::string not_a_line(const std::string& text, const Error& why) {
  const bool is_op = std::find(std::begin(kOps), std::end(kOps), text) != std::end(kOps);
  if (is_op || text.find(' ') != std::string::npos) return why.text();
  return fmt::format("'{}' is no file that exists, and no line, as 'quantize mxfp8 64x256 bf16' is",
                     printable(text));
}

void refuse_too_large(const std::vector<SuiteEntry>& entries) {
  for (const SuiteEntry& e : entries)
    if (const auto lacking = lacks_memory(e.problem))
      throw Refusal{fmt::format("{}: {}; take a smaller shape, or leave the line out", e.text, *lacking)};
}

std::vector<Subject*> pointers(const Subjects& subjects) {
  std::vector<Subject*> out;
  for (const auto& s : subjects.owned) out.push_back(s.get());
  return out;
}

}  // namespace assay
