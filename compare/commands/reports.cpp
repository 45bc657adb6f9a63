#include "compare/commands/reports.h"

#include <fmt/format.h>

#include "compare/process/interrupt.h"
#include "compare/report/doctor.h"
#include "compare/report/github.h"
#include "compare/text/printable.h"
#include "fixtures/files.h"

namespace assay {

void add_reports(Command& c, ReportOptions& o) {
  c.option("--junit", o.junit, "write JUnit XML here");
  c.flag("--github", o.github, "annotations for GitHub Actions on standard output");
  c.option("--jsonl", o.jsonl, "write JSON lines here, each as soon as its case has ended");
  c.flag("-v,--verbose", o.verbose, "print every line before it runs, and every outcome");
}

Reports::Reports(const ReportOptions& options, const Environment& environment, const Subjects& subjects,
                 std::FILE* out, std::FILE* err)
    : options_(options),
      out_(out),
      err_(err),
      error_(open(environment, subjects)),
      progress_(err, options.progress) {}

std::optional<Error> Reports::open(const Environment& environment, const Subjects& subjects) {
  if (!options_.html.empty())
    if (auto error = cannot_write(options_.html, "--html")) return error;
  if (!options_.jsonl.empty()) {
    auto jsonl = make_jsonl_report(options_.jsonl, doctor_facts_in_child(subjects), environment);
    if (!jsonl) return jsonl.error();
    reports_.push_back(std::move(*jsonl));
  }
  if (!options_.junit.empty()) {
    auto junit = make_junit_report(options_.junit);
    if (!junit) return junit.error();
    reports_.push_back(std::move(*junit));
  }
  if (options_.github)
    reports_.push_back(make_github_report([out = out_](const std::string& lines) {
      fmt::print(out, "{}", lines);
      std::fflush(out);
    }));
  TextOptions text;
  text.verbose = options_.verbose;
  text.colour = options_.colour;
  text.environment = environment;
  text.launched = options_.launched;
  text.common_cause = options_.common_cause;
  reports_.push_back(make_text_report(out_, text));  // last, because its last line ends the output
  return std::nullopt;
}

void Reports::result(const SuiteEntry& entry, const Verdict& verdict) {
  if (is_red(verdict.outcome)) progress_.wipe();
  totals_.add(verdict);
  for (auto& r : reports_) r->result(entry, verdict);
}

void Reports::cell(const TrainingCase& c, const Verdict& verdict) {
  if (!c.row.empty()) matrix_.add(c.row, c.column, c.entry.text, verdict);
}

void Reports::progress(size_t done, size_t count, const std::string& line) {
  done_ = done;
  count_ = count;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  progress_.show(fmt::format("{}/{}{}  {}", done, count, left_text(seconds, done, count),
                             printable(line.substr(0, 100))));
}

void Reports::waiting(size_t done, size_t count, const std::string& line, double seconds) {
  constexpr double kLong = 2;
  if (seconds < kLong) return;
  progress_.show(fmt::format("{}/{}  {:.0f} s at {}", done, count, seconds, printable(line.substr(0, 100))));
}

int Reports::finish() {
  progress_.wipe();
  if (!matrix_.empty()) fmt::print(out_, "{}\n", matrix_.text());
  if (interrupted()) fmt::print(out_, "interrupted: {} of {} cases were judged\n", done_, count_);
  for (auto& r : reports_) r->finish(totals_);
  if (const auto error = written()) {
    fmt::print(err_, "assay: {}\n", error->text());
    return 2;
  }
  const int status = totals_.exit_status();
  return interrupted() && status != 1 ? kInterrupted : status;
}

std::optional<Error> Reports::written() const {
  for (const auto& r : reports_)
    if (const auto trouble = r->trouble()) return trouble;
  if (std::fflush(out_) != 0 || std::ferror(out_))
    return Error{"cannot write all of the report to standard output", 0, ""};
  if (options_.html.empty()) return std::nullopt;
  return write_file(options_.html, matrix_.html());
}

}  // namespace assay
