// Reports: what a run says, as it goes. Each form is a Report; they are all fed the same results, in the
// suite's order.
#pragma once
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compare/judge/claims.h"
#include "contract/result.h"

namespace assay {

// Counts of a run; a line counts once for each subject.
struct Totals {
  size_t passed = 0;
  size_t failed = 0;   // failed, mistrusted, crashed and stale
  size_t skipped = 0;  // skipped, and unsupported where no annotation expects it
  std::map<Outcome, size_t> by_outcome;
  std::map<std::string, size_t> skip_reasons;  // "gpu: no CUDA device" -> 12
  std::map<std::string, size_t>
      unpinned_reasons;  // "cublaslt: ..." -> 3: judged by the bound, whatever the outcome
  std::map<std::string, std::string> unpinned_clauses;  // "cublaslt: ..." -> "N16.13": whose bound that was
  // "ptx:mine depends on contraction at PTX line 12 (mul.f32)" -> 4: the cases, whatever the outcome, whose
  // subject says so (Served::by), which another machine may give other bytes
  std::map<std::string, size_t> open_points;
  size_t empty = 0;     // of the passed, those whose tensor has no element
  size_t launches = 0;  // kernels
  double seconds = 0;

  void add(const Verdict& v);
  // "12 passed, 0 failed, 3 skipped": the last line of a run.
  std::string last_line() const;
  // 0; 1 where something failed; 3 where nothing was judged.
  int exit_status() const;
};

class Report {
 public:
  virtual ~Report() = default;
  virtual void result(const SuiteEntry& entry, const Verdict& verdict) = 0;
  virtual void finish(const Totals& totals) = 0;
  // What kept the report from being written, asked after finish(); nothing where all of it is.
  virtual std::optional<Error> trouble() const { return std::nullopt; }
};

// One line that failed.
struct Failure {
  SuiteEntry entry;
  Verdict verdict;
};

struct TextOptions {
  bool verbose = false;  // a line for each case, not only for red ones
  bool colour = false;
  size_t full_screens = 20;  // failures after these are one line each
  std::string launched;      // what stands before `run` in a repro; empty: assay
  Environment environment;
  // In words the cause that makes every byte of all these failures of one subject, or nothing. Failures of
  // another pattern are counted with earlier ones that they have a cause in common with. May be empty.
  std::function<std::optional<std::string>(const std::vector<Failure>&)> common_cause;
};
// The report that people read, on `out`.
std::unique_ptr<Report> make_text_report(std::FILE* out, const TextOptions& options);

// JSON lines, each flushed (docs/reading-a-report.md has the schema): a head with the doctor's facts, a
// record per line and subject, one more per further breach, and the totals. Error: `path` cannot be written.
inline constexpr int kReportVersion = 1;
Result<std::unique_ptr<Report>> make_jsonl_report(const std::string& path, const json::Value& doctor,
                                                  const Environment& environment);

// JUnit XML, written at the end: a testcase per line and subject, a suite per file. Error: `path` cannot be
// written, said before anything runs.
Result<std::unique_ptr<Report>> make_junit_report(const std::string& path);

// The screen of one red verdict, with line ends.
// `launched`: what stands before `run` in the repro, such as "mpirun -n 4 build/mpi/bin/assay"; empty: assay.
std::string failure_screen(const SuiteEntry& entry, const Verdict& verdict, const Environment& environment,
                           const std::string& launched = {});

}  // namespace assay
