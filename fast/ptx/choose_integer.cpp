// Integer arithmetic, extended precision, and operations on bits (9.7.1, 9.7.2, 9.7.8, 9.7.9.7).
#include "fast/ptx/choose.h"
#include "fast/ptx/handlers.h"
#include "fast/ptx/values_integer.h"

namespace assay::ptx {

namespace {

// The ISA does not say what a division by zero gives: a kernel that makes one is in error.
template <class Rule, class T> void divide(Warp& w, const Instruction& i) {
  const Cell<T>* b = cells<T>(w, i.s[1]);
  for (uint32_t m = w.active; m; m &= m - 1)
    if (const int lane = std::countr_zero(m); get<T>(b[lane]) == 0)
      fail(w, i, lane, "divides by zero, which the PTX ISA leaves unspecified");
  apply2<Rule, T, T, T>(w, i);
}
template <class Rule> struct Divided {
  template <class T> struct Of { static constexpr Handler handler = &divide<Rule, T>; };
};

// Products of twice the width; the third operand has it too.
Handler wide_product(Type t, bool with_sum) {
  switch (t) {
    case Type::u16:
      return with_sum ? &apply3<MadWide, uint32_t, uint16_t, uint16_t, uint32_t>
                      : &apply2<MulWide, uint32_t, uint16_t, uint16_t>;
    case Type::s16:
      return with_sum ? &apply3<MadWide, int32_t, int16_t, int16_t, int32_t>
                      : &apply2<MulWide, int32_t, int16_t, int16_t>;
    case Type::u32:
      return with_sum ? &apply3<MadWide, uint64_t, uint32_t, uint32_t, uint64_t>
                      : &apply2<MulWide, uint64_t, uint32_t, uint32_t>;
    case Type::s32:
      return with_sum ? &apply3<MadWide, int64_t, int32_t, int32_t, int64_t>
                      : &apply2<MulWide, int64_t, int32_t, int32_t>;
    default: return nullptr;
  }
}

template <class Rule> Handler halves(Type t) {
  return t == Type::u16x2 ? Handler(&apply2<Halves<Rule, uint16_t>, uint32_t, uint32_t, uint32_t>)
                          : Handler(&apply2<Halves<Rule, int16_t>, uint32_t, uint32_t, uint32_t>);
}
template <class Rule> Handler binary_or_halves(Type t) {
  return t == Type::u16x2 || t == Type::s16x2 ? halves<Rule>(t) : binary<Rule>(t);
}
template <class A, class B> Handler dots(const Opcode& op) {
  if (op.row->form == Form::dp4a) return &apply3<Dp4a<A, B>, uint32_t, uint32_t, uint32_t, uint32_t>;
  return op.has("lo") ? Handler(&apply3<Dp2a<A, B, false>, uint32_t, uint32_t, uint32_t, uint32_t>)
                      : Handler(&apply3<Dp2a<A, B, true>, uint32_t, uint32_t, uint32_t, uint32_t>);
}
Handler dot_products(const Opcode& op) {
  const bool a = op.first() == Type::s32, b = op.last() == Type::s32;
  if (a) return b ? dots<int8_t, int8_t>(op) : dots<int8_t, uint8_t>(op);
  return b ? dots<uint8_t, int8_t>(op) : dots<uint8_t, uint8_t>(op);
}
// dp2a takes halves of a with bytes of b: their signedness is that of the same two types.
Handler dot_products_of_halves(const Opcode& op) {
  const bool a = op.first() == Type::s32, b = op.last() == Type::s32;
  if (a) return b ? dots<int16_t, int8_t>(op) : dots<int16_t, uint8_t>(op);
  return b ? dots<uint16_t, int8_t>(op) : dots<uint16_t, uint8_t>(op);
}

// 9.7.2: a sum or difference with the carry of each lane, in and out as the opcode says. A difference is the
// sum with the complement and 1, or the carry, as ptxas folds it and GPUs compute it: the carry is set where
// nothing was borrowed. The text speaks of a borrow and leaves its sense open; nvcc divides numbers of 128
// bits by chains that mix sums and differences.
struct CarryUse {
  bool in, out, subtract;
};
template <class T, CarryUse kUse> void with_carry(Warp& w, const Instruction& i) {
  const Cell<T>* a = cells<T>(w, i.s[0]);
  const Cell<T>* b = cells<T>(w, i.s[1]);
  Cell<T>* d = cells<T>(w, i.d[0]);
  for (uint32_t m = w.active; m; m &= m - 1) {
    const int l = std::countr_zero(m);
    const unsigned in = kUse.in ? w.carry >> l & 1 : unsigned{kUse.subtract};
    const T x = get<T>(a[l]), y = get<T>(b[l]);
    const unsigned __int128 sum =
        static_cast<unsigned __int128>(x) + (kUse.subtract ? static_cast<T>(~y) : y) + in;
    d[l] = static_cast<Cell<T>>(static_cast<T>(sum));
    if (kUse.out) w.carry = (w.carry & ~(1u << l)) | static_cast<uint32_t>(sum >> kBits<T> & 1) << l;
  }
}
template <CarryUse kUse> Handler carrying(Type t) {
  return info(t).bits == 64 ? &with_carry<uint64_t, kUse> : &with_carry<uint32_t, kUse>;
}
// mad.cc and madc: half a product, then the sum.
template <class T, bool kHigh, bool kIn, bool kOut> void mad_with_carry(Warp& w, const Instruction& i) {
  using U = Unsigned<T>;
  for (uint32_t m = w.active; m; m &= m - 1) {
    const int l = std::countr_zero(m);
    const T a = get<T>(cells<T>(w, i.s[0])[l]), b = get<T>(cells<T>(w, i.s[1])[l]),
            half = kHigh ? MulHi{}(a, b) : MulLo{}(a, b);
    const unsigned in = kIn ? w.carry >> l & 1 : 0;
    const unsigned __int128 sum =
        static_cast<unsigned __int128>(static_cast<U>(half)) + static_cast<U>(cells<T>(w, i.s[2])[l]) + in;
    cells<T>(w, i.d[0])[l] = static_cast<U>(sum);
    if (kOut) w.carry = (w.carry & ~(1u << l)) | static_cast<uint32_t>(sum >> kBits<T> & 1) << l;
  }
}
template <class T> Handler mad_carrying(const Opcode& op) {
  const bool high = op.has("hi"), out = op.has("cc");
  if (op.row->form == Form::mad_cc)
    return high ? &mad_with_carry<T, true, false, true> : &mad_with_carry<T, false, false, true>;
  if (high) return out ? &mad_with_carry<T, true, true, true> : &mad_with_carry<T, true, true, false>;
  return out ? &mad_with_carry<T, false, true, true> : &mad_with_carry<T, false, true, false>;
}
Handler carry_forms(const Opcode& op) {
  const Type t = op.last();
  const bool out = op.has("cc");
  switch (op.row->form) {
    case Form::add_cc: return carrying<CarryUse{false, true, false}>(t);
    case Form::addc:
      return out ? carrying<CarryUse{true, true, false}>(t) : carrying<CarryUse{true, false, false}>(t);
    case Form::sub_cc: return carrying<CarryUse{false, true, true}>(t);
    case Form::subc:
      return out ? carrying<CarryUse{true, true, true}>(t) : carrying<CarryUse{true, false, true}>(t);
    case Form::mad_cc:
    case Form::madc:
      switch (t) {
        case Type::u32: return mad_carrying<uint32_t>(op);
        case Type::s32: return mad_carrying<int32_t>(op);
        case Type::u64: return mad_carrying<uint64_t>(op);
        default: return mad_carrying<int64_t>(op);
      }
    default: return nullptr;
  }
}

template <class Rule> Handler of_word(Type t) {
  return t == Type::s32 ? Handler(&apply2<Rule, int32_t, int32_t, int32_t>)
                        : Handler(&apply2<Rule, uint32_t, uint32_t, uint32_t>);
}
template <class Rule> Handler of_word3(Type t) {
  return t == Type::s32 ? Handler(&apply3<Rule, int32_t, int32_t, int32_t, int32_t>)
                        : Handler(&apply3<Rule, uint32_t, uint32_t, uint32_t, uint32_t>);
}

Handler arithmetic(const Opcode& op) {
  const Type t = op.last();
  const bool high = op.has("hi");
  switch (op.row->form) {
    case Form::add: return binary_or_halves<Add>(t);
    case Form::add_sat: return &apply2<AddSat, int32_t, int32_t, int32_t>;
    case Form::sub: return binary<Sub>(t);
    case Form::sub_sat: return &apply2<SubSat, int32_t, int32_t, int32_t>;
    case Form::mul: return high ? binary<MulHi>(t) : binary<MulLo>(t);
    case Form::mul_wide: return wide_product(t, false);
    case Form::mad: return high ? ternary<MadHi>(t) : ternary<MadLo>(t);
    case Form::mad_hi_sat: return &apply3<MadHiSat, int32_t, int32_t, int32_t, int32_t>;
    case Form::mad_wide: return wide_product(t, true);
    case Form::mul24: return high ? of_word<Mul24Hi>(t) : of_word<Mul24Lo>(t);
    case Form::mad24: return high ? of_word3<Mad24Hi>(t) : of_word3<Mad24Lo>(t);
    case Form::sad: return ternary<Sad>(t);
    case Form::div: return by_integer<Divided<Div>::Of>(t);
    case Form::rem: return by_integer<Divided<Rem>::Of>(t);
    case Form::abs: return unary<Abs>(t);
    case Form::neg: return unary<Neg>(t);
    case Form::min: return binary_or_halves<Min>(t);
    case Form::max: return binary_or_halves<Max>(t);
    case Form::dp4a: return dot_products(op);
    case Form::dp2a: return dot_products_of_halves(op);
    default: return carry_forms(op);
  }
}

uint32_t lop3_word(const Instruction& i, uint32_t a, uint32_t b, uint32_t c) { return lop3(a, b, c, i.code); }
// The predicate is whether any bit of the result is set, joined with another.
template <bool kAnd> void lop3_bool(Warp& w, const Instruction& i) {
  apply_words<lop3_word, 3>(w, i);
  const uint32_t* d = w.words + i.d[0];
  uint32_t any = 0;
  for (unsigned l = 0; l < kLanes; ++l) any |= static_cast<uint32_t>(d[l] != 0) << l;
  const uint32_t other = predicate(w, i, 3);
  if (i.destinations > 1) set_predicate(w, i.d[1], kAnd ? any & other : any | other);
}

Handler bfe_of(Type t) {
  switch (t) {
    case Type::u32: return &apply3<Bfe, uint32_t, uint32_t, uint32_t, uint32_t>;
    case Type::s32: return &apply3<Bfe, int32_t, int32_t, uint32_t, uint32_t>;
    case Type::u64: return &apply3<Bfe, uint64_t, uint64_t, uint32_t, uint32_t>;
    default: return &apply3<Bfe, int64_t, int64_t, uint32_t, uint32_t>;
  }
}
template <class T> void bfi(Warp& w, const Instruction& i) {
  for_lanes(w.active, [&](unsigned l) {
    cells<T>(w, i.d[0])[l] = Bfi{}(get<T>(cells<T>(w, i.s[0])[l]), get<T>(cells<T>(w, i.s[1])[l]),
                                   w.words[i.s[2] + l], w.words[i.s[3] + l]);
  });
}
Handler szext_of(const Opcode& op) {
  const bool wrap = op.has("wrap");
  if (op.last() == Type::s32)
    return wrap ? &apply2<Szext<true>, int32_t, int32_t, uint32_t>
                : &apply2<Szext<false>, int32_t, int32_t, uint32_t>;
  return wrap ? &apply2<Szext<true>, uint32_t, uint32_t, uint32_t>
              : &apply2<Szext<false>, uint32_t, uint32_t, uint32_t>;
}
template <bool kLeft> Handler shf_of(bool wrap) {
  return wrap ? &apply3<Shf<kLeft, true>, uint32_t, uint32_t, uint32_t, uint32_t>
              : &apply3<Shf<kLeft, false>, uint32_t, uint32_t, uint32_t, uint32_t>;
}
template <PrmtMode kMode> Handler prmt_mode() {
  return &apply3<PrmtBy<kMode>, uint32_t, uint32_t, uint32_t, uint32_t>;
}
Handler prmt_of(const Opcode& op) {
  if (op.has("f4e")) return prmt_mode<PrmtMode::f4e>();
  if (op.has("b4e")) return prmt_mode<PrmtMode::b4e>();
  if (op.has("rc8")) return prmt_mode<PrmtMode::rc8>();
  if (op.has("ecl")) return prmt_mode<PrmtMode::ecl>();
  if (op.has("ecr")) return prmt_mode<PrmtMode::ecr>();
  if (op.has("rc16")) return prmt_mode<PrmtMode::rc16>();
  return &apply3<Prmt, uint32_t, uint32_t, uint32_t, uint32_t>;
}

Handler bits(const Opcode& op) {
  const Type t = op.last();
  const bool wide = info(t).bits == 64;
  switch (op.row->form) {
    case Form::popc: return wide ? &apply1<Popc, uint32_t, uint64_t> : &apply1<Popc, uint32_t, uint32_t>;
    case Form::clz: return wide ? &apply1<Clz, uint32_t, uint64_t> : &apply1<Clz, uint32_t, uint32_t>;
    case Form::bfind:
      return op.has("shiftamt") ? by_integer<ToWord<BfindShift>::Of>(t) : by_integer<ToWord<Bfind>::Of>(t);
    case Form::fns: return &apply3<Fns, uint32_t, uint32_t, uint32_t, uint32_t>;
    case Form::brev: return unary<Brev>(t);
    case Form::bfe: return bfe_of(t);
    case Form::bfi: return wide ? &bfi<uint64_t> : &bfi<uint32_t>;
    case Form::szext: return szext_of(op);
    case Form::bmsk:
      return op.has("wrap") ? &apply2<Bmsk<true>, uint32_t, uint32_t, uint32_t>
                            : &apply2<Bmsk<false>, uint32_t, uint32_t, uint32_t>;
    case Form::and_bits: return binary<And>(t);
    case Form::or_bits: return binary<Or>(t);
    case Form::xor_bits: return binary<Xor>(t);
    case Form::not_bits: return unary<Not>(t);
    case Form::cnot: return unary<Cnot>(t);
    case Form::lop3: return &apply_words<lop3_word, 3>;
    case Form::lop3_bool: return op.has("and") ? &lop3_bool<true> : &lop3_bool<false>;
    case Form::shf: return op.has("l") ? shf_of<true>(op.has("wrap")) : shf_of<false>(op.has("wrap"));
    case Form::shl: return shift<Shl>(t);
    case Form::shr: return shift<Shr>(t);
    case Form::prmt: return prmt_of(op);
    default: return nullptr;
  }
}

}  // namespace

bool choose_integer(const Opcode& op, Instruction& i) {
  const Form form = op.row->form;
  i.carry_in = form == Form::addc || form == Form::subc || form == Form::madc;
  i.carry_out = op.has("cc");
  i.handler = arithmetic(op);
  if (!i.handler) i.handler = bits(op);
  return i.handler != nullptr;
}

}  // namespace assay::ptx
