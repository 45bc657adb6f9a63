#include "compare/commands/list.h"

#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "compare/commands/options.h"
#include "compare/commands/training_cases.h"
#include "compare/process/pool.h"
#include "contract/line.h"
#include "contract/recipes.h"

namespace assay {

namespace {

struct ListOptions {
  bool suites = false, keys = false, subjects = false, canonical = false, support = false;
};

void print_suites() {
  for (const std::string& name : suite_names()) fmt::print("{}\n", name);
}

void print_keys() {
  for (const std::span<const KeyInfo> table : {line_keys(), role_keys()})
    for (const KeyInfo& k : table) {
      const std::string both = k.directional ? fmt::format(" (also row.{}, col.{})", k.name, k.name) : "";
      fmt::print("{:<16} {:<44} {}{}\n{:<16} ops: {}\n", k.name, k.values, k.summary, both, "",
                 fmt::join(k.ops, " "));
    }
}

void print_subjects(const Subjects& subjects) {
  for (const auto& s : subjects.owned) {
    const Support here = present_in_child(*s);
    fmt::print("{:<12} {}\n", s->name(), here.yes ? "present" : "absent: " + here.why);
  }
}

// What --support says of one line.
std::string support_note(const Problem& problem, const Subjects& subjects,
                         const std::vector<std::string>& names) {
  std::string note;
  for (const std::string& name : names) {
    const Support s = subjects.find(name)->supports(problem);
    note += fmt::format("   {}: {}", name, s.yes ? "yes" : "no, " + s.why);
  }
  return note;
}

int list(CommonOptions common, const ListOptions& options, const Subjects& subjects) {
  if (options.suites) print_suites();
  if (options.keys) print_keys();
  if (options.subjects) print_subjects(subjects);
  if (common.what.empty()) {
    if (options.suites || options.keys || options.subjects) return 0;
    throw Refusal{"list needs a suite or a line, or --suites, --keys, --subjects"};
  }
  const std::vector<TrainingCase> cases = training_cases_of(common);
  const std::vector<SuiteEntry> entries =
      common.what.empty() ? std::vector<SuiteEntry>{} : entries_of(common);
  const std::vector<std::string> names = chosen_subjects(common, subjects, "host");
  for (const TrainingCase& c : cases) fmt::print("{:<6} {}\n", c.entry.text, fmt::join(c.about, "\n       "));
  for (const SuiteEntry& e : entries) {
    const std::string note = options.support ? support_note(e.problem, subjects, names) : "";
    fmt::print("{}{}\n", options.canonical ? to_canonical_line(e.problem) : e.text, note);
  }
  return entries.empty() && cases.empty() ? 3 : 0;
}

}  // namespace

void register_list(Program& program) {
  const auto options = std::make_shared<ListOptions>();
  CommonOptions& common = program.common;
  Command c(program.app, "list", "print what would run");
  c.footer(
      "Examples:\n"
      "  assay list ci --filter mxfp8\n"
      "  assay list 'quantize mxfp8 {32,64}x96 bf16 flavour=te' --canonical\n"
      "  assay list smoke --support --subject host,gpu");
  add_what(c, common, false);
  add_subjects(c, common, "host");
  c.flag("--canonical", options->canonical, "every key, resolved");
  c.flag("--support", options->support, "say for each subject whether it runs the line");
  c.flag("--suites", options->suites, "list the suites that can be named");
  c.flag("--keys", options->keys, "every key of the line, with its values");
  c.flag("--subjects", options->subjects, "the subjects, and whether they are present");
  c.callback([&program, options] {
    program.status = list(program.common, *options, program.make_subjects(program.common));
  });
}

}  // namespace assay
