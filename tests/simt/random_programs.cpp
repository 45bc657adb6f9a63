// Random programs on one word, judged by brute force: every pair of accesses is looked at, with clocks of
// every thread for every thread. The race checker, which remembers little of a byte, must come to the same
// verdict in every order.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "fast/launch.h"
#include "fast/simt/device_buffer.h"
#include "tests/simt/shared.h"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

constexpr unsigned kThreads = 70, kWarps = 3, kSteps = 6, kBlocks = 2;

enum Op : uint8_t { nothing, read, write, atomic };

// In every step each thread may touch the word; then groups of neighbouring lanes may wait for each other,
// and then the block.
struct Program {
  bool shared;       // the word: each block's own, or one for the grid
  bool initialised;  // shared: written before the first step
  Op ops[kBlocks][kSteps][kThreads] = {};
  unsigned group[kSteps][kWarps] = {};  // lanes that wait for each other: 0, or 2 to 32
  bool barrier[kSteps] = {};
};

unsigned group_mask(const Program& p, unsigned step, unsigned thread) {
  const unsigned warp = thread / 32, size = p.group[step][warp],
                 lanes = warp + 1 < kWarps ? 32 : kThreads % 32;
  if (size == 0) return 0;
  unsigned mask = 0;
  for (unsigned lane = thread % 32 / size * size; lane < thread % 32 / size * size + size && lane < lanes;
       ++lane)
    mask |= 1u << lane;
  return mask;
}

__global__ void run(const Program* p, unsigned* global, unsigned* sink) {
  ASSAY_SHARED(unsigned, own, [1]);
  unsigned* const word = p->shared ? own : global;
  if (p->shared && p->initialised) {
    if (threadIdx.x == 0) own[0] = 0;
    __syncthreads();
  }
  for (unsigned step = 0; step < kSteps; ++step) {
    switch (p->ops[blockIdx.x][step][threadIdx.x]) {
      case nothing: break;
      case read: *sink = *word; break;
      case write: *word = step; break;
      case atomic: atomicAdd(word, 1u); break;
    }
    if (const unsigned mask = group_mask(*p, step, threadIdx.x)) __syncwarp(mask);
    if (p->barrier[step]) __syncthreads();
  }
}

uint64_t draw_state;
unsigned draw(unsigned below) {
  draw_state = draw_state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<unsigned>(draw_state >> 33) % below;
}

Program random_program(uint64_t seed) {
  draw_state = seed;
  Program p{.shared = draw(3) != 0, .initialised = draw(3) != 0};
  const unsigned busy = 1 + draw(4), likes = draw(4);
  const bool one_warp = draw(2) == 0;
  for (unsigned step = 0; step < kSteps; ++step) {
    for (unsigned i = 0; i < busy; ++i) {
      const unsigned thread = draw(one_warp ? 32 : kThreads),
                     block = p.shared || draw(4) == 0 ? draw(kBlocks) : 0;
      p.ops[block][step][thread] = likes == 0                   ? atomic
                                   : likes == 1 || draw(4) != 0 ? read
                                                                : static_cast<Op>(1 + draw(3));
    }
    if (likes == 1 && draw(3) == 0) p.ops[0][step][draw(one_warp ? 32 : kThreads)] = write;
    for (unsigned& g : p.group[step]) g = draw(2) ? 2u << draw(5) : 0;
    p.barrier[step] = draw(5) == 0;
  }
  if (!p.initialised &&
      p.shared)  // whether an atomic reads what another wrote depends on the order, and is no race
    for (auto& block : p.ops)
      for (auto& step : block)
        for (Op& op : step) op = op == atomic ? write : op;
  return p;
}

struct Verdict {
  bool race = false, uninitialised = false;
};

Verdict judge(const Program& p) {
  struct Event {
    unsigned block, thread, step;
    Op op;
  };
  std::vector<Event> events;
  for (unsigned b = 0; b < kBlocks; ++b)
    for (unsigned s = 0; s < kSteps; ++s)
      for (unsigned t = 0; t < kThreads; ++t)
        if (p.ops[b][s][t] != nothing) events.push_back({b, t, s, p.ops[b][s][t]});
  // seen[s][t][u]: how many steps of u come before t's step s.
  using Seen = std::array<std::array<unsigned, kThreads>, kThreads>;
  std::vector<Seen> seen(kSteps + 1);
  seen[0] = {};
  for (unsigned s = 0; s < kSteps; ++s) {
    Seen now = seen[s];
    for (unsigned t = 0; t < kThreads; ++t) now[t][t] = s + 1;
    const Seen before = now;
    for (unsigned t = 0; t < kThreads; ++t)
      for (unsigned lane = 0; lane < 32; ++lane)
        if (group_mask(p, s, t) >> lane & 1u)
          for (unsigned u = 0; u < kThreads; ++u)
            now[t][u] = std::max(now[t][u], before[t / 32 * 32 + lane][u]);
    if (p.barrier[s])
      for (auto& row : now) row.fill(s + 1);
    seen[s + 1] = now;
  }
  const auto before = [&](const Event& a, const Event& b) {
    return a.block == b.block && seen[b.step][b.thread][a.thread] > a.step;
  };
  const auto same_word = [&](const Event& a, const Event& b) { return !p.shared || a.block == b.block; };
  Verdict v;
  for (const Event& a : events) {
    bool written = !p.shared || p.initialised;
    for (const Event& b : events) {
      if (!same_word(a, b) || (&a == &b)) continue;
      const bool conflict = (a.op != read || b.op != read) && !(a.op == atomic && b.op == atomic),
                 apart = !before(a, b) && !before(b, a);
      v.race |= conflict && apart;
      written |= b.op != read && (before(b, a) || apart);
    }
    v.uninitialised |= a.op == read && !written;
  }
  return v;
}

TEST(RandomPrograms, AreJudgedAsByBruteForce) {
  simt::DeviceBuffer global(4, "global");
  unsigned sink = 0;
  int races = 0, uninitialised = 0, clean = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    const Program p = random_program(seed);
    const Verdict want = judge(p);
    races += want.race;
    uninitialised += want.uninitialised;
    clean += !want.race && !want.uninitialised;
    for (uint64_t order : {uint64_t{0}, uint64_t{1}, seed + 2, seed + 7000}) {
      simt::UseOptions use({.order = order});
      const std::string text = simt::fault_of({.name = "run", .grid = kBlocks, .block = kThreads}, run, &p,
                                              global.as<unsigned>(), &sink);
      ASSERT_EQ(text.find("data race") != std::string::npos, want.race)
          << "program " << seed << " order " << order << "\n"
          << text;
      ASSERT_EQ(text.find("uninitialised") != std::string::npos, want.uninitialised)
          << "program " << seed << " order " << order << "\n"
          << text;
    }
  }
  // The programs are of every sort.
  EXPECT_GT(races, 200);
  EXPECT_GT(uninitialised, 50);
  EXPECT_GT(clean, 200);
  RecordProperty("races", races);
}

}  // namespace
}  // namespace assay::ASSAY_FAST_NAMESPACE
