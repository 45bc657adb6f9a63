#include "fast/simt/executor.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "fast/simt/fiber.h"
#include "fast/simt/race/race.h"
#include "fast/simt/report.h"
#include "fast/simt/shared_arena.h"

namespace assay::simt {

constinit thread_local Thread* current = nullptr;
constinit thread_local Block current_block{};

namespace {

constexpr unsigned kWarp = 32;

constinit thread_local ExecutorOptions options_in_force{};
constinit thread_local uint64_t launch_count = 0, switch_count = 0;

uint64_t mixed(uint64_t z) {  // splitmix64
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

constexpr uint32_t low_bits(unsigned n) { return n >= 32 ? ~0u : (1u << n) - 1u; }

unsigned lowest(uint32_t bits) { return static_cast<unsigned>(std::countr_zero(bits)); }

uint64_t volume(Index3 i) { return uint64_t{i.x} * i.y * i.z; }

Index3 unfold(uint64_t linear, Index3 extent) {
  return {static_cast<unsigned>(linear % extent.x), static_cast<unsigned>(linear / extent.x % extent.y),
          static_cast<unsigned>(linear / (uint64_t{extent.x} * extent.y))};
}

std::string hex(uint64_t value, int digits) {
  std::string text;
  for (int i = digits - 1; i >= 0; --i) text += "0123456789abcdef"[value >> (4 * i) & 15];
  return text;
}

// "order reverse, poison 7f": what reproduces a run.
std::string to_text(const ExecutorOptions& o) {
  return "order " +
         (o.order == ExecutorOptions::kForward   ? std::string("forward")
          : o.order == ExecutorOptions::kReverse ? std::string("reverse")
                                                 : std::to_string(o.order)) +
         ", poison " + hex(o.poison, 2);
}

// One grid being run by one or more workers.
struct Launch {
  const Grid& grid;
  void (*kernel)(const void*);
  const void* closure;
  ExecutorOptions options;

  std::atomic<uint64_t> next = 0;                  // place in the order of blocks
  std::atomic<uint64_t> first_fault = UINT64_MAX;  // places from here on need not run
  std::mutex mutex;                                // of the fault
  std::string fault;

  // The block at a place of the order. A seed draws a stride and an offset.
  uint64_t block_at(uint64_t place, uint64_t blocks) const {
    if (options.order == ExecutorOptions::kForward) return place;
    if (options.order == ExecutorOptions::kReverse) return blocks - 1 - place;
    uint64_t stride = mixed(options.order) % blocks | 1;
    while (std::gcd(stride, blocks) != 1) stride += 2;
    return static_cast<uint64_t>((static_cast<unsigned __int128>(place) * stride + mixed(~options.order)) %
                                 blocks);
  }

  // Blocks are handed out in order, so every block before a faulty one runs to its end: which fault comes
  // first does not depend on the number of OS threads.
  void report(uint64_t place, std::string text) {
    std::lock_guard lock(mutex);
    if (place >= first_fault) return;
    first_fault = place;
    fault = std::move(text);
  }
};

struct CudaThread : Thread {
  Fiber* fiber = nullptr;  // on which it is suspended
  bool started = false;
  Site site{};  // of the operation it reached last
};

// Lanes of one warp meeting under one mask. Two buffers, because a lane that runs ahead gives its next value
// while others have not yet read the last; it cannot run two meetings ahead.
struct Collective {
  uint32_t mask = 0;
  WarpOp op{};
  unsigned bytes = 0;
  uint32_t arrived = 0;            // lanes that wait
  uint32_t arrived_positions = 0;  // the same as positions in the order
  uint32_t unread = 0;             // lanes that were released and have not read
  unsigned buffer = 0;
  uint32_t took_part[2] = {};
  uint64_t values[2][kWarp] = {};

  bool idle() const { return arrived == 0 && unread == 0; }
};

struct Warp {
  uint32_t runnable = 0;  // by position in the order
  uint32_t live = 0;      // by lane, as the next two
  uint32_t at_barrier = 0;
  unsigned lanes = 0;
  unsigned collectives_used = 0;
  uint8_t lane_at[kWarp] = {}, position_of[kWarp] = {};
  // A lane is in one at a time, so that a caller always finds one of 32 idle or its own.
  Collective collectives[kWarp];
};

struct Barrier {
  unsigned arrived = 0, held = 0, result = 0;  // held: threads whose predicate held
  BarrierOp op{};
  const CudaThread* first = nullptr;
};

// Runs blocks on one OS thread, one at a time.
class Worker {
 public:
  Worker();
  void run(Launch&);

  unsigned wait_at_barrier(BarrierOp, bool predicate, Site);
  Meeting wait_in_meeting(WarpOp, unsigned bytes, uint32_t mask, uint64_t value, Site);
  void* place_shared(SharedSlot&, size_t bytes, size_t alignment, const char* name, Site);
  void* dynamic_shared(Site);
  std::string fault_text(const char* what, std::optional<Site>) const;
  std::string describe(const void* address) const;

 private:
  void run_block(uint64_t linear);
  std::byte* place(size_t bytes, size_t alignment, const char* name, Site);
  void run_threads();
  void set_order();
  CudaThread* finish(CudaThread&);
  CudaThread* pick();
  void release_barrier();
  void complete(Warp&, Collective&);
  void suspend(CudaThread&);
  void continue_with(CudaThread&);
  void continue_on(Fiber&);
  Fiber& new_fiber();
  Fiber& idle_fiber();
  [[noreturn]] void fault_of_block(const char* what) { throw KernelFault(fault_text(what, std::nullopt)); }
  const Collective* collective_of(const CudaThread&) const;
  std::string status(const CudaThread&) const;

  CudaThread& running_thread() const { return *static_cast<CudaThread*>(current); }
  Warp& warp_of(const CudaThread& t) { return warps_[t.warp]; }
  void stop(Warp& w, const CudaThread& t) { w.runnable &= ~(1u << w.position_of[t.lane]); }

  Launch* launch_ = nullptr;
  std::vector<CudaThread> threads_;
  std::vector<Warp> warps_;
  unsigned thread_count_ = 0, warp_count_ = 0, live_ = 0;
  uint8_t warp_at_[kWarp] = {}, warp_position_[kWarp] = {};
  uint32_t runnable_warps_ = 0;  // by position; a warp is taken out when it is next looked at
  unsigned warp_now_ = 0;
  uint64_t draw_ = 0;
  Barrier barrier_;

  SharedArena arena_;
  std::byte* dynamic_ = nullptr;
  size_t static_shared_ = 0;

  Fiber main_;
  std::deque<Fiber> fibers_;
  std::vector<Fiber*> idle_;
  Fiber* running_ = &main_;
  CudaThread* assigned_ = nullptr;  // what a fiber taken from idle_ begins with
  std::string fault_;               // of the block; empty: none
};

constinit thread_local Worker* worker_here = nullptr;

// This OS thread's worker; it ends with the thread.
Worker& worker() {
  static thread_local std::unique_ptr<Worker> owner;
  if (!owner) {
    owner = std::make_unique<Worker>();
    worker_here = owner.get();
  }
  return *owner;
}

Worker::Worker() {
  threads_.reserve(kMaxThreads);
  ensure_signal_stack();
}

// --- fibers --------------------------------------------------------------------------------------

__attribute__((noinline, cold)) Fiber& Worker::new_fiber() {
  return fibers_.emplace_back([](void* w) { static_cast<Worker*>(w)->run_threads(); }, this, fibers_.size());
}

Fiber& Worker::idle_fiber() {
  if (idle_.empty()) return new_fiber();
  Fiber* f = idle_.back();
  idle_.pop_back();
  return *f;
}

void Worker::continue_on(Fiber& to) {
  Fiber& from = *running_;
  running_ = &to;
  ++switch_count;
  Fiber::switch_between(from, to);
}

// Leaves the running fiber for a thread that is suspended, or not yet started and then begins on an idle
// fiber.
void Worker::continue_with(CudaThread& t) {
  Fiber& fiber = t.fiber ? *t.fiber : idle_fiber();
  assigned_ = &t;
  current = &t;
  continue_on(fiber);
}

// The running thread cannot go on: lets others run until it can.
void Worker::suspend(CudaThread& t) {
  t.fiber = running_;
  CudaThread* next = pick();
  if (next != &t) continue_with(*next);
}

// What every fiber does for ever: runs threads as plain calls, one after the other, until the next one in
// order is suspended on a fiber of its own.
void Worker::run_threads() {
  for (;;) {
    CudaThread* t = assigned_;
    try {
      while (t) {
        current = t;
        t->started = true;
        launch_->kernel(launch_->closure);
        t = finish(*t);
        if (t && t->fiber) break;
      }
    } catch (const KernelFault& e) {
      fault_ = e.what();
      t = nullptr;
    } catch (const std::exception& e) {
      fault_ = fault_text((std::string("threw an exception: ") + e.what()).c_str(), std::nullopt);
      t = nullptr;
    } catch (...) {
      fault_ = fault_text("threw an exception", std::nullopt);
      t = nullptr;
    }
    idle_.push_back(running_);
    if (t) {
      continue_with(*t);
    } else {
      current = nullptr;
      continue_on(main_);
    }
  }
}

// --- order ---------------------------------------------------------------------------------------

void permute(uint8_t* at, uint8_t* position_of, unsigned n, uint64_t order, uint64_t& draw) {
  for (unsigned i = 0; i < n; ++i)
    at[i] = static_cast<uint8_t>(order == ExecutorOptions::kReverse ? n - 1 - i : i);
  if (order > ExecutorOptions::kReverse)
    for (unsigned i = n; i > 1; --i) {
      draw = mixed(draw);
      std::swap(at[i - 1], at[draw % i]);
    }
  for (unsigned i = 0; i < n; ++i) position_of[at[i]] = static_cast<uint8_t>(i);
}

void Worker::set_order() {
  const uint64_t order = launch_->options.order;
  permute(warp_at_, warp_position_, warp_count_, order, draw_);
  for (unsigned i = 0; i < warp_count_; ++i)
    permute(warps_[i].lane_at, warps_[i].position_of, warps_[i].lanes, order, draw_);
}

// The thread to run next, or null when all have exited. Stays in a warp while it can, as lanes mostly wait
// for each other.
CudaThread* Worker::pick() {
  for (;;) {
    Warp& w = warps_[warp_now_];
    if (w.runnable) return &threads_[warp_now_ * kWarp + w.lane_at[lowest(w.runnable)]];
    runnable_warps_ &= ~(1u << warp_position_[warp_now_]);
    if (runnable_warps_) {
      warp_now_ = warp_at_[lowest(runnable_warps_)];
    } else if (live_ == 0) {
      return nullptr;
    } else if (barrier_.arrived == live_) {
      release_barrier();
    } else {
      fault_of_block("deadlock: no thread can go on");
    }
  }
}

// Marks a thread as exited and returns the next to run.
CudaThread* Worker::finish(CudaThread& t) {
  t.fiber = nullptr;
  --live_;
  Warp& w = warp_of(t);
  stop(w, t);
  w.live &= ~(1u << t.lane);
  // Warp operations wait for lanes that have not exited.
  for (unsigned i = 0; i < w.collectives_used; ++i) {
    Collective& c = w.collectives[i];
    if (c.arrived && c.arrived == (c.mask & w.live)) complete(w, c);
  }
  return pick();
}

// --- barriers ------------------------------------------------------------------------------------

unsigned Worker::wait_at_barrier(BarrierOp op, bool predicate, Site site) {
  CudaThread& t = running_thread();
  t.site = site;
  Barrier& b = barrier_;
  if (b.arrived == 0) {
    b.op = op;
    b.first = &t;
  } else if (op != b.op || site.line != b.first->site.line ||
             (site.file != b.first->site.file && std::strcmp(site.file, b.first->site.file) != 0)) {
    fault("divergent barrier: another thread waits at a different one", site);
  }
  ++b.arrived;
  b.held += predicate;
  Warp& w = warp_of(t);
  w.at_barrier |= 1u << t.lane;
  stop(w, t);
  suspend(t);
  return b.result;  // the next barrier cannot be released before this thread reaches it
}

// All threads that have not exited wait at the barrier.
void Worker::release_barrier() {
  if (live_ != thread_count_)
    fault_of_block("threads wait at a barrier that other threads of the block exited without reaching");
  race::barrier();
  barrier_.result = barrier_.held;
  barrier_.arrived = barrier_.held = 0;
  if (launch_->options.order > ExecutorOptions::kReverse) set_order();
  for (unsigned i = 0; i < warp_count_; ++i) {
    Warp& w = warps_[i];
    w.at_barrier = 0;
    w.runnable = low_bits(w.lanes);
  }
  runnable_warps_ = low_bits(warp_count_);
  warp_now_ = warp_at_[0];
}

// --- warp operations -----------------------------------------------------------------------------

void Worker::complete(Warp& w, Collective& c) {
  if (c.op == WarpOp::sync)
    race::warp_barrier(static_cast<unsigned>(&w - warps_.data()), c.arrived);  // the others order no memory
  c.took_part[c.buffer] = c.arrived;
  c.unread = c.arrived;
  c.buffer ^= 1;
  w.runnable |= c.arrived_positions;  // its warp is the one that runs, hence among runnable_warps_
  c.arrived = c.arrived_positions = 0;
}

Meeting Worker::wait_in_meeting(WarpOp op, unsigned bytes, uint32_t mask, uint64_t value, Site site) {
  CudaThread& t = running_thread();
  Warp& w = warp_of(t);
  const uint32_t bit = 1u << t.lane;
  t.site = site;
  if (!(mask & bit)) fault("the mask of a warp operation does not name the calling lane", site);

  Collective* c = nullptr;
  Collective* idle = nullptr;
  for (unsigned i = 0; i < w.collectives_used; ++i) {
    Collective& k = w.collectives[i];
    if (k.mask == mask) {
      c = &k;
    } else if (k.idle()) {
      idle = &k;
    } else if ((k.mask & bit) && (k.arrived & mask)) {
      fault("lanes wait for each other with different masks", site);
    }
  }
  if (!c) {
    c = idle ? idle : &w.collectives[w.collectives_used++];
    c->mask = mask;
  }
  if (c->arrived == 0) {
    c->op = op;
    c->bytes = bytes;
  } else if (op != c->op || bytes != c->bytes) {
    fault("lanes of a warp meet in different operations", site);
  }

  const unsigned buffer = c->buffer;
  c->values[buffer][t.lane] = value;
  c->arrived |= bit;
  c->arrived_positions |= 1u << w.position_of[t.lane];
  if (c->arrived == (mask & w.live)) {
    complete(w, *c);  // the last to arrive goes on at once
  } else {
    stop(w, t);
    suspend(t);
  }
  c->unread &= ~bit;
  return {c->values[buffer], c->took_part[buffer]};
}

// --- shared memory -------------------------------------------------------------------------------

std::byte* Worker::place(size_t bytes, size_t alignment, const char* name, Site site) {
  const race::Unwatched filling;
  std::byte* data = arena_.place(bytes, alignment, launch_->options.poison, name, site);
  if (data) race::shared_array(data, bytes);
  return data;
}

void* Worker::place_shared(SharedSlot& slot, size_t bytes, size_t alignment, const char* name, Site site) {
  static_shared_ += bytes;
  const size_t limit = launch_->grid.large_shared ? kMaxLargeShared : kMaxShared;
  if (static_shared_ > kMaxShared) fault("more than 48 KB of static shared memory", site);
  if (arena_.used() + bytes > limit)
    fault(launch_->grid.large_shared
              ? "more than 227 KB of shared memory"
              : "more than 48 KB of static and dynamic shared memory without LaunchConfig::large_shared",
          site);
  std::byte* data = place(bytes, alignment, name, site);
  if (!data) fault("more shared arrays than the executor has room for", site);
  slot = {current_block.serial, data};
  return data;
}

void* Worker::dynamic_shared(Site site) {
  if (!dynamic_)
    fault("the kernel uses dynamic shared memory, but LaunchConfig::dynamic_shared_bytes is 0", site);
  return dynamic_;
}

// --- blocks --------------------------------------------------------------------------------------

void Worker::run_block(uint64_t linear) {
  const Grid& grid = launch_->grid;
  current_block.index = unfold(linear, grid.blocks);
  ++current_block.serial;
  draw_ = mixed(mixed(launch_->options.order) ^ linear);
  arena_.begin_block();
  race::begin_block(arena_.begin(), arena_.bytes());
  static_shared_ = 0;
  dynamic_ = grid.dynamic_shared_bytes
                 ? place(grid.dynamic_shared_bytes, 128, "dynamic shared memory", {grid.name, 0})
                 : nullptr;
  set_order();
  for (unsigned i = 0; i < warp_count_; ++i) {
    Warp& w = warps_[i];
    w.live = w.runnable = low_bits(w.lanes);
    w.at_barrier = 0;
    for (unsigned k = 0; k < w.collectives_used; ++k) {
      Collective& c = w.collectives[k];
      c.mask = c.arrived = c.arrived_positions = c.unread = 0;
    }
    w.collectives_used = 0;
  }
  for (CudaThread& t : threads_) {
    t.fiber = nullptr;
    t.started = false;
    t.site = {};
  }
  barrier_ = {};
  live_ = thread_count_;
  runnable_warps_ = low_bits(warp_count_);
  warp_now_ = warp_at_[0];
  fault_.clear();

  continue_with(*pick());  // returns when the block has ended
  race::end_block();

  if (!fault_.empty()) {
    // Threads are suspended in the middle of the kernel: their fibers start anew.
    idle_.clear();
    for (Fiber& f : fibers_) {
      f.restart();
      idle_.push_back(&f);
    }
  } else if (const auto damage = arena_.damage()) {
    fault_ = fault_text(damage->c_str(), std::nullopt);
  }
}

void Worker::run(Launch& launch) {
  launch_ = &launch;
  const Grid& grid = launch.grid;
  const uint64_t blocks = volume(grid.blocks);
  thread_count_ = static_cast<unsigned>(volume(grid.threads));
  warp_count_ = (thread_count_ + kWarp - 1) / kWarp;
  threads_.resize(thread_count_);
  for (unsigned i = 0; i < thread_count_; ++i) {
    CudaThread& t = threads_[i];
    t.index = unfold(i, grid.threads);
    t.linear = i;
    t.warp = i / kWarp;
    t.lane = i % kWarp;
  }
  if (warps_.size() < warp_count_) warps_.resize(warp_count_);
  for (unsigned i = 0; i < warp_count_; ++i) warps_[i].lanes = std::min(kWarp, thread_count_ - i * kWarp);
  current_block.threads = grid.threads;
  current_block.blocks = grid.blocks;
  current_block.kernel = grid.name;
  for (uint64_t place; (place = launch.next++) < blocks && place < launch.first_fault;) {
    run_block(launch.block_at(place, blocks));
    if (!fault_.empty()) launch.report(place, fault_);
  }
  launch_ = nullptr;
}

// --- reports -------------------------------------------------------------------------------------

const Collective* Worker::collective_of(const CudaThread& t) const {
  const Warp& w = warps_[t.warp];
  for (unsigned i = 0; i < w.collectives_used; ++i)
    if (w.collectives[i].arrived >> t.lane & 1u) return &w.collectives[i];
  return nullptr;
}

std::string Worker::status(const CudaThread& t) const {
  const Warp& w = warps_[t.warp];
  const std::string at = t.site.file ? ", " + to_text(t.site) : std::string{};
  if (!(w.live >> t.lane & 1u)) return t.site.file ? "exited; last at" + at.substr(1) : "exited";
  if (w.at_barrier >> t.lane & 1u) return std::string("wait at ") + name_of(barrier_.op) + at;
  if (const Collective* c = collective_of(t))
    return std::string("wait in ") + name_of(c->op) + " with mask " + hex(c->mask, 8) + at + ", for lanes " +
           hex(c->mask & w.live & ~c->arrived, 8);
  if (!t.started) return "not started";
  return &t == current ? "running" + at
                       : "can run; last at" + (at.empty() ? std::string(" no operation") : at.substr(1));
}

std::string Worker::fault_text(const char* what, std::optional<Site> site) const {
  const Grid& grid = launch_->grid;
  std::string text = std::string("kernel '") + grid.name + "' block " + to_text(current_block.index);
  if (current && site) {
    const CudaThread& t = running_thread();
    text += " thread " + to_text(t.index) + " (warp " + std::to_string(t.warp) + " lane " +
            std::to_string(t.lane) + ") at " + to_text(*site);
  }
  text += std::string(": ") + what;
  // Who is where: runs of neighbours in the same state on one line each, the first few of them.
  constexpr int kLines = 24;
  int lines = 0;
  for (unsigned i = 0; i < thread_count_;) {
    const std::string state = status(threads_[i]);
    unsigned end = i + 1;
    while (end < thread_count_ && status(threads_[end]) == state) ++end;
    if (++lines > kLines) {
      text += "\n  ...";
      break;
    }
    text += end == i + 1 ? "\n  thread " + std::to_string(i)
                         : "\n  threads " + std::to_string(i) + "-" + std::to_string(end - 1);
    text += ": " + state;
    i = end;
  }
  return text + "\n  " + to_text(launch_->options);
}

std::string Worker::describe(const void* address) const {
  for (const Fiber& f : fibers_)
    if (f.overflowed(address))
      return "the thread's stack of " + std::to_string(Fiber::kStackBytes / 1024) + " KB overflowed";
  return arena_.describe(address);
}

// --- OS threads ----------------------------------------------------------------------------------

// Threads that wait for grids. They stay, because fibers cannot follow a grid to another OS thread.
class Pool {
 public:
  // Runs the launch on the calling thread and on `helpers` more.
  void run(Launch& launch, int helpers) {
    std::lock_guard one_grid(grid_mutex_);
    for (; size_ < helpers; ++size_) std::thread([this, id = size_] { serve(id); }).detach();
    {
      std::lock_guard lock(mutex_);
      launch_ = &launch;
      wanted_ = unfinished_ = helpers;
      ++generation_;
    }
    start_.notify_all();
    worker().run(launch);
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return unfinished_ == 0; });
  }

