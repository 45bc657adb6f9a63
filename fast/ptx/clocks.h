// The registers that tell the time (10: %clock, %clock_hi, %clock64, %globaltimer, %globaltimer_lo,
// %globaltimer_hi). There is no time here: they give the instructions that lanes have carried out so far in
// the launch, each lane counted, so that values grow, and are the same in every run of one order.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "fast/ptx/kernel.h"

namespace assay::ptx {

// How such a register is read: its width, and where its lowest bit lies in the count.
struct Clock {
  bool wide = false;
  uint32_t shift = 0;
};
std::optional<Clock> clock_named(std::string_view name);

// The handler of a mov from a clock: Instruction::code is Clock::shift.
void read_clock(Warp&, const Instruction&);

}  // namespace assay::ptx
