// Members of a grouped tensor: where each begins, and whose a tile is (N14).
#pragma once
#include "fast/move/patch.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// Where member i begins, in tiles, elements of x, bytes of each plane and stored rows. Entry n holds the
// totals.
struct MemberStart {
  int64_t tiles, elements, rows, cols;
  int64_t data[2], scales[2], lines[2];
};

// The member that tile `tile` of all `members` belongs to: the last one that begins at the tile or before it,
// which passes over empty members, since each of these begins where the next one does. The 32 lanes of a warp
// look at as many places at once, so that 1024 members take two loads one after the other. Every lane calls.
ASSAY_DEVICE int64_t member_of_tile(const MemberStart* starts, int64_t members, int64_t tile) {
  const int lane = int(threadIdx.x & 31u);
  int64_t low = 0, count = members;  // it is one of `count` from `low` on
  while (count > 1) {
    const int64_t step = (count + 31) / 32, mine = lane * step;
    const unsigned before =
        __ballot_sync(kAllLanes, mine < count && starts[low + mine].tiles <= tile);  // lane 0 always
    const int64_t last = (31 - __clz(int(before))) * step;
    low += last, count = count - last < step ? count - last : step;
  }
  return low;
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
