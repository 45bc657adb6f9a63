// The kernels of MXFP8 with blocks of 32 elements (N5), compiled once for every instruction
// set (foreach_target.h includes this file again for each).
#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "fast/simd/kernels.h"
#include "fast/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fast/simd/mxfp8.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fast/simd/blocks.h"
#include "fast/simd/fp8_codes.h"
#include "fast/simd/halves.h"

HWY_BEFORE_NAMESPACE();
namespace assay::simd {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kBlock = 32;  // N5.1

// ---- in lanes of 16 bits: bf16, and others rounded to odd -------------------------------------------

// No element is above the largest number: the scale is such that the amax is not (N5.2, N5.3), and the
// largest number is one of bf16, so that rounding to odd leaves it below.
template <class F, bool kAccept> using BlockCodes = HalfCodes<F, kAccept, true>;

// Which blocks have a code of the largest magnitude: as rounding keeps the order, those whose amax has it.
template <class F> HWY_INLINE hn::Mask<Dh> with_top(Vh amax, Vh offset) {
  using Rounding = HalfRounding<F>;
  return hn::Eq(Rounding::counted(amax, offset), half(Rounding::kZero + F::kTop));
}

constexpr size_t kBlockParts = kBlock / kHalfLanes;  // vectors of a block
constexpr size_t kBlockBytes = kBlock * 2;           // of halves
HWY_INLINE Vh row_halves(const std::byte* x, size_t block, size_t part) {
  return halves_at(x + (block * kBlockParts + part) * kHalfLanes * 2);
}
// Lanes of which the largest is the amax of a block (N5.1); of a block with a NaN, that NaN.
HWY_INLINE Vh block_amaxes(const std::byte* x, size_t block) {
  return lane_amaxes<false>(Dh(), x + block * kBlockBytes, kBlockBytes);
}
template <class F, bool kAccept>
HWY_INLINE void add_block(BlockCodes<F, kAccept>& codes, const std::byte* x, size_t block, Vh offset,
                          std::byte* data) {
  for (size_t part = 0; part < kBlockParts; ++part)
    codes.add(row_halves(x, block, part), offset, data + (block * kBlockParts + part) * kHalfLanes);
}

// Blocks along a row in halves, which are written to `halves` where x has others.
template <class S>
HWY_INLINE const std::byte* blocks_in_halves(const std::byte* x, size_t count, std::byte* halves) {
  if constexpr (std::is_same_v<S, FromBf16>) return x;
  for (size_t i = 0; i < count * kBlockParts; ++i) {
    const std::byte* const from = x + i * kHalfLanes * S::kBytes;
    hn::Store(halves_of<S>(from), Dh(), reinterpret_cast<int16_t*>(halves) + i * kHalfLanes);
  }
  return halves;
}

// A block of 32. -1: it is not of these, and what was written means nothing; else its E8M0 code. Under
// kAccept its codes are then the recorded ones, too, and none is of the largest magnitude.
template <class F, bool kAccept> HWY_INLINE int packed_row_block(const std::byte* x, std::byte* data) {
  const Vh amax = hn::MaxOfLanes(Dh(), block_amaxes(x, 0));
  const HalfScale scale = half_scale<F>(amax);
  const Vh offset = HalfRounding<F>::offset(scale.exponent);
  auto codes = BlockCodes<F, kAccept>::none();
  add_block(codes, x, 0, offset, data);
  if (!half_scales_are_ordinary(amax, scale) || !codes.hold()) return -1;
  if (kAccept && !hn::AllFalse(Dh(), with_top<F>(amax, offset))) return -1;
  return hn::GetLane(scale.k);
}

constexpr size_t kTogether = 8;                // blocks that are judged together
constexpr size_t kMostRowBlocks = kHalfLanes;  // blocks whose scales are made at once

// Neighbouring blocks, a multiple of eight and at most kMostRowBlocks: `x` has their elements in halves,
// `tensor` as they are. Eight are judged together, no more: where one has a subnormal code, all of them are
// taken again. again(first, count) is told of blocks that are to be taken one by one: what was written of
// them means nothing. Under kAccept, scales and codes of the others are the recorded ones, and top(block) is
// told of each with a code of the largest magnitude.
template <class S, class F, bool kAccept, class Again, class Top>
HWY_INLINE void packed_row_blocks(const std::byte* x, const std::byte* tensor, std::byte* data,
                                  std::byte* scales, size_t count, Again again, Top top) {
  HWY_ALIGN std::array<int16_t, kMostRowBlocks> amaxes{}, offsets;
  HWY_ALIGN std::array<uint8_t, kMostRowBlocks> made;
  HWY_ALIGN std::array<uint8_t, 8> tops{};  // a bit for each block; StoreMaskBits may write 8 bytes
  for (size_t b = 0; b < count; b += kTogether)
    put_amaxes(
        Dh(), [&](size_t i) { return block_amaxes(x, b + i); }, amaxes.data() + b);
  const Vh amax = hn::Load(Dh(), amaxes.data());
  const HalfScale scale = half_scale<F>(amax);
  if (!half_scales_are_ordinary(amax, scale)) return again(0, count);
  const Vh offset = HalfRounding<F>::offset(scale.exponent);
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
    auto codes = BlockCodes<F, kAccept>::none();
    for (size_t i = b; i < b + kTogether; ++i) {
      fetch_ahead(tensor + i * kBlock * S::kBytes, kBlock * S::kBytes);
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
    offset[part] = HalfRounding<F>::offset(scale.exponent);
    const hn::Rebind<uint8_t, Dh> bytes;
    auto* const at = reinterpret_cast<uint8_t*>(scales + part * kHalfLanes);
    if constexpr (!kAccept) hn::StoreU(hn::DemoteTo(bytes, scale.k), bytes, at);
    else if (!hn::AllTrue(Dh(), hn::Eq(scale.k, hn::PromoteTo(Dh(), hn::LoadU(bytes, at))))) return false;
  }
  auto codes = BlockCodes<F, kAccept>::none();
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

// 64 neighbouring columns in halves, which are written to `halves` where x has others.
template <class S> HWY_INLINE ConstBytes columns_in_halves(ConstBytes x, int64_t height, std::byte* halves) {
  if constexpr (std::is_same_v<S, FromBf16>) return x;
  constexpr size_t stride = kPackedColumns * 2;
  for (size_t i = 0; i < static_cast<size_t>(height); ++i)
    for (size_t c = 0; c < kPackedColumns; c += kHalfLanes)
      hn::Store(halves_of<S>(x.first + i * x.stride + c * S::kBytes), Dh(),
                reinterpret_cast<int16_t*>(halves + i * stride) + c);
  return {halves, stride};
}

// ---- any codes, in lanes of 32 bits -----------------------------------------------------------------

// n vectors of one block or of a row of neighbouring blocks, `step` and `to_step` bytes apart in x and data.
template <class S, class F, bool kAccept, bool kLift>
HWY_INLINE Seen codes_with(const std::byte* x, size_t step, std::byte* data, size_t to_step, int64_t n, V k) {
  const M tiny = hn::Lt(k, constant(kTinyScale));
  if constexpr (kLift) k = hn::Add(k, hn::IfThenElseZero(tiny, constant(64)));
  Seen seen = Seen::nothing();
  for (int64_t i = 0; i < n; ++i) {
    const V bits = S::load(x + static_cast<size_t>(i) * step);
    V a = magnitude(bits);
    if constexpr (kLift) a = lifted(a, tiny);
    const V code = code_of<F>(a, k);
    std::byte* const to = data + static_cast<size_t>(i) * to_step;
    if constexpr (kAccept) seen.add<F>(code, bits, to);
    else write(whole_code<F>(code, a, bits), to);
  }
  return seen;
}
template <class S, class F, bool kAccept>
HWY_INLINE Seen codes_of(const std::byte* x, size_t step, std::byte* data, size_t to_step, int64_t n, V k) {
  if (HWY_LIKELY(hn::AllFalse(D(), hn::Lt(k, constant(kTinyScale)))))
    return codes_with<S, F, kAccept, false>(x, step, data, to_step, n, k);
  return codes_with<S, F, kAccept, true>(x, step, data, to_step, n, k);
}

// What is made of a block along a row: its scale as it is stored.
struct RowBlock {
  uint32_t scale;
  Doubt doubt;
};
template <class S, class F, bool kAccept> HWY_INLINE RowBlock row_block(const std::byte* x, std::byte* data) {
  constexpr size_t lanes = hn::MaxLanes(D());
  constexpr int64_t vectors = kBlock / static_cast<int64_t>(lanes);
  HWY_ALIGN std::array<std::byte, kBlockBytes> halves;
  if (const int k = packed_row_block<F, kAccept>(blocks_in_halves<S>(x, 1, halves.data()), data);
      HWY_LIKELY(k >= 0))
    return {static_cast<uint32_t>(k), {}};
  V most = hn::Zero(D());
  for (int64_t i = 0; i < vectors; ++i)
    most = amax_step(most, magnitude(S::load(x + static_cast<size_t>(i) * lanes * S::kBytes)));
  const V k = scale_of<F>(hn::MaxOfLanes(D(), most));
  const auto scale = static_cast<uint32_t>(hn::GetLane(k));
  const Seen seen = codes_of<S, F, kAccept>(x, lanes * S::kBytes, data, lanes, vectors, k);
  return {scale, kAccept ? seen.of_block<F>(k, vectors) : Doubt{}};
}

template <class S, class F, bool kAccept> void rows_of(const Job& job) {
  const int64_t whole = job.cols / kBlock, rest = job.cols % kBlock;
  HWY_ALIGN std::array<std::byte, kBlock * 4> x{};  // of the last block of a row, where it is shorter
  HWY_ALIGN std::array<std::byte, kBlock> data{};
  HWY_ALIGN std::array<std::byte, kMostRowBlocks * kBlockBytes> halves;
  for (int64_t r = 0; r < job.rows; ++r) {
    const std::byte* const from = job.x.first + static_cast<size_t>(r) * job.x.stride;
    std::byte* const to = job.data.first + static_cast<size_t>(r) * job.data.stride;
    std::byte* const scales = job.scales.first + static_cast<size_t>(r) * job.scales.stride;
    const auto put = [&](int64_t b, RowBlock made) {
      const auto scale = static_cast<std::byte>(made.scale);
      if (!kAccept) scales[b] = scale;
      else if (made.doubt.any() || scale != scales[b]) job.doubt(r, b, made.doubt, scale != scales[b]);
    };
    const auto one_by_one = [&](size_t first, size_t end) {
      for (size_t b = first; b < end; ++b)
        put(static_cast<int64_t>(b),
            row_block<S, F, kAccept>(from + b * kBlock * S::kBytes, to + b * kBlock));
    };
    size_t done = 0;
    const size_t end = static_cast<size_t>(whole) / kTogether * kTogether;
    for (size_t count = 0; done < end; done += count) {
      count = std::min(kMostRowBlocks, end - done);
      const auto again = [&](size_t b, size_t n) { one_by_one(done + b, done + b + n); };
      const auto top = [&](size_t b) { job.doubt(r, static_cast<int64_t>(done + b), {true, 0, 0}, false); };
      const std::byte* const x = from + done * kBlock * S::kBytes;
      packed_row_blocks<S, F, kAccept>(blocks_in_halves<S>(x, count, halves.data()), x, to + done * kBlock,
                                       scales + done, count, again, top);
    }
    one_by_one(done, static_cast<size_t>(whole));
    if (!rest) continue;
    std::memcpy(x.data(), from + static_cast<size_t>(whole * kBlock) * S::kBytes,
                static_cast<size_t>(rest) * S::kBytes);
    if (kAccept) std::memcpy(data.data(), to + whole * kBlock, static_cast<size_t>(rest));
    put(whole, row_block<S, F, kAccept>(x.data(), data.data()));
    if (!kAccept) std::memcpy(to + whole * kBlock, data.data(), static_cast<size_t>(rest));
  }
}

// As many neighbouring blocks down columns as a vector has lanes, of `height` rows.
template <class S, class F, bool kAccept>
HWY_INLINE void column_blocks(const std::byte* x, size_t stride, std::byte* data, size_t to_stride,
                              int64_t height, Columns& made) {
  V most = hn::Zero(D());
  for (int64_t i = 0; i < height; ++i)
    most = amax_step(most, magnitude(S::load(x + static_cast<size_t>(i) * stride)));
  const V k = scale_of<F>(most);
  hn::Store(k, D(), made.scales.data());
  made.put<F>(codes_of<S, F, kAccept>(x, stride, data, to_stride, height, k), k);
}

template <class S, class F, bool kAccept> void columns_of(const Job& job) {
  constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(D()));
  Columns made;
  HWY_ALIGN std::array<std::byte, kBlock * lanes * 4> x{};  // of the last columns, where they fill no vector
  HWY_ALIGN std::array<std::byte, kBlock * lanes> data{};
  HWY_ALIGN std::array<std::byte, kBlock * kPackedColumns * 2> halves;
  for (int64_t r = 0; r < job.rows; r += kBlock) {
    const int64_t height = std::min(kBlock, job.rows - r);
    std::byte* const scales = job.scales.first + static_cast<size_t>(r / kBlock) * job.scales.stride;
    for (int64_t c = 0, done = lanes; c < job.cols; c += done) {
      const int64_t width = std::min(lanes, job.cols - c);
      const std::byte* from =
          job.x.first + static_cast<size_t>(r) * job.x.stride + static_cast<size_t>(c) * S::kBytes;
      std::byte* const to = job.data.first + static_cast<size_t>(r) * job.data.stride + c;
      const auto top = [&](int64_t at) { job.doubt(r / kBlock, c + at, {true, 0, 0}, false); };
      const auto taken = [&] {
        const ConstBytes x = columns_in_halves<S>({from, job.x.stride}, height, halves.data());
        return packed_columns<F, kAccept>(x.first, x.stride, to, job.data.stride, height, scales + c, top);
      };
      const bool packed = job.cols - c >= kPackedColumns && taken();
      done = packed ? kPackedColumns : lanes;
      if (packed) continue;
      if (width == lanes) {
        column_blocks<S, F, kAccept>(from, job.x.stride, to, job.data.stride, height, made);
      } else {
        const size_t step = static_cast<size_t>(lanes) * S::kBytes, to_step = static_cast<size_t>(lanes);
        for (int64_t i = 0; i < height; ++i) {
          std::memcpy(x.data() + static_cast<size_t>(i) * step, from + static_cast<size_t>(i) * job.x.stride,
                      static_cast<size_t>(width) * S::kBytes);
          if (kAccept)
            std::memcpy(data.data() + static_cast<size_t>(i) * to_step,
                        to + static_cast<size_t>(i) * job.data.stride, static_cast<size_t>(width));
        }
        column_blocks<S, F, kAccept>(x.data(), step, data.data(), to_step, height, made);
        for (int64_t i = 0; !kAccept && i < height; ++i)
          std::memcpy(to + static_cast<size_t>(i) * job.data.stride,
                      data.data() + static_cast<size_t>(i) * to_step, static_cast<size_t>(width));
      }
      for (int64_t i = 0; i < width; ++i) {
        const auto scale = static_cast<std::byte>(made.scales[static_cast<size_t>(i)]);
        if (!kAccept) {
          scales[c + i] = scale;
          continue;
        }
        const Doubt doubt = made.of(static_cast<size_t>(i), height);
        if (doubt.any() || scale != scales[c + i])
          job.doubt(r / kBlock, c + i, doubt, scale != scales[c + i]);
      }
    }
  }
}

template <class S, class F, bool kAccept> void directed(const Job& job) {
  if (job.columns) columns_of<S, F, kAccept>(job);
  else rows_of<S, F, kAccept>(job);
}
template <class S, class F> void asked(const Job& job) {
  if (job.unknown) directed<S, F, true>(job);
  else directed<S, F, false>(job);
}
template <class S> void of_source(const Job& job) {
  if (job.element == Element::e4m3) asked<S, E4m3>(job);
  else asked<S, E5m2>(job);
}

}  // namespace

void run_mxfp8(const Job& job) {
  with_source(job.source, [&](auto source) { of_source<decltype(source)>(job); });
}

}  // namespace HWY_NAMESPACE
}  // namespace assay::simd
HWY_AFTER_NAMESPACE();