 private:
  void serve(int id) {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      start_.wait(lock, [&] { return generation_ != seen; });
      seen = generation_;
      if (id >= wanted_) continue;
      Launch& launch = *launch_;
      lock.unlock();
      worker().run(launch);
      lock.lock();
      if (--unfinished_ == 0) finished_.notify_one();
    }
  }

  std::mutex grid_mutex_, mutex_;
  std::condition_variable start_, finished_;
  Launch* launch_ = nullptr;
  uint64_t generation_ = 0;
  int size_ = 0, wanted_ = 0, unfinished_ = 0;
};

// The pool of this process. A forked child has none of its parent's threads and gets its own. Never
// destroyed, since its threads never end.
Pool& pool() {
  static std::mutex mutex;
  static Pool* pool = nullptr;
  static pid_t process = 0;
  std::lock_guard lock(mutex);
  if (process != getpid()) {
    process = getpid();
    pool = new Pool;
  }
  return *pool;
}

std::string limit_broken(const Grid& g) {
  const auto within = [](unsigned v, unsigned limit) { return v >= 1 && v <= limit; };
  if (!within(g.blocks.x, 0x7FFFFFFFu) || !within(g.blocks.y, 65535) || !within(g.blocks.z, 65535))
    return "the grid " + to_text(g.blocks) + " is outside (1..2147483647, 1..65535, 1..65535)";
  if (!within(g.threads.x, 1024) || !within(g.threads.y, 1024) || !within(g.threads.z, 64) ||
      volume(g.threads) > kMaxThreads)
    return "the block " + to_text(g.threads) +
           " is outside (1..1024, 1..1024, 1..64) or has more than 1024 threads";
  if (g.dynamic_shared_bytes > kMaxLargeShared || (!g.large_shared && g.dynamic_shared_bytes > kMaxShared))
    return std::to_string(g.dynamic_shared_bytes) + " bytes of dynamic shared memory exceed " +
           (g.large_shared ? "227 KB" : "48 KB without LaunchConfig::large_shared");
  return {};
}

}  // namespace

