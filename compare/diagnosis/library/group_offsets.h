// Scales of a split's members that a kernel has put at wrong offsets (N14.3): a cause of a whole case, since
// no member alone shows where it stands.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

struct OffsetCause {
  std::string id, title;  // "split.scale_offsets=tiles_floored"
  bool shown = true;      // the plane of offsets holds the wrong ones too
  size_t row = 0;         // which rule counts the room of a member
};
// Those that the line can have.
std::vector<OffsetCause> offset_causes(const Problem& split);

// A split's output planes with the scales of each member where this cause puts them; a later member is
// written over an earlier one.
struct MovedScales {
  std::vector<PlaneData> planes;
  // For each plane whose scales have moved, by its place in `planes`: which bytes a member was written to.
  std::vector<std::pair<size_t, std::vector<bool>>> written;
};
// `right`: the output planes as they should be. Nothing where no offset changes.
std::optional<MovedScales> moved_scales(const OffsetCause&, const Problem& split,
                                        const std::vector<PlaneData>& right);

}  // namespace assay
