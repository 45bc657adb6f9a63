// The third set of kernels with one planted bug each. They were written and frozen before any search saw
// them, by somebody who had read neither the search nor the list of causes. third.tsv says of each in plain
// words what is wrong with it, and which public thread it follows.
#pragma once
#include <span>
#include <string_view>

#include "contract/problem.h"
#include "tests/self/hunt/third_call.h"

namespace assay::third {

struct Bug {
  std::string_view name, op;      // op: empty for a kernel of every op
  bool (*takes)(const Problem&);  // which lines of its op the kernel runs
  void (*run)(const Call&);       // writes every output
};

// Null where there is none of that name. `no_third_slip` has no bug. The fourth set defines it for its own
// names.
const Bug* find_bug(std::string_view name);

// Each of these is about one op or one family of ops.
std::span<const Bug> bugs_of_quantize();
std::span<const Bug> bugs_of_others();

}  // namespace assay::third
