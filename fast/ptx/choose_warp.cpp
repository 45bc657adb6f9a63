// What the lanes of a warp do together (9.7.9.6, 9.7.13.2, 9.7.13.9 to 9.7.13.14). The parts of a meeting may
// stand at different lines, with registers of their own; they have the same opcode and the same mask of
// members.
#include <cstring>
#include <string>

#include "fast/ptx/choose.h"
#include "fast/ptx/handlers.h"
#include "fast/ptx/shuffle.h"
#include "fast/ptx/values_float.h"
#include "fast/ptx/values_integer.h"

namespace assay::ptx {

namespace {

// Calls f(instruction, lane) for every lane of a meeting.
template <class F> void for_members(const Meeting& m, F f) {
  for (size_t p = 0; p < m.count; ++p)
    for (uint32_t lanes = m.parts[p].lanes; lanes; lanes &= lanes - 1)
      f(*m.parts[p].instruction, static_cast<unsigned>(std::countr_zero(lanes)));
}
void set_lane(Warp& w, uint32_t place, unsigned lane, bool v) {
  w.predicates[place] = (w.predicates[place] & ~(1u << lane)) | static_cast<uint32_t>(v) << lane;
}
bool lane_predicate(const Warp& w, const Instruction& i, unsigned k, unsigned lane) {
  return predicate(w, i, k) >> lane & 1;
}

// All 32 lanes at one line, the frequent case: every lane that may be read takes part.
template <Shuffle kMode> ASSAY_PTX_WIDE void shfl_all(Warp& w, const Instruction& i) {
  alignas(16) int32_t inside[kLanes];
  uint32_t from[kLanes], values[kLanes];
  std::memcpy(values, w.words + i.s[0], sizeof values);
  const uint32_t* b = w.words + i.s[1];
  const uint32_t* c = w.words + i.s[2];
  for (unsigned l = 0; l < kLanes; ++l) {
    unsigned lane = l;
    const bool yes = source_lane(kMode, l, b[l], c[l], lane);
    from[l] = yes ? lane : l;
    inside[l] = -static_cast<int32_t>(yes);
  }
  for (unsigned l = 0; l < kLanes; ++l) w.words[i.d[0] + l] = values[from[l] & 31];
  if (i.destinations > 1) w.predicates[i.d[1]] = mask_of(inside);
}
template <Shuffle kMode> void shfl(Warp& w, const Meeting& m) {
  if (m.count == 1 && m.lanes == ~0u) return shfl_all<kMode>(w, *m.parts[0].instruction);
  uint32_t values[kLanes];
  for_members(m, [&](const Instruction& i, unsigned l) { values[l] = w.words[i.s[0] + l]; });
  for_members(m, [&](const Instruction& i, unsigned l) {
    unsigned from = l;
    const bool inside = source_lane(kMode, l, w.words[i.s[1] + l], w.words[i.s[2] + l], from);
    if (!inside) from = l;
    const bool takes_part = from < kLanes && (m.lanes >> from & 1);
    if (!takes_part && !w.block->shuffles_any)
      fail(w, i, static_cast<int>(l), "reads lane " + std::to_string(from) + ", which takes no part");
    w.words[i.d[0] + l] = takes_part ? values[from] : kAbsentLane;
    if (i.destinations > 1) set_lane(w, i.d[1], l, inside);
  });
}

uint32_t true_lanes(Warp& w, const Meeting& m) {
  uint32_t truth = 0;
  for_members(m, [&](const Instruction& i, unsigned l) {
    truth |= static_cast<uint32_t>(lane_predicate(w, i, 0, l)) << l;
  });
  return truth;
}
void ballot(Warp& w, const Meeting& m) {
  const uint32_t truth = true_lanes(w, m);
  for_members(m, [&](const Instruction& i, unsigned l) { w.words[i.d[0] + l] = truth; });
}
enum class Vote { all, any, uni };
template <Vote kVote> void vote(Warp& w, const Meeting& m) {
  const uint32_t truth = true_lanes(w, m);
  const bool all = truth == m.lanes, any = truth != 0;
  for_members(m, [&](const Instruction& i, unsigned l) {
    set_lane(w, i.d[0], l, kVote == Vote::all ? all : kVote == Vote::any ? any : all || !any);
  });
}

template <class T> void match_any(Warp& w, const Meeting& m) {
  T values[kLanes];
  for_members(m, [&](const Instruction& i, unsigned l) { values[l] = cells<T>(w, i.s[0])[l]; });
  for_members(m, [&](const Instruction& i, unsigned l) {
    uint32_t same = 0;
    for (uint32_t others = m.lanes; others; others &= others - 1)
      if (const int o = std::countr_zero(others); values[o] == values[l]) same |= 1u << o;
    w.words[i.d[0] + l] = same;
  });
}
template <class T> void match_all(Warp& w, const Meeting& m) {
  T values[kLanes];
  for_members(m, [&](const Instruction& i, unsigned l) { values[l] = cells<T>(w, i.s[0])[l]; });
  bool same = true;
  for_members(
      m, [&](const Instruction&, unsigned l) { same &= values[l] == values[std::countr_zero(m.lanes)]; });
  for_members(m, [&](const Instruction& i, unsigned l) {
    w.words[i.d[0] + l] = same ? m.lanes : 0;
    if (i.destinations > 1) set_lane(w, i.d[1], l, same);
  });
}

struct Same {
  template <class T> T operator()(T v) const { return v; }
};
struct Canonical {
  float operator()(float v) const { return canonical(v); }
};
// Prepare makes of each lane's value what is reduced.
template <class Rule, class T, class Prepare = Same> void redux(Warp& w, const Meeting& m) {
  T total{};
  bool first = true;
  for_members(m, [&](const Instruction& i, unsigned l) {
    const T v = Prepare{}(get<T>(w.words[i.s[0] + l]));
    total = first ? v : Rule{}(total, v);
    first = false;
  });
  for_members(m, [&](const Instruction& i, unsigned l) { w.words[i.d[0] + l] = put<T>(total); });
}
// .abs: of the magnitudes.
template <class Rule> MeetingHandler redux_float(bool absolute) {
  return absolute ? &redux<Rule, float, AbsF> : &redux<Rule, float, Canonical>;
}
MeetingHandler redux_of(const Opcode& op) {
  if (op.row->form == Form::redux_f32) {
    const bool absolute = op.has("abs");
    if (op.has("min"))
      return op.has("NaN") ? redux_float<MinF<true>>(absolute) : redux_float<MinF<false>>(absolute);
    return op.has("NaN") ? redux_float<MaxF<true>>(absolute) : redux_float<MaxF<false>>(absolute);
  }
  if (op.row->form == Form::redux_bits)
    return op.has("and")  ? &redux<And, uint32_t>
           : op.has("or") ? &redux<Or, uint32_t>
                          : &redux<Xor, uint32_t>;
  const bool sign = op.last() == Type::s32;
  if (op.has("min")) return sign ? &redux<Min, int32_t> : &redux<Min, uint32_t>;
  if (op.has("max")) return sign ? &redux<Max, int32_t> : &redux<Max, uint32_t>;
  return &redux<Add, uint32_t>;
}

// The lowest lane is elected, which the ISA allows and no kernel may count on.
void elect(Warp& w, const Meeting& m) {
  const auto leader = static_cast<unsigned>(std::countr_zero(m.lanes));
  for_members(m, [&](const Instruction& i, unsigned l) {
    w.words[i.d[0] + l] = leader;
    if (i.destinations > 1) set_lane(w, i.d[1], l, l == leader);
  });
}
void nothing(Warp&, const Meeting&) {}
// 9.7.13.11: the group that runs now. The ISA leaves open which lanes that are.
void activemask(Warp& w, const Instruction& i) {
  const uint32_t lanes = w.active;
  for_lanes(w.active, [&](unsigned l) { w.words[i.d[0] + l] = lanes; });
}

MeetingHandler meetings(const Opcode& op) {
  const bool wide = op.last() == Type::b64;
  switch (op.row->form) {
    case Form::shfl:
      return op.has("up")     ? &shfl<Shuffle::up>
             : op.has("down") ? &shfl<Shuffle::down>
             : op.has("bfly") ? &shfl<Shuffle::bfly>
                              : &shfl<Shuffle::idx>;
    case Form::vote_ballot: return &ballot;
    case Form::vote:
      return op.has("all") ? &vote<Vote::all> : op.has("any") ? &vote<Vote::any> : &vote<Vote::uni>;
    case Form::match_any: return wide ? &match_any<uint64_t> : &match_any<uint32_t>;
    case Form::match_all: return wide ? &match_all<uint64_t> : &match_all<uint32_t>;
    case Form::redux:
    case Form::redux_bits:
    case Form::redux_f32: return redux_of(op);
    case Form::elect: return &elect;
    case Form::bar_warp_sync: return &nothing;
    default: return nullptr;
  }
}

}  // namespace

bool choose_warp(const Opcode& op, Instruction& i) {
  if (op.row->form == Form::activemask) {
    i.handler = &activemask;
    i.unpinned = true;  // which lanes stand together is for the hardware to say
    return true;
  }
  i.meeting = meetings(op);
  if (i.meeting) i.flow = Flow::meeting;
  return i.meeting != nullptr;
}

}  // namespace assay::ptx
