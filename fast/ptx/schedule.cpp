#include "fast/ptx/schedule.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <ctime>
#include <numeric>
#include <utility>

#include "fast/ptx/bulk.h"
#include "fast/ptx/checks.h"
#include "fast/ptx/copies.h"
#include "fast/ptx/frames.h"
#include "fast/ptx/mbarriers.h"
#include "fast/ptx/other_results.h"
#include "fast/ptx/recorder.h"
#include "fast/ptx/wgmma.h"

namespace assay::ptx {

namespace {

constexpr uint32_t kFar = 0xFFFFFFFFu;
// A warp that waits for another in a loop lets it run, and so do lanes that wait for others of their warp:
// soon where checks watch, which are slow, and elsewhere late, so that lanes which count in long loops come
// together again as they do on a GPU.
constexpr uint32_t kMostInTurn = 1u << 20, kMostApart = 1u << 17;
constexpr uint32_t kMostInTurnWatched = 1u << 14, kMostApartWatched = 1u << 12;
constexpr uint32_t kPatience = 4096;
constexpr uint32_t kClocked = 1u << 16;  // instructions of a warp between two looks at the clock

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

uint32_t lane_count(uint32_t lanes) { return static_cast<uint32_t>(std::popcount(lanes)); }
int first_lane(uint32_t lanes) { return std::countr_zero(lanes); }
uint32_t word(const Warp& w, uint32_t place, int lane) {
  return w.words[place + static_cast<uint32_t>(lane)];
}
// The mask of members is the last source of every *.sync.
uint32_t members_of(const Warp& w, const Instruction& i, int lane) {
  return word(w, i.s[i.sources - 1], lane);
}
uint32_t guarded(const Warp& w, const Instruction& i, uint32_t lanes) {
  if (!i.has_guard) return lanes;
  return lanes & (i.guard_inverted ? ~w.predicates[i.guard] : w.predicates[i.guard]);
}
// The lanes among `lanes` whose mask is `members`.
uint32_t lanes_with(const Warp& w, const Instruction& i, uint32_t lanes, uint32_t members) {
  if (lanes == ~0u) {
    const uint32_t* masks = w.words + i.s[i.sources - 1];
    uint32_t differ = 0;
    for (unsigned l = 0; l < kLanes; ++l) differ |= masks[l] ^ members;
    if (!differ) return lanes;
  }
  uint32_t alike = 0;
  for (uint32_t m = lanes; m; m &= m - 1)
    if (members_of(w, i, first_lane(m)) == members) alike |= 1u << first_lane(m);
  return alike;
}
std::string hex(uint32_t v) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "0x00000000";
  for (size_t k = 0; k < 8; ++k) out[9 - k] = kDigits[v >> (4 * k) & 15];
  return out;
}

uint64_t wide_word(const Warp& w, uint32_t place, int lane) {
  uint64_t v = 0;
  std::memcpy(&v, w.words + place + 2 * lane, sizeof v);
  return v;
}

// What a lane says that comes to a trap: a call that finds no function or no room, or __assertfail with the
// address of its message.
std::string reached(Warp& w, const Instruction& i, int lane) {
  const Block& b = *w.block;
  if (b.kernel->opcodes[i.opcode].row->form != Form::call) return "was reached";
  const auto why = static_cast<CallTrap>(i.code);
  if (why == CallTrap::too_deep)
    return "calls within calls that need more than the stack of " + std::to_string(kStackBytes) +
           " bytes which each thread has here";
  const uint64_t held = i.sources ? wide_word(w, i.s[0], lane) : 0;
  if (why == CallTrap::no_function)
    return "goes to " + hex(static_cast<uint32_t>(held >> 32)) + hex(static_cast<uint32_t>(held)).substr(2) +
           ", which is the address of no function that it may call";
  uint64_t at = 0;
  std::memcpy(&at,
              w.local.data() + static_cast<uint64_t>(lane) * b.kernel->local_bytes + held +
                  static_cast<uint64_t>(i.offset),
              sizeof at);
  std::string message;
  for (; message.size() < 200 && b.memory->holding(at, 1); ++at) {
    const char c = *reinterpret_cast<const char*>(at);
    if (c == 0) break;
    message += c >= ' ' && c < 127 ? c : '?';
  }
  return "of __assertfail: the assertion '" + message + "' failed";
}

}  // namespace

