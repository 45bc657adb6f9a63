// What a launch did, counted. Every number is exact, and equal from run to run.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "fast/ptx/forms.h"

namespace assay::ptx {

// Requests to global memory: one for each warp instruction that reaches it. Sectors are the distinct units of
// 32 bytes that its lanes touch, bytes what the lanes asked for.
struct Traffic {
  uint64_t requests = 0, sectors = 0, bytes = 0;
};

struct Counters {
  uint64_t warp_instructions = 0;  // executed, also where no lane's guard was true
  uint64_t lane_instructions = 0;  // executed, times the lanes whose guard was true. Counted always
  std::array<uint64_t, kClassNames.size()> warps_by_class = {}, lanes_by_class = {};
  uint64_t branches = 0, divergent_branches = 0;  // with a guard; where a group of lanes parted
  Traffic loads, stores;                          // of global memory; atomics are both
  uint64_t shared_requests = 0;
  // Lanes that carried out an instruction whose bits the PTX ISA does not pin, by "PTX line 12:
  // ex2.approx.f32". Counted always.
  std::map<std::string, uint64_t> unpinned;

  void add(const Counters& other);
};

// Several lines for a screen.
std::string to_text(const Counters&);

}  // namespace assay::ptx
