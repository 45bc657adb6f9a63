// What the pattern of one plane's differences suggests.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compare/judge/judge.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

// One plane compared: the differing flat indices of the logical region (ascending), and how its padding
// differs. For a plane of a split's member `problem` is the member's own.
struct Compared {
  const Problem* problem;
  const PlaneData* got;
  const PlaneData* want;
  std::vector<int64_t> differing;
  PlaneDifference logical, padding;
};

// One line, or nothing where no pattern is known. At least one element of the logical region differs. `part`:
// the plane is a part of a larger one, whose places say nothing of the whole.
std::string hint_of(const Compared&, bool part);

}  // namespace assay
