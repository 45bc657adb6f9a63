// Binary32 and binary64 arithmetic, mixed precision, and the functions that the ISA gives with a bound only
// (9.7.3, 9.7.5).
#include "fast/ptx/choose.h"
#include "fast/ptx/handlers.h"
#include "fast/ptx/values_float.h"

namespace assay::ptx {

namespace {

FloatMode mode_of(const Opcode& op) {
  return {static_cast<Rounding>(rounding_code(op)), op.has("ftz"), op.has("sat")};
}
// Instruction::code holds a FloatMode, because most handlers need none.
uint32_t packed_mode(const FloatMode& m) {
  return static_cast<uint32_t>(m.rounding) | (m.ftz ? 16u : 0u) | (m.sat ? 32u : 0u);
}
FloatMode unpacked_mode(uint32_t code) {
  return {static_cast<Rounding>(code & 15), (code & 16) != 0, (code & 32) != 0};
}

enum class Operation { add, sub, mul, fma, div, rcp, sqrt };
template <Operation kOperation> float operate(const FloatMode& m, float a, float b, float c) {
  if constexpr (kOperation == Operation::add) return m.add(a, b);
  if constexpr (kOperation == Operation::sub) return m.sub(a, b);
  if constexpr (kOperation == Operation::mul) return m.mul(a, b);
  if constexpr (kOperation == Operation::fma) return m.fma(a, b, c);
  if constexpr (kOperation == Operation::div) return m.div(a, b);
  if constexpr (kOperation == Operation::rcp) return m.rcp(a);
  if constexpr (kOperation == Operation::sqrt) return m.sqrt(a);
}
// Any rounding and mode, one lane after the other.
template <Operation kOperation> void with_mode(Warp& w, const Instruction& i) {
  const FloatMode mode = unpacked_mode(i.code);
  const auto source = [&](unsigned k, int l) {
    return k < i.sources ? as_float(w.words[i.s[k] + static_cast<unsigned>(l)]) : 0.0f;
  };
  for (uint32_t m = w.active; m; m &= m - 1) {
    const int l = std::countr_zero(m);
    w.words[i.d[0] + static_cast<unsigned>(l)] =
        bits_of(operate<kOperation>(mode, source(0, l), source(1, l), source(2, l)));
  }
}
// Both halves of 64 bits are binary32 (.f32x2).
template <Operation kOperation> void of_pairs(Warp& w, const Instruction& i) {
  const FloatMode mode = unpacked_mode(i.code);
  for (uint32_t m = w.active; m; m &= m - 1) {
    const auto l = static_cast<unsigned>(std::countr_zero(m));
    uint64_t s[3] = {};
    for (unsigned k = 0; k < i.sources; ++k) s[k] = cells<uint64_t>(w, i.s[k])[l];
    const auto half = [&](unsigned shift) {
      const auto part = [&](unsigned k) { return as_float(static_cast<uint32_t>(s[k] >> shift)); };
      return uint64_t{bits_of(operate<kOperation>(mode, part(0), part(1), part(2)))} << shift;
    };
    cells<uint64_t>(w, i.d[0])[l] = half(0) | half(32);
  }
}
// 9.7.5: sources of 16 bits are widened, which is exact. The last source is binary32 and is the addend.
template <Operation kOperation> void mixed(Warp& w, const Instruction& i) {
  const FloatMode mode = unpacked_mode(i.code);
  const SmallFormat& format = i.code & 64 ? kBf16 : kF16;
  const unsigned last = i.sources - 1u;
  for (uint32_t m = w.active; m; m &= m - 1) {
    const auto l = static_cast<unsigned>(std::countr_zero(m));
    const auto wide = [&](unsigned k) { return decode(w.words[i.s[k] + l] & 0xFFFF, format); };
    const float addend = as_float(w.words[i.s[last] + l]);
    w.words[i.d[0] + l] =
        bits_of(kOperation == Operation::fma ? mode.fma(wide(0), wide(1), addend)
                                             : operate<kOperation>(mode, wide(0), addend, 0));
  }
}

// The vector form where there is no mode but .ftz and the rounding is to nearest; else the general one.
template <class Rule, Operation kOperation, unsigned kSources>
void arithmetic_f32(const Opcode& op, Instruction& i) {
  const FloatMode mode = mode_of(op);
  i.code = packed_mode(mode);
  i.handler = &with_mode<kOperation>;
  if (mode.rounding != Rounding::rn || mode.sat) return;
  if constexpr (kSources == 1)
    i.handler = mode.ftz ? &apply1<Flushed<Rule>, float, float> : &apply1<Rule, float, float>;
  if constexpr (kSources == 2)
    i.handler = mode.ftz ? &apply2<Flushed<Rule>, float, float, float> : &apply2<Rule, float, float, float>;
  if constexpr (kSources == 3)
    i.handler = mode.ftz ? &apply3<Flushed<Rule>, float, float, float, float>
                         : &apply3<Rule, float, float, float, float>;
}

bool choose_f32(const Opcode& op, Instruction& i) {
  switch (op.row->form) {
    case Form::add_f32: arithmetic_f32<AddF, Operation::add, 2>(op, i); break;
    case Form::sub_f32: arithmetic_f32<SubF, Operation::sub, 2>(op, i); break;
    case Form::mul_f32: arithmetic_f32<MulF, Operation::mul, 2>(op, i); break;
    case Form::mad_f32:
    case Form::fma_f32: arithmetic_f32<FmaF, Operation::fma, 3>(op, i); break;
    case Form::div_f32: arithmetic_f32<DivF, Operation::div, 2>(op, i); break;
    case Form::rcp_f32: arithmetic_f32<RcpF, Operation::rcp, 1>(op, i); break;
    case Form::sqrt_f32: arithmetic_f32<SqrtF, Operation::sqrt, 1>(op, i); break;
    default: return false;
  }
  return true;
}

bool choose_pairs(const Opcode& op, Instruction& i) {
  switch (op.row->form) {
    case Form::add_f32x2: i.handler = &of_pairs<Operation::add>; break;
    case Form::sub_f32x2: i.handler = &of_pairs<Operation::sub>; break;
    case Form::mul_f32x2: i.handler = &of_pairs<Operation::mul>; break;
    case Form::fma_f32x2: i.handler = &of_pairs<Operation::fma>; break;
    case Form::add_mixed: i.handler = &mixed<Operation::add>; break;
    case Form::sub_mixed: i.handler = &mixed<Operation::sub>; break;
    case Form::fma_mixed: i.handler = &mixed<Operation::fma>; break;
    default: return false;
  }
  i.code = packed_mode(mode_of(op)) | (op.last() == Type::bf16 ? 64u : 0u);
  return true;
}

bool choose_f64(const Opcode& op, Instruction& i) {
  switch (op.row->form) {
    case Form::add_f64: i.handler = &apply2<AddF, double, double, double>; break;
    case Form::sub_f64: i.handler = &apply2<SubF, double, double, double>; break;
    case Form::mul_f64: i.handler = &apply2<MulF, double, double, double>; break;
    case Form::mad_f64:
    case Form::fma_f64: i.handler = &apply3<FmaF, double, double, double, double>; break;
    case Form::div_f64: i.handler = &apply2<DivF, double, double, double>; break;
    case Form::rcp_f64: i.handler = &apply1<RcpF, double, double>; break;
    case Form::sqrt_f64: i.handler = &apply1<SqrtF, double, double>; break;
    case Form::abs_f64: i.handler = &apply1<AbsF, double, double>; break;
    case Form::neg_f64: i.handler = &apply1<NegF, double, double>; break;
    case Form::min_f64: i.handler = &apply2<MinF<false>, double, double, double>; break;
    case Form::max_f64: i.handler = &apply2<MaxF<false>, double, double, double>; break;
    default: return false;
  }
  return true;
}

// One operand, or several: with and without .ftz.
template <class Rule> Handler one(const Opcode& op) {
  return op.has("ftz") ? &apply1<Flushed<Rule>, float, float> : &apply1<Rule, float, float>;
}
template <class Rule> Handler three(const Opcode& op) {
  return op.has("ftz") ? &apply3<Flushed<Rule>, float, float, float, float>
                       : &apply3<Rule, float, float, float, float>;
}
template <class Rule> Handler extreme(const Opcode& op, const Instruction& i) {
  if (i.sources == 3) return three<Nested<Rule>>(op);
  return op.has("ftz") ? &apply2<Flushed<Rule>, float, float, float> : &apply2<Rule, float, float, float>;
}
template <template <bool> class Rule> Handler extreme(const Opcode& op, const Instruction& i) {
  if (op.has("abs") && i.sources == 3)
    return op.has("NaN") ? three<Magnitudes<Nested<Rule<true>>>>(op)
                         : three<Magnitudes<Nested<Rule<false>>>>(op);
  if (op.has("xorsign"))
    return op.has("NaN") ? extreme<XorSign<Rule<true>>>(op, i) : extreme<XorSign<Rule<false>>>(op, i);
  return op.has("NaN") ? extreme<Rule<true>>(op, i) : extreme<Rule<false>>(op, i);
}

Handler approximate(const Opcode& op) {
  switch (op.row->form) {
    case Form::div_f32_approx:
      return op.has("ftz") ? &apply2<Flushed<DivApproxF>, float, float, float>
                           : &apply2<DivApproxF, float, float, float>;
    case Form::rcp_f32_approx: return one<RcpF>(op);
    case Form::sqrt_f32_approx: return one<SqrtF>(op);
    case Form::rsqrt: return one<RsqrtF>(op);
    case Form::sin: return one<SinF>(op);
    case Form::cos: return one<CosF>(op);
    case Form::lg2: return one<Lg2F>(op);
    case Form::ex2: return one<Ex2F>(op);
    case Form::tanh: return one<TanhF>(op);
    default: return nullptr;
  }
}

Handler signs(const Opcode& op, const Instruction& i) {
  const bool wide = op.last() == Type::f64;
  switch (op.row->form) {
    case Form::copysign:
      return wide ? &apply2<Copysign, double, double, double> : &apply2<Copysign, float, float, float>;
    case Form::abs_f32: return one<AbsF>(op);
    case Form::neg_f32: return one<NegF>(op);
    case Form::min_f32:
    case Form::min_f32_abs:
    case Form::min_f32_xor: return extreme<MinF>(op, i);
    case Form::max_f32:
    case Form::max_f32_abs:
    case Form::max_f32_xor: return extreme<MaxF>(op, i);
    default: return nullptr;
  }
}

}  // namespace

bool choose_float(const Opcode& op, Instruction& i) {
  if (choose_f32(op, i) || choose_pairs(op, i) || choose_f64(op, i)) return true;
  i.handler = approximate(op);
  i.unpinned = i.handler != nullptr;
  if (!i.handler) i.handler = signs(op, i);
  return i.handler != nullptr;
}

}  // namespace assay::ptx
