#include "compare/commands/count.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "compare/commands/counts_page.h"
#include "compare/commands/options.h"
#include "compare/model/launches.h"
#include "compare/process/interrupt.h"
#include "compare/process/pool.h"
#include "compare/text/html.h"
#include "compare/text/shell.h"
#include "contract/line.h"
#include "fixtures/files.h"
#include "fixtures/json.h"

namespace assay {

namespace {

// "98.4 %"; nothing of nothing.
std::string share(uint64_t part, uint64_t whole) {
  return whole ? fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole))
               : "-";
}

void print_launch(const LaunchCounts& l, int64_t elements, int lines, std::ostream& out) {
  out << fmt::format("\n{}  grid {} block {}\n", l.entry, l.grid, l.block);
  for (const auto& [name, n] : l.totals)
    if (n)
      out << fmt::format("  {:<26} {:>14} {:>12.4f} per element\n", name, n,
                         elements ? static_cast<double>(n) / static_cast<double>(elements) : 0.0);
  out << fmt::format("  lanes in use               {:>14}\n",
                     share(total(l, "lane instructions"), 32 * total(l, "warp instructions")));
  for (const char* what : {"global load ", "global store "})
    out << fmt::format(
        "  {:<26} {:>14}   bytes asked for, of the sectors moved\n", std::string(what) + "efficiency",
        share(total(l, std::string(what) + "bytes"), 32 * total(l, std::string(what) + "sectors")));
  std::vector<const LaunchCounts::Line*> hot;
  for (const LaunchCounts::Line& line : l.lines) hot.push_back(&line);
  std::stable_sort(hot.begin(), hot.end(),
                   [](const auto* a, const auto* b) { return a->counts[0] > b->counts[0]; });
  if (hot.size() > static_cast<size_t>(lines)) hot.resize(static_cast<size_t>(lines));
  out << fmt::format("  {:>8}", "PTX line");
  for (const std::string& name : l.columns) out << fmt::format(" {:>10}", name);
  out << "  instruction\n";
  for (const LaunchCounts::Line* line : hot) {
    out << fmt::format("  {:>8}", line->line);
    for (const uint64_t n : line->counts) out << fmt::format(" {:>10}", n);
    out << "  " << line->instruction << (line->source.empty() ? "" : "   " + line->source) << "\n";
  }
}

}  // namespace

std::string count_command(const std::string& line, const Subject& subject) {
  return "assay count " + shell_word(line) + " " + subject.argument();
}

int run_count(const CountOptions& options, const Subjects& subjects, std::ostream& out, std::ostream& err) {
  const auto refuse = [&](int status, const std::string& why) {
    err << "assay: " << why << "\n";
    return status;
  };
  const std::pair<const std::string&, const char*> files[] = {{options.json, "--json"},
                                                              {options.html, "--html"}};
  for (const auto& [path, option] : files)
    if (const auto error = path.empty() ? std::nullopt : cannot_write(path, option))
      return refuse(2, error->text());
  Subject* subject = subjects.find(options.subject);
  if (!subject) return refuse(2, "no subject '" + options.subject + "'");
  if (const Support here = present_in_child(*subject); !here.yes)
    return refuse(3, options.subject + " is absent: " + here.why);
  if (!subject->interprets())
    return refuse(
        2, options.subject +
               " does not carry out compiled kernels instruction by instruction; expected --subject ptx, "
               "--ptx-kernel FILE or --ptx FILE");
  if (const Support yes = subject->supports(options.problem); !yes.yes)
    return refuse(3, options.subject + " does not support this line: " + yes.why);
  const InterruptScope scope;
  const auto launches =
      counted_launches(*subject, options.problem, subjects.reference(), options.environment, options.timeout);
  if (!launches && interrupted())
    return refuse(kInterrupted, "interrupted before the kernel had run to its end: nothing was counted");
  if (!launches) return refuse(1, options.subject + ": " + launches.error().text());
  const std::string line = to_line(options.problem);
  out << "count    " << line << "\n  subject  " << options.subject
      << ", exact, equal from run to run; no time\n";
  for (const LaunchCounts& l : *launches)
    print_launch(l, options.problem.x.shape.count(), options.lines, out);
  if (!options.json.empty()) {
    json::Value list = json::array();
    for (const LaunchCounts& l : *launches) list.push(to_json(l));
    const json::Value file = json::object({{"schema", "assay.counts/1"},
                                           {"line", line},
                                           {"subject", options.subject},
                                           {"elements", options.problem.x.shape.count()},
                                           {"launches", std::move(list)}});
    if (const auto e = write_file(options.json, json::dump(file, 1) + "\n")) return refuse(2, e->text());
  }
  if (!options.html.empty())
    if (const auto e = write_file(options.html, counts_page(line, options.subject, *launches)))
      return refuse(2, e->text());
  return launches->empty() ? refuse(3, "nothing was launched") : 0;
}

void register_count(Program& program) {
  struct Given {
    CountOptions count;
    std::string line;
  };
  const auto given = std::make_shared<Given>();
  CommonOptions& common = program.common;
  Command c(program.app, "count", "count what a compiled kernel does: instructions, sectors, conflicts");
  c.footer(
      "Examples:\n"
      "  assay count 'quantize mxfp8 1024x1024 bf16 dir=row' --ptx-kernel "
      "fixtures/triton/mxfp8_rows_sm90.json\n"
      "  assay count 'quantize mxfp8 1024x1024 bf16' --subject ptx --html counts.html\n"
      "Exit status: 0; 1 the kernel failed; 2 bad usage, or a file cannot be written; 3 the subject is "
      "absent or does "
      "not run the line; 130 it was interrupted, and nothing was counted.");
  c.option("line", given->line, "a line in quotes").required();
  c.option("--lines", given->count.lines, "lines of each launch that are shown")
      .range(0, 10000)
      .show_default();
  c.option("--json", given->count.json, "write every number as JSON");
  c.option("--html", given->count.html, "write a listing of the PTX with its numbers");
  add_compiled_subject(c, common);
  add_environment(c, common);
  add_timeout(c, common);
  c.callback([&program, given] {
    CountOptions& count = given->count;
    const Subjects subjects = program.make_subjects(program.common);
    count.problem = problem_of_line(given->line);
    const std::vector<std::string> names = chosen_subjects(program.common, subjects, "ptx");
    if (names.size() != 1) throw Refusal{"this command takes one --subject"};
    count.subject = names[0];
    count.environment = environment_of(program.common);
    count.timeout = program.common.timeout;
    program.status = run_count(count, subjects, std::cout, std::cerr);
  });
}

}  // namespace assay
