// Causes that no direction of one tensor, and no member of a split, shows by itself: what columns are made of
// (N13), parts of blocks that have scales of their own, what a kernel reads for the members of a split in
// place of their own, where it puts their elements, and how it adds their sizes wrongly (N14).
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compare/arithmetic/attention_core.h"
#include "compare/diagnosis/diagnosis.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

struct WholeCause {
  std::string id, title, clause;  // "split.column_slices"
  Stage stage = Stage::input;
  // The output planes. `right` is what the reference makes of the inputs; a cause may run it on others.
  // Nothing where nothing changes, or the reference fails.
  std::function<std::optional<std::vector<PlaneData>>(const Problem&, const std::vector<PlaneData>& inputs,
                                                      const std::vector<PlaneData>& right, const RunLine&)>
      made;
};
// Those that the line can have; an empty list for any other op.
std::vector<WholeCause> quantize_causes(const Problem&);
std::vector<WholeCause> split_causes(const Problem&);
inline std::vector<WholeCause> whole_causes(const Problem& p) {
  return p.as<Split>() ? split_causes(p) : quantize_causes(p);
}

}  // namespace assay
