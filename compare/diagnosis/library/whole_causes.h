// What a kernel may read for the members of a split in place of their own, and how it may add their sizes
// wrongly (N14): causes of a whole case.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compare/arithmetic/attention_core.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

struct SplitCause {
  std::string id, title, clause;  // "split.column_slices"
  // The output planes. `right` is what the reference makes of the inputs; a cause may run it on others.
  // Nothing where nothing changes, or the reference fails.
  std::function<std::optional<std::vector<PlaneData>>(const Problem&, const std::vector<PlaneData>& inputs,
                                                      const std::vector<PlaneData>& right, const RunLine&)>
      made;
};
// Those that the line can have.
std::vector<SplitCause> split_causes(const Problem& split);

}  // namespace assay
