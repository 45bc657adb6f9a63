// The order in which the lanes of a block run: the group of lanes that stands lowest runs first, or the one
// that stands furthest; groups that meet at one place become one (docs/ptx.md); *.sync instructions and
// barriers hold lanes until the others have come.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "fast/ptx/machine.h"

namespace assay::ptx {

class Scheduler {
 public:
  // `most` instructions of warps may be run by all blocks together.
  // Orders with an even number let the lanes that stand lowest run first, those with an odd number the lanes
  // that stand furthest: these come together again only where a *.sync or a barrier makes them.
  Scheduler(Block& block, uint64_t order, uint64_t most, double most_seconds);
  // Runs the block to its end. Warps are ready at their first instruction. Fault: what handlers throw, a
  // deadlock, a wrong barrier.
  void run();

 private:
  struct Barrier {
    uint32_t arrived = 0, expected = 0;  // threads; 0 expected: all of the block that have not left
    uint32_t truths = 0;                 // arrivals whose predicate was true
    const Instruction* first = nullptr;  // by which somebody came
  };
  // Runs a warp until none of its lanes can go on, or for a turn's worth of instructions.
  enum class Turn : uint8_t { nothing, whole, cut };
  // Who looks on: nobody, the counters, or checks and a recorder too.
  enum class Watch : uint8_t { nothing, counters, all };
  template <Watch kWatch> Turn turn(Warp&);
  Group chosen(Warp&);
  // Lets lanes that an mbarrier held go on: those of a warp where a phase was completed since, or all, as far
  // as the block's patience goes.
  void wake(Warp&);
  bool wake_all();
  // Runs one group, up to a place where the warp must choose again. Returns how many instructions it ran.
  template <Watch kWatch> uint32_t run_group(Warp&, Group);
  template <Watch kWatch> void run_stretch(Warp&, const Instruction* first, uint32_t count, uint32_t lanes);
  template <Watch kWatch> void carry_out_plain(Warp&, const Instruction&, uint32_t active);
  template <Watch kWatch> void count(const Instruction&, uint32_t active, uint32_t lanes);
  uint32_t merge_place(const Warp&) const;
  // The group after an instruction that is not plain; its lanes are empty where it must wait.
  Group go_on(Warp&, const Instruction&, Group, uint32_t active);
  Group branch(Warp&, const Instruction&, Group, uint32_t active);
  Group branch_by_index(Warp&, const Instruction&, Group, uint32_t active);
  Group leave(Warp&, Group, uint32_t active);
  Group meet(Warp&, const Instruction&, Group, uint32_t active);
  Group ask(Warp&, const Instruction&, Group, uint32_t active);
  Group reach_barrier(Warp&, const Instruction&, Group, uint32_t active);

  bool try_meeting(Warp&, uint32_t pc, uint32_t lanes, uint32_t members, uint32_t& done);
  void arrive(Warp&, const Instruction&, uint32_t pc, uint32_t lanes);
  void arrive_parked(Warp&);
  bool release(uint32_t id);
  // Meetings and barriers that became complete because lanes left.
  bool settle(Warp&);
  bool settle_barriers();
  void put_ready(Warp&, Group);
  size_t turn_order(size_t n) const;
  [[noreturn]] void fail_deadlock() const;
  uint32_t barrier_of(Warp& w, const Instruction& i, uint32_t lanes) const;

  Block& b_;
  uint64_t order_;
  bool furthest_first_;
  uint64_t left_;
  double ends_at_;  // of the thread's processor time
  uint32_t most_in_turn_, most_apart_;
  uint32_t unclocked_ = 0;  // instructions since the clock was looked at
  std::array<Barrier, 16> barriers_;
  uint32_t patience_ = 0;     // how often lanes may still ask in vain while nothing happens
  bool answered_ = false;     // an instruction has been told no for the first time in its phase
  uint64_t patience_at_ = 0;  // Block::phases at that time
};

// Index n of `count`, in the order that a launch asks for: 0 forward, 1 reverse, 2 and up a seed.
uint64_t in_order(uint64_t order, uint64_t n, uint64_t count);

}  // namespace assay::ptx
