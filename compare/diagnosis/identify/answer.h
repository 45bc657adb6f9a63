// Whose choices made the bytes of a group of cases.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "compare/diagnosis/identify/approximate_kernels.h"
#include "compare/diagnosis/identify/choice_runs.h"
#include "compare/diagnosis/identify/groups.h"
#include "contract/subject.h"

namespace assay::identifying {

// A kernel whose approximate reciprocals could have made the bytes.
struct Approximation {
  const Approximate* kernel;
  Consistency sum;
};
// A plane that a choice makes in another order.
struct Fit {
  Choice choice;
  std::string plane, name, description;
};
// How a fill parts choices: those that make equal bytes of it stand together.
using Parting = std::pair<std::string, std::vector<std::vector<std::string>>>;

struct Answer {
  std::vector<Class> ranking,
      changed;               // changed: exact ones with one or two more keys, where no choice is exact
  std::vector<Fit> layouts;  // of planes that a choice makes in another order, where no choice is exact
  std::vector<Approximation> approximate;  // kernels that the bytes are consistent with
  std::vector<Parting> apart;              // fill, and how it parts the exact choices
  size_t tried = 0, of = 0;                // choices that were run, of those that have a name
  int64_t sample = 0;  // elements of the sample that told choices apart first; 0: all were run on the whole
  bool cut_short = false;    // an interrupt ended it: what was not tried is not known
  bool out_of_time = false;  // the budget ended it: some choices were seen on the sample alone
  bool named() const {
    return (!ranking.empty() && ranking.front().exact()) || !changed.empty() || !layouts.empty() ||
           !approximate.empty();
  }
};

struct AnswerHooks {
  int64_t large = int64_t{1} << 22;  // elements from which on a case is first looked at on a sample
  // Seconds after which no further choice is run on the whole of a group that was sampled, but for the first.
  double budget = 10;
  std::function<void(size_t done, size_t of)> on_progress = {};  // choices; may be empty
};
// `jobs` and `timeout` as ChoiceRuns has them. An interrupt (compare/process/interrupt.h) ends it with what
// was found until then.
Answer answer(const Group& group, Subject& reference, int jobs, double timeout,
              const AnswerHooks& hooks = {});

}  // namespace assay::identifying
