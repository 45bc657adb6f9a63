#include "compare/commands/list.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/places.h"
#include "compare/commands/options.h"
#include "compare/commands/training_cases.h"
#include "compare/process/pool.h"
#include "contract/dispatch.h"
#include "contract/line.h"
#include "contract/planes.h"
#include "contract/recipes.h"

namespace assay {

namespace {

struct ListOptions {
  bool suites = false, keys = false, subjects = false, canonical = false, support = false, planes = false;
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

// What --support says of one line: what a run would do.
std::string support_note(const Problem& problem, const Subjects& subjects,
                         const std::vector<std::string>& names) {
  std::string note;
  const std::string rejected = te_rejection(problem);
  for (const std::string& name : names) {
    const Support s = rejected.empty() ? subjects.find(name)->supports(problem) : Support{false, rejected};
    note += fmt::format("   {}: {}", name, s.yes ? "yes" : "no, " + s.why);
  }
  return note;
}

// How the bytes of a plane stand in memory, where that is not one meaningful element after the other.
std::string storage_note(const Plane& plane) {
  std::vector<std::string> notes;
  if (!plane.members.empty())
    notes.push_back(fmt::format("{} members, one array each", plane.members.size()));
  if (plane.layout == ScaleLayout::gemm) notes.push_back("GEMM layout (N6.3)");
  if (plane.padded != plane.logical) notes.push_back("stored as " + shape_text(plane.padded));
  if (plane.padding == Padding::zero && plane.padded != plane.logical) notes.push_back("the rest 00");
  if (plane.padding == Padding::untouched) notes.push_back("the rest untouched");
  if (plane.packed) notes.push_back(fmt::format("packed, {} bytes a row", plane.stored().cols));
  return notes.empty() ? "" : fmt::format("   {}", fmt::join(notes, ", "));
}

// What --planes says of one line: a row for each plane, inputs first.
std::string planes_note(const Problem& problem) {
  std::vector<Plane> planes = input_planes(problem);
  for (Plane& plane : output_planes(problem)) planes.push_back(std::move(plane));
  size_t name = 0, shape = 0;
  for (const Plane& plane : planes) {
    name = std::max(name, plane.name.size());
    shape = std::max(shape, shape_text(plane.logical).size());
  }
  std::string out;
  for (const Plane& plane : planes)
    out += fmt::format("\n  {:<3}  {:<{}}  {:<4}  {:<{}}  {:>8} bytes{}",
                       plane.part == Part::input ? "in" : "out", plane.name, name, info(plane.encoding).name,
                       shape_text(plane.logical), shape, plane.bytes(), storage_note(plane));
  return out;
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
    std::string note = options.support ? support_note(e.problem, subjects, names) : "";
    if (options.planes) note += planes_note(e.problem);
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
      "  assay list 'quantize mxfp8 33x96 bf16' --planes\n"
      "  assay list smoke --support --subject host,gpu\n"
      "Exit status: 0; 2 bad usage, or a suite that cannot be read; 3 nothing is selected.");
  add_what(c, common, false);
  add_subjects(c, common, "host");
  c.flag("--canonical", options->canonical, "every key, resolved");
  c.flag("--planes", options->planes,
         "the arrays that go in and come out, in their order, with their shapes");
  c.flag("--support", options->support, "say for each subject whether it runs the line");
  c.flag("--suites", options->suites, "list the suites that can be named");
  c.flag("--keys", options->keys, "every key of the line, with its values");
  c.flag("--subjects", options->subjects, "the subjects, and whether they are present");
  c.callback([&program, options] {
    program.status = list(program.common, *options, program.make_subjects(program.common));
  });
}

}  // namespace assay
