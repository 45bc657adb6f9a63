// MXFP8 of bf16 in lanes of 16 bits. A scale is a power of two, so the code of a magnitude is its own upper
// bits, rounded at a fixed place, less what the scale takes from the exponent: bf16's bits are enough. That
// holds for codes of normal magnitudes and for magnitudes so small that their code is 0. A block that has
// others, or a NaN, an infinity or a tiny scale, is left to kernels.cpp. It includes this file once for each
// instruction set.
#if defined(ASSAY_SIMD_PACKED) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_SIMD_PACKED
#undef ASSAY_SIMD_PACKED
#else
#define ASSAY_SIMD_PACKED
#endif

#include <array>
#include <cstring>

#include <hwy/cache_control.h>

#include "fast/simd/steps.h"

HWY_BEFORE_NAMESPACE();
namespace assay::simd {
namespace HWY_NAMESPACE {
namespace {

using Dh = hn::ScalableTag<int16_t>;
using Vh = hn::Vec<Dh>;
using Uh = hn::RebindToUnsigned<Dh>;
constexpr size_t kHalfLanes = hn::MaxLanes(Dh());
constexpr int16_t kInfiniteHalf = 0x7F80;

HWY_INLINE Vh half(int value) { return hn::Set(Dh(), static_cast<int16_t>(value)); }
HWY_INLINE Vh halves_at(const std::byte* at) { return hn::LoadU(Dh(), reinterpret_cast<const int16_t*>(at)); }
HWY_INLINE Vh half_magnitude(Vh bits) { return hn::And(bits, half(0x7FFF)); }

// What a whole block has in common, for each of its lanes: the E8M0 code (scale_of, for bits of bf16), and
// the exponent that its elements are scaled with, which is the same but for a block of zeros. Their scale is
// the least, and any ordinary one gives their codes.
struct HalfScale {
  Vh k, exponent;
};
template <class F> HWY_INLINE HalfScale half_scale(Vh amax) {
  const Vh above = hn::Add(amax, half((0x7FFFFF - F::kMaxFraction) >> 16));
  const auto none = hn::Eq(amax, hn::Zero(Dh()));
  const Vh k = hn::IfThenZeroElse(none, hn::Sub(hn::ShiftRight<7>(above), half(F::kMaxExponent)));
  return {k, hn::IfThenElse(none, half(kOne), k)};
}
// Whether this file's codes may be taken under the scales of these amaxes. A tiny one reaches magnitudes that
// are subnormal in bf16, whose bits have no exponent.
HWY_INLINE bool half_scales_are_ordinary(Vh amax, const HalfScale& scale) {
  const auto tiny = hn::And(hn::Lt(scale.k, half(kTinyScale)), hn::Gt(amax, hn::Zero(Dh())));
  return hn::AllFalse(Dh(), hn::Or(tiny, hn::Gt(amax, half(kInfiniteHalf - 1))));
}

// N2.1: half of the last place less 1, and the code's last bit, are added before the bits below that place
// are cut off. What the scale takes from a code, (exponent - bias) << mantissa, is taken before the cut: it
// is whole codes, so that it cuts nothing else, and all that is constant in a block is one number, the
// offset. kZero is part of it, for HalfCodes::hold. Lanes of 16 bits hold every sum: an ordinary scale makes
// the offset negative and no less than -(254 << 7), and the rest is not negative and less than 1 << 15.
template <class F> struct HalfRounding {
  static constexpr int kCut = 7 - F::kMantissa;               // bits below a code's last
  static constexpr int kZero = F::kMantissa << F::kMantissa;  // codes further below 0 than this are 0

  static HWY_INLINE Vh offset(const HalfScale& scale) {
    constexpr int kBelowHalf = (1 << (kCut - 1)) - 1;
    return hn::Sub(half((F::kBias << 7) + (kZero << kCut) + kBelowHalf), hn::ShiftLeft<7>(scale.exponent));
  }
  // The code of a magnitude, plus kZero.
  static HWY_INLINE Vh counted(Vh a, Vh offset) {
    const Vh odd = hn::And(hn::ShiftRight<kCut>(a), half(1));
    return hn::ShiftRight<kCut>(hn::Add(hn::Add(a, offset), odd));
  }
};
// Which blocks have a code of the largest magnitude: as rounding keeps the order, those whose amax has it.
template <class F> HWY_INLINE hn::Mask<Dh> with_top(Vh amax, Vh offset) {
  using Rounding = HalfRounding<F>;
  return hn::Eq(Rounding::counted(amax, offset), half(Rounding::kZero + F::kTop));
}

// Codes with signs of neighbouring blocks, and whether they are what the file's head asks for. None is above
// the largest, so none is cut down to it: the scale is such that the amax is not above the largest number
// (N5.2, N5.3), which is one of bf16 and has a code.
template <class F, bool kAccept> struct HalfCodes {
  using Rounding = HalfRounding<F>;
  static constexpr int kOrdinary = Rounding::kZero + (1 << F::kMantissa);  // of the least normal code
  hn::Vec<Uh> least;
  Vh differ;

  static HWY_INLINE HalfCodes none() { return {hn::Set(Uh(), 0xFFFF), hn::Zero(Dh())}; }

  HWY_INLINE void add(Vh bits, Vh offset, std::byte* data) {
    const Vh counted = Rounding::counted(half_magnitude(bits), offset), zero = half(Rounding::kZero);
    least = hn::Min(least, hn::BitCast(Uh(), counted));
    const Vh magnitude = hn::Sub(hn::Max(counted, zero), zero);
    const Vh whole = hn::OrAnd(magnitude, hn::ShiftRight<8>(bits), half(0x80));
    const hn::Rebind<uint8_t, Dh> bytes;
    auto* const at = reinterpret_cast<uint8_t*>(data);
    if constexpr (!kAccept) hn::StoreU(hn::DemoteTo(bytes, whole), bytes, at);
    else differ = hn::Or(differ, hn::Xor(whole, hn::PromoteTo(Dh(), hn::LoadU(bytes, at))));
  }
  // Whether the codes are right, and under kAccept the recorded ones.
  HWY_INLINE bool hold() const {
    return hn::AllTrue(Uh(), hn::Gt(least, hn::Set(Uh(), kOrdinary - 1))) &&
           (!kAccept || hn::AllTrue(Dh(), hn::Eq(differ, hn::Zero(Dh()))));
  }
};

// ---- along rows -------------------------------------------------------------------------------------

constexpr size_t kBlockParts = 32 / kHalfLanes;  // vectors of a block
constexpr size_t kBlockBytes = 32 * 2;           // of x
HWY_INLINE Vh row_halves(const std::byte* x, size_t block, size_t part) {
  return halves_at(x + (block * kBlockParts + part) * kHalfLanes * 2);
}
// Lanes of which the largest is the amax of a block (N5.1); of a block with a NaN, that NaN.
HWY_INLINE Vh lane_amaxes(const std::byte* x, size_t block) {
  Vh most = half_magnitude(row_halves(x, block, 0));
  for (size_t part = 1; part < kBlockParts; ++part)
    most = hn::Max(most, half_magnitude(row_halves(x, block, part)));
  return most;
}
template <class F, bool kAccept>
HWY_INLINE void add_block(HalfCodes<F, kAccept>& codes, const std::byte* x, size_t block, Vh offset,
                          std::byte* data) {
  for (size_t part = 0; part < kBlockParts; ++part)
    codes.add(row_halves(x, block, part), offset, data + (block * kBlockParts + part) * kHalfLanes);
}

// A block of 32. -1: it is not of these, and what was written means nothing; else its E8M0 code. Under
// kAccept its codes are then the recorded ones, too, and none is of the largest magnitude.
template <class F, bool kAccept> HWY_INLINE int packed_row_block(const std::byte* x, std::byte* data) {
  const Vh amax = hn::MaxOfLanes(Dh(), lane_amaxes(x, 0));
  const HalfScale scale = half_scale<F>(amax);
  const Vh offset = HalfRounding<F>::offset(scale);
  auto codes = HalfCodes<F, kAccept>::none();
  add_block(codes, x, 0, offset, data);
  if (!half_scales_are_ordinary(amax, scale) || !codes.hold()) return -1;
  if (kAccept && !hn::AllFalse(Dh(), with_top<F>(amax, offset))) return -1;
  return hn::GetLane(scale.k);
}

constexpr size_t kTogether = 8;  // blocks
// The amaxes of eight neighbouring blocks. The larger of the two interleavings of vectors has lanes of the
// blocks of both, and half as many of each block as before. After three such steps every 128 bits have one
// lane of each of the eight, in order, because the steps join blocks 4, then 2, then 1 apart.
#if HWY_TARGET == HWY_SCALAR  // has no such lanes; Highway compiles it, nothing uses it
HWY_INLINE void eight_amaxes(const std::byte*, size_t, int16_t*) {}
#else
HWY_INLINE Vh larger_interleaved(Vh a, Vh b) {
  return hn::Max(hn::InterleaveLower(Dh(), a, b), hn::InterleaveUpper(Dh(), a, b));
}
template <class V> HWY_INLINE hn::Vec<hn::Full128<int16_t>> largest_of_128_bits(V v) {
  const hn::DFromV<V> d;
  if constexpr (hn::MaxLanes(d) == kTogether) {
    return v;
  } else {
    const hn::Half<decltype(d)> narrow;
    return largest_of_128_bits(hn::Max(hn::LowerHalf(narrow, v), hn::UpperHalf(narrow, v)));
  }
}
HWY_INLINE void eight_amaxes(const std::byte* x, size_t first, int16_t* amaxes) {
  const auto two = [&](size_t block) {
    return larger_interleaved(lane_amaxes(x, first + block), lane_amaxes(x, first + block + 4));
  };
  const Vh even = larger_interleaved(two(0), two(2)), odd = larger_interleaved(two(1), two(3));
  hn::Store(largest_of_128_bits(larger_interleaved(even, odd)), hn::Full128<int16_t>(), amaxes);
}
#endif

// Neighbouring blocks, a multiple of eight: at most as many as a vector has lanes, so that their scales are
// made at once. Eight are judged together, no more: where one has a subnormal code, all of them are taken
// again. again(first, count) is told of blocks that are to be taken one by one: what was written of them
// means nothing. Under kAccept, scales and codes of the others are the recorded ones, and top(block) is told
// of each with a code of the largest magnitude.
constexpr size_t kMostRowBlocks = kHalfLanes;
// Bytes of x between what is read and what is fetched. AVX-512 makes codes faster than a processor reads
// ahead by itself: without this, rows of a large x were written at six tenths of the speed. What is fetched
// past the end of x is not used, and a prefetch cannot fault.
constexpr size_t kAhead = 8192;
template <class F, bool kAccept, class Again, class Top>
HWY_INLINE void packed_row_blocks(const std::byte* x, std::byte* data, std::byte* scales, size_t count,
                                  Again again, Top top) {
  HWY_ALIGN std::array<int16_t, kMostRowBlocks> amaxes{}, offsets;
  HWY_ALIGN std::array<uint8_t, kMostRowBlocks> made;
  HWY_ALIGN std::array<uint8_t, 8> tops{};  // a bit for each block; StoreMaskBits may write 8 bytes
  for (size_t b = 0; b < count; b += kTogether) eight_amaxes(x, b, amaxes.data() + b);
  const Vh amax = hn::Load(Dh(), amaxes.data());
  const HalfScale scale = half_scale<F>(amax);
  if (!half_scales_are_ordinary(amax, scale)) return again(0, count);
  const Vh offset = HalfRounding<F>::offset(scale);
  hn::Store(offset, Dh(), offsets.data());
  const hn::Rebind<uint8_t, Dh> bytes;
  hn::Store(hn::DemoteTo(bytes, scale.k), bytes, made.data());
  if constexpr (!kAccept) {
    std::memcpy(scales, made.data(), count);
  } else {
    if (std::memcmp(scales, made.data(), count) != 0) return again(0, count);
    hn::StoreMaskBits(Dh(), with_top<F>(amax, offset), tops.data());
  }
  for (size_t b = 0; b < count; b += kTogether) {
    auto codes = HalfCodes<F, kAccept>::none();
    for (size_t i = b; i < b + kTogether; ++i) {
      hwy::Prefetch(x + i * kBlockBytes + kAhead);
      add_block(codes, x, i, half(offsets[i]), data);
    }
    if (!codes.hold()) {
      again(b, kTogether);
      continue;
    }
    for (size_t i = 0; kAccept && i < kTogether; ++i)
      if (tops[b / kTogether] >> i & 1) top(b + i);
  }
}

// ---- down columns -----------------------------------------------------------------------------------

// 64 neighbouring blocks down columns, of `height` rows: as many as fill cache lines of codes. False: not all
// are of these, and what was written means nothing. Under kAccept scales and codes are otherwise the recorded
// ones, and top(c) is told of each column with a code of the largest magnitude: most rows of 64 have one.
constexpr int64_t kPackedColumns = 64;
template <class F, bool kAccept, class Top>
HWY_INLINE bool packed_columns(const std::byte* x, size_t stride, std::byte* data, size_t to_stride,
                               int64_t height, std::byte* scales, Top top) {
  constexpr size_t kParts = kPackedColumns / kHalfLanes;
  // Not std::array: the constructors of NEON's vectors are inlined into functions compiled for NEON alone.
  Vh amax[kParts], offset[kParts];
  const auto halves = [&](int64_t row, size_t part) {
    return halves_at(x + static_cast<size_t>(row) * stride + part * kHalfLanes * 2);
  };
  for (size_t part = 0; part < kParts; ++part) amax[part] = half_magnitude(halves(0, part));
  for (int64_t i = 1; i < height; ++i)
    for (size_t part = 0; part < kParts; ++part)
      amax[part] = hn::Max(amax[part], half_magnitude(halves(i, part)));
  for (size_t part = 0; part < kParts; ++part) {
    const HalfScale scale = half_scale<F>(amax[part]);
    if (!half_scales_are_ordinary(amax[part], scale)) return false;
    offset[part] = HalfRounding<F>::offset(scale);
    const hn::Rebind<uint8_t, Dh> bytes;
    auto* const at = reinterpret_cast<uint8_t*>(scales + part * kHalfLanes);
    if constexpr (!kAccept) hn::StoreU(hn::DemoteTo(bytes, scale.k), bytes, at);
    else if (!hn::AllTrue(Dh(), hn::Eq(scale.k, hn::PromoteTo(Dh(), hn::LoadU(bytes, at))))) return false;
  }
  auto codes = HalfCodes<F, kAccept>::none();
  for (int64_t i = 0; i < height; ++i)
    for (size_t part = 0; part < kParts; ++part)
      codes.add(halves(i, part), offset[part], data + static_cast<size_t>(i) * to_stride + part * kHalfLanes);
  if (!codes.hold()) return false;
  for (size_t part = 0; kAccept && part < kParts; ++part) {
    const auto tops = with_top<F>(amax[part], offset[part]);
    if (HWY_LIKELY(hn::AllFalse(Dh(), tops))) continue;
    HWY_ALIGN std::array<int16_t, kHalfLanes> is_top;
    hn::Store(hn::VecFromMask(Dh(), tops), Dh(), is_top.data());
    for (size_t lane = 0; lane < kHalfLanes; ++lane)
      if (is_top[lane]) top(static_cast<int64_t>(part * kHalfLanes + lane));
  }
  return true;
}

// The largest magnitude of whole vectors of halves as bits of bf16; above kInfiniteHalf where a NaN is among
// them.
HWY_INLINE uint32_t packed_amax(const std::byte* x, int64_t vectors) {
  Vh most = hn::Zero(Dh());
  for (int64_t i = 0; i < vectors; ++i)
    most = hn::Max(most, half_magnitude(halves_at(x + static_cast<size_t>(i) * kHalfLanes * 2)));
  return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(Dh(), most)));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace assay::simd
HWY_AFTER_NAMESPACE();

#endif  // ASSAY_SIMD_PACKED
