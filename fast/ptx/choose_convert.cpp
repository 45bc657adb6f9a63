// Conversions between integers and floats of 16 to 64 bits (9.7.9.21), and moves of cvt alone.
#include <utility>

#include "fast/ptx/choose.h"
#include "fast/ptx/handlers.h"
#include "fast/ptx/values_convert.h"

namespace assay::ptx {

namespace {

constexpr uint32_t kFtz = 16, kSat = 32, kSatfinite = 64, kRelu = 128;
uint32_t mode_of(const Opcode& op) {
  return rounding_code(op) | (op.has("ftz") ? kFtz : 0) | (op.has("sat") ? kSat : 0) |
         (op.has("satfinite") ? kSatfinite : 0) | (op.has("relu") ? kRelu : 0);
}
Rounding rounding_in(const Instruction& i) { return static_cast<Rounding>(i.code & 15); }

// The result is extended into its register by the signedness of D.
template <class D, class S, bool kSaturate> D convert_integer(S v) {
  if constexpr (kSaturate) return saturate_to<D>(v);
  else return static_cast<D>(v);
}
template <class D, class S, bool kSaturate>
ASSAY_PTX_WIDE void integer_to_integer(Warp& w, const Instruction& i) {
  uint32_t* d = w.words + i.d[0];
  const uint32_t* s = w.words + i.s[0];
  auto* d8 = cells<uint64_t>(w, i.d[0]);
  const auto* s8 = cells<uint64_t>(w, i.s[0]);
  const auto make = [](auto v) { return extend<D>(convert_integer<D, S, kSaturate>(static_cast<S>(v))); };
  if (i.wide_d && i.wide_s) for_lanes(w.active, [&](unsigned l) { d8[l] = make(s8[l]); });
  else if (i.wide_d) for_lanes(w.active, [&](unsigned l) { d8[l] = make(s[l]); });
  else if (i.wide_s) for_lanes(w.active, [&](unsigned l) { d[l] = static_cast<uint32_t>(make(s8[l])); });
  else for_lanes(w.active, [&](unsigned l) { d[l] = static_cast<uint32_t>(make(s[l])); });
}

template <class S> double widened(uint64_t cell, const Instruction& i) {
  if constexpr (sizeof(S) == 8) return as_double(cell);
  const float v = as_float(static_cast<uint32_t>(cell));
  return i.code & kFtz ? flush(v) : v;
}
// S: float, double, or a code of 16 bits (uint16_t: f16, int16_t: bf16).
template <class D, class S> void float_to_integer(Warp& w, const Instruction& i) {
  for (uint32_t m = w.active; m; m &= m - 1) {
    const auto l = static_cast<unsigned>(std::countr_zero(m));
    const uint64_t cell = read_cell(w, i.s[0], i.wide_s, l);
    D v;
    if constexpr (std::is_same_v<S, double>) v = integer_of<D>(as_double(cell), rounding_in(i));
    else if constexpr (std::is_same_v<S, float>)
      v = integer_of<D>(static_cast<float>(widened<float>(cell, i)), rounding_in(i));
    else v = integer_of<D>(decode(cell & 0xFFFF, std::is_signed_v<S> ? kBf16 : kF16), rounding_in(i));
    write_cell(w, i.d[0], i.wide_d, l, extend<D>(v));
  }
}
template <class S> void integer_to_float(Warp& w, const Instruction& i) {
  for (uint32_t m = w.active; m; m &= m - 1) {
    const auto l = static_cast<unsigned>(std::countr_zero(m));
    const auto v = static_cast<S>(read_cell(w, i.s[0], i.wide_s, l));
    uint64_t bits = 0;
    switch (i.width) {
      case 64: bits = bits_of(f64_of_integer(v, rounding_in(i))); break;
      case 32: bits = encode_integer(v, kBinary32, rounding_in(i)); break;
      case 16: bits = encode_integer(v, kF16, rounding_in(i)); break;
      default: bits = encode_integer(v, kBf16, rounding_in(i)); break;
    }
    write_cell(w, i.d[0], i.wide_d, l, bits);
  }
}

// The integer types, for tables over pairs of them.
template <class D, bool kSaturate> Handler integer_from(Type s) {
  switch (s) {
    case Type::u8: return &integer_to_integer<D, uint8_t, kSaturate>;
    case Type::s8: return &integer_to_integer<D, int8_t, kSaturate>;
    case Type::u16: return &integer_to_integer<D, uint16_t, kSaturate>;
    case Type::s16: return &integer_to_integer<D, int16_t, kSaturate>;
    case Type::u32: return &integer_to_integer<D, uint32_t, kSaturate>;
    case Type::s32: return &integer_to_integer<D, int32_t, kSaturate>;
    case Type::u64: return &integer_to_integer<D, uint64_t, kSaturate>;
    default: return &integer_to_integer<D, int64_t, kSaturate>;
  }
}
template <class D> Handler integer_to(Type s, bool saturate) {
  switch (s) {
    case Type::f16: return &float_to_integer<D, uint16_t>;
    case Type::bf16: return &float_to_integer<D, int16_t>;
    case Type::f32: return &float_to_integer<D, float>;
    case Type::f64: return &float_to_integer<D, double>;
    default: return saturate ? integer_from<D, true>(s) : integer_from<D, false>(s);
  }
}
Handler to_integer(const Opcode& op) {
  const Type s = op.last();
  const bool saturate = op.has("sat");
  switch (op.first()) {
    case Type::u8: return integer_to<uint8_t>(s, saturate);
    case Type::s8: return integer_to<int8_t>(s, saturate);
    case Type::u16: return integer_to<uint16_t>(s, saturate);
    case Type::s16: return integer_to<int16_t>(s, saturate);
    case Type::u32: return integer_to<uint32_t>(s, saturate);
    case Type::s32: return integer_to<int32_t>(s, saturate);
    case Type::u64: return integer_to<uint64_t>(s, saturate);
    default: return integer_to<int64_t>(s, saturate);
  }
}
Handler from_integer(Type s) {
  switch (s) {
    case Type::u8: return &integer_to_float<uint8_t>;
    case Type::s8: return &integer_to_float<int8_t>;
    case Type::u16: return &integer_to_float<uint16_t>;
    case Type::s16: return &integer_to_float<int16_t>;
    case Type::u32: return &integer_to_float<uint32_t>;
    case Type::s32: return &integer_to_float<int32_t>;
    case Type::u64: return &integer_to_float<uint64_t>;
    default: return &integer_to_float<int64_t>;
  }
}

uint32_t widen_f16(const Instruction&, uint32_t a) { return bits_of(decode(a & 0xFFFF, kF16)); }
// A bf16 is the upper half of a binary32, and a NaN keeps its payload: an H100 shifts the bits.
uint32_t widen_bf16(const Instruction&, uint32_t a) { return a << 16; }
uint32_t finished(const Instruction& i, float v) {
  if (i.code & kFtz) v = flush(v);
  return bits_of(i.code & kSat ? saturate(v) : canonical(v));
}
uint32_t same_f32(const Instruction& i, uint32_t a) { return finished(i, as_float(a)); }
uint32_t round_f32_to_integer(const Instruction& i, uint32_t a) {
  return finished(i, round_to_integer(static_cast<float>(widened<float>(a, i)), rounding_in(i)));
}
uint32_t to_tf32(const Instruction&, uint32_t a) { return tf32_of(a); }
// To f16 or bf16, one value or two of which the first goes to the upper half.
template <const SmallFormat& kFormat> uint32_t to_half(const Instruction& i, uint32_t a) {
  return code_of(as_float(a), kFormat, {rounding_in(i), (i.code & kSatfinite) != 0, (i.code & kRelu) != 0});
}
template <const SmallFormat& kFormat> uint32_t to_half_pair(const Instruction& i, uint32_t a, uint32_t b) {
  return to_half<kFormat>(i, a) << 16 | to_half<kFormat>(i, b);
}
uint32_t to_bf16_fast(const Instruction&, uint32_t a) { return bf16_fast(as_float(a)); }
uint32_t to_bf16_pair_fast(const Instruction&, uint32_t a, uint32_t b) {
  return bf16_fast(as_float(a)) << 16 | bf16_fast(as_float(b));
}
// Random bits: the upper 16 for a, the lower 16 for b; f16 takes 13 of them.
template <const SmallFormat& kFormat>
uint32_t to_half_random(const Instruction& i, uint32_t a, uint32_t b, uint32_t bits) {
  constexpr int count = kFormat.mantissa == 10 ? 13 : 16;
  const auto one = [&](uint32_t v, uint32_t random) {
    return code_of(as_float(v), kFormat,
                   {Rounding::rs, (i.code & kSatfinite) != 0, (i.code & kRelu) != 0,
                    random & ((1u << count) - 1), count});
  };
  return one(a, bits >> 16) << 16 | one(b, bits & 0xFFFF);
}
void f64_to_f32(Warp& w, const Instruction& i) {
  for (uint32_t m = w.active; m; m &= m - 1) {
    const auto l = static_cast<unsigned>(std::countr_zero(m));
    w.words[i.d[0] + l] = finished(i, round_f32(as_double(cells<uint64_t>(w, i.s[0])[l]), rounding_in(i)));
  }
}
void f32_to_f64(Warp& w, const Instruction& i) {
  for_lanes(w.active, [&](unsigned l) {
    cells<uint64_t>(w, i.d[0])[l] = bits_of(canonical(widened<float>(w.words[i.s[0] + l], i)));
  });
}
void round_f64_to_integer(Warp& w, const Instruction& i) {
  for_lanes(w.active, [&](unsigned l) {
    cells<uint64_t>(w, i.d[0])[l] =
        bits_of(canonical(round_to_integer(as_double(cells<uint64_t>(w, i.s[0])[l]), rounding_in(i))));
  });
}

Handler floats(const Opcode& op, const Instruction& i) {
  const bool bf16 = op.first() == Type::bf16 || op.first() == Type::bf16x2 || op.last() == Type::bf16;
  const bool plain = i.code == 0;
  switch (op.row->form) {
    case Form::cvt_widen: return bf16 ? &apply_words<widen_bf16, 1> : &apply_words<widen_f16, 1>;
    case Form::cvt_widen_f64: return &f32_to_f64;
    case Form::cvt_round: return &apply_words<round_f32_to_integer, 1>;
    case Form::cvt_round_f64: return &round_f64_to_integer;
    case Form::cvt_same: return &apply_words<same_f32, 1>;
    case Form::cvt_f64: return &f64_to_f32;
    case Form::cvt_half:
      if (bf16) return plain ? &apply_words<to_bf16_fast, 1> : &apply_words<to_half<kBf16>, 1>;
      return &apply_words<to_half<kF16>, 1>;
    case Form::cvt_tf32: return &apply_words<to_tf32, 1>;
    case Form::cvt_half_pair:
      if (bf16) return plain ? &apply_words<to_bf16_pair_fast, 2> : &apply_words<to_half_pair<kBf16>, 2>;
      return &apply_words<to_half_pair<kF16>, 2>;
    case Form::cvt_half_rs:
      return bf16 ? &apply_words<to_half_random<kBf16>, 3> : &apply_words<to_half_random<kF16>, 3>;
    default: return nullptr;
  }
}

}  // namespace

bool choose_convert(const Opcode& op, Instruction& i) {
  i.code = mode_of(op);
  switch (op.row->form) {
    case Form::cvt_int:
    case Form::cvt_to_int:
    case Form::cvt_to_int_any: i.handler = to_integer(op); break;
    case Form::cvt_from_int:
      i.width = op.first() == Type::bf16 ? 0 : static_cast<uint8_t>(info(op.first()).bits);
      i.handler = from_integer(op.last());
      break;
    default: i.handler = floats(op, i);
  }
  return i.handler != nullptr;
}

}  // namespace assay::ptx
