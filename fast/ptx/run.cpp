#include "fast/ptx/run.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "fast/ptx/checks.h"
#include "fast/ptx/machine.h"
#include "fast/ptx/recorder.h"
#include "fast/ptx/schedule.h"
#include "fast/ptx/traffic.h"

namespace assay::ptx {

namespace {

constexpr uint64_t kMostThreads = 1024;
constexpr size_t kRegisterAlign = 64;

std::string text(const Dim& d) {
  return std::to_string(d.x) + "x" + std::to_string(d.y) + "x" + std::to_string(d.z);
}

// 11.4: what the entry says of its blocks, and what any launch must keep.
void check_launch(const Entry& e, const Kernel& k, const Launch& launch) {
  const Dim& b = launch.block;
  const auto refuse = [&](const std::string& why) { throw Fault("entry " + e.signature() + ": " + why); };
  if (launch.grid.count() == 0 || b.count() == 0)
    refuse("grid " + text(launch.grid) + " of blocks " + text(b) + " is empty");
  const auto exceeds = [](const Dim& d, const Dim& most) {
    return d.x > most.x || d.y > most.y || d.z > most.z;
  };
  if (exceeds(launch.grid, kMostBlocks))
    refuse("a grid of " + text(launch.grid) + ", and a GPU takes " + text(kMostBlocks) + " at most");
  if (exceeds(b, kWidestBlock))
    refuse("a block of " + text(b) + ", and a GPU takes " + text(kWidestBlock) + " at most");
  if (b.count() > kMostThreads) refuse("a block of " + text(b) + " has more than 1024 threads");
  const auto& must = e.required_block;
  if (must[0] && (b.x != must[0] || b.y != must[1] || b.z != must[2]))
    refuse("blocks of " + text(b) + ", but .reqntid is " + text({must[0], must[1], must[2]}));
  const auto& most = e.greatest_block;
  if (most[0] && b.count() > uint64_t{most[0]} * most[1] * most[2])
    refuse("blocks of " + text(b) + ", but .maxntid is " + text({most[0], most[1], most[2]}));
  if (launch.parameters.size() != e.parameter_bytes)
    refuse("takes " + std::to_string(e.parameter_bytes) + " bytes of parameters, not " +
           std::to_string(launch.parameters.size()));
  const uint64_t shared = align_up(k.static_shared, 16) + launch.dynamic_shared;
  if (shared > kMostShared)
    refuse(std::to_string(shared) + " bytes of shared memory, of " + std::to_string(kMostShared));
}

uint32_t special_value(Special s, const Block& b, const Warp& w, unsigned lane) {
  const Dim &t = b.launch->block, &g = b.launch->grid;
  const unsigned thread = w.index * kLanes + lane;
  const uint32_t below = (1u << lane) - 1, self = 1u << lane;
  switch (s) {
    case Special::tid_x: return thread % t.x;
    case Special::tid_y: return thread / t.x % t.y;
    case Special::tid_z: return thread / (t.x * t.y);
    case Special::ntid_x: return t.x;
    case Special::ntid_y: return t.y;
    case Special::ntid_z: return t.z;
    case Special::ctaid_x: return b.index.x;
    case Special::ctaid_y: return b.index.y;
    case Special::ctaid_z: return b.index.z;
    case Special::nctaid_x: return g.x;
    case Special::nctaid_y: return g.y;
    case Special::nctaid_z: return g.z;
    case Special::laneid: return lane;
    case Special::warpid: return w.index;
    case Special::nwarpid: return static_cast<uint32_t>(b.warps.size());
    case Special::lanemask_eq: return self;
    case Special::lanemask_lt: return below;
    case Special::lanemask_le: return below | self;
    case Special::lanemask_gt: return ~(below | self);
    case Special::lanemask_ge: return ~below;
    case Special::dynamic_smem_size: return static_cast<uint32_t>(b.launch->dynamic_shared);
    case Special::total_smem_size: return static_cast<uint32_t>(b.shared.size());
    case Special::zero: return 0;
    case Special::one: return 1;
  }
  return 0;
}

// Those that change from block to block, or the others.
void set_specials(const Block& b, Warp& w, bool of_block) {
  for (size_t k = 0; k < kSpecials; ++k) {
    const auto s = static_cast<Special>(k);
    const uint32_t place = b.kernel->special[k];
    const bool changes = s == Special::ctaid_x || s == Special::ctaid_y || s == Special::ctaid_z;
    if (place == kUnused || changes != of_block) continue;
    for (unsigned l = 0; l < kLanes; ++l) w.words[place + l] = special_value(s, b, w, l);
  }
}

// Memory for the registers of a block, which a thread keeps for its next launch: a kernel whose loops are
// unrolled has tens of megabytes of them, and the system takes longer to give as many than it takes to run
// it.
thread_local std::vector<std::byte> kept_registers;
constexpr size_t kMostKept = size_t{256} << 20;

// Makes registers for the warps of a block, with what is the same in every block.
void make_warps(Block& block, uint8_t poison) {
  const Kernel& k = *block.kernel;
  const size_t warps = (block.threads + kLanes - 1) / kLanes;
  const size_t each = align_up((k.words + k.predicates) * sizeof(uint32_t), kRegisterAlign);
  block.registers = std::exchange(kept_registers, {});
  if (block.registers.size() < warps * each + kRegisterAlign) {
    block.registers.clear();  // so that what it holds is not copied
    block.registers.resize(warps * each + kRegisterAlign);
  }
  const auto base = align_up(reinterpret_cast<uint64_t>(block.registers.data()), kRegisterAlign);
  block.warps.resize(warps);
  for (size_t n = 0; n < warps; ++n) {
    Warp& w = block.warps[n];
    w.index = static_cast<unsigned>(n);
    w.block = &block;
    w.words = reinterpret_cast<uint32_t*>(base + n * each);
    w.predicates = w.words + k.words;
    std::memset(w.words, poison, each);
    w.predicates[k.true_predicate] = ~0u;
    for (const Kernel::Constant& c : k.constants) {
      if (c.wide) std::fill_n(reinterpret_cast<uint64_t*>(w.words + c.place), kLanes, c.value);
      else std::fill_n(w.words + c.place, kLanes, static_cast<uint32_t>(c.value));
    }
    set_specials(block, w, false);
    w.local.assign(k.local_bytes * kLanes, std::byte{poison});
  }
}

// Sets a block to its beginning. Registers keep what the block before left in them, as on a GPU.
void start_block(Block& b, const Dim& index, uint8_t poison) {
  b.index = index;
  b.live_threads = b.threads;
  std::fill(b.shared.begin(), b.shared.end(), std::byte{poison});
  b.mbarriers.clear(), b.bulk.clear(), b.warpgroups.clear();
  for (Warp& w : b.warps) {
    const unsigned left = b.threads - w.index * kLanes;
    w.live = left >= kLanes ? ~0u : (1u << left) - 1;
    w.carry = 0;
    w.apart = 0, w.out_of_turn = false;
    w.meeting.clear(), w.parked.clear(), w.arrived.clear(), w.copies.clear();
    w.stalled.clear(), w.asked.clear();
    w.products.clear(), w.closed_products = 0;
    w.closed_groups = w.closed_bulk_groups = {};
    w.ready.assign(1, {0, w.live});
    set_specials(b, w, true);
  }
}

// What the instructions did, together.
void add_up(const Kernel& k, Counters& c) {
  for (size_t n = 0; n < c.by_instruction.size(); ++n) {
    const Instruction& i = k.code[n];
    const InstructionCounters& own = c.by_instruction[n];
    const auto kind = static_cast<size_t>(i.kind);
    c.warp_instructions += own.warps;
    c.warps_by_class[kind] += own.warps, c.lanes_by_class[kind] += own.lanes;
    if (i.flow == Flow::branch && i.has_guard) c.branches += own.warps, c.divergent_branches += own.divergent;
  }
}

}  // namespace

Counters run(Module& module, std::string_view name, const Launch& launch, const Memory& memory,
             const RunOptions& options) {
  const Entry& entry = module.entry(name);
  const Kernel& kernel = options.in_place ? *options.in_place : module.kernel(name);
  check_launch(entry, kernel, launch);
  Memory all = memory;
  for (const auto& [variable, v] : module.variables())
    if (v.space != Space::shared)
      all.add(reinterpret_cast<const void*>(v.address), v.bytes, v.name, v.space != Space::constant);
  Counters counters;
  Block block;
  block.kernel = &kernel;
  block.launch = &launch;
  block.memory = &all;
  block.counters = options.count ? &counters : nullptr;
  TouchedSectors sectors;
  if (options.count) counters.by_instruction.resize(kernel.code.size()), block.sectors = &sectors;
  block.recorder = options.recorder;
  block.stores_at_once = options.stores_at_once && !options.check;
  block.perturb = options.perturb, block.perturb_line = options.perturb_line;
  block.products_at_once = options.products_at_once && !options.check;
  block.shuffles_any = options.shuffles_any;
  block.generic_as_shared = options.generic_as_shared;
  if (block.recorder) block.recorder->start_launch(module, kernel, all);
  block.threads = static_cast<unsigned>(launch.block.count());
  block.shared.resize(align_up(kernel.static_shared, 16) + launch.dynamic_shared);
  block.unpinned.assign(kernel.code.size(), 0);
  make_warps(block, options.poison);
  std::optional<Checks> checks;
  if (options.check) block.checks = &checks.emplace(block);
  Scheduler scheduler(block, options.order, options.most_instructions, options.most_seconds);
  const uint64_t count = launch.grid.count();
  for (uint64_t n = 0; n < count; ++n) {
    const uint64_t at = in_order(options.order, n, count);
    const uint64_t plane = uint64_t{launch.grid.x} * launch.grid.y;
    start_block(
        block,
        {static_cast<unsigned>(at % launch.grid.x), static_cast<unsigned>(at / launch.grid.x % launch.grid.y),
         static_cast<unsigned>(at / plane)},
        options.poison);
    if (checks) checks->start_block();
    if (block.recorder) block.recorder->start_block(block);
    scheduler.run();
  }
  if (block.registers.size() <= kMostKept) kept_registers = std::move(block.registers);
  add_up(kernel, counters);
  counters.lane_instructions = block.lane_instructions;
  counters.sectors_read = sectors.read.count(), counters.sectors_written = sectors.written.count();
  counters.atomic_addresses = sectors.atomic.count();
  for (size_t k = 0; k < kernel.code.size(); ++k)
    if (block.unpinned[k])
      counters
          .unpinned["PTX line " + std::to_string(kernel.code[k].line) + ": " + kernel.text(kernel.code[k])] +=
          block.unpinned[k];
  return counters;
}

}  // namespace assay::ptx
