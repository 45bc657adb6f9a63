// The kernels of MXFP4 with blocks of 32 elements along the contracted dimension (N15), compiled once for
// every instruction set (foreach_target.h includes this file again for each).
#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "fast/simd/kernels.h"
#include "fast/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fast/simd/mxfp4.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fast/simd/fp4_steps.h"
#include "fast/simd/halves.h"

HWY_BEFORE_NAMESPACE();
namespace assay::simd {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kBlock = 32;  // N15.1
constexpr size_t kCodeBytes = 2 * kWordBytes;
constexpr size_t kLanes = hn::MaxLanes(D());
constexpr size_t kPairs = kCodeBytes / kLanes;  // vectors of a block's even elements
using BlockCodes = std::array<std::byte, kCodeBytes>;

// What is made of a block beside its codes. `rare`: it has a NaN, an infinity or a tiny scale.
struct Made {
  int32_t scale;
  bool rare;
};

// ---- bf16 in lanes of 16 bits -----------------------------------------------------------------------

// The code of y = |x| / 2^k, as bits of bf16 that may be negative where y is tiny (N2.1, N2.5). Of 1 and more
// it is y's upper bits, rounded as those of MXFP8 are; below, the number of midpoints that y passes: 1/4,
// whose code is even, and 3/4, whose code is odd.
HWY_INLINE Vh half_code(Vh y) {
  const Vh odd = hn::And(hn::ShiftRight<6>(y), half(1));
  const Vh large = hn::ShiftRight<6>(hn::Add(hn::Add(y, half(31 - (126 << 7))), odd));
  const Vh small =
      hn::Add(hn::VecFromMask(Dh(), hn::Gt(y, half(0x3E80))), hn::VecFromMask(Dh(), hn::Gt(y, half(0x3F3F))));
  return hn::Max(large, hn::Neg(small));
}

// False: the block is left to codes_of_block(). Words: lanes of two codes; Highway compiles the file for a
// target of one lane as well, which has none.
template <class Words = hn::Repartition<uint32_t, Dh>>
HWY_INLINE bool packed_block(const std::byte* x, BlockCodes& codes, int32_t& k) {
  constexpr size_t kParts = kBlock / kHalfLanes;
  Vh bits[kParts];  // no std::array, as in mxfp8.cpp
  Vh most = hn::Zero(Dh());
  for (size_t i = 0; i < kParts; ++i) {
    bits[i] = halves_at(x + i * kHalfLanes * 2);
    most = hn::Max(most, half_magnitude(bits[i]));
  }
  const Vh amax = hn::MaxOfLanes(Dh(), most);
  const HalfScale scale = half_scale<E2m1>(amax);
  k = hn::GetLane(scale.k);
  if (!half_scales_are_ordinary(amax, scale)) return false;
  const Vh moved = hn::ShiftLeft<7>(hn::Sub(scale.exponent, half(kOne)));
  const Words words;
  const hn::Rebind<uint8_t, Words> bytes;
  for (size_t i = 0; i < kParts; ++i) {
    const Vh code = half_code(hn::Sub(half_magnitude(bits[i]), moved));
    const Vh whole = hn::Or(code, hn::And(hn::ShiftRight<12>(bits[i]), half(8)));
    const auto two = hn::BitCast(words, whole);
    const auto joined = hn::And(hn::Or(two, hn::ShiftRight<12>(two)), hn::Set(words, 0xFFu));  // N6.8
    hn::StoreU(hn::TruncateTo(bytes, joined), bytes,
               reinterpret_cast<uint8_t*>(codes.data()) + i * kHalfLanes / 2);
  }
  return true;
}

// ---- any source, in lanes of 32 bits ----------------------------------------------------------------

// The code of |x| * 2^(127 - k) with its sign. `most` keeps the largest magnitude's bits.
HWY_INLINE V element(V x, V k, M tiny, V& most) {
  const V a = magnitude(x);
  most = hn::Max(most, a);
  return whole_code<E2m1>(code_of<E2m1>(lifted(a, tiny), k), a, x);
}

// The E8M0 codes of blocks, and what their elements are taken with. `rare`: a tiny scale, but of zeros.
struct Scales {
  V k, lifted_k;
  M tiny, rare;
};
HWY_INLINE Scales scales_of(V amax) {
  const V k = scale_of<E2m1>(amax);
  const M tiny = hn::Lt(k, constant(kTinyScale));
  return {k, hn::Add(k, hn::IfThenElseZero(tiny, constant(64))), tiny,
          hn::And(tiny, hn::Gt(amax, hn::Zero(D())))};
}
// -1 where a block has a tiny scale, or an infinity or a NaN, which `most` shows.
HWY_INLINE V rare_blocks(const Scales& s, V most) {
  return hn::VecFromMask(D(), hn::Or(s.rare, hn::Gt(most, constant(kInf - 1))));
}

template <class S> HWY_INLINE Made codes_of_block(const std::byte* x, BlockCodes& codes) {
  V most = hn::Zero(D());
  const auto pairs = [&](size_t i) { return load_pairs<S>(x + i * 2 * kLanes * S::kBytes); };
  for (size_t i = 0; i < kPairs; ++i)
    most = amax_step(amax_step(most, magnitude(pairs(i).even)), magnitude(pairs(i).odd));
  const Scales s = scales_of(hn::MaxOfLanes(D(), most));
  for (size_t i = 0; i < kPairs; ++i) {
    const V even = element(pairs(i).even, s.lifted_k, s.tiny, most),
            odd = element(pairs(i).odd, s.lifted_k, s.tiny, most);
    write(hn::Or(even, hn::ShiftLeft<4>(odd)), codes.data() + i * kLanes);  // N6.8
  }
  return {hn::GetLane(s.k), !hn::AllTrue(D(), hn::Eq(rare_blocks(s, most), hn::Zero(D())))};
}

// ---- blocks along rows ------------------------------------------------------------------------------

// How the n recorded codes of a block differ from those that were made.
HWY_INLINE Doubt difference_of_block(const BlockCodes& made, const BlockCodes& recorded, int64_t n) {
  Doubt out;
  for (int64_t word = 0; word < 2; ++word) {
    const auto at = static_cast<size_t>(word) * kWordBytes;
    const int64_t length = std::clamp<int64_t>(n - 16 * word, 0, 16);
    if (length == 0 || std::memcmp(made.data() + at, recorded.data() + at, kWordBytes) == 0) continue;
    const Doubt found = difference(made.data() + at, recorded.data() + at, length);
    if (out.differ == 0 && found.differ) out.first = static_cast<int32_t>(16 * word) + found.first;
    out.differ += found.differ;
    out.special |= found.special;
  }
  return out;
}

// A block of n elements; the last one of a row may be shorter than 32.
template <class S, bool kAccept>
HWY_INLINE void row_block(const Job& job, const std::byte* x, std::byte* data, int64_t n, int64_t row,
                          int64_t block) {
  HWY_ALIGN BlockCodes codes;
  HWY_ALIGN std::array<std::byte, kBlock * 4> filled;
  const auto width = static_cast<size_t>(n) * S::kBytes, bytes = static_cast<size_t>(n + 1) / 2;
  if (n < kBlock) {  // zeros change neither its scale nor its other codes
    filled.fill(std::byte{0});
    std::memcpy(filled.data(), x, width);
    x = filled.data();
  }
  Made made{0, false};
  bool done = false;
  if constexpr (std::is_same_v<S, FromBf16> && kHalfLanes > 1) done = packed_block(x, codes, made.scale);
  if (!done) made = codes_of_block<S>(x, codes);
  std::byte& scale =
      job.scales.first[static_cast<size_t>(row) * job.scales.stride + static_cast<size_t>(block)];
  const auto stored = static_cast<std::byte>(made.scale);
  if constexpr (!kAccept) {
    std::memcpy(data, codes.data(), bytes);
    scale = stored;
    return;
  }
  BlockCodes recorded{};
  std::memcpy(recorded.data(), data, bytes);
  Doubt doubt;
  if (recorded != codes) doubt = difference_of_block(codes, recorded, n);
  doubt.first = 0;  // said of columns alone
  doubt.special |= made.rare;
  if (doubt.any() || scale != stored) job.doubt(row, block, doubt, scale != stored);
}

template <class S, bool kAccept> void rows_of(const Job& job) {
  for (int64_t r = 0; r < job.rows; ++r) {
    const std::byte* const from = job.x.first + static_cast<size_t>(r) * job.x.stride;
    std::byte* const to = job.data.first + static_cast<size_t>(r) * job.data.stride;
    for (int64_t b = 0, c = 0; c < job.cols; ++b, c += kBlock)
      row_block<S, kAccept>(job, from + static_cast<size_t>(c) * S::kBytes, to + c / 2,
                            std::min(kBlock, job.cols - c), r, b);
  }
}

// ---- blocks down columns, stored as rows (N15.4) -----------------------------------------------------

// As many neighbouring blocks as a vector has lanes, of `height` rows.
template <class S, bool kAccept>
HWY_INLINE void column_blocks(const Job& job, const std::byte* x, size_t stride, int64_t r, int64_t c,
                              int64_t height, int64_t width) {
  constexpr size_t kWords = kCodeBytes / 4;  // of eight codes
  HWY_ALIGN std::array<std::array<int32_t, kLanes>, kWords> words{};
  HWY_ALIGN std::array<int32_t, kLanes> scales, rare;
  const auto row = [&](int64_t i) { return S::load(x + static_cast<size_t>(i) * stride); };
  V most = hn::Zero(D());
  for (int64_t i = 0; i < height; ++i) most = amax_step(most, magnitude(row(i)));
  const Scales s = scales_of(most);
  for (int64_t i = 0; i < height; i += 8) {
    V word = hn::Zero(D());
    for (int64_t j = i; j < std::min(i + 8, height); ++j)
      word = hn::Or(
          word, hn::ShiftLeftSame(element(row(j), s.lifted_k, s.tiny, most), static_cast<int>(4 * (j - i))));
    hn::Store(word, D(), words[static_cast<size_t>(i / 8)].data());
  }
  hn::Store(s.k, D(), scales.data());
  hn::Store(rare_blocks(s, most), D(), rare.data());
  for (int64_t i = 0; i < width; ++i) {
    const auto lane = static_cast<size_t>(i), column = static_cast<size_t>(c + i);
    BlockCodes codes;
    for (size_t w = 0; w < kWords; ++w) std::memcpy(codes.data() + 4 * w, &words[w][lane], 4);
    const auto bytes = static_cast<size_t>(height + 1) / 2;
    std::byte* const to = job.data.first + column * job.data.stride + static_cast<size_t>(r / 2);
    std::byte& stored = job.scales.first[column * job.scales.stride + static_cast<size_t>(r / kBlock)];
    const auto scale = static_cast<std::byte>(scales[lane]);
    if (!kAccept) {
      std::memcpy(to, codes.data(), bytes);
      stored = scale;
      continue;
    }
    BlockCodes recorded{};
    std::memcpy(recorded.data(), to, bytes);
    Doubt doubt;
    if (recorded != codes) doubt = difference_of_block(codes, recorded, height);
    doubt.special |= rare[lane] != 0;
    if (doubt.any() || stored != scale) job.doubt(r / kBlock, c + i, doubt, stored != scale);
  }
}

template <class S, bool kAccept> void columns_of(const Job& job) {
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  std::array<std::byte, kBlock * kLanes * 4> x{};  // of the last columns, where they fill no vector
  for (int64_t r = 0; r < job.rows; r += kBlock)
    for (int64_t c = 0; c < job.cols; c += lanes) {
      const int64_t height = std::min(kBlock, job.rows - r), width = std::min(lanes, job.cols - c);
      const std::byte* const from =
          job.x.first + static_cast<size_t>(r) * job.x.stride + static_cast<size_t>(c) * S::kBytes;
      if (width == lanes) {
        column_blocks<S, kAccept>(job, from, job.x.stride, r, c, height, width);
        continue;
      }
      constexpr size_t step = kLanes * S::kBytes;
      for (int64_t i = 0; i < height; ++i)
        std::memcpy(x.data() + static_cast<size_t>(i) * step, from + static_cast<size_t>(i) * job.x.stride,
                    static_cast<size_t>(width) * S::kBytes);
      column_blocks<S, kAccept>(job, x.data(), step, r, c, height, width);
    }
}

template <class S, bool kAccept> void directed(const Job& job) {
  if (job.columns) columns_of<S, kAccept>(job);
  else rows_of<S, kAccept>(job);
}
template <class S> void asked(const Job& job) {
  if (job.unknown) directed<S, true>(job);
  else directed<S, false>(job);
}

}  // namespace

void run_mxfp4(const Job& job) {
  with_source(job.source, [&](auto source) { asked<decltype(source)>(job); });
}

}  // namespace HWY_NAMESPACE
}  // namespace assay::simd
HWY_AFTER_NAMESPACE();
