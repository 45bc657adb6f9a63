// Comparisons of f16 and bf16 whose result is a number or a pair of predicates (9.7.7).
#include "fast/ptx/choose.h"
#include "fast/ptx/comparison.h"

namespace assay::ptx {

namespace {

// What Instruction::code says beside the Join, which takes its low bits.
constexpr uint32_t kJoinBits = 3, kOfBf16 = 4, kFlushesHalves = 8;

float compared_value(const Instruction& i, uint32_t code) {
  const SmallFormat& f = i.code & kOfBf16 ? kBf16 : kF16;
  const float v = decode(code & 0xFFFF, f);
  return i.code & kFlushesHalves && std::fabs(v) < std::ldexp(1.0f, f.least_exponent) ? std::copysign(0.0f, v)
                                                                                      : v;
}
// A bit for each lane in which the halves that begin at bit `shift` compare so.
template <class Rule> uint32_t half_truths(const Warp& w, const Instruction& i, unsigned shift) {
  uint32_t truths = 0;
  for (uint32_t m = w.active; m; m &= m - 1) {
    const auto l = static_cast<unsigned>(std::countr_zero(m));
    const float a = compared_value(i, w.words[i.s[0] + l] >> shift),
                b = compared_value(i, w.words[i.s[1] + l] >> shift);
    truths |= static_cast<uint32_t>(Rule{}(a, b)) << l;
  }
  return truths;
}
uint32_t joined_with(const Warp& w, const Instruction& i, uint32_t truths) {
  const auto join = static_cast<Join>(i.code & kJoinBits);
  return joined(join, truths, join == Join::none ? 0 : predicate(w, i, 2));
}

// What stands for a truth: 1.0 in a float, else all ones.
uint32_t yes_of(Type t) {
  return t == Type::f16 || t == Type::f16x2     ? 0x3C00u
         : t == Type::bf16 || t == Type::bf16x2 ? 0x3F80u
                                                : 0xFFFFu;
}
// i.width: 1 for a result of 32 bits from one comparison, else 0. i.offset: what stands for a truth.
template <class Rule, bool kPair> void set_halves(Warp& w, const Instruction& i) {
  const uint32_t low = joined_with(w, i, half_truths<Rule>(w, i, 0));
  const uint32_t high = kPair ? joined_with(w, i, half_truths<Rule>(w, i, 16)) : i.width ? low : 0;
  const auto yes = static_cast<uint32_t>(i.offset);
  for_lanes(w.active, [&](unsigned l) {
    w.words[i.d[0] + l] = (low >> l & 1 ? yes : 0) | (high >> l & 1 ? yes << 16 : 0);
  });
}
// The first predicate is of the lower halves.
template <class Rule> void setp_halves(Warp& w, const Instruction& i) {
  const uint32_t low = joined_with(w, i, half_truths<Rule>(w, i, 0)),
                 high = joined_with(w, i, half_truths<Rule>(w, i, 16));
  set_predicate(w, i.d[0], low);
  set_predicate(w, i.d[1], high);
}

template <class Rule> struct SetOne { static constexpr Handler handler = &set_halves<Rule, false>; };
template <class Rule> struct SetPair { static constexpr Handler handler = &set_halves<Rule, true>; };
template <class Rule> struct SetPredicates { static constexpr Handler handler = &setp_halves<Rule>; };

}  // namespace

bool choose_compare_half(const Opcode& op, Instruction& i) {
  using All = std::make_index_sequence<14>;
  const bool pair = op.last() == Type::f16x2 || op.last() == Type::bf16x2;
  switch (op.row->form) {
    case Form::set_f16:
    case Form::set_bf16:
    case Form::set_f16x2:
    case Form::set_bf16x2:
      i.width = !pair && info(op.first()).bits == 32;
      i.offset = yes_of(op.first());
      i.handler =
          pair ? by_compare<SetPair>(compare_of(op), All{}) : by_compare<SetOne>(compare_of(op), All{});
      break;
    case Form::setp_f16x2:
    case Form::setp_bf16x2:
      if (i.destinations != 2) throw Fault("'" + op.text + "' writes two predicates, with a bar between");
      i.handler = by_compare<SetPredicates>(compare_of(op), All{});
      break;
    default: return false;
  }
  const bool bf16 = op.last() == Type::bf16 || op.last() == Type::bf16x2;
  i.code = join_code(op, i) | (bf16 ? kOfBf16 : 0) | (op.has("ftz") ? kFlushesHalves : 0);
  return true;
}

}  // namespace assay::ptx
