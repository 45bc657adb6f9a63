// The four figures of a line on a GPU that is not there: what ptxas made of its kernels, what they ask of
// memory, which instructions they issue, and the time that follows (docs/model.md).
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compare/model/gpus.h"
#include "compare/model/sampling.h"
#include "compare/model/time.h"
#include "compare/model/toolkit.h"
#include "contract/problem.h"
#include "contract/result.h"
#include "contract/subject.h"

namespace assay::model {

struct LaunchModel {
  std::string entry;
  int threads = 0;  // of a block
  uint64_t dynamic_shared = 0;
  // S. Nothing where there is no ptxas, or where it refused; then `not_compiled` says why.
  std::optional<Compiled> compiled;
  std::optional<Occupancy> occupancy;
  std::string not_compiled;
  // A and I: counts of the whole launch by name, as `assay count` names them, and besides "blocks",
  // "ptx <pipe>", "ptx all", "sass <pipe>", "sass all", "sass local", "loads of 16 bytes", "stores of 1
  // bytes".
  Totals totals;
  bool sass = false;                 // whether there are the counts of machine instructions
  std::string no_sass;               // if not, why
  std::vector<std::string> unknown;  // opcodes whose pipe is not known
  // T.
  Work work;
  LaunchTime time;

  double total(std::string_view name) const;
};

struct Model {
  std::string line, subject;
  const Gpu* gpu = nullptr;
  double elements = 0;     // of x
  double least_bytes = 0;  // that any implementation moves: inputs and outputs once, and x once more where
                           // all of it must be known first
  bool two_reads = false;  // whether x is counted twice for that
  std::vector<LaunchModel> launches;
  std::vector<std::string> counted_on;  // shapes
  double departure = 0;                 // from the straight line through the counted sizes
  std::string departing;                // "pair_kernel: shared wavefronts"; empty where one size was counted
  std::string ptxas, nvdisasm;          // versions; empty where absent

  double seconds = 0, copy_seconds = 0;  // T, and what a copy of the least bytes takes
  std::string limit;                     // what binds most of the time; "launches" are starts of kernels
  double share() const { return seconds > 0 ? copy_seconds / seconds : 0; }
  bool sass() const;                        // whether every launch has counts of machine instructions
  double instructions_per_element() const;  // machine instructions, or those of the PTX
  const LaunchModel* longest() const;       // the launch that takes most of the time
  bool proven() const;                      // whether the counts are straight
};

// Counts may depart from the straight line by so much: some follow the data.
inline constexpr double kMostDeparture = 0.01;

struct ModelOptions {
  const Gpu* gpu = nullptr;
  Environment environment;  // its architecture is that of the GPU
  double timeout = 60;      // of each count
};

// Error: the line is too large to be counted, a count failed, or nothing was launched.
Result<Model> model_of(const Problem&, Subject&, Subject& reference, Toolkit&, const ModelOptions&);

// The bytes that any implementation moves.
double least_bytes(const Problem&);
// Whether the scale of the whole tensor must be known before its first code, and is not given.
bool reads_twice(const Problem&);

}  // namespace assay::model
