// The kernels of NVFP4 with blocks of 16 elements along the contracted dimension (N10), compiled once for
// every instruction set (foreach_target.h includes this file again for each).
#include <algorithm>
#include <array>
#include <cstring>

#include "fast/simd/kernels.h"
#include "fast/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fast/simd/nvfp4.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fast/simd/fp4_steps.h"

HWY_BEFORE_NAMESPACE();
namespace assay::simd {
namespace HWY_NAMESPACE {
namespace {

using F = hn::Vec<W>;

constexpr int64_t kBlock = 16;                  // N10.4
constexpr size_t kCodeBytes = kWordBytes;       // of a block
constexpr int32_t kMostFinite = 0x7F7FFFFF;     // FLT_MAX
constexpr size_t kLanes = hn::MaxLanes(D());    // 8, or 4
constexpr size_t kParts = kCodeBytes / kLanes;  // vectors of a block's even elements
constexpr int64_t kRun = 8;                     // blocks of a row whose scales are made together
constexpr size_t kRunParts = kRun / kLanes;

HWY_INLINE F floats(V bits) { return hn::BitCast(W(), bits); }
HWY_INLINE V bits_of(F values) { return hn::BitCast(D(), values); }
// min(v, FLT_MAX) of a v without a sign; a NaN is dropped (N10.3).
HWY_INLINE V finite(F v) { return hn::Min(bits_of(v), constant(kMostFinite)); }

// What a tensor's amax gives for all its blocks: the encode scale S, m and D (N10.2, N10.5, N10.7).
struct TensorScale {
  F encode, scale_multiplier, decode;
};
HWY_INLINE TensorScale tensor_scale(V amax) {
  const F one = hn::Set(W(), 1.0f);
  const F quotient = hn::Div(hn::Set(W(), 448.0f * 6.0f), floats(amax));
  V s = finite(quotient);
  const M unit = hn::Or(hn::Eq(amax, hn::Zero(D())), hn::Eq(s, hn::Zero(D())));
  s = hn::IfThenElse(unit, bits_of(one), s);
  return {floats(s), hn::Mul(floats(s), floats(constant(0x3E2AAAAB))), hn::Div(one, floats(s))};
}

// The stored scale of blocks and the factor of their elements (N10.6, N10.8).
struct BlockScale {
  V code, multiplier;
};
HWY_INLINE BlockScale block_scale(V amax, const TensorScale& t) {
  const V v = finite(hn::Mul(floats(amax), t.scale_multiplier));
  const V code = code_of<E4m3>(v, constant(kOne));
  constexpr int32_t kLift = (kOne - E4m3::kBias) << 23;
  const V normal = hn::Add(hn::ShiftLeft<23 - E4m3::kMantissa>(code), constant(kLift));
  const F subnormal = hn::Mul(hn::ConvertTo(W(), code), hn::Set(W(), 0x1p-9f));
  const F value = hn::IfThenElse(hn::RebindMask(W(), hn::Lt(code, constant(8))), subnormal, floats(normal));
  return {code, finite(hn::Div(hn::Set(W(), 1.0f), hn::Mul(value, t.decode)))};
}
// Not 0 where the scale is subnormal, or 0 though the amax is not, or the largest one; or the amax infinite.
HWY_INLINE V special(V code, V amax) {
  const M small = hn::And(hn::Lt(code, constant(8)), hn::Gt(amax, hn::Zero(D())));
  const M large = hn::Or(hn::Gt(code, constant(E4m3::kTop - 1)), hn::Gt(amax, constant(kInf - 1)));
  return hn::VecFromMask(D(), hn::Or(small, large));
}

// The code of fl(x * multiplier) with its sign (N10.9). `most` keeps the largest magnitude's bits.
HWY_INLINE V element(V x, F multiplier, V& most) {
  const V y = bits_of(hn::Mul(floats(x), multiplier));
  const V a = magnitude(y);
  most = hn::Max(most, a);
  return whole_code<E2m1>(code_of<E2m1>(a, constant(kOne)), a, y);
}

// ---- blocks along rows ----------------------------------------------------------------------------

// Where the blocks of a run lie: 16 elements, and 8 bytes of codes. The last block of a row may be shorter:
// it stands in `x` and `codes`, filled up with zeros, which change neither its scale nor its other codes.
struct Run {
  std::array<const std::byte*, kRun> x;
  std::array<std::byte*, kRun> data;
};

template <class S> HWY_INLINE int32_t amax_of_block(const std::byte* x) {
  V most = hn::Zero(D());
  for (size_t i = 0; i < kParts; ++i) {
    const Pairs p = load_pairs<S>(x + i * 2 * kLanes * S::kBytes);
    most = amax_step(amax_step(most, magnitude(p.even)), magnitude(p.odd));
  }
  return hn::GetLane(hn::MaxOfLanes(D(), most));
}

// Writes the codes of a block, or says how the n recorded ones differ.
template <class S, bool kAccept>
HWY_INLINE Doubt block_codes(const std::byte* x, std::byte* data, float multiplier, int64_t n) {
  HWY_ALIGN std::array<std::byte, kCodeBytes> made;
  const F factor = hn::Set(W(), multiplier);
  V most = hn::Zero(D());
  for (size_t i = 0; i < kParts; ++i) {
    const Pairs p = load_pairs<S>(x + i * 2 * kLanes * S::kBytes);
    const V even = element(p.even, factor, most), odd = element(p.odd, factor, most);
    write(hn::Or(even, hn::ShiftLeft<4>(odd)), made.data() + i * kLanes);  // N6.8
  }
  if constexpr (!kAccept) {
    std::memcpy(data, made.data(), kCodeBytes);
    return {};
  }
  Doubt doubt;
  if (std::memcmp(data, made.data(), kCodeBytes) != 0) doubt = difference(made.data(), data, n);
  doubt.first = 0;  // said of columns alone
  doubt.special |= !hn::AllTrue(D(), hn::Lt(most, constant(kInf)));
  return doubt;
}

template <class S, bool kAccept>
HWY_INLINE void run_of_blocks(const Nvfp4Job& job, const TensorScale& tensor, const Run& run, int64_t n,
                              int64_t row, int64_t first) {
  HWY_ALIGN std::array<int32_t, kRun> amaxes{}, codes, doubts;
  HWY_ALIGN std::array<float, kRun> multipliers;
  for (int64_t j = 0; j < n; ++j)
    amaxes[static_cast<size_t>(j)] = amax_of_block<S>(run.x[static_cast<size_t>(j)]);
  for (size_t i = 0; i < kRunParts; ++i) {
    const V amax = hn::Load(D(), amaxes.data() + i * kLanes);
    const BlockScale scale = block_scale(amax, tensor);
    hn::Store(scale.code, D(), codes.data() + i * kLanes);
    hn::Store(floats(scale.multiplier), W(), multipliers.data() + i * kLanes);
    hn::Store(special(scale.code, amax), D(), doubts.data() + i * kLanes);
  }
  std::byte* const scales = job.scales.first + static_cast<size_t>(row) * job.scales.stride + first;
  for (int64_t j = 0; j < n; ++j) {
    const auto at = static_cast<size_t>(j);
    const int64_t length = std::min(kBlock, job.cols - (first + j) * kBlock);
    Doubt doubt = block_codes<S, kAccept>(run.x[at], run.data[at], multipliers[at], length);
    const auto scale = static_cast<std::byte>(codes[at]);
    if (!kAccept) {
      scales[j] = scale;
      continue;
    }
    doubt.special |= doubts[at] != 0;
    if (doubt.any() || scales[j] != scale) job.doubt(row, first + j, doubt, scales[j] != scale);
  }
}

template <class S, bool kAccept> void rows_of(const Nvfp4Job& job) {
  const TensorScale tensor = tensor_scale(constant(static_cast<int32_t>(job.amax)));
  const int64_t blocks = (job.cols + kBlock - 1) / kBlock, rest = job.cols % kBlock;
  const auto width = static_cast<size_t>(rest) * S::kBytes, bytes = static_cast<size_t>(rest + 1) / 2;
  std::array<std::byte, kBlock * 4> x{};
  std::array<std::byte, kCodeBytes> data{};
  Run run{};
  for (int64_t r = 0; r < job.rows; ++r) {
    const std::byte* const from = job.x.first + static_cast<size_t>(r) * job.x.stride;
    std::byte* const to = job.data.first + static_cast<size_t>(r) * job.data.stride;
    for (int64_t b = 0; b < blocks; b += kRun) {
      const int64_t n = std::min(kRun, blocks - b);
      for (size_t j = 0; j < static_cast<size_t>(n); ++j) {
        run.x[j] = from + (static_cast<size_t>(b) + j) * kBlock * S::kBytes;
        run.data[j] = to + (static_cast<size_t>(b) + j) * kCodeBytes;
      }
      const bool short_block = rest && b + n == blocks;
      const auto last = static_cast<size_t>(n - 1);
      std::byte* const there = run.data[last];
      if (short_block) {
        std::memcpy(x.data(), run.x[last], width);
        if (kAccept) std::memcpy(data.data(), there, bytes);
        run.x[last] = x.data();
        run.data[last] = data.data();
      }
      run_of_blocks<S, kAccept>(job, tensor, run, n, r, b);
      if (!kAccept && short_block) std::memcpy(there, data.data(), bytes);
    }
  }
}

// ---- blocks down columns, stored as rows (N6.1) -----------------------------------------------------

// As many neighbouring blocks as a vector has lanes, of `height` rows.
template <class S, bool kAccept>
HWY_INLINE void column_blocks(const Nvfp4Job& job, const TensorScale& tensor, const std::byte* x,
                              size_t stride, int64_t r, int64_t c, int64_t height, int64_t width) {
  HWY_ALIGN std::array<int32_t, kLanes> scales, doubts;
  HWY_ALIGN std::array<std::array<int32_t, kLanes>, 2> halves;  // the first four bytes of codes, and the rest
  V amax = hn::Zero(D());
  for (int64_t i = 0; i < height; ++i)
    amax = amax_step(amax, magnitude(S::load(x + static_cast<size_t>(i) * stride)));
  const BlockScale scale = block_scale(amax, tensor);
  V most = hn::Zero(D());
  V first = hn::Zero(D()), second = first;  // eight codes each
  for (int64_t i = 0; i < height; ++i) {
    const V code = element(S::load(x + static_cast<size_t>(i) * stride), floats(scale.multiplier), most);
    const V placed = hn::ShiftLeftSame(code, static_cast<int>(4 * (i % 8)));
    if (i < 8) first = hn::Or(first, placed);
    else second = hn::Or(second, placed);
  }
  hn::Store(first, D(), halves[0].data());
  hn::Store(second, D(), halves[1].data());
  hn::Store(scale.code, D(), scales.data());
  const V infinite = hn::VecFromMask(D(), hn::Gt(most, constant(kInf - 1)));
  hn::Store(hn::Or(special(scale.code, amax), infinite), D(), doubts.data());
  const auto bytes = static_cast<size_t>(height + 1) / 2;
  for (int64_t k = 0; k < width; ++k) {
    const auto lane = static_cast<size_t>(k), row = static_cast<size_t>(c + k);
    std::array<std::byte, kCodeBytes> codes;
    std::memcpy(codes.data(), &halves[0][lane], 4);
    std::memcpy(codes.data() + 4, &halves[1][lane], 4);
    std::byte* const to = job.data.first + row * job.data.stride + static_cast<size_t>(r / 2);
    std::byte& stored = job.scales.first[row * job.scales.stride + static_cast<size_t>(r / kBlock)];
    const auto made = static_cast<std::byte>(scales[lane]);
    if (!kAccept) {
      std::memcpy(to, codes.data(), bytes);
      stored = made;
      continue;
    }
    Doubt doubt;
    std::array<std::byte, kCodeBytes> recorded{};
    std::memcpy(recorded.data(), to, bytes);
    if (recorded != codes) doubt = difference(codes.data(), recorded.data(), height);
    doubt.special |= doubts[lane] != 0;
    if (doubt.any() || stored != made) job.doubt(r / kBlock, c + k, doubt, stored != made);
  }
}

template <class S, bool kAccept> void columns_of(const Nvfp4Job& job) {
  const TensorScale tensor = tensor_scale(constant(static_cast<int32_t>(job.amax)));
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  std::array<std::byte, kBlock * kLanes * 4> x{};  // of the last columns, where they fill no vector
  for (int64_t r = 0; r < job.rows; r += kBlock)
    for (int64_t c = 0; c < job.cols; c += lanes) {
      const int64_t height = std::min(kBlock, job.rows - r), width = std::min(lanes, job.cols - c);
      const std::byte* const from =
          job.x.first + static_cast<size_t>(r) * job.x.stride + static_cast<size_t>(c) * S::kBytes;
      if (width == lanes) {
        column_blocks<S, kAccept>(job, tensor, from, job.x.stride, r, c, height, width);
        continue;
      }
      constexpr size_t step = kLanes * S::kBytes;
      for (int64_t i = 0; i < height; ++i)
        std::memcpy(x.data() + static_cast<size_t>(i) * step, from + static_cast<size_t>(i) * job.x.stride,
                    static_cast<size_t>(width) * S::kBytes);
      column_blocks<S, kAccept>(job, tensor, x.data(), step, r, c, height, width);
    }
}

template <class S, bool kAccept> void directed(const Nvfp4Job& job) {
  if (job.columns) columns_of<S, kAccept>(job);
  else rows_of<S, kAccept>(job);
}
template <class S> void asked(const Nvfp4Job& job) {
  if (job.unknown) directed<S, true>(job);
  else directed<S, false>(job);
}

}  // namespace

void run_nvfp4(const Nvfp4Job& job) {
  with_source(job.source, [&](auto source) { asked<decltype(source)>(job); });
}

void run_nvfp4_chain(const uint32_t* amaxes, Nvfp4Chain* out, int64_t count) {
  HWY_ALIGN std::array<int32_t, kLanes> tensors{}, blocks{}, encode, codes, multipliers;
  for (int64_t first = 0; first < count; first += static_cast<int64_t>(kLanes)) {
    const auto n = static_cast<size_t>(std::min(static_cast<int64_t>(kLanes), count - first));
    for (size_t i = 0; i < n; ++i) {
      tensors[i] = static_cast<int32_t>(amaxes[2 * (static_cast<size_t>(first) + i)]);
      blocks[i] = static_cast<int32_t>(amaxes[2 * (static_cast<size_t>(first) + i) + 1]);
    }
    const TensorScale tensor = tensor_scale(magnitude(hn::Load(D(), tensors.data())));
    const BlockScale scale = block_scale(magnitude(hn::Load(D(), blocks.data())), tensor);
    hn::Store(bits_of(tensor.encode), D(), encode.data());
    hn::Store(scale.code, D(), codes.data());
    hn::Store(scale.multiplier, D(), multipliers.data());
    for (size_t i = 0; i < n; ++i)
      out[static_cast<size_t>(first) + i] = {static_cast<uint32_t>(encode[i]),
                                             static_cast<uint32_t>(multipliers[i]),
                                             static_cast<uint8_t>(codes[i])};
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace assay::simd
HWY_AFTER_NAMESPACE();