uint64_t in_order(uint64_t order, uint64_t n, uint64_t count) {
  if (order == 0) return n;
  if (order == 1) return count - 1 - n;
  // n -> a n + b modulo count, with an a that has no divisor in common with count.
  uint64_t a = (order * 2654435761u) % count | 1;
  while (std::gcd(a, count) != 1) a += 2;
  return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * n + order) % count);
}

Scheduler::Scheduler(Block& block, uint64_t order, uint64_t most, double most_seconds)
    : b_(block),
      order_(order),
      furthest_first_(order % 2 == 1),
      left_(most),
      ends_at_(processor_seconds() + most_seconds),
      most_in_turn_(block.checks ? kMostInTurnWatched : kMostInTurn),
      most_apart_(block.checks ? kMostApartWatched : kMostApart) {}

void Scheduler::put_ready(Warp& w, Group g) {
  if (!g.lanes) return;
  const auto at = std::lower_bound(w.ready.begin(), w.ready.end(), g,
                                   [](const Group& a, const Group& b) { return a.pc > b.pc; });
  if (at != w.ready.end() && at->pc == g.pc) at->lanes |= g.lanes;
  else w.ready.insert(at, g);
}

template <Scheduler::Watch kWatch>
void Scheduler::count(const Instruction& i, uint32_t active, uint32_t lanes) {
  b_.lane_instructions += active == ~0u ? kLanes : lane_count(active);
  if (i.unpinned) b_.unpinned[static_cast<size_t>(&i - b_.kernel->code.data())] += lane_count(active);
  if (kWatch == Watch::nothing || !b_.counters) return;
  InstructionCounters& own = b_.counted(i);
  ++own.warps, own.lanes += lane_count(active);
  if (i.flow == Flow::branch && i.has_guard) own.divergent += active && active != lanes;
}

// Instructions that follow each other for all of these lanes.
template <Scheduler::Watch kWatch>
void Scheduler::run_stretch(Warp& w, const Instruction* first, uint32_t count, uint32_t lanes) {
  const uint32_t lanes_each = lane_count(lanes);
  b_.lane_instructions += uint64_t{count} * lanes_each;
  if constexpr (kWatch == Watch::counters) {
    InstructionCounters* own = &b_.counted(*first);
    for (uint32_t n = 0; n < count; ++n) ++own[n].warps, own[n].lanes += lanes_each;
  }
  for (const Instruction* i = first; i != first + count; ++i) {
    w.active = lanes;
    i->handler(w, *i);
  }
}

// Where the lanes that run now must wait for those that stand lowest.
uint32_t Scheduler::merge_place(const Warp& w) const {
  return w.ready.empty() || furthest_first_ || w.out_of_turn ? kFar : w.ready.back().pc;
}

template <Scheduler::Watch kWatch>
void Scheduler::carry_out_plain(Warp& w, const Instruction& i, uint32_t active) {
  w.active = active;
  if constexpr (kWatch != Watch::all) {
    if (i.unpinned && b_.perturb) carry_out_otherwise(w, i);
    else i.handler(w, i);
    return;
  }
  if (b_.checks) b_.checks->before(w, i);
  if (b_.recorder) b_.recorder->before(w, i);
  if (i.unpinned && b_.perturb) carry_out_otherwise(w, i);
  else i.handler(w, i);
  if (b_.recorder) b_.recorder->after(w, i);
  if (b_.checks) b_.checks->after(w, i);
}

template <Scheduler::Watch kWatch> uint32_t Scheduler::run_group(Warp& w, Group g) {
  const Instruction* code = b_.kernel->code.data();
  uint32_t next = merge_place(w);
  uint32_t steps = 0, most = w.ready.empty() ? most_in_turn_ : most_apart_;
  while (++steps < most) {
    const Instruction& i = code[g.pc];
    if (kWatch != Watch::all && i.stretch) {
      const uint32_t count = std::min({i.stretch, next - g.pc, most - steps});
      run_stretch<kWatch>(w, &i, count, g.lanes);
      g.pc += count, steps += count - 1;
      if (g.pc >= next) break;
      continue;
    }
    if constexpr (kWatch == Watch::all)
      if (i.has_guard && b_.checks) b_.checks->guard(w, i, g.lanes);
    const uint32_t active = guarded(w, i, g.lanes);
    count<kWatch>(i, active, g.lanes);
    if (!active || i.flow == Flow::plain) {
      if (active) carry_out_plain<kWatch>(w, i, active);
      ++g.pc;
    } else {
      g = go_on(w, i, g, active);
      if (!g.lanes) return steps;
      next = merge_place(w);
      if (most == most_in_turn_ && !w.ready.empty()) most = std::min(most_in_turn_, steps + most_apart_);
    }
    if (g.pc >= next) break;
  }
  put_ready(w, g);
  return steps;
}

