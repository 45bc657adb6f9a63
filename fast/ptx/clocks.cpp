#include "fast/ptx/clocks.h"

#include "fast/ptx/handlers.h"

namespace assay::ptx {

std::optional<Clock> clock_named(std::string_view name) {
  if (name == "%clock64" || name == "%globaltimer") return Clock{true, 0};
  if (name == "%clock" || name == "%globaltimer_lo") return Clock{false, 0};
  if (name == "%clock_hi" || name == "%globaltimer_hi") return Clock{false, 32};
  return {};
}

void read_clock(Warp& w, const Instruction& i) {
  const uint64_t now = w.block->lane_instructions >> i.code;
  for_lanes(w.active, [&](unsigned l) { write_cell(w, i.d[0], i.wide_d, l, now); });
}

}  // namespace assay::ptx
