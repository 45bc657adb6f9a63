// Which lane a shuffle reads (9.7.9.6).
#pragma once
#include <cstdint>

#include "fast/ptx/forms.h"

namespace assay::ptx {

// What a lane reads from one that takes no part, under RunOptions::shuffles_any. It counts as never written
// (Undefined::meet).
constexpr uint32_t kAbsentLane = 0x7F7F7F7F;

enum class Shuffle : uint8_t { up, down, bfly, idx };

inline Shuffle shuffle_of(const Opcode& op) {
  return op.has("up")     ? Shuffle::up
         : op.has("down") ? Shuffle::down
         : op.has("bfly") ? Shuffle::bfly
                          : Shuffle::idx;
}

// The lane that is read, and whether it lies in the segment.
inline bool source_lane(Shuffle mode, unsigned lane, uint32_t b, uint32_t c, unsigned& from) {
  const uint32_t step = b & 31, clamp = c & 31, segment = c >> 8 & 31;
  const uint32_t greatest = (lane & segment) | (clamp & ~segment), least = lane & segment;
  if (mode == Shuffle::up) {
    from = lane - step;
    return static_cast<int32_t>(from) >= static_cast<int32_t>(greatest);
  }
  from = mode == Shuffle::down   ? lane + step
         : mode == Shuffle::bfly ? lane ^ step
                                 : (least | (step & ~segment));
  return from <= greatest;
}

}  // namespace assay::ptx
