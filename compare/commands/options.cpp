#include "compare/commands/options.h"

#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "compare/commands/selection.h"
#include "compare/commands/training_cases.h"
#include "contract/line.h"
#include "contract/words.h"
#include "training/recipes/line_factory.h"

namespace assay {

void add_what(CLI::App* c, CommonOptions& o, bool required) {
  c->add_option("what", o.what, "suites by name or path, and lines in quotes")->required(required);
  c->add_option("--filter", o.filter, "only lines that contain this; /.../ is a regular expression");
  c->add_option("--shard", o.shard, "i/n: every n-th line, beginning with the i-th");
}

void add_subjects(CLI::App* c, CommonOptions& o, const char* fallback) {
  constexpr std::string_view kHelp =
      "reference, host, gpu, cublaslt, headers, lanes, lanes_twin, host_general, plugin:<name>, pack; "
      "several with commas (default: {})";
  c->add_option("--subject", o.subjects, fmt::format(kHelp, fallback));
  add_plugin(c, o);
  c->add_option("--pack", o.pack, "a recording as the subject `pack`");
}

void add_plugin(CLI::App* c, CommonOptions& o) {
  c->add_option("--plugin", o.plugin, "a shared library to judge (contract/assay_plugin.h)");
}

void add_environment(CLI::App* c, CommonOptions& o) {
  c->add_option("--env", o.environment, "order=17,poison=7f,threads=2,alignment=16: decides no bit");
}

void add_timeout(CLI::App* c, CommonOptions& o) {
  c->add_option("--timeout", o.timeout, "seconds a case may take")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void add_jobs(CLI::App* c, CommonOptions& o) {
  c->add_option("--jobs,-j", o.jobs, "worker processes (default: the cores)")->check(CLI::Range(1, 1024));
}

std::vector<std::string> chosen_subjects(const CommonOptions& common, const Subjects& subjects,
                                         const std::string& fallback) {
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
  Result<std::vector<TrainingCase>> cases = take_training_cases(common.what, common.filter);
  if (!cases) throw Refusal{cases.error().text()};
  return std::move(*cases);
}

Problem problem_of_line(const std::string& text) {
  const Result<Problem> p = training::read_line(text);
  if (!p) throw Refusal{p.error().text()};
  return *p;
}

std::vector<Subject*> pointers(const Subjects& subjects) {
  std::vector<Subject*> out;
  for (const auto& s : subjects.owned) out.push_back(s.get());
  return out;
}

}  // namespace assay
