// Samples of a lane: bad and good blocks, so that a hypothesis need not be replayed on everything.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "compare/diagnosis/search/judged_lane.h"

namespace assay::cause {

// Places of a lane, with the codes that came there and that should be there.
struct Sample {
  const JudgedLane* lane = nullptr;
  Selection selection;
  struct Part {
    size_t plane = 0;  // among the replay's planes
    bool data = false;
    std::vector<int64_t> at;  // in the replay's plane
    std::vector<uint32_t> got, want;
  };
  std::vector<Part> parts;
  size_t elements() const;
};
// About so many elements of bad and good blocks; of a lane that no part can stand for, everything. Draws
// count from the first line: there it is the lines up to the first bad one, or with `leading` only so many.
std::optional<Sample> sample_of(const JudgedLane& lane, int64_t elements, bool leading = false);

// Likewise, of blocks in which `made`, the planes of a replay, is not what came, and of some others.
std::optional<Sample> sample_of_rest(const JudgedLane& lane, const std::vector<PlaneData>& made,
                                     int64_t elements);

}  // namespace assay::cause