// --- the surface ---------------------------------------------------------------------------------

const ExecutorOptions& options() { return options_in_force; }

UseOptions::UseOptions(const ExecutorOptions& o) : before_(options_in_force) {
  if (o.threads < 1)
    throw std::invalid_argument("the host executor needs at least 1 OS thread, not " +
                                std::to_string(o.threads));
  options_in_force = o;
}
UseOptions::~UseOptions() { options_in_force = before_; }

uint64_t launches() { return launch_count; }
uint64_t switches() { return switch_count; }

void run_grid(const Grid& grid, void (*kernel)(const void*), const void* closure) {
  const std::string head = std::string("kernel '") + grid.name + "': ";
  if (current) throw KernelFault(head + "launched from within a kernel");
  if (const std::string limit = limit_broken(grid); !limit.empty()) throw KernelFault(head + limit);
  catch_memory_faults();
  ++launch_count;
  Launch launch{.grid = grid,
                .kernel = kernel,
                .closure = closure,
                .options = options_in_force,
                .mutex = {},
                .fault = {}};
  const uint64_t blocks = volume(grid.blocks);
  const int helpers =
      race::kOn
          ? 0
          : static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(options_in_force.threads), blocks)) - 1;
  const race::Watch watch(grid);
  if (helpers == 0) worker().run(launch);
  else pool().run(launch, helpers);
  if (const std::string found = watch.findings(); launch.fault.empty() && !found.empty())
    launch.fault = found + "\n  " + to_text(launch.options);
  else if (!found.empty()) launch.fault += "\n" + found;
  if (!launch.fault.empty()) throw KernelFault(launch.fault);
}

