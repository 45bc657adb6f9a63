// Binary64 toward zero, down and up (9.7.3); conversions from binary32 and binary64 to 16 bits under every
// rounding, and of 16-bit values to integral ones (9.7.9.21).
#include "fast/ptx/choose.h"
#include "fast/ptx/handlers.h"
#include "fast/ptx/values_convert.h"
#include "fast/ptx/values_f64.h"

namespace assay::ptx {

namespace {

constexpr uint32_t kFlushes = 16, kSaturates = 32;
Rounding directed(const Instruction& i) { return static_cast<Rounding>(i.code & 15); }

// d = kRule(sources, rounding).
template <auto kRule, unsigned kSources> void with_rounding(Warp& w, const Instruction& i) {
  for (uint32_t m = w.active; m; m &= m - 1) {
    const int l = std::countr_zero(m);
    const auto source = [&](unsigned k) { return as_double(cells<uint64_t>(w, i.s[k])[l]); };
    double v = 0;
    if constexpr (kSources == 1) v = kRule(source(0), directed(i));
    if constexpr (kSources == 2) v = kRule(source(0), source(1), directed(i));
    if constexpr (kSources == 3) v = kRule(source(0), source(1), source(2), directed(i));
    cells<uint64_t>(w, i.d[0])[l] = bits_of(v);
  }
}
double reciprocal_f64(double a, Rounding rounding) {
  return std::isfinite(a) && a != 0 ? div_f64(1, a, rounding) : RcpF{}(a);
}

// .sat: into [0, 1], and a NaN becomes +0.
uint32_t half_of(double v, const SmallFormat& f, uint32_t mode) {
  if (mode & kSaturates) v = v > 0 ? (v < 1 ? v : 1.0) : 0.0;
  return encode(v, f, {static_cast<Rounding>(mode & 15)});
}
template <const SmallFormat& kFormat> uint32_t half_of_f32(const Instruction& i, uint32_t a) {
  const float v = as_float(a);
  return half_of(i.code & kFlushes ? flush(v) : v, kFormat, i.code);
}
template <const SmallFormat& kFormat> void half_of_f64(Warp& w, const Instruction& i) {
  for (uint32_t m = w.active; m; m &= m - 1) {
    const int l = std::countr_zero(m);
    const double v = as_double(cells<uint64_t>(w, i.s[0])[l]);
    w.words[i.d[0] + static_cast<unsigned>(l)] = half_of(v, kFormat, i.code);
  }
}
template <const SmallFormat& kFormat> uint32_t integral_half(const Instruction& i, uint32_t a) {
  const float v = decode(a & 0xFFFF, kFormat);
  return half_of(round_to_integer(v, directed(i)), kFormat, i.code & kSaturates);
}

Handler of_f64(Form form) {
  switch (form) {
    case Form::add_f64_directed: return &with_rounding<add_f64, 2>;
    case Form::sub_f64_directed: return &with_rounding<sub_f64, 2>;
    case Form::mul_f64_directed: return &with_rounding<mul_f64, 2>;
    case Form::fma_f64_directed:
    case Form::mad_f64_directed: return &with_rounding<fma_f64, 3>;
    case Form::div_f64_directed: return &with_rounding<div_f64, 2>;
    case Form::rcp_f64_directed: return &with_rounding<reciprocal_f64, 1>;
    case Form::sqrt_f64_directed: return &with_rounding<sqrt_f64, 1>;
    default: return nullptr;
  }
}
Handler of_halves(Form form, bool bf16) {
  switch (form) {
    case Form::cvt_f16:
    case Form::cvt_bf16:
      return bf16 ? &apply_words<half_of_f32<kBf16>, 1> : &apply_words<half_of_f32<kF16>, 1>;
    case Form::cvt_f16_f64:
    case Form::cvt_bf16_f64: return bf16 ? &half_of_f64<kBf16> : &half_of_f64<kF16>;
    case Form::cvt_round_f16:
    case Form::cvt_round_bf16:
      return bf16 ? &apply_words<integral_half<kBf16>, 1> : &apply_words<integral_half<kF16>, 1>;
    default: return nullptr;
  }
}

}  // namespace

bool choose_directed(const Opcode& op, Instruction& i) {
  i.code = rounding_code(op) | (op.has("ftz") ? kFlushes : 0) | (op.has("sat") ? kSaturates : 0);
  i.handler = of_f64(op.row->form);
  if (!i.handler) i.handler = of_halves(op.row->form, op.first() == Type::bf16);
  return i.handler != nullptr;
}

}  // namespace assay::ptx
