// One case that is searched: its lanes, as they came and as they should be.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compare/diagnosis/search/diagnose.h"
#include "compare/diagnosis/search/judged_lane.h"
#include "compare/process/interrupt.h"
#include "contract/result.h"
#include "contract/subject.h"

namespace assay::cause {

// One case, ready to be searched.
class JudgedCase {
 public:
  JudgedCase(const Observation& seen, Subject& reference, const DiagnoseOptions& options);
  // Runs the reference and finds what differs. Errors: as diagnose() says.
  std::optional<Error> gather();

  const Observation& seen;
  Subject& reference;
  const DiagnoseOptions& options;
  const int jobs;
  std::deque<JudgedLane> lanes;
  std::vector<std::pair<PlaneData, PlaneData>> beside;  // planes of no lane that differ: got, want
  int64_t beside_of = 0, beside_differ = 0;

  std::vector<JudgedLane*> lanes_of(std::optional<Direction> d, bool differing);
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool in_time() const {
    return elapsed() < options.budget && !interrupted() && !(options.stop && *options.stop);
  }  // a last resort: what is tried is bounded by counts
  void progress(const std::string& text) const {
    if (options.on_progress) options.on_progress(text);
  }

 private:
  using Clock = std::chrono::steady_clock;
  bool judge(JudgedLane& lane) const;
  void add_rows(JudgedLane& lane) const;
  std::optional<Error> judge_beside();
  Clock::time_point start_ = Clock::now();
};

}  // namespace assay::cause
