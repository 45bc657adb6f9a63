#include "fast/ptx/mbarriers.h"

#include <bit>
#include <cstring>

#include "fast/ptx/checks.h"
#include "fast/ptx/recorder.h"

namespace assay::ptx {

namespace {

constexpr uint64_t kMostArrivals = (1u << 20) - 1;
constexpr int64_t kMostBytes = (1 << 20) - 1;

uint64_t state_of(const Mbarrier& b) {
  return (b.phase & 7) | uint64_t{b.pending} << 3 | uint64_t{b.expected} << 23 |
         static_cast<uint64_t>(b.bytes) << 43;
}

std::string named(uint64_t offset) { return "the mbarrier at shared offset " + std::to_string(offset); }

std::string missing(const Mbarrier& b) {
  std::string text = "phase " + std::to_string(b.phase) + ", where " +
                     std::to_string(b.expected - b.pending) + " of " + std::to_string(b.expected) +
                     " arrivals have come";
  if (b.bytes > 0) text += " and " + std::to_string(b.bytes) + " bytes of copies are missing";
  if (b.bytes < 0) text += " and " + std::to_string(-b.bytes) + " bytes have come that nobody expected";
  return text;
}

uint64_t operand(const Warp& w, const Instruction& i, unsigned k, unsigned lane) {
  const uint32_t place = i.s[k];
  if (!w.block->kernel->wide[place / kLanes]) return w.words[place + lane];
  uint64_t v = 0;
  std::memcpy(&v, w.words + place + 2 * lane, sizeof v);
  return v;
}

template <class F> void for_active(const Warp& w, F f) {
  for (uint32_t m = w.active; m; m &= m - 1) f(static_cast<unsigned>(std::countr_zero(m)));
}

// Where the object of a lane's instruction lies.
uint64_t offset_of(Warp& w, const Instruction& i, unsigned lane) {
  uint64_t address = access_address(w, i, lane);
  resolve(w, i, static_cast<int>(lane), address, kMbarrierBytes, true);
  if (located(i, address) != Space::shared)
    fail(w, i, static_cast<int>(lane), "is given an address outside shared memory");
  return address;
}

void keep(Block& b, uint64_t offset, const Mbarrier& m) {
  const uint64_t state = state_of(m);
  std::memcpy(b.shared.data() + offset, &state, sizeof state);
}

// Goes on to the next phase where nothing is missing in this one.
void settle(Block& b, uint64_t offset, Mbarrier& m) {
  if (m.pending == 0 && m.bytes == 0) {
    ++m.phase;
    ++b.phases;
    m.pending = m.expected;
    if (b.checks) b.checks->complete_phase(offset);
  }
  keep(b, offset, m);
}

void add_bytes(Warp& w, const Instruction& i, unsigned lane, uint64_t offset, Mbarrier& m, int64_t bytes) {
  m.bytes += bytes;
  if (m.bytes > kMostBytes || m.bytes < -kMostBytes)
    fail(w, i, static_cast<int>(lane),
         "brings the bytes that " + named(offset) + " waits for to " + std::to_string(m.bytes) +
             ", beyond 2^20-1");
}

}  // namespace

std::optional<uint64_t> overlapped(const Block& b, uint64_t offset, uint64_t bytes) {
  if (b.mbarriers.empty()) return {};
  const auto next = b.mbarriers.lower_bound(offset + bytes);
  if (next == b.mbarriers.begin()) return {};
  const uint64_t at = std::prev(next)->first;
  return at + kMbarrierBytes > offset ? std::optional(at) : std::nullopt;
}

Mbarrier& mbarrier_at(Warp& w, const Instruction& i, unsigned lane, uint64_t offset) {
  Block& b = *w.block;
  const auto found = b.mbarriers.find(offset);
  if (found == b.mbarriers.end())
    fail(w, i, static_cast<int>(lane),
         "finds no mbarrier at shared offset " + std::to_string(offset) +
             ": no mbarrier.init was carried out there, or mbarrier.inval was");
  const uint64_t state = state_of(found->second);
  if (std::memcmp(b.shared.data() + offset, &state, sizeof state) != 0)
    fail(w, i, static_cast<int>(lane),
         "finds " + named(offset) + ", initialised at PTX line " + std::to_string(found->second.line) +
             ", overwritten by something that is no instruction of mbarriers");
  return found->second;
}

void begin_mbarrier(Warp& w, const Instruction& i) {
  Block& b = *w.block;
  for_active(w, [&](unsigned l) {
    const uint64_t offset = offset_of(w, i, l), count = operand(w, i, 1, l);
    if (const auto there = overlapped(b, offset, kMbarrierBytes))
      fail(w, i, static_cast<int>(l),
           "initialises " + named(*there) + " again, which PTX line " +
               std::to_string(b.mbarriers.at(*there).line) +
               " initialised: mbarrier.inval must come between");
    if (count == 0 || count > kMostArrivals)
      fail(w, i, static_cast<int>(l),
           "expects " + std::to_string(count) + " arrivals: there may be 1 to 2^20-1");
    if (b.checks) b.checks->touch(w, i, l, offset, true);
    Mbarrier& m = b.mbarriers[offset];
    m.expected = m.pending = static_cast<uint32_t>(count);
    m.line = i.line;
    keep(b, offset, m);
  });
}

void end_mbarrier(Warp& w, const Instruction& i) {
  Block& b = *w.block;
  for_active(w, [&](unsigned l) {
    const uint64_t offset = offset_of(w, i, l);
    mbarrier_at(w, i, l, offset);
    if (b.checks) b.checks->touch(w, i, l, offset, true);
    b.mbarriers.erase(offset);
  });
}

void count_bytes(Warp& w, const Instruction& i) {
  Block& b = *w.block;
  for_active(w, [&](unsigned l) {
    const uint64_t offset = offset_of(w, i, l);
    Mbarrier& m = mbarrier_at(w, i, l, offset);
    if (b.checks) b.checks->touch(w, i, l, offset, false);
    const auto bytes = static_cast<int64_t>(operand(w, i, 1, l));
    add_bytes(w, i, l, offset, m, i.code & kCompletes ? -bytes : bytes);
    settle(b, offset, m);
  });
}

void complete_bytes(Warp& w, const Instruction& i, unsigned lane, uint64_t offset, uint64_t bytes) {
  Mbarrier& m = mbarrier_at(w, i, lane, offset);
  add_bytes(w, i, lane, offset, m, -static_cast<int64_t>(bytes));
  settle(*w.block, offset, m);
}

void arrive_at_mbarrier(Warp& w, const Instruction& i) {
  Block& b = *w.block;
  for_active(w, [&](unsigned l) {
    const uint64_t offset = offset_of(w, i, l);
    Mbarrier& m = mbarrier_at(w, i, l, offset);
    if (b.checks) {
      b.checks->touch(w, i, l, offset, false);
      if (!(i.code & kUnordered)) b.checks->arrive_at(offset, w, l);
    }
    const uint64_t count = i.code & kCounted ? operand(w, i, 1, l) : 1;
    if (count == 0 || count > m.pending)
      fail(w, i, static_cast<int>(l),
           "arrives " + std::to_string(count) + " times at " + named(offset) + " in " + missing(m));
    if (i.code & kExpects) add_bytes(w, i, l, offset, m, static_cast<int64_t>(operand(w, i, 1, l)));
    const uint64_t before = state_of(m);
    std::memcpy(w.words + i.d[0] + 2 * l, &before, sizeof before);
    m.pending -= static_cast<uint32_t>(count);
    if (i.code & kDrops) m.expected -= static_cast<uint32_t>(count);
    if (i.code & kNeverLast && m.pending == 0 && m.bytes == 0)
      fail(w, i, static_cast<int>(l),
           "completes phase " + std::to_string(m.phase) + " of " + named(offset) +
               ", which .noComplete promised not to");
    settle(b, offset, m);
  });
}

// 9.7.13.15.15: without .noinc the phase waits for one more arrival, which is this one.
void arrive_behind_copies(Warp& w, const Instruction& i) {
  Block& b = *w.block;
  Copy c;
  c.instruction = &i;
  c.lanes = w.active;
  c.at_mbarrier = true;
  for_active(w, [&](unsigned l) {
    const uint64_t offset = offset_of(w, i, l);
    Mbarrier& m = mbarrier_at(w, i, l, offset);
    if (b.checks) b.checks->touch(w, i, l, offset, false);
    if (!(i.code & kForeseen) && ++m.pending > kMostArrivals)
      fail(w, i, static_cast<int>(l),
           "brings the arrivals that " + named(offset) + " waits for beyond 2^20-1");
    keep(b, offset, m);
    c.to[l] = offset;
  });
  w.copies.push_back(c);
}

void arrive_now(Warp& w, const Instruction& i, unsigned lane, uint64_t offset) {
  Block& b = *w.block;
  Mbarrier& m = mbarrier_at(w, i, lane, offset);
  if (b.checks) b.checks->arrive_at(offset, w, lane);
  if (m.pending == 0)
    fail(w, i, static_cast<int>(lane), "arrives once at " + named(offset) + " in " + missing(m));
  --m.pending;
  settle(b, offset, m);
}

void ask_mbarrier(Warp& w, const Instruction& i) {
  Block& b = *w.block;
  w.passed = 0;
  for_active(w, [&](unsigned l) {
    const uint64_t offset = offset_of(w, i, l), asked = operand(w, i, 1, l);
    const Mbarrier& m = mbarrier_at(w, i, l, offset);
    if (b.checks) b.checks->touch(w, i, l, offset, false);
    bool complete = false;
    if (i.code & kByParity) {
      if (asked > 1) fail(w, i, static_cast<int>(l), "asks for parity " + std::to_string(asked));
      complete = (m.phase & 1) != asked;
    } else {
      complete = (asked & 7) != (m.phase & 7);
      if (complete && (asked & 7) != ((m.phase - 1) & 7))
        fail(w, i, static_cast<int>(l),
             "asks for a phase that is neither the one before nor " + missing(m) + " of " + named(offset));
    }
    if (!complete) return;
    w.passed |= 1u << l;
    if (b.checks && !(i.code & kUnordered)) b.checks->pass(offset, w, 1u << l);
  });
  uint32_t& result = w.predicates[i.d[0]];
  result = (result & ~w.active) | w.passed;
}

void pending_arrivals(Warp& w, const Instruction& i) {
  for_active(w, [&](unsigned l) {
    w.words[i.d[0] + l] = static_cast<uint32_t>(operand(w, i, 0, l) >> 3 & kMostArrivals);
  });
}

std::string held_by(const Warp& w, const Instruction& i, int lane) {
  uint64_t address = access_address(w, i, static_cast<unsigned>(lane));
  located(i, address);
  const auto found = w.block->mbarriers.find(address);
  const std::string where = "at " + named(address);
  return found == w.block->mbarriers.end() ? where + ", which is gone"
                                           : where + ", " + missing(found->second);
}

}  // namespace assay::ptx
