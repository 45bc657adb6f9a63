#include "fast/ptx/counters.h"

#include <array>
#include <utility>

#include "fast/ptx/kernel.h"
#include "fast/ptx/text.h"

namespace assay::ptx {

void Traffic::add(const Traffic& other) {
  requests += other.requests;
  sectors += other.sectors;
  lines += other.lines;
  bytes += other.bytes;
  partial += other.partial;
}

void SharedTraffic::add(const SharedTraffic& other) {
  requests += other.requests;
  wavefronts += other.wavefronts;
  conflicts += other.conflicts;
}

void Counters::add(const Counters& other) {
  warp_instructions += other.warp_instructions;
  lane_instructions += other.lane_instructions;
  for (size_t k = 0; k < warps_by_class.size(); ++k) {
    warps_by_class[k] += other.warps_by_class[k];
    lanes_by_class[k] += other.lanes_by_class[k];
  }
  branches += other.branches;
  divergent_branches += other.divergent_branches;
  loads.add(other.loads);
  stores.add(other.stores);
  sectors_read += other.sectors_read;
  sectors_written += other.sectors_written;
  shared.add(other.shared);
  barriers += other.barriers;
  atomics += other.atomics;
  collisions += other.collisions;
  atomic_addresses += other.atomic_addresses;
  for (const auto& [where, lanes] : other.unpinned) unpinned[where] += lanes;
}

std::vector<std::pair<std::string, uint64_t>> totals_of(const Counters& c) {
  std::vector<std::pair<std::string, uint64_t>> out = {{"warp instructions", c.warp_instructions},
                                                       {"lane instructions", c.lane_instructions}};
  for (size_t k = 0; k < kClassNames.size(); ++k) {
    out.emplace_back("warp " + std::string(kClassNames[k]), c.warps_by_class[k]);
    out.emplace_back("lane " + std::string(kClassNames[k]), c.lanes_by_class[k]);
  }
  out.emplace_back("guarded branches", c.branches);
  out.emplace_back("divergent branches", c.divergent_branches);
  for (const auto& [what, t] : {std::pair{"load", &c.loads}, {"store", &c.stores}}) {
    const std::string name = std::string("global ") + what + " ";
    out.emplace_back(name + "requests", t->requests);
    out.emplace_back(name + "sectors", t->sectors);
    out.emplace_back(name + "lines", t->lines);
    out.emplace_back(name + "bytes", t->bytes);
    out.emplace_back(name + "partial sectors", t->partial);
  }
  out.emplace_back("distinct sectors read", c.sectors_read);
  out.emplace_back("distinct sectors written", c.sectors_written);
  out.emplace_back("shared requests", c.shared.requests);
  out.emplace_back("shared wavefronts", c.shared.wavefronts);
  out.emplace_back("shared conflicts", c.shared.conflicts);
  out.emplace_back("barriers waited", c.barriers);
  out.emplace_back("atomic lanes", c.atomics);
  out.emplace_back("atomic collisions", c.collisions);
  out.emplace_back("atomic addresses", c.atomic_addresses);
  uint64_t unpinned = 0;
  for (const auto& [where, lanes] : c.unpinned) unpinned += lanes;
  out.emplace_back("lanes not pinned", unpinned);
  return out;
}

const std::vector<std::string>& line_columns() {
  static const std::vector<std::string> columns = {"warps", "lanes", "divergent", "requests",   "sectors",
                                                   "lines", "bytes", "shared",    "wavefronts", "conflicts"};
  return columns;
}

std::vector<LineCounters> by_line(const Kernel& kernel, const Counters& counters, std::string_view text) {
  const std::vector<std::string_view> lines = lines_of(text);
  std::map<uint32_t, LineCounters> out;
  for (size_t n = 0; n < counters.by_instruction.size(); ++n) {
    const InstructionCounters& c = counters.by_instruction[n];
    const Instruction& i = kernel.code[n];
    if (c.warps == 0 || i.line == 0 || i.line > lines.size()) continue;
    LineCounters& line = out[i.line];
    line.line = i.line;
    line.text = squeezed(lines[i.line - 1]);
    if (i.source) {
      const SourceLine& s = kernel.sources[i.source - 1];
      line.source = s.file + ":" + std::to_string(s.line);
    }
    const std::array numbers = {
        c.warps,        c.lanes,        c.divergent,       c.global.requests,   c.global.sectors,
        c.global.lines, c.global.bytes, c.shared.requests, c.shared.wavefronts, c.shared.conflicts};
    line.counts.resize(numbers.size());
    for (size_t k = 0; k < numbers.size(); ++k) line.counts[k] += numbers[k];
  }
  std::vector<LineCounters> list;
  for (auto& [number, line] : out) list.push_back(std::move(line));
  return list;
}

}  // namespace assay::ptx
