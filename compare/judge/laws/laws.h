// Laws: what any correct result obeys, whatever made it. They are checked on one side's outputs with the
// judge's own doubles.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "compare/arithmetic/gemm_bounds.h"
#include "compare/judge/verdict.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

// The breaches of one subject's outputs. `inputs` are as make_inputs makes them; `order` is that of what
// follows a gemm's sum. Appends the kinds that were evaluated to `evaluated` where it is not null.
std::vector<Breach> check_laws(const Problem& problem, const std::vector<PlaneData>& inputs,
                               const std::vector<PlaneData>& outputs, std::string_view subject,
                               std::vector<std::string>* evaluated = nullptr,
                               GemmOrder order = GemmOrder::pinned);

}  // namespace assay
