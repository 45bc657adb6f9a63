// What the executor tells the race checker. Without the preset `race` nothing of it is compiled: every call
// here is empty. docs/host-executor.md says what is found and how to read it; fast/simt/race/checker.h how.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "fast/simt/thread.h"

#ifndef SIMT_RACE
#define SIMT_RACE 0
#endif
#if SIMT_RACE
#include <mutex>
#endif

namespace assay::simt {
struct Grid;
}

namespace assay::simt::race {

inline constexpr bool kOn = SIMT_RACE != 0;

#if SIMT_RACE

// Watches one grid. Grids are watched one after the other, and their blocks run one after the other on one OS
// thread, so that a report depends on the order alone.
class Watch {
 public:
  explicit Watch(const Grid&);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // What was found, from "kernel '...': 2 data races" on; empty for a clean grid.
  std::string findings() const;

 private:
  const Grid& grid_;
  std::unique_lock<std::mutex> one_grid_;
};

// A block's shared memory lies somewhere in these bytes, in the arrays that are placed before the block ends.
void begin_block(const std::byte* arena, size_t bytes);
void end_block();
void shared_array(const std::byte* data, size_t bytes);
// Every thread of the block has reached a barrier; these lanes of a warp have reached __syncwarp.
void barrier();
void warp_barrier(unsigned warp, uint32_t lanes);

// While it lives, what this OS thread does to memory is the executor's own business.
class Unwatched {
 public:
  Unwatched();
  ~Unwatched();
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;
};

#else

class Watch {
 public:
  explicit Watch(const Grid&) {}
  std::string findings() const { return {}; }
};
inline void begin_block(const std::byte*, size_t) {}
inline void end_block() {}
inline void shared_array(const std::byte*, size_t) {}
inline void barrier() {}
inline void warp_barrier(unsigned, uint32_t) {}
struct Unwatched {
  Unwatched() {}
};

#endif

}  // namespace assay::simt::race
