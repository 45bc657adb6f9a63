#include "fast/ptx/counters.h"

namespace assay::ptx {

namespace {

void add(Traffic& to, const Traffic& from) {
  to.requests += from.requests;
  to.sectors += from.sectors;
  to.bytes += from.bytes;
}

std::string text(const char* what, const Traffic& t) {
  return std::string(what) + " " + std::to_string(t.requests) + " requests, " + std::to_string(t.sectors) +
         " sectors, " + std::to_string(t.bytes) + " bytes\n";
}

}  // namespace

void Counters::add(const Counters& other) {
  warp_instructions += other.warp_instructions;
  lane_instructions += other.lane_instructions;
  for (size_t k = 0; k < warps_by_class.size(); ++k) {
    warps_by_class[k] += other.warps_by_class[k];
    lanes_by_class[k] += other.lanes_by_class[k];
  }
  branches += other.branches;
  divergent_branches += other.divergent_branches;
  ptx::add(loads, other.loads);
  ptx::add(stores, other.stores);
  shared_requests += other.shared_requests;
  for (const auto& [where, lanes] : other.unpinned) unpinned[where] += lanes;
}

std::string to_text(const Counters& c) {
  std::string out = "instructions  " + std::to_string(c.warp_instructions) + " of warps, " +
                    std::to_string(c.lane_instructions) + " of lanes\n";
  for (size_t k = 0; k < kClassNames.size(); ++k)
    if (c.warps_by_class[k])
      out += "  " + std::string(kClassNames[k]) + " " + std::to_string(c.warps_by_class[k]) + ", " +
             std::to_string(c.lanes_by_class[k]) + "\n";
  out += "branches      " + std::to_string(c.branches) + ", divergent " +
         std::to_string(c.divergent_branches) + "\n";
  out += text("global loads ", c.loads) + text("global stores", c.stores);
  out += "shared        " + std::to_string(c.shared_requests) + " requests\n";
  for (const auto& [where, lanes] : c.unpinned)
    out += "not pinned    " + where + ": " + std::to_string(lanes) + " lanes\n";
  return out;
}

}  // namespace assay::ptx