void fault(const char* what, Site site) {
  if (!current) throw KernelFault(to_text(site) + ": " + what);
  throw KernelFault(worker_here->fault_text(what, site));
}

unsigned barrier(BarrierOp op, bool predicate, Site site) {
  return worker_here->wait_at_barrier(op, predicate, site);
}
Meeting meet(WarpOp op, unsigned bytes, uint32_t mask, uint64_t value, Site site) {
  return worker_here->wait_in_meeting(op, bytes, mask, value, site);
}
void* place_shared(SharedSlot& slot, size_t bytes, size_t alignment, const char* name, Site site) {
  return worker_here->place_shared(slot, bytes, alignment, name, site);
}
void* dynamic_shared(Site site) { return worker_here->dynamic_shared(site); }

std::string describe_worker_address(const void* address) {
  return worker_here ? worker_here->describe(address) : std::string{};
}

std::string to_text(Index3 i) {
  return "(" + std::to_string(i.x) + "," + std::to_string(i.y) + "," + std::to_string(i.z) + ")";
}

std::string to_text(Site site) {
  std::string_view file = site.file;
  constexpr std::string_view kRoot = SIMT_SOURCE_ROOT, kUp = "../";
  if (file.starts_with(kRoot)) file.remove_prefix(kRoot.size());
  while (file.starts_with(kUp))
    file.remove_prefix(kUp.size());  // compiled by paths relative to the build folder (ci/build)
  return std::string(file) + ":" + std::to_string(site.line);
}

const char* name_of(WarpOp op) {
  constexpr const char* kNames[] = {
      "__syncwarp",        "__shfl_sync",       "__shfl_up_sync",    "__shfl_down_sync", "__shfl_xor_sync",
      "__ballot_sync",     "__any_sync",        "__all_sync",        "__match_any_sync", "__reduce_add_sync",
      "__reduce_min_sync", "__reduce_max_sync", "__reduce_and_sync", "__reduce_or_sync", "__reduce_xor_sync"};
  return kNames[static_cast<size_t>(op)];
}
const char* name_of(BarrierOp op) {
  constexpr const char* kNames[] = {"__syncthreads", "__syncthreads_count", "__syncthreads_and",
                                    "__syncthreads_or"};
  return kNames[static_cast<size_t>(op)];
}

}  // namespace assay::simt
