#include "compare/model/occupancy.h"

#include <algorithm>

#include "compare/model/gpus.h"

namespace assay::model {

namespace {

constexpr int kLanesOfWarp = 32, kSchedulers = 4, kRegisterUnit = 256, kSharedUnit = 128;

int64_t rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

Occupancy occupancy(const Compiled& c, int threads, uint64_t dynamic_shared) {
  const int64_t warps = std::max<int64_t>(1, rounded_up(threads, kLanesOfWarp) / kLanesOfWarp);
  Occupancy out{kBlocks, "blocks"};
  const auto allow = [&](int64_t blocks, const char* what) {
    if (blocks < out.blocks) out = {static_cast<int>(blocks), what};
  };
  allow(kWarps / warps, "threads");
  const int64_t of_warp = rounded_up(int64_t{std::max(c.registers, 1)} * kLanesOfWarp, kRegisterUnit);
  const int64_t held = kRegisters / kSchedulers / of_warp * kSchedulers;
  allow(held / rounded_up(warps, kSchedulers), "registers");
  const auto shared = rounded_up(static_cast<int64_t>(c.static_shared + dynamic_shared), kSharedUnit);
  allow(kSharedBytes / (shared + kSharedReserved), "shared memory");
  return out;
}

}  // namespace assay::model
