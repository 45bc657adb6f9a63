#include "compare/commands/coverage.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "compare/choices/choices.h"
#include "compare/commands/coverage_cases.h"
#include "compare/commands/options.h"
#include "compare/commands/selection.h"
#include "compare/process/interrupt.h"
#include "compare/process/pool.h"
#include "compare/text/terminal.h"
#include "contract/dispatch.h"
#include "contract/line.h"
#include "fixtures/files.h"
#include "fixtures/json.h"
#include "fixtures/suite.h"

namespace assay {

namespace {

using choices::Exercised;
using choices::GroupSpace;
using choices::Pairs;
using choices::Space;

// One op and format: what is left out, with a line that would show it.
struct GroupCoverage {
  std::string group;
  size_t choices = 0, valid = 0, exercised = 0;
  struct LeftOut {
    std::string one, other, line;
  };
  std::vector<LeftOut> left_out;
};

std::vector<GroupCoverage> coverage_of(const Space& space, const Exercised& exercised) {
  std::vector<GroupCoverage> out;
  for (const auto& named : space) {
    const std::string& name = named.first;
    const GroupSpace& group = named.second;
    const auto own = exercised.find(name);
    const Pairs none;
    const Pairs& done = own == exercised.end() ? none : own->second;
    GroupCoverage& c =
        out.emplace_back(GroupCoverage{name, group.names.size(), group.valid.size(), done.size(), {}});
    group.valid.each_beyond(done, group.names.size(), [&](int a, int b) {
      c.left_out.push_back({group.names.name(a), group.names.name(b),
                            group.lines[group.shown_by.at(GroupSpace::pair_key(a, b))]});
    });
  }
  return out;
}

std::string percent(size_t part, size_t whole) {
  if (whole == 0) return "no pair";
  if (part == whole) return "100 %";
  // Never rounded up to 100.
  return fmt::format("{:.1f} %",
                     std::min(99.9, 100.0 * static_cast<double>(part) / static_cast<double>(whole)));
}

void print(const CoverageOptions& options, const std::vector<GroupCoverage>& groups, std::ostream& out) {
  size_t valid = 0, exercised = 0;
  out << fmt::format("{:<24} {:>8} {:>12} {:>10}\n", "op and format", "choices", "valid pairs", "exercised");
  for (const GroupCoverage& c : groups) {
    valid += c.valid;
    exercised += c.exercised;
    out << fmt::format("{:<24} {:>8} {:>12} {:>10}   {}\n", c.group, c.choices, c.valid, c.exercised,
                       percent(c.exercised, c.valid));
    for (size_t i = 0; i < std::min(options.list, c.left_out.size()); ++i)
      out << fmt::format("  left out   {} with {}: '{}'\n", c.left_out[i].one, c.left_out[i].other,
                         c.left_out[i].line);
    if (c.left_out.size() > options.list && options.list)
      out << fmt::format("  and {} more\n", c.left_out.size() - options.list);
  }
  out << fmt::format("{} of {} pairs of choices, {}, by {} lines{}\n", exercised, valid,
                     percent(exercised, valid), options.lines.size(),
                     options.subject.empty() ? "" : " on " + options.subject);
}

json::Value document(const CoverageOptions& options, const std::vector<GroupCoverage>& groups,
                     bool cut_short) {
  json::Value list = json::array(), suites = json::array();
  for (const std::string& suite : options.suites) suites.push(suite);
  for (const GroupCoverage& c : groups) {
    json::Value left = json::array();
    for (const auto& l : c.left_out)
      left.push(json::object({{"one", l.one}, {"other", l.other}, {"line", l.line}}));
    list.push(json::object({{"group", c.group},
                            {"choices", c.choices},
                            {"valid", c.valid},
                            {"exercised", c.exercised},
                            {"left_out", std::move(left)}}));
  }
  json::Value out = json::object({{"schema", "assay.coverage/1"},
                                  {"suites", std::move(suites)},
                                  {"subject", options.subject},
                                  {"lines", options.lines.size()},
                                  {"groups", std::move(list)}});
  if (cut_short) out.set("cut_short", true);
  return out;
}

// A line is drawn for its choices, and what it gives may be all zeros.
constexpr const char* kTrust = " trust any \"drawn for its pairs\"\n";

// Lines for what is left out, as a suite.
std::string suite_text(const Space& space, const Exercised& exercised, const CoverageOptions& options) {
  std::string out;
  for (const std::string& line : lines_for(space, exercised, options.space))
    out += to_line(*parse_line(line)) + kTrust;
  return out;
}

// Of the lines those that are accepted, asked in worker processes.
std::optional<Error> keep_accepted(std::vector<Problem>& lines, const choices::Accepts& accepts, int jobs) {
  constexpr double kLongest = 60;  // seconds of one line
  constexpr std::string_view kYes = "yes", kNo = "no";
  std::vector<Problem> kept;
  std::optional<Error> crash;
  TaskHooks hooks;
  hooks.task = [&](size_t i) { return std::string(accepts(lines[i]) ? kYes : kNo); };
  hooks.crashed = [](const std::string& why) { return why; };
  hooks.result = [&](size_t i, const std::string& answer) {
    if (answer == kYes) kept.push_back(lines[i]);
    else if (answer != kNo) crash = Error{fmt::format("'{}': {}", to_line(lines[i]), answer), 0, ""};
    return !crash;
  };
  run_tasks(lines.size(), jobs, kLongest, std::move(hooks));
  lines = std::move(kept);
  return crash;
}

}  // namespace

std::optional<int> ask_subject(CoverageOptions& options, const Subject& subject, std::ostream& err) {
  options.subject = subject.name();
  if (const Support here = present_in_child(subject); !here.yes) {
    err << "assay: subject " << options.subject << " is absent: " << here.why << "\n";
    return 3;
  }
  options.space.accepts = [&subject](const Problem& p) {
    return subject.supports(p).yes && te_rejection(p).empty();
  };
  const InterruptScope scope;
  for (std::vector<Problem>* lines : {&options.lines, &options.evidence})
    if (const auto crash = keep_accepted(*lines, options.space.accepts, options.space.jobs)) {
      err << "assay: subject " << options.subject << " was asked whether it runs " << crash->text() << "\n";
      return 2;
    }
  if (!interrupted()) return std::nullopt;
  err << "assay: interrupted before " << options.subject << " was asked about every line\n";
  return kInterrupted;
}

int run_coverage(const CoverageOptions& options, std::ostream& out, std::ostream& err) {
  const std::pair<const std::string&, const char*> files[] = {{options.json, "--json"},
                                                              {options.complete, "--complete"}};
  const auto refuse = [&](const std::optional<Error>& error) {
    if (error) err << "assay: " << error->text() << "\n";
    return error.has_value();
  };
  for (const auto& [path, option] : files)
    if (refuse(path.empty() ? std::nullopt : cannot_write(path, option))) return 2;
  if (refuse(choices::cannot_choose(options.space.only))) return 2;
  const InterruptScope scope;
  choices::SpaceOptions search = options.space;
  size_t searched = 0, of = 0;
  search.on_progress = [&](size_t done, size_t count) {
    searched = done, of = count;
    if (options.space.on_progress) options.space.on_progress(done, count);
  };
  Space space = find_space(search);
  const bool cut_short = searched < of;
  exercise(space, options.evidence);
  const Exercised exercised = exercise(space, options.lines);
  const std::vector<GroupCoverage> groups = coverage_of(space, exercised);
  if (!cut_short && groups.empty()) {
    err << "assay: nothing was counted: "
        << (options.subject.empty() ? "no line that was drawn is accepted"
                                    : options.subject + " runs no line that was drawn")
        << "\n";
    return 3;
  }
  if (!cut_short || !groups.empty()) print(options, groups, out);
  if (cut_short)
    out << fmt::format(
        "interrupted: {} of {} ops with a format were searched; the others are left out above\n", searched,
        of);
  if (!options.json.empty() &&
      refuse(write_file(options.json, json::dump(document(options, groups, cut_short), 1) + "\n")))
    return 2;
  if (!options.complete.empty()) {
    const std::string suite = interrupted() ? "" : suite_text(space, exercised, options);
    if (interrupted()) out << "interrupted: " << options.complete << " was not written\n";
    else if (refuse(write_file(options.complete, suite))) return 2;
  }
  const bool whole =
      std::all_of(groups.begin(), groups.end(), [](const GroupCoverage& c) { return c.left_out.empty(); });
  return options.whole && !whole ? 1 : interrupted() ? kInterrupted : 0;
}

namespace {

// The one subject that was named, by itself or by what it is read from; null: none was.
const Subject* subject_of(const CommonOptions& common, const Subjects& subjects) {
  std::vector<std::string> names = chosen_subjects(common, subjects, "reference");
  if (common.subjects.empty()) std::erase(names, "reference");
  if (names.size() > 1) throw Refusal{"coverage takes one --subject"};
  return names.empty() ? nullptr : subjects.find(names[0]);
}

// Of these suites the lines of the ops with a format that are asked for. Of `pairs`, where none is named: a
// search misses some pairs (about two in a hundred), and without these lines what it misses would depend on
// the suite that is asked about.
std::vector<Problem> evidence_of(const std::string& suites, const std::string& only, std::ostream& err) {
  std::vector<Problem> out;
  if (choices::cannot_choose(only)) return out;
  for (const std::string& name : split_names(suites.empty() ? "pairs" : suites)) {
    Result<Suite> suite = load_suite(name);
    if (!suite && !suites.empty()) throw Refusal{"--evidence: " + suite.error().text()};
    if (!suite) {
      err << "assay: only the search tells which pairs are valid, for the suite pairs cannot be read: "
          << suite.error().text() << "\n";
      return out;
    }
    for (SuiteEntry& e : suite->entries) {
      const std::vector<choices::GroupChoices> own = choices::choices_of(e.problem);
      if (std::any_of(own.begin(), own.end(),
                      [&](const auto& c) { return c.group.find(only) != std::string::npos; }))
        out.push_back(std::move(e.problem));
    }
  }
  return out;
}

// What the command line asks for, and the exit status.
int called(Program& program, CoverageOptions& options) {
  using Clock = std::chrono::steady_clock;
  const CommonOptions& common = program.common;
  const Subjects subjects = program.make_subjects(common);
  options.suites = common.what;
  if (options.cases && !options.complete.empty())
    throw Refusal{"--complete writes lines for pairs; with --cases, write them by hand"};
  if (options.cases && !options.evidence_suites.empty())
    throw Refusal{"--evidence says which pairs are valid; --cases counts no pairs"};
  const Subject* subject = subject_of(common, subjects);
  options.space.jobs = common.jobs;
  if (!common.what.empty())
    for (SuiteEntry& e : entries_of(common)) options.lines.push_back(std::move(e.problem));
  if (!options.cases) options.evidence = evidence_of(options.evidence_suites, options.space.only, std::cerr);
  if (subject)
    if (const std::optional<int> ended = ask_subject(options, *subject, std::cerr)) return *ended;
  ProgressLine progress(std::cerr, program.progress);
  auto start = Clock::now();
  options.space.on_progress = [&](size_t done, size_t of) {
    if (done == 0) start = Clock::now();  // the pairs, or the lines of --complete
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    progress.show(fmt::format("{}: {} of {} {}{}", options.cases ? "rounding cases" : "searching pairs", done,
                              of, options.cases ? "lines" : "ops with a format",
                              left_text(seconds, done, of)));
    if (done == of) progress.wipe();
  };
  return options.cases ? run_coverage_cases(options, *subjects.find("reference"), std::cout, std::cerr)
                       : run_coverage(options, std::cout, std::cerr);
}

}  // namespace

void register_coverage(Program& program) {
  const auto coverage = std::make_shared<CoverageOptions>();
  CommonOptions& common = program.common;
  Command c(program.app, "coverage", "which pairs of key values a suite exercises, or which rounding cases");
  c.footer(
      "A pair of values is valid if the parser accepts some line that exercises both; the command finds "
      "nearly all of them by asking it, and takes those of the suite pairs, or of --evidence, as valid too "
      "(docs/hunt.md). With --cases it counts rounding cases instead: it runs every "
      "line on the reference and looks at each step of each element. A unit is a format with its element "
      "encoding, a target of the op cast, or another op.\n"
      "Examples:\n"
      "  assay coverage ci\n"
      "  assay coverage pairs --subject host --whole\n"
      "  assay coverage smoke --cases --list 100 --json cases.json\n"
      "  assay coverage 'quantize nvfp4 64x64 bf16 fill=ties' --cases --only nvfp4\n"
      "  assay coverage mine.cases --subject host --complete rest.cases --json coverage.json\n"
      "Exit status: 0; 1 with --whole: a pair or a case is left out; 1 with --cases: a line could not be "
      "looked at, or reaches a case that is called unreachable; 2 bad usage, a file cannot be written, or a "
      "subject crashed when it was asked what it runs; 3 the subject is absent, or runs nothing of it; 130 "
      "it was interrupted, and what was searched until then is reported.");
  add_what(c, common, false);
  c.option("--subject", common.subjects, "count only lines that this subject runs (default: every line)");
  add_plugin(c, common);
  c.flag("--cases", coverage->cases,
         "count rounding cases and clauses (compare/rounding/cases.def), not pairs");
  c.option(
      "--only", coverage->space.only,
      "only ops with a format that contain this: 'quantize mxfp8'; with --cases, only units: 'mxfp8 e4m3'");
  c.option("--list", coverage->list, "pairs or cases that are left out, of each op or unit, on the screen")
      .show_default();
  c.option(
      "--evidence", coverage->evidence_suites,
      "suites whose pairs are valid too, beside those that the search finds: 'pairs,ci' (default: pairs)");
  c.option("--json", coverage->json, "write every number, and all that is left out");
  c.option("--complete", coverage->complete, "write a suite here that exercises what is left out");
  c.flag("--whole", coverage->whole, "exit status 1 where a pair, or a case, is left out");
  c.option("--seed", coverage->space.seed, "of the search for valid pairs, and of the lines of --complete")
      .show_default();
  c.option("--max-elements", coverage->space.most, "elements of a tensor of a line that is drawn")
      .range(1, choices::kMostElements)
      .show_default();
  add_jobs(c, common);
  c.callback([&program, coverage] { program.status = called(program, *coverage); });
}

}  // namespace assay
