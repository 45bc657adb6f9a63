// The search for what made the bytes of one direction (docs/debugging-a-divergence.md). Its stages run in
// order, from what says most of other tensors to what says least, and each only where those before it found
// nothing exact. What is tried is screened on samples and then held to every byte. All limits are counts. For
// diagnose() alone.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "compare/diagnosis/search/fits.h"
#include "compare/diagnosis/search/judged_case.h"

namespace assay::cause {

// What the search of one direction gives.
struct Causes {
  std::vector<Candidate> candidates;      // exact ones first, then the runners-up by agreement
  Ids unseen;                             // that change nothing in the samples
  std::vector<std::string> under_scales;  // what holds of the codes under the scales that came
};

// `elsewhere`: what was found in the other direction, which is tried first where it was fitted.
Causes find_causes(JudgedCase& judged_case, std::optional<Direction> d,
                   const std::vector<Candidate>& elsewhere);

}  // namespace assay::cause
