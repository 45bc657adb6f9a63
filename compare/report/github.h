// Reports for GitHub Actions (--github): annotations as workflow commands on standard output, and Markdown
// appended to the file that $GITHUB_STEP_SUMMARY names. docs/continuous-integration.md has the workflow.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "compare/report/report.h"

namespace assay {

// One annotation. Values are escaped, so that no text of a pack, a plugin or a line can begin a command of
// its own.
struct Annotation {
  std::string_view level = "error";  // error, warning, notice
  std::string title, message;        // the message may have line ends
  std::string file;                  // of the repository; empty: none
  size_t line = 0;                   // 1-based; 0: none
};
std::string workflow_command(const Annotation&);  // with its line end

// The file of the repository that a report's label names, relative to its root: "smoke.cases" gives
// "fixtures/suites/smoke.cases", "dumps/a.safetensors:case" the pack. Empty where there is none.
std::string repository_path(const std::string& label);

// An error for each red verdict as it comes and the totals as a notice. The service keeps ten of a kind for
// each step, so a line of a suite that sweeps is named once for a plane, nine are named in all, and a last
// error counts the rest. `print` receives whole lines.
std::unique_ptr<Report> make_github_report(std::function<void(const std::string&)> print);

// One case of `check` on such a report: `where` is "<pack>:<case>". Adds it to `totals`.
void report_check(Report&, Totals& totals, const std::string& where, const std::string& line,
                  const std::optional<Breach>&);

// Text that means itself anywhere in Markdown: every sign is a reference, because Markdown is read inside of
// <code> as well.
std::string markdown_text(std::string_view text);
// The same in <code>.
std::string markdown_code(std::string_view text);
// Appends to the file that $GITHUB_STEP_SUMMARY names; does nothing where it names none.
void append_step_summary(const std::string& markdown);

}  // namespace assay
