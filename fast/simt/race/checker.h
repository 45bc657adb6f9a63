// The race checker: judges every access of a kernel against those before it.
//
// Two accesses to one byte race when at least one writes, they are not both atomics of one size, and nothing
// orders them. What orders: a thread's own program; a barrier of the block; __syncwarp, for the lanes that
// took part, and for what these lanes had been ordered after; the end of a grid. Nothing else: not the
// shuffles, votes and reductions of a warp, not relaxed atomics, not the order in which a grid's blocks
// happen to run.
//
// Whether two accesses are ordered does not depend on the order of the run. What is remembered of a byte is
// chosen so that a third access which races with any forgotten one races with a remembered one as well; so
// each racing byte is found in every order.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "fast/simt/executor.h"
#include "fast/simt/race/access.h"
#include "fast/simt/race/shadow.h"

namespace assay::simt::race {

// When the threads of the running block last waited for whom. Time is one counter that every synchronisation
// raises.
class Clocks {
 public:
  void begin_block();  // ordered after nothing but earlier grids
  void barrier() { barrier_ = ++now_; }
  void warp_barrier(unsigned warp, uint32_t lanes);
  uint32_t of(unsigned thread) const { return own_[thread] > barrier_ ? own_[thread] : barrier_; }
  // Whether what `thread` does now comes after what `other` of the same block did when its clock was `clock`.
  bool after(unsigned thread, unsigned other, uint32_t clock) const {
    return thread == other || clock < barrier_ ||
           (thread / 32 == other / 32 && clock < known_[thread][other % 32]);
  }
  bool nearly_spent() const { return now_ > UINT32_MAX / 2; }
  void reset() { *this = {}; }

 private:
  uint32_t now_ = 0, barrier_ = 0;
  std::array<uint32_t, kMaxThreads> own_{};  // at its last __syncwarp
  std::array<std::array<uint32_t, 32>, kMaxThreads>
      known_{};  // for each lane of its warp: what came before this clock is seen
};

class Checker {
 public:
  void begin_grid(const Grid&);
  void begin_block(const std::byte* arena, size_t bytes);
  void end_block();
  void shared_array(const std::byte* data, size_t bytes);
  void barrier() { clocks_.barrier(); }
  void warp_barrier(unsigned warp, uint32_t lanes) { clocks_.warp_barrier(warp, lanes); }
  // By the thread that runs on this OS thread. Memory that is neither shared nor a device buffer's is
  // ignored. `reads`: whether the result depends on what was there.
  void access(const std::byte*, size_t bytes, Kind, bool reads, const void* return_address);
  std::string findings(const Grid&) const;

 private:
  enum class What : uint8_t { race, uninitialised, outside };
  struct Finding {
    Access one{}, other{};  // an example; other: of races only
    std::string memory;
    uint64_t count = 0;  // of accesses, or of pairs of them
    uint64_t last_access = 0;
  };
  struct Range {
    const std::byte* data;
    size_t bytes;
  };
  using Key = std::tuple<What, uint32_t, uint32_t>;  // the places, the smaller first

  void read_unwritten(const std::byte*, const Access&);
  bool in_array(const std::byte*) const;
  bool ordered(const Access& earlier, const Access& now) const;
  void touch(Cell&, const std::byte*, const Access& now, bool shared, bool reads);
  void found(What, const std::byte*, const Access& now, const Access& earlier);
  // How far apart two threads are: 0 in one warp, 1 in one block, 2 in two blocks.
  static int distance(const Access&, const Access&);
  std::string describe(const Grid&, const Access&, const std::string& line) const;

  Clocks clocks_;
  Shadow shared_, global_;
  std::vector<Range> arrays_;  // of the running block
  // Reads of shared bytes that no one had written. A write that races with one takes it away: what it reads
  // depends on the order, and the race is reported.
  std::map<const std::byte*, std::vector<Access>> unwritten_;
  std::vector<Index3> blocks_;  // of this grid, as they ran
  uint32_t block_ = 0;          // number of the running block, or of the last one
  uint32_t first_block_ = 1;    // of this grid
  uint64_t accesses_ = 0;
  bool spent_ = false;  // a byte has no cell: the shadow is as large as it may be
  std::map<Key, Finding> findings_;
};

// The one checker; null before the first grid.
extern constinit Checker* watching;

}  // namespace assay::simt::race
