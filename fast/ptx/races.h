// Data races of one launch (PTX ISA, Memory Consistency Model): two accesses touch one byte, one of them
// writes, they are not both atomic, and nothing orders them. What orders: a thread's own program, barriers,
// bar.warp.sync, and operations with .acquire, .release or .acq_rel, or behind a fence, on one address. What
// does not: being lanes of one warp, shuffles and votes, relaxed atomics, and blocks of one grid.
//
// Every thread has a clock, and knows how far the clocks of others had come when it last was ordered after
// them. Of each byte the last writes and reads of two threads are kept. Equal bytes that two threads write
// are no error: compilers let several lanes store one value.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fast/ptx/machine.h"

namespace assay::ptx {

class Races {
 public:
  // A byte's access: a read, a write, or both at once by an operation that is atomic or strong, for all
  // threads or, with .cta or .cluster, for those of its block. copied: a write of unknown values.
  // constant_read: with .nc, which asks for memory that nothing writes while the kernel runs (9.7.9.9).
  enum class Kind : uint8_t { none, read, constant_read, write, atomic, atomic_in_block, copied };
  static bool reads(Kind k) { return k == Kind::read || k == Kind::constant_read; }
  struct Access {
    uint32_t block = 0, clock = 0, pc = 0;  // the block's place in the grid, from 1
    uint16_t thread = 0;
    Kind kind = Kind::none;
    uint8_t value = 0;  // of a write
  };

  explicit Races(const Block& block);
  void start_block();

  // One lane's access to shared memory (an offset) or global memory (an address). `values`: the bytes that a
  // write leaves, else null. Fault: it races with an earlier one.
  void access(Warp&, const Instruction&, unsigned lane, Space, uint64_t address, unsigned bytes, Kind,
              const uint8_t* values);
  // An operation on an address that orders what comes before it in a thread that releases before what comes
  // after it in one that acquires; of another block only where its scope is wider than .cluster.
  struct Ordering {
    bool acquires, releases, across_blocks;
  };
  void order_by(const Warp&, unsigned lane, Space, uint64_t address, const Ordering&);

  // Lanes come to a barrier; those that wait are ordered after all who came, once it is complete.
  void arrive(uint32_t barrier, const Warp&, uint32_t lanes, bool waits);
  void complete(uint32_t barrier);
  // Lanes arrive at the mbarrier of a shared offset; its phase is complete; lanes learn that it is: they are
  // ordered after all who arrived in it and in the phases before. The mbarrier begins anew, or ends.
  void arrive_at(uint64_t mbarrier, const Warp&, uint32_t lanes);
  void complete_phase(uint64_t mbarrier);
  void pass(uint64_t mbarrier, const Warp&, uint32_t lanes);
  void forget(uint64_t mbarrier) { phases_.erase(mbarrier); }
  // Bulk copies are actors of their own beside the thread that issues them: what they read and write is known
  // to whoever waited for them, and to nobody else. begin_copy gives the number of a copy of a lane, with the
  // bulk group that it belongs to, if any.
  enum class Actor : uint8_t { load, store, product };
  uint32_t begin_copy(const Warp&, unsigned lane, std::optional<uint32_t> group);
  void access_by_copy(Warp&, const Instruction&, unsigned lane, Space, uint64_t address, unsigned bytes,
                      bool write, Actor);
  void complete_copy(uint64_t mbarrier, const Warp&, unsigned lane, uint32_t number);
  void wait_for_copies(const Warp&, uint32_t left, bool reads);
  // The products of a warp (wgmma) are actors like copies, issued by its first lane: begin_product gives the
  // number of one, and the warp knows what it read once it is complete.
  uint32_t begin_product(const Warp& w) { return ++clock_[multiplier(first_thread(w))]; }
  void complete_product(const Warp&, uint32_t number);
  // fence.proxy.async: copies may read what these lanes know of by now.
  void fence_proxies(const Warp&, uint32_t lanes);
  // bar.warp.sync of these lanes.
  void meet(const Warp&, uint32_t lanes);

 private:
  // One for each thread of the block; where there are bulk copies or products, five more for each: what its
  // stores have read, what they have written, what it wrote before a fence of proxies, its loads, and what
  // products have read.
  using Clocks = std::vector<uint32_t>;
  uint16_t reader(uint16_t thread) const { return static_cast<uint16_t>(b_.threads + thread); }
  uint16_t writer(uint16_t thread) const { return static_cast<uint16_t>(2 * b_.threads + thread); }
  uint16_t fenced(uint16_t thread) const { return static_cast<uint16_t>(3 * b_.threads + thread); }
  uint16_t loader(uint16_t thread) const { return static_cast<uint16_t>(4 * b_.threads + thread); }
  uint16_t multiplier(uint16_t thread) const { return static_cast<uint16_t>(5 * b_.threads + thread); }
  static uint16_t first_thread(const Warp& w) { return static_cast<uint16_t>(w.index * kLanes); }
  uint32_t known(uint16_t thread, uint16_t of) const;
  void check_proxy(Warp&, const Instruction&, unsigned lane, Space, uint64_t address,
                   const Access& before) const;
  void learn(uint16_t thread, uint16_t of, uint32_t clock);
  struct Cell {
    std::array<Access, 2> writes, reads;  // the last, and the last of another thread
  };
  struct Arrivals {
    std::vector<uint16_t> all, waiting;
  };
  // What is known at an address by those who were ordered at it.
  struct Order {
    uint32_t block = 0;
    std::shared_ptr<const Clocks> known;
    std::vector<bool> blocks;
  };
  // What those knew who arrived at an mbarrier: in this phase, and in those that are complete.
  struct Phases {
    Clocks now, complete;
  };
  static constexpr size_t kPageBytes = 256, kMostPages = 16384;
  using Page = std::array<Cell, kPageBytes>;

  Cell* cell(Space, uint64_t address);
  bool ordered(const Access& before, uint16_t thread) const;
  std::optional<Access> conflict(const Cell&, const Access& now) const;
  [[noreturn]] void report(Warp&, const Instruction&, unsigned lane, Space, uint64_t address, unsigned bytes,
                           const Access& before, const Access& now) const;
  void join(const std::vector<uint16_t>& from, const std::vector<uint16_t>& to);
  void raise(Clocks& to, uint16_t thread) const;
  uint32_t block_number() const;

  const Block& b_;
  Clocks clock_, common_;                            // of each thread; what all know of it
  std::vector<std::shared_ptr<const Clocks>> more_;  // what a thread knows beyond that, or null
  std::vector<Cell> shared_;
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
  uint64_t last_page_ = ~uint64_t{0};
  Page* last_ = nullptr;
  std::map<uint32_t, Arrivals> arrivals_;
  std::map<std::pair<Space, uint64_t>, Order> orders_;
  std::map<uint64_t, Phases> phases_;
  std::map<uint16_t, std::vector<std::pair<uint32_t, uint32_t>>> groups_;  // a thread's: group, copy
  size_t slots_ = 0;                                                       // of Clocks
  std::vector<bool> blocks_known_;  // those that this block is ordered after
};

}  // namespace assay::ptx
