// What a launch did, counted. Every number is exact, and equal from run to run.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fast/ptx/forms.h"

namespace assay::ptx {

struct Kernel;

// Requests to global memory: one for each warp instruction that reaches it. Sectors and lines are the
// distinct units of 32 and of 128 bytes that its lanes touch, bytes what the lanes asked for. Of a partial
// sector the request asks for less than all 32 bytes.
struct Traffic {
  uint64_t requests = 0, sectors = 0, lines = 0, bytes = 0, partial = 0;
  void add(const Traffic&);
};

// Requests to shared memory. It has 32 banks of 4 bytes. Lanes go in phases: all 32 at once with up to 4
// bytes each, 16 with 8 bytes, 8 with 16. A phase takes as many wavefronts as the busiest bank has distinct
// words; conflicts are the wavefronts beyond one for each phase.
struct SharedTraffic {
  uint64_t requests = 0, wavefronts = 0, conflicts = 0;
  void add(const SharedTraffic&);
};

// One instruction of a kernel: the numbers of all its executions.
struct InstructionCounters {
  uint64_t warps = 0, lanes = 0, divergent = 0;
  Traffic global;
  SharedTraffic shared;
};

struct Counters {
  uint64_t warp_instructions = 0;  // executed, also where no lane's guard was true
  uint64_t lane_instructions = 0;  // executed, times the lanes whose guard was true. Counted always
  std::array<uint64_t, kClassNames.size()> warps_by_class = {}, lanes_by_class = {};
  uint64_t branches = 0, divergent_branches = 0;  // with a guard; where a group of lanes parted
  Traffic loads, stores;                          // of global memory; atomics are both
  // Distinct sectors of the whole launch: what must come from and go to DRAM if a cache forgets nothing.
  uint64_t sectors_read = 0, sectors_written = 0;
  SharedTraffic shared;
  uint64_t barriers = 0;  // warps that came to one
  uint64_t atomics = 0,
           collisions = 0;        // lanes; those that found another lane of their request at its address
  uint64_t atomic_addresses = 0;  // distinct, of the whole launch
  // Lanes that carried out an instruction whose bits the PTX ISA does not pin, by "PTX line 12:
  // ex2.approx.f32". Counted always.
  std::map<std::string, uint64_t> unpinned;
  // By instruction of the kernel; of one launch alone.
  std::vector<InstructionCounters> by_instruction;

  void add(const Counters& other);
};

// The totals by name, those that are zero too, in an order that does not change.
std::vector<std::pair<std::string, uint64_t>> totals_of(const Counters&);

// One line of the PTX that was carried out: its instructions together.
struct LineCounters {
  uint32_t line = 0;
  std::string text, source;      // "ld.global.b32 %r1, [%rd1];", "mine.cu:17"
  std::vector<uint64_t> counts;  // one for each of line_columns()
};
// "warps", "lanes", "divergent", ...
const std::vector<std::string>& line_columns();
// The lines that were carried out; `text` is that of the module.
std::vector<LineCounters> by_line(const Kernel&, const Counters&, std::string_view text);

}  // namespace assay::ptx
