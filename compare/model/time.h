// The time that the counts of a launch predict, limit by limit (docs/model.md).
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compare/model/gpus.h"
#include "compare/model/occupancy.h"

namespace assay::model {

// What the time follows from: counts of the whole launch.
struct Work {
  double blocks = 0;
  int threads = 0;                           // of a block
  double bytes_read = 0, bytes_written = 0;  // of memory: distinct sectors
  double lines = 0;                          // of 128 bytes, of all requests, and wavefronts of shared memory
  double warp_instructions = 0;              // issued
  std::array<double, kPipes.size()> by_pipe = {};  // of them, by pipe
  double partial_writes = 0;                       // sectors that a request of a store writes in part
};

struct LaunchTime {
  std::vector<std::pair<std::string, double>> limits;  // seconds, in a fixed order
  std::string limit;                                   // the one that binds
  double seconds = 0;                                  // what it takes
};

// Without an occupancy latency is not among the limits.
LaunchTime launch_time(const Work&, const std::optional<Occupancy>&, const Gpu&);

}  // namespace assay::model
