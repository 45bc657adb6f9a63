#include "compare/model/time.h"

#include <algorithm>

namespace assay::model {

namespace {

constexpr double kLanesOfWarp = 32, kIssuedLanes = 128, kSchedulers = 4;

// Instructions of warps per clock and SM, for so many warps on each scheduler.
double issued_per_clock(double warps) {
  constexpr double kSteps[] = {kIpcOfOne, kIpcOfTwo, kIpcOfThree, kIpcOfFour};
  if (warps <= 1) return kIpcOfOne * warps;
  if (warps >= 4) return kIpcOfFour;
  const auto below = static_cast<size_t>(warps);
  return kSteps[below - 1] + (warps - static_cast<double>(below)) * (kSteps[below] - kSteps[below - 1]);
}

// Each SM holds R blocks at once and takes them in waves; a block waits for its first loads, fills, computes.
double latency_clocks(const Work& w, const Occupancy& held, const Gpu& gpu) {
  const double warps_of_block = std::max(1.0, static_cast<double>(w.threads) / kLanesOfWarp);
  const double waves = std::max(1.0, w.blocks / (gpu.sms * static_cast<double>(held.blocks)));
  const double ipc = issued_per_clock(held.blocks * warps_of_block / kSchedulers);
  const double of_block = 1 / std::max(w.blocks, 1.0);
  return waves * (kStartClocks + kLoadClocks + w.bytes_read * of_block / kFillBytes +
                  w.warp_instructions * of_block / ipc);
}

// Bytes over the speed of a copy. A sector that a store writes in part costs more than its bytes: the L2
// fetches the rest of it.
double memory_seconds(const Work& w, const Gpu& gpu) {
  const bool only_reads = w.bytes_written < w.bytes_read / 64;
  const double bytes = w.bytes_read + w.bytes_written + kPartialBytes * w.partial_writes;
  return bytes / (gpu.copy * (only_reads ? kReadOnly : 1));
}

}  // namespace

LaunchTime launch_time(const Work& w, const std::optional<Occupancy>& held, const Gpu& gpu) {
  LaunchTime out;
  const double clocks = gpu.sms * gpu.ghz * 1e9;  // of all SMs, per second
  out.limits.emplace_back("memory", memory_seconds(w, gpu));
  for (const PipeInfo& pipe : kPipes)
    if (pipe.lanes > 0)
      out.limits.emplace_back(std::string(pipe.name), w.by_pipe[static_cast<size_t>(pipe.pipe)] *
                                                          kLanesOfWarp / (pipe.lanes * kPipeShare * clocks));
  out.limits.emplace_back("issue",
                          w.warp_instructions * kLanesOfWarp / (kIssuedLanes * kIssueShare * clocks));
  out.limits.emplace_back("lines", w.lines / clocks);
  if (held && held->blocks > 0)
    out.limits.emplace_back("latency", latency_clocks(w, *held, gpu) / (gpu.ghz * 1e9));
  const auto most = std::max_element(out.limits.begin(), out.limits.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  out.limit = most->first, out.seconds = most->second;
  return out;
}

}  // namespace assay::model
