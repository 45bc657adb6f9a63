// Breaches made of differences between two sets of planes.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/judge/judge.h"
#include "compare/judge/verdict.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

// One plane's difference as a breach of `claim`; `got` and `want` name the two sides.
Breach difference_breach(std::string claim, const Problem& problem, const PlaneDifference& difference,
                         std::string_view got, std::string_view want);
// The parity breach between two output sets, or nothing.
std::optional<Breach> parity_breach(const Problem& problem, const Judgement& judgement, std::string_view got,
                                    std::string_view want);
// Where every difference of the breach's data plane is a tie of the scaled value, the hint of the breach says
// so.
void look_for_ties(const Problem& problem, const std::vector<PlaneData>& inputs,
                   const std::vector<PlaneData>& got, const std::vector<PlaneData>& want, Breach& breach);

}  // namespace assay