Group Scheduler::go_on(Warp& w, const Instruction& i, Group g, uint32_t active) {
  switch (i.flow) {
    case Flow::branch: return branch(w, i, g, active);
    case Flow::table: return branch_by_index(w, i, g, active);
    case Flow::exit: return leave(w, g, active);
    case Flow::meeting: return meet(w, i, g, active);
    case Flow::barrier: return reach_barrier(w, i, g, active);
    case Flow::wait: return ask(w, i, g, active);
    default: fail(w, i, first_lane(active), reached(w, i, first_lane(active)));
  }
}

Group Scheduler::branch(Warp& w, const Instruction& i, Group g, uint32_t active) {
  if (active == g.lanes) return {i.target, g.lanes};
  put_ready(w, {i.target, active});
  return {g.pc + 1, g.lanes & ~active};
}

// 9.7.12.4: the lanes of each index go to its target.
Group Scheduler::branch_by_index(Warp& w, const Instruction& i, Group g, uint32_t active) {
  w.active = active;
  if (b_.checks) b_.checks->operands(w, i);
  const std::vector<uint32_t>& targets = b_.kernel->tables[i.code];
  for (uint32_t left = active; left;) {
    const uint32_t index = word(w, i.s[0], first_lane(left));
    if (index >= targets.size())
      fail(w, i, first_lane(left),
           "has index " + std::to_string(index) + " of " + std::to_string(targets.size()) + " targets");
    uint32_t alike = 0;
    for (uint32_t m = left; m; m &= m - 1)
      if (word(w, i.s[0], first_lane(m)) == index) alike |= 1u << first_lane(m);
    put_ready(w, {targets[index], alike});
    left &= ~alike;
  }
  return {g.pc + 1, g.lanes & ~active};
}

Group Scheduler::leave(Warp& w, Group g, uint32_t active) {
  finish_copies(w, active);
  w.live &= ~active;
  b_.live_threads -= lane_count(active);
  return {g.pc + 1, g.lanes & ~active};
}

// Lanes wait until all that their mask names have come to an instruction of the same opcode and mask, at
// whatever line (9.7.9.6).
Group Scheduler::meet(Warp& w, const Instruction& i, Group g, uint32_t active) {
  uint32_t done = 0;
  for (uint32_t left = active; left;) {
    const uint32_t members = members_of(w, i, first_lane(left));
    const uint32_t alike = lanes_with(w, i, left, members);
    if (alike & ~members)
      fail(w, i, first_lane(alike & ~members),
           "is carried out by a lane that its mask " + hex(members) + " does not name");
    if (!try_meeting(w, g.pc, alike, members, done)) w.meeting.push_back({g.pc, alike});
    left &= ~alike;
  }
  // Those whose guard is false pass by; those that wait come back when the meeting is complete.
  return {g.pc + 1, (g.lanes & ~active) | done};
}

// Carries the meeting out where nobody is missing. `done` gains the lanes that stood at pc; others become
// ready.
bool Scheduler::try_meeting(Warp& w, uint32_t pc, uint32_t lanes, uint32_t members, uint32_t& done) {
  const auto& code = b_.kernel->code;
  Meeting m;
  m.parts[m.count++] = {&code[pc], lanes};
  m.lanes = lanes;
  if ((members & w.live & ~lanes) != 0) {
    for (const Group& other : w.meeting) {
      const Instruction& o = code[other.pc];
      if (o.opcode != code[pc].opcode || members_of(w, o, first_lane(other.lanes)) != members) continue;
      m.parts[m.count++] = {&o, other.lanes};
      m.lanes |= other.lanes;
    }
    if (members & w.live & ~m.lanes) return false;
  }
  w.active = m.lanes;
  if (b_.recorder) b_.recorder->before(w, m);
  if (b_.checks) b_.checks->meet(w, m, code[pc].meeting);
  else code[pc].meeting(w, m);
  if (b_.recorder) b_.recorder->after(w, m);
  for (size_t p = 1; p < m.count; ++p)
    put_ready(w, {static_cast<uint32_t>(m.parts[p].instruction - code.data()) + 1, m.parts[p].lanes});
  if (!w.meeting.empty()) std::erase_if(w.meeting, [&](const Group& g) { return (g.lanes & m.lanes) != 0; });
  done |= lanes;
  return true;
}

