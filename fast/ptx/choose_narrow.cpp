// Conversions to and from formats of 4 to 8 bits (9.7.9.21).
#include "fast/ptx/choose.h"
#include "fast/ptx/handlers.h"
#include "fast/ptx/values_convert.h"

namespace assay::ptx {

namespace {

constexpr uint32_t kSatfinite = 64, kRelu = 128;

template <const SmallFormat& kFormat> uint32_t pair_of(const Instruction& i, uint32_t a, uint32_t b) {
  const RoundingRule rule{Rounding::rn, true, (i.code & kRelu) != 0};
  return packed(code_of(as_float(a), kFormat, rule), code_of(as_float(b), kFormat, rule), kFormat);
}
template <const SmallFormat& kFormat> uint32_t pair_fast(const Instruction&, uint32_t a, uint32_t b) {
  return code8_fast<kFormat>(as_float(a)) << 8 | code8_fast<kFormat>(as_float(b));
}
template <const SmallFormat& kFormat> uint32_t pair_of_half(const Instruction& i, uint32_t a) {
  return pair_of<kFormat>(i, bits_of(decode(a >> 16, kF16)), bits_of(decode(a & 0xFFFF, kF16)));
}
uint32_t e8m0_pair(const Instruction& i, uint32_t a, uint32_t b) {
  const auto one = [&](uint32_t v) {
    return e8m0_of(as_float(v), static_cast<Rounding>(i.code & 15), (i.code & kSatfinite) != 0);
  };
  return one(a) << 8 | one(b);
}
uint32_t e8m0_pair_of_half(const Instruction& i, uint32_t a) {
  return e8m0_pair(i, a & 0xFFFF0000u, a << 16);
}

// Two codes to f16x2: exact, since f16 holds every value of these formats.
template <const SmallFormat& kFormat> uint32_t unpacked(const Instruction& i, uint32_t a) {
  constexpr unsigned step = kFormat.bits == 6 ? 8 : kFormat.bits;
  const auto half = [&](unsigned shift) {
    return encode(decode(a >> shift & ((1u << kFormat.bits) - 1), kFormat), kF16,
                  {Rounding::rn, false, (i.code & kRelu) != 0});
  };
  return half(step) << 16 | half(0);
}
uint32_t unpacked_e8m0(const Instruction&, uint32_t a) {
  return bf16_of_e8m0(a >> 8 & 0xFF) << 16 | bf16_of_e8m0(a & 0xFF);
}

template <const SmallFormat& kFormat> void four_random(Warp& w, const Instruction& i) {
  for (uint32_t m = w.active; m; m &= m - 1) {
    const auto l = static_cast<unsigned>(std::countr_zero(m));
    const auto value = [&](unsigned k) { return as_float(w.words[i.s[k] + l]); };
    w.words[i.d[0] + l] = four_codes({value(0), value(1), value(2), value(3)}, w.words[i.s[4] + l], kFormat,
                                     (i.code & kRelu) != 0);
  }
}

Handler pairs(const Opcode& op) {
  const bool relu = op.has("relu");
  switch (op.first()) {
    case Type::e4m3x2: return relu ? &apply_words<pair_of<kE4m3>, 2> : &apply_words<pair_fast<kE4m3>, 2>;
    case Type::e5m2x2: return relu ? &apply_words<pair_of<kE5m2>, 2> : &apply_words<pair_fast<kE5m2>, 2>;
    case Type::e2m1x2: return &apply_words<pair_of<kE2m1>, 2>;
    case Type::e2m3x2: return &apply_words<pair_of<kE2m3>, 2>;
    case Type::e3m2x2: return &apply_words<pair_of<kE3m2>, 2>;
    default: return nullptr;
  }
}
Handler unpackings(Type t) {
  switch (t) {
    case Type::e4m3x2: return &apply_words<unpacked<kE4m3>, 1>;
    case Type::e5m2x2: return &apply_words<unpacked<kE5m2>, 1>;
    case Type::e2m1x2: return &apply_words<unpacked<kE2m1>, 1>;
    case Type::e2m3x2: return &apply_words<unpacked<kE2m3>, 1>;
    case Type::e3m2x2: return &apply_words<unpacked<kE3m2>, 1>;
    default: return nullptr;
  }
}
Handler random_forms(Type t) {
  return t == Type::e2m1x4   ? &four_random<kE2m1>
         : t == Type::e4m3x4 ? &four_random<kE4m3>
                             : &four_random<kE5m2>;
}

}  // namespace

bool choose_narrow(const Opcode& op, Instruction& i) {
  i.code = rounding_code(op) | (op.has("satfinite") ? kSatfinite : 0) | (op.has("relu") ? kRelu : 0);
  switch (op.row->form) {
    case Form::cvt_pair: i.handler = pairs(op); break;
    case Form::cvt_pair_half:
      i.handler = op.first() == Type::e4m3x2 ? &apply_words<pair_of_half<kE4m3>, 1>
                                             : &apply_words<pair_of_half<kE5m2>, 1>;
      break;
    case Form::cvt_e8m0: i.handler = &apply_words<e8m0_pair, 2>; break;
    case Form::cvt_e8m0_half: i.handler = &apply_words<e8m0_pair_of_half, 1>; break;
    case Form::cvt_unpack: i.handler = unpackings(op.last()); break;
    case Form::cvt_unpack_e8m0: i.handler = &apply_words<unpacked_e8m0, 1>; break;
    case Form::cvt_rs: i.handler = random_forms(op.first()); break;
    default: i.handler = nullptr;
  }
  return i.handler != nullptr;
}

}  // namespace assay::ptx
