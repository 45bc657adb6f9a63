// Codes to binary32 patterns, by placing bits.
#pragma once
#include "fast/lane/layout.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// The exact value of a code of E (N2.8). BF16 keeps NaN payloads, the others give the canonical NaN;
// infinities keep their sign.
template <Encoding E> ASSAY_LANE uint32_t decode(uint32_t code) {
  using L = Layout<E>;
  if constexpr (E == Encoding::f32) return code;
  if constexpr (E == Encoding::bf16) return code << 16;
  const uint32_t sign = (code & L::kSignCode) << (32 - L::kBits);
  const uint32_t a = code & (L::kSignCode - 1u);
  // Fraction and exponent drop into place; the product with a power of two rebiases, subnormal codes
  // included, exactly.
  const uint32_t placed = a << L::kDrop;
  constexpr uint32_t kRescale = uint32_t(254 - L::kBias) << 23;  // 2^(127 - bias)
  uint32_t bits = as_bits(__fmul_rn(as_float(placed), as_float(kRescale))) | sign;
  if constexpr (L::kHasInf) {
    bits = a == L::kInfCode ? sign | kInf : bits;
    bits = a > L::kInfCode ? kNan : bits;
  } else if constexpr (L::kNanCode > L::kMax) {
    bits = a == L::kNanCode ? kNan : bits;
  }
  return bits;
}

// The value of an E8M0 code as it decodes on its own, through BF16: 255 gives 7FFF0000 (N2.8).
template <> ASSAY_LANE uint32_t decode<Encoding::e8m0>(uint32_t code) {
  const uint32_t bits = code == 0u ? 0x00400000u : code << 23;
  return code == 255u ? 0x7FFF0000u : bits;
}

// The same with the encoding chosen at run time.
ASSAY_LANE uint32_t decode_from(Encoding from, uint32_t code) {
  switch (from) {
    case Encoding::f32: return code;
    case Encoding::bf16: return decode<Encoding::bf16>(code);
    case Encoding::f16: return decode<Encoding::f16>(code);
    case Encoding::e4m3: return decode<Encoding::e4m3>(code);
    case Encoding::e5m2: return decode<Encoding::e5m2>(code);
    case Encoding::e2m3: return decode<Encoding::e2m3>(code);
    case Encoding::e3m2: return decode<Encoding::e3m2>(code);
    case Encoding::e2m1: return decode<Encoding::e2m1>(code);
    case Encoding::e8m0: return decode<Encoding::e8m0>(code);
    case Encoding::u8:
    case Encoding::u32: break;  // no cast reaches them
  }
  return 0;
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