// The barrier that the lanes name, which must be one (9.7.13.1).
uint32_t Scheduler::barrier_of(Warp& w, const Instruction& i, uint32_t lanes) const {
  const uint32_t id = word(w, i.s[0], first_lane(lanes));
  for (uint32_t m = lanes; m; m &= m - 1)
    if (word(w, i.s[0], first_lane(m)) != id)
      fail(w, i, first_lane(m), "names another barrier than the lanes beside it");
  if (id >= barriers_.size()) fail(w, i, first_lane(lanes), "names barrier " + std::to_string(id) + " of 16");
  return id;
}

// 9.7.13.15.16: lanes that ask too early are told so, and then let all others run.
Group Scheduler::ask(Warp& w, const Instruction& i, Group g, uint32_t active) {
  carry_out(w, i, active);
  const uint32_t late = active & ~w.passed;
  if (late) {
    if (w.stalled_at != b_.phases) w.asked.clear();
    if (std::find(w.asked.begin(), w.asked.end(), g.pc) == w.asked.end()) {
      w.asked.push_back(g.pc);
      answered_ = true;
    }
    w.stalled.push_back({g.pc, late});
    w.stalled_at = b_.phases;
  }
  return {g.pc + 1, g.lanes & ~late};
}

void Scheduler::wake(Warp& w) {
  for (const Group& g : w.stalled) put_ready(w, {g.pc + 1, g.lanes});
  w.stalled.clear();
}

bool Scheduler::wake_all() {
  if (patience_at_ != b_.phases) patience_at_ = b_.phases, patience_ = kPatience;
  bool any = false;
  for (Warp& w : b_.warps) any |= !w.stalled.empty();
  if (!any || patience_ == 0) return false;
  --patience_;
  for (Warp& w : b_.warps) wake(w);
  return true;
}

Group Scheduler::reach_barrier(Warp& w, const Instruction& i, Group g, uint32_t active) {
  if (i.aligned && active != w.live) {
    w.parked.push_back({g.pc, active});
    arrive_parked(w);
    return {g.pc + 1, g.lanes & ~active};
  }
  arrive(w, i, g.pc, active);
  // Lanes that only arrive go on; those that wait become ready when the barrier is complete.
  const uint32_t on = i.barrier == BarrierKind::arrive ? g.lanes : g.lanes & ~active;
  return {g.pc + 1, on};
}

// A warp comes to an aligned barrier as a whole.
void Scheduler::arrive_parked(Warp& w) {
  uint32_t lanes = 0;
  for (const Group& g : w.parked) lanes |= g.lanes;
  if (!lanes || lanes != w.live) return;
  const uint32_t pc = w.parked.front().pc;
  const Instruction& i = b_.kernel->code[pc];
  for (const Group& g : w.parked)
    if (g.pc != pc)
      fail(w, b_.kernel->code[g.pc], first_lane(g.lanes),
           "must be reached by the whole warp, and other lanes wait at PTX line " + std::to_string(i.line));
  w.parked.clear();
  arrive(w, i, pc, lanes);
  if (i.barrier == BarrierKind::arrive) put_ready(w, {pc + 1, lanes});
}

