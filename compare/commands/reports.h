// The reports of a run while it goes on: JSON lines, JUnit, GitHub annotations, the text for people, and the
// parity matrix. `run` and `replay` feed them.
#pragma once
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compare/commands/command_line.h"
#include "compare/commands/training_cases.h"
#include "compare/report/parity_table.h"
#include "compare/report/report.h"
#include "compare/text/terminal.h"
#include "contract/result.h"

namespace assay {

struct ReportOptions {
  std::string junit, jsonl, html;  // paths; an empty one is not written. html: the parity matrix
  bool github = false;             // annotations for GitHub Actions on standard output
  bool verbose = false;
  bool progress = false;  // a line on standard error that is rewritten; for terminals
  bool colour = false;
  std::string launched;  // what stands before `run` in a repro; empty: assay
  decltype(TextOptions::common_cause) common_cause = {};
};

// --junit, --github, --jsonl, --verbose.
void add_reports(Command&, ReportOptions&);

class Reports {
 public:
  // `options` must live as long as this.
  Reports(const ReportOptions& options, const Environment&, const Subjects&, std::FILE* out, std::FILE* err);
  // A report that cannot be opened.
  const std::optional<Error>& error() const { return error_; }

  void result(const SuiteEntry&, const Verdict&);
  // Counts a cell of the parity matrix, which is printed before the totals.
  void cell(const TrainingCase&, const Verdict&);
  void progress(size_t done, size_t count, const std::string& line);
  // That a line has been running for some seconds.
  void waiting(size_t done, size_t count, const std::string& line, double seconds);

  // How many cases there are and were judged, where that is not what progress() said last.
  void ended_at(size_t done, size_t count) { done_ = done, count_ = count; }

  // Ends every report and returns the exit status: 0; 1 something is red; 2 a report cannot be written; 3
  // nothing was judged; 130 the user ended it (compare/process/interrupt.h) before anything was red.
  int finish();

 private:
  std::optional<Error> open(const Environment&, const Subjects&);
  // Writes the matrix as a page, and returns what could not be written.
  std::optional<Error> written() const;

  const ReportOptions& options_;
  std::FILE *out_, *err_;
  ParityTable matrix_;
  std::vector<std::unique_ptr<Report>> reports_;
  std::optional<Error> error_;
  Totals totals_;
  ProgressLine progress_;
  size_t done_ = 0, count_ = 0;  // as progress() said last
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace assay
