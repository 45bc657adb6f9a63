// Packed bytes and halves (9.7.9.22, 9.7.18.2), minima and maxima that are not negative (9.7.1.12, 9.7.1.13),
// and functions of f16 and bf16 with a bound instead of bits (9.7.4.9, 9.7.4.10).
#include <algorithm>

#include "fast/ptx/choose.h"
#include "fast/ptx/handlers.h"
#include "fast/ptx/values_convert.h"

namespace assay::ptx {

namespace {

// cvt.pack: a into the upper and b into the lower part, each of so many bits, with c above both where they
// do not fill a register.
constexpr uint32_t kSignedParts = 64;
uint32_t saturated_part(uint32_t v, uint32_t bits, bool is_signed) {
  const int64_t least = is_signed ? -(int64_t{1} << (bits - 1)) : 0,
                most = (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
  const int64_t kept = std::clamp(static_cast<int64_t>(static_cast<int32_t>(v)), least, most);
  return static_cast<uint32_t>(kept) & ((1u << bits) - 1);
}
uint32_t packed_parts(const Instruction& i, uint32_t a, uint32_t b) {
  const uint32_t bits = i.code & 31;
  const bool is_signed = i.code & kSignedParts;
  return saturated_part(a, bits, is_signed) << bits | saturated_part(b, bits, is_signed);
}
uint32_t packed_above(const Instruction& i, uint32_t a, uint32_t b, uint32_t c) {
  return c << (2 * (i.code & 31)) | packed_parts(i, a, b);
}
uint32_t pack_code(const Opcode& op) {
  if (op.row->form != Form::cvt_pack_bits)
    return static_cast<uint32_t>(info(op.first()).bits) |
           (info(op.first()).kind == Kind::integer ? kSignedParts : 0);
  return (op.has("u2") || op.has("s2") ? 2u : 4u) | (op.has("s2") || op.has("s4") ? kSignedParts : 0);
}

// Differences of bytes without sign: c takes their sum (.add), or the bytes themselves stand in the result.
uint32_t byte_of(uint32_t v, unsigned k) { return v >> (8 * k) & 0xFF; }
uint32_t byte_difference(uint32_t a, uint32_t b, unsigned k) {
  return std::max(byte_of(a, k), byte_of(b, k)) - std::min(byte_of(a, k), byte_of(b, k));
}
uint32_t differences(const Instruction&, uint32_t a, uint32_t b, uint32_t) {
  uint32_t out = 0;
  for (unsigned k = 0; k < 4; ++k) out |= byte_difference(a, b, k) << (8 * k);
  return out;
}
uint32_t sum_of_differences(const Instruction&, uint32_t a, uint32_t b, uint32_t c) {
  for (unsigned k = 0; k < 4; ++k) c += byte_difference(a, b, k);
  return c;
}

// .relu: no less than zero.
template <bool kGreatest> int32_t clamped_extreme(int32_t a, int32_t b) {
  return std::max(0, kGreatest ? std::max(a, b) : std::min(a, b));
}
template <bool kGreatest> uint32_t extreme_relu(const Instruction&, uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(clamped_extreme<kGreatest>(static_cast<int32_t>(a), static_cast<int32_t>(b)));
}
template <bool kGreatest> uint32_t extreme_relu_pair(const Instruction&, uint32_t a, uint32_t b) {
  const auto half = [&](unsigned shift) {
    return static_cast<uint32_t>(
               clamped_extreme<kGreatest>(static_cast<int16_t>(a >> shift), static_cast<int16_t>(b >> shift)))
           << shift;
  };
  return half(0) | half(16);
}

// The nearest value, as for binary32 (values_float.h).
constexpr uint32_t kHalfIsBf16 = 1, kHalfIsPair = 2, kHalfFlushes = 4;
template <double (*kFunction)(double)> uint32_t of_half(const Instruction& i, uint32_t a) {
  const SmallFormat& f = i.code & kHalfIsBf16 ? kBf16 : kF16;
  const auto flushed = [&](uint32_t code) {
    return i.code & kHalfFlushes && (code & 0x7FFF) >> f.mantissa == 0 ? code & 0x8000 : code;
  };
  const auto one = [&](uint32_t code) {
    return flushed(encode(kFunction(decode(flushed(code & 0xFFFF), f)), f, {}));
  };
  return i.code & kHalfIsPair ? one(a) | one(a >> 16) << 16 : one(a);
}
double tanh_of(double v) { return std::tanh(v); }
double exp2_of(double v) { return std::exp2(v); }

bool choose_functions(const Opcode& op, Instruction& i) {
  switch (op.row->form) {
    case Form::tanh_half: i.handler = &apply_words<of_half<tanh_of>, 1>; break;
    case Form::ex2_half:
    case Form::ex2_bf16: i.handler = &apply_words<of_half<exp2_of>, 1>; break;
    default: return false;
  }
  const Type t = op.last();
  i.unpinned = true;
  i.code = (t == Type::bf16 || t == Type::bf16x2 ? kHalfIsBf16 : 0) |
           (t == Type::f16x2 || t == Type::bf16x2 ? kHalfIsPair : 0) | (op.has("ftz") ? kHalfFlushes : 0);
  return true;
}

Handler handler_of(const Opcode& op) {
  const bool pair = op.last() == Type::s16x2;
  switch (op.row->form) {
    case Form::cvt_pack_halves: return &apply_words<packed_parts, 2>;
    case Form::cvt_pack_bytes:
    case Form::cvt_pack_bits: return &apply_words<packed_above, 3>;
    case Form::vabsdiff4: return &apply_words<differences, 3>;
    case Form::vabsdiff4_add: return &apply_words<sum_of_differences, 3>;
    case Form::max_relu:
      return pair ? &apply_words<extreme_relu_pair<true>, 2> : &apply_words<extreme_relu<true>, 2>;
    case Form::min_relu:
      return pair ? &apply_words<extreme_relu_pair<false>, 2> : &apply_words<extreme_relu<false>, 2>;
    default: return nullptr;
  }
}

}  // namespace

bool choose_simd(const Opcode& op, Instruction& i) {
  const Handler handler = handler_of(op);
  if (!handler) return choose_functions(op, i);
  i.handler = handler;
  if (op.row->name == "cvt") i.code = pack_code(op);
  return true;
}

}  // namespace assay::ptx