void Scheduler::arrive(Warp& w, const Instruction& i, uint32_t pc, uint32_t lanes) {
  const uint32_t id = barrier_of(w, i, lanes);
  Barrier& barrier = barriers_[id];
  const uint32_t expected =
      i.with_optional || i.barrier == BarrierKind::arrive ? word(w, i.s[1], first_lane(lanes)) : 0;
  if (expected % kLanes || (expected == 0 && i.barrier == BarrierKind::arrive))
    fail(w, i, first_lane(lanes),
         "waits for " + std::to_string(expected) + " threads, and a multiple of 32 from 32 on is expected");
  if (barrier.arrived && barrier.expected != expected)
    fail(w, i, first_lane(lanes),
         "waits for " + std::to_string(expected) + " threads, others at barrier " + std::to_string(id) +
             " for " + std::to_string(barrier.expected));
  // 9.7.13.1: reductions meet their like alone.
  const auto reduces = [](BarrierKind kind) {
    return kind != BarrierKind::sync && kind != BarrierKind::arrive;
  };
  if (!barrier.arrived) barrier.first = &i;
  const BarrierKind before = barrier.first->barrier;
  if (before != i.barrier && (reduces(before) || reduces(i.barrier)))
    fail(w, i, first_lane(lanes),
         "meets " + b_.kernel->text(*barrier.first) + " of PTX line " + std::to_string(barrier.first->line) +
             " at barrier " + std::to_string(id) + "; a reduction must be the same for all");
  if (b_.checks) b_.checks->arrive(id, w, i, lanes);
  if (b_.counters) ++b_.counters->barriers;
  barrier.expected = expected;
  barrier.arrived += lane_count(lanes);
  if (reduces(i.barrier)) {
    const unsigned k = i.sources - 1u;
    const uint32_t truth = w.predicates[i.s[k]] ^ (i.inverted >> k & 1 ? ~0u : 0u);
    barrier.truths += lane_count(truth & lanes);
  }
  if (i.barrier != BarrierKind::arrive) w.arrived.push_back({pc, lanes});
  release(id);
}

// Lets everybody go where the barrier is complete.
bool Scheduler::release(uint32_t id) {
  Barrier& barrier = barriers_[id];
  const uint32_t expected = barrier.expected ? barrier.expected : b_.live_threads;
  if (!barrier.arrived || barrier.arrived < expected) return false;
  if (b_.checks) b_.checks->complete(id);
  for (Warp& w : b_.warps) {
    std::erase_if(w.arrived, [&](const Group& g) {
      const Instruction& i = b_.kernel->code[g.pc];
      if (word(w, i.s[0], first_lane(g.lanes)) != id) return false;
      if (i.barrier == BarrierKind::popc)
        for (uint32_t m = g.lanes; m; m &= m - 1)
          w.words[i.d[0] + static_cast<uint32_t>(first_lane(m))] = barrier.truths;
      const bool truth =
          i.barrier == BarrierKind::all ? barrier.truths == barrier.arrived : barrier.truths > 0;
      if (i.barrier == BarrierKind::all || i.barrier == BarrierKind::any)
        w.predicates[i.d[0]] = truth ? w.predicates[i.d[0]] | g.lanes : w.predicates[i.d[0]] & ~g.lanes;
      put_ready(w, {g.pc + 1, g.lanes});
      return true;
    });
  }
  barrier = {};
  return true;
}

bool Scheduler::settle(Warp& w) {
  arrive_parked(w);
  for (size_t n = 0; n < w.meeting.size(); ++n) {
    const Group g = w.meeting[n];
    const uint32_t members = members_of(w, b_.kernel->code[g.pc], first_lane(g.lanes));
    w.meeting.erase(w.meeting.begin() + static_cast<long>(n));
    uint32_t done = 0;
    if (try_meeting(w, g.pc, g.lanes, members, done)) {
      put_ready(w, {g.pc + 1, done});
      return true;
    }
    w.meeting.insert(w.meeting.begin() + static_cast<long>(n), g);
  }
  return !w.ready.empty();
}

bool Scheduler::settle_barriers() {
  bool any = false;
  for (uint32_t id = 0; id < barriers_.size(); ++id) any |= release(id);
  return any;
}

// The group that runs next, no longer ready. Lanes that have parted for long may wait in loops for others of
// their warp, as for a lock: then those run that have not run for longest.
Group Scheduler::chosen(Warp& w) {
  auto at = furthest_first_ ? w.ready.begin() : w.ready.end() - 1;
  w.out_of_turn = w.apart >= most_apart_ - 1;
  if (w.out_of_turn) {
    w.apart = 0;
    at = std::min_element(w.ready.begin(), w.ready.end(), [&](const Group& a, const Group& b) {
      return w.ran[static_cast<size_t>(first_lane(a.lanes))] <
             w.ran[static_cast<size_t>(first_lane(b.lanes))];
    });
  }
  const Group g = *at;
  w.ready.erase(at);
  if (!w.ready.empty()) {
    ++w.runs;
    for (uint32_t m = g.lanes; m; m &= m - 1) w.ran[static_cast<size_t>(first_lane(m))] = w.runs;
  }
  return g;
}

