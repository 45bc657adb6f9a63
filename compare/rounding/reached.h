// Which rounding cases (cases.h) lines reach, by unit: the reference traces every element of each line
// (contract/tracer.h), and each case that is not reached yet is asked about its steps.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "contract/problem.h"
#include "contract/result.h"
#include "contract/subject.h"

namespace assay::rounding {

// Of each unit, of each case by its place in cases(): a line that reaches it, or -1.
using Reached = std::map<std::string, std::vector<int64_t>>;

class Walk {
 public:
  // The reference is a Tracing. `only`: units whose name contains this. `known`: what is not looked for.
  explicit Walk(Subject& reference, std::string only = "", Reached known = {})
      : reference_(reference), only_(std::move(only)), reached_(std::move(known)) {}
  // Adds what line number `index` reaches. Lines come in ascending order: what an earlier one reached is not
  // looked for again, nor steps that an earlier one had. Errors: the inputs cannot be made, or the reference
  // fails.
  std::optional<Error> add(int64_t index, const Problem&);
  const Reached& reached() const { return reached_; }

 private:
  Subject& reference_;
  std::string only_;
  Reached reached_;
  std::unordered_set<std::string> traced_;  // Keys::of_steps
};

struct ReachOptions {
  int jobs = 0;                                             // worker processes; 0: the cores of this machine
  std::string only;                                         // units whose name contains this
  std::function<void(size_t done, size_t of)> on_progress;  // lines; may be empty
};
struct ReachedByLines {
  Reached reached;
  size_t looked_at = 0;  // lines; fewer than there are where an interrupt ended it
  std::vector<std::pair<size_t, std::string>> errors;  // by line
};
// Of each case the line of the fewest elements, and of those the first; the same whatever the number of
// workers.
ReachedByLines reach(const std::vector<Problem>& lines, Subject& reference, const ReachOptions&);

}  // namespace assay::rounding