template <Scheduler::Watch kWatch> Scheduler::Turn Scheduler::turn(Warp& w) {
  if (!w.stalled.empty() && w.stalled_at != b_.phases) wake(w);
  if (w.ready.empty() && !settle(w)) return Turn::nothing;
  for (uint32_t steps = 0; !w.ready.empty() && steps < most_in_turn_;) {
    const Group g = chosen(w);
    const uint32_t run = run_group<kWatch>(w, g);
    w.apart = w.ready.size() > 1 ? w.apart + run : 0;
    if (run > left_)
      fail(w, b_.kernel->code[g.pc], first_lane(g.lanes),
           "runs in a launch that does not end: it has taken too many instructions");
    left_ -= run;
    steps += run;
    if ((unclocked_ += run) >= kClocked && (unclocked_ = 0, processor_seconds() > ends_at_))
      fail(w, b_.kernel->code[g.pc], first_lane(g.lanes),
           "runs in a launch that does not end: it has taken too much time");
  }
  return w.ready.empty() ? Turn::whole : Turn::cut;
}

void Scheduler::run() {
  barriers_ = {};
  patience_ = kPatience, patience_at_ = b_.phases, answered_ = false;
  const uint64_t count = b_.warps.size();
  while (true) {
    bool any = false, whole = false;
    for (uint64_t n = 0; n < count; ++n) {
      Warp& w = b_.warps[in_order(order_, n, count)];
      const Turn t = b_.checks || b_.recorder ? turn<Watch::all>(w)
                     : b_.counters            ? turn<Watch::counters>(w)
                                              : turn<Watch::nothing>(w);
      any |= t != Turn::nothing, whole |= t == Turn::whole;
    }
    if (b_.live_threads == 0) {
      finish_products(b_);
      return finish_bulk(b_);
    }
    // A warp that had its turn cut may wait in a loop for what a copy brings.
    if (whole || (!any && settle_barriers())) continue;
    // Whoever has been told no may go on before anything arrives: it need not ask again.
    if (std::exchange(answered_, false) && wake_all()) continue;
    if (deliver_bulk(b_, furthest_first_) || deliver_copies(b_, furthest_first_) || any) continue;
    if (!wake_all()) fail_deadlock();
  }
}

void Scheduler::fail_deadlock() const {
  std::string who;
  const Instruction* first = nullptr;
  const Warp* of = nullptr;
  int lane = 0, told = 0, waiting = 0;
  std::vector<std::string> reasons;
  const auto tell = [&](const Warp& w, const Group& g, const std::string& what) {
    const Instruction& i = b_.kernel->code[g.pc];
    if (!first) first = &i, of = &w, lane = first_lane(g.lanes);
    // Warps that wait for the same at the same place need one line.
    const std::string reason = std::to_string(i.line) + what;
    const bool new_reason = std::find(reasons.begin(), reasons.end(), reason) == reasons.end();
    if (new_reason) reasons.push_back(reason);
    ++waiting;
    if (new_reason && ++told <= 4)
      who += "; warp " + std::to_string(w.index) + " lanes " + hex(g.lanes) + " at PTX line " +
             std::to_string(i.line) + " (" + b_.kernel->text(i) + ") " + what;
  };
  for (const Warp& w : b_.warps) {
    for (const Group& g : w.meeting)
      tell(w, g,
           "for lanes " + hex(members_of(w, b_.kernel->code[g.pc], first_lane(g.lanes)) & w.live & ~g.lanes));
    for (const Group& g : w.parked) tell(w, g, "for the rest of the warp, lanes " + hex(w.live & ~g.lanes));
    for (const Group& g : w.stalled) tell(w, g, held_by(w, b_.kernel->code[g.pc], first_lane(g.lanes)));
    for (const Group& g : w.arrived) {
      const uint32_t id = word(w, b_.kernel->code[g.pc].s[0], first_lane(g.lanes));
      const Barrier& barrier = barriers_[id];
      tell(w, g,
           "at barrier " + std::to_string(id) + ", where " + std::to_string(barrier.arrived) + " of " +
               std::to_string(barrier.expected ? barrier.expected : b_.live_threads) + " threads have come");
    }
  }
  if (!first) throw Fault("kernel '" + b_.kernel->name + "': deadlock");
  fail(*of, *first, lane,
       "is in a deadlock" + who +
           (waiting > told || told > 4 ? "; and " + std::to_string(waiting - std::min(told, 4)) + " more"
                                       : ""));
}

}  // namespace assay::ptx
