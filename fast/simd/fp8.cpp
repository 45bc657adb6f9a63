// The kernels of FP8 with scales of binary32 (N3, N9), compiled once for every instruction set
// (foreach_target.h includes this file again for each).
#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "fast/simd/kernels.h"
#include "fast/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fast/simd/fp8.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fast/simd/blocks.h"
#include "fast/simd/fp8_codes.h"
#include "fast/simd/halves.h"

HWY_BEFORE_NAMESPACE();
namespace assay::simd {
namespace HWY_NAMESPACE {
namespace {

// N3.3 to N3.6 of the bits of an amax: MAX / amax, at most FLT_MAX, without its fraction where the scale is
// to be a power of two; 1 of 0, infinity and NaN.
template <class F> HWY_INLINE hn::Vec<W> factor_of(V amax, bool pow2) {
  constexpr float kMax = 1.75f * static_cast<float>(1 << F::kMaxExponent);
  const auto quotient = hn::Div(hn::Set(W(), kMax), hn::BitCast(W(), amax));
  const V bits =
      hn::And(hn::Min(hn::BitCast(D(), quotient), constant(kInf - 1)), constant(pow2 ? kInf : 0x7FFFFFFF));
  const M special = hn::Or(hn::Eq(amax, hn::Zero(D())), hn::Gt(amax, constant(kInf - 1)));
  return hn::BitCast(W(), hn::IfThenElse(special, constant(0x3F800000), bits));
}
HWY_INLINE V inverse_of(hn::Vec<W> factor) {  // N3.7
  return hn::BitCast(D(), hn::Div(hn::Set(W(), 1.0f), factor));
}

// N3.8: the bits of fl(x * factor).
template <class S> HWY_INLINE V scaled(const std::byte* x, hn::Vec<W> factor) {
  return hn::BitCast(D(), hn::Mul(hn::BitCast(W(), S::load(x)), factor));
}

// Lanes of the patterns of x, and the largest pattern of whole vectors of them, one or more, without its
// sign.
template <class S> using LanesOf = std::conditional_t<S::kBytes == 2, Dh, D>;
template <class S, bool kFetch> HWY_INLINE typename S::Bits largest(const std::byte* x, int64_t count) {
  const LanesOf<S> d;
  const auto most = lane_amaxes<kFetch>(d, x, static_cast<size_t>(count) * S::kBytes);
  return static_cast<typename S::Bits>(hn::GetLane(hn::MaxOfLanes(d, most)));
}
// Patterns of x as binary32, one for each lane.
template <class S> using LanePatterns = std::array<typename S::Bits, 16>;
template <class S> HWY_INLINE V widened(const LanePatterns<S>& patterns) {
  return S::load(reinterpret_cast<const std::byte*>(patterns.data()));
}

// The largest magnitude that is no NaN (N3.1), as bits of binary32.
template <class S> HWY_INLINE uint32_t amax_of(const std::byte* x, int64_t count) {
  constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(D()));
  HWY_ALIGN std::array<std::byte, lanes * 4> rest{};
  V most = hn::Zero(D());
  int64_t first = count - count % static_cast<int64_t>(kHalfLanes);
  HWY_ALIGN LanePatterns<S> whole{};
  if (first) whole[0] = largest<S, true>(x, first);
  if (whole[0] <= S::kInfinity) most = widened<S>(whole);
  else first = 0;
  for (int64_t i = first; i < count; i += lanes) {
    const std::byte* from = x + static_cast<size_t>(i) * S::kBytes;
    // One lane is never short of elements, which g++ does not see: it warns of a copy beyond it.
    if (lanes > 1 && count - i < lanes) {
      rest.fill(std::byte{0});
      std::memcpy(rest.data(), from, static_cast<size_t>(count - i) * S::kBytes);
      from = rest.data();
    }
    most = amax_step(most, magnitude(S::load(from)));
  }
  return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(D(), most)));
}

// ---- along rows ----------------------------------------------------------------------------------

// Elements whose codes are judged together: those of a block (N9.1), or four pieces of a tensor's.
constexpr int64_t kRun = 128;
// Blocks whose factors are made together: as many as a vector has lanes, but of no more than 4 KiB, because
// while they are read first nothing is fetched ahead.
template <class S>
constexpr int64_t kMostRuns = std::min<int64_t>(hn::MaxLanes(D()),
                                                4096 / (kRun * static_cast<int64_t>(S::kBytes)));

struct Factors {
  HWY_ALIGN std::array<int32_t, 16> factor, inverse;
  std::array<bool, 16> finite;  // the block holds no infinity and no NaN
};
template <class S, class F>
HWY_INLINE void factors_of_blocks(const std::byte* x, int64_t count, bool pow2, Factors& out) {
  HWY_ALIGN LanePatterns<S> amaxes{};
  HWY_ALIGN std::array<int32_t, 16> bits;
  constexpr size_t kAtOnce = 16 / sizeof(amaxes[0]);
  const auto n = static_cast<size_t>(count);
  const auto block = [&](size_t i) { return x + i * kRun * S::kBytes; };
  size_t made = 0;
  for (; made + kAtOnce <= n; made += kAtOnce)
    put_amaxes(
        LanesOf<S>(),
        [&](size_t i) { return lane_amaxes<false>(LanesOf<S>(), block(made + i), kRun * S::kBytes); },
        &amaxes[made]);
  for (; made < n; ++made) amaxes[made] = largest<S, false>(block(made), kRun);
  for (size_t i = 0; i < n; ++i) out.finite[i] = amaxes[i] < S::kInfinity;
  hn::Store(widened<S>(amaxes), D(), bits.data());
  for (size_t i = 0; i < n; ++i)
    if (amaxes[i] > S::kInfinity) bits[i] = static_cast<int32_t>(amax_of<S>(block(i), kRun));
  const auto factor = factor_of<F>(hn::Load(D(), bits.data()), pow2);
  hn::Store(hn::BitCast(D(), factor), D(), out.factor.data());
  hn::Store(inverse_of(factor), D(), out.inverse.data());
}

// False: the codes are not those of HalfCodes, or under kAccept not the recorded ones, or of the largest
// magnitude.
template <class S, class F, bool kAccept, bool kBounded, int64_t kCount>
HWY_INLINE bool packed_codes(const std::byte* x, hn::Vec<W> factor, std::byte* data) {
  const Vh offset = HalfRounding<F>::offset(half(kOne));
  auto codes = HalfCodes<F, kAccept, kBounded>::none();
  for (size_t i = 0; i < kCount; i += kHalfLanes) {
    fetch_ahead(x + i * S::kBytes, kHalfLanes * S::kBytes);
    codes.add(scaled_halves<S>(x + i * S::kBytes, factor), offset, data + i);
  }
  return codes.hold();
}

// Codes of any kind of a run.
template <class S, class F>
HWY_INLINE void any_codes(const std::byte* x, hn::Vec<W> factor, std::byte* data) {
  for (size_t i = 0; i < kRun; i += kHalfLanes)
    write_halves(any_half_code<F>(scaled_halves<S>(x + i * S::kBytes, factor)), data + i);
}
// How n recorded codes of any kind, whole vectors, differ from those that would be written.
template <class S, class F>
HWY_INLINE Doubt doubt_of(const std::byte* x, hn::Vec<W> factor, const std::byte* data, int64_t n) {
  constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(D()));
  Seen seen = Seen::nothing();
  for (int64_t i = 0; i < n; i += lanes) {
    const V bits = scaled<S>(x + static_cast<size_t>(i) * S::kBytes, factor);
    seen.add<F>(code_of<F>(magnitude(bits), constant(kOne)), bits, data + i);
  }
  return seen.of_block<F>(constant(kOne), n / lanes);
}

// Neighbouring blocks along row r, the first of which is the row's block b.
template <class S, class F, bool kAccept>
HWY_INLINE void block_runs(const Fp8Job& job, const std::byte* x, std::byte* data, int64_t count, int64_t r,
                           int64_t b) {
  Factors made;
  factors_of_blocks<S, F>(x, count, job.pow2, made);
  for (size_t i = 0; i < static_cast<size_t>(count); ++i, ++b, x += kRun * S::kBytes, data += kRun) {
    const auto factor = hn::BitCast(W(), constant(made.factor[i]));
    const bool right = job.put_scale(b, r, static_cast<uint32_t>(made.inverse[i]));
    if constexpr (!kAccept) {
      if (!made.finite[i] || !packed_codes<S, F, false, true, kRun>(x, factor, data))
        any_codes<S, F>(x, factor, data);
    } else {  // only under a power of two may an amax have another code than the largest
      const bool accepted =
          job.pow2 && made.finite[i] && packed_codes<S, F, true, false, kRun>(x, factor, data);
      const Doubt doubt = accepted ? Doubt{} : doubt_of<S, F>(x, factor, data, kRun);
      if (doubt.any() || !right) job.doubt(r, b, doubt, !right);
    }
  }
}

// A run along row r of a tensor with one scale. Its first piece is the row's piece b; n elements are the
// row's, and no piece behind them is told of.
template <class S, class F, bool kAccept>
HWY_INLINE void tensor_run(const Fp8Job& job, const std::byte* x, std::byte* data, int64_t n, int64_t r,
                           int64_t b) {
  const auto factor = hn::BitCast(W(), constant(static_cast<int32_t>(job.scale)));
  if (packed_codes<S, F, kAccept, false, kRun>(x, factor, data)) return;
  if constexpr (!kAccept) return any_codes<S, F>(x, factor, data);
  for (int64_t i = 0; i < n; i += kPiece, ++b, x += kPiece * S::kBytes, data += kPiece) {
    if (packed_codes<S, F, kAccept, false, kPiece>(x, factor, data)) continue;
    const Doubt doubt = doubt_of<S, F>(x, factor, data, kPiece);
    if (doubt.any()) job.doubt(r, b, doubt, false);
  }
}

// Whole runs along row r that hold n elements of it, from column c on.
template <class S, class F, bool kAccept>
HWY_INLINE void runs(const Fp8Job& job, const std::byte* x, std::byte* data, int64_t n, int64_t r,
                     int64_t c) {
  if (job.blocks) return block_runs<S, F, kAccept>(job, x, data, (n + kRun - 1) / kRun, r, c / kRun);
  for (int64_t i = 0; i < n; i += kRun, x += kRun * S::kBytes, data += kRun)
    tensor_run<S, F, kAccept>(job, x, data, std::min(kRun, n - i), r, (c + i) / kPiece);
}

template <class S, class F, bool kAccept> void rows_of(const Fp8Job& job) {
  const int64_t whole = job.cols / kRun * kRun;
  const auto rest = static_cast<size_t>(job.cols - whole);
  HWY_ALIGN std::array<std::byte, kRun * 4> x{};  // of the last run of a row, filled up with zeros
  HWY_ALIGN std::array<std::byte, kRun> data;
  data.fill(
      static_cast<std::byte>(job.scale >> 24 & 0x80));  // their codes, but where the scale makes NaNs of them
  for (int64_t r = 0; r < job.rows; ++r) {
    const std::byte* const from = job.x.first + static_cast<size_t>(r) * job.x.stride;
    std::byte* const to = job.data.first + static_cast<size_t>(r) * job.data.stride;
    for (int64_t c = 0; c < whole; c += kMostRuns<S> * kRun)
      runs<S, F, kAccept>(job, from + static_cast<size_t>(c) * S::kBytes, to + c,
                          std::min(kMostRuns<S> * kRun, whole - c), r, c);
    if (!rest) continue;
    std::memcpy(x.data(), from + static_cast<size_t>(whole) * S::kBytes, rest * S::kBytes);
    if (kAccept) std::memcpy(data.data(), to + whole, rest);
    runs<S, F, kAccept>(job, x.data(), data.data(), job.cols - whole, r, whole);
    if (!kAccept) std::memcpy(to + whole, data.data(), rest);
  }
}

// ---- down columns --------------------------------------------------------------------------------

// Elements of a block, or of a piece of a tensor's column.
int64_t length_of(const Fp8Job& job) { return job.blocks ? kRun : kPiece; }

// As many neighbouring blocks down columns as a vector has lanes; data are stored transposed (N3.9, N9.3).
template <class S, class F, bool kAccept>
void column_blocks(const Fp8Job& job, const std::byte* x, size_t stride, int64_t r, int64_t c, int64_t height,
                   int64_t width) {
  constexpr size_t lanes = hn::MaxLanes(D());
  HWY_ALIGN std::array<std::byte, kRun * lanes> codes;
  Columns made;
  auto factor = hn::BitCast(W(), constant(static_cast<int32_t>(job.scale)));
  if (job.blocks) {
    V most = hn::Zero(D());
    for (int64_t i = 0; i < height; ++i)
      most = amax_step(most, magnitude(S::load(x + static_cast<size_t>(i) * stride)));
    factor = factor_of<F>(most, job.pow2);
  }
  Seen seen = Seen::nothing();
  for (int64_t i = 0; i < height; ++i) {
    const V bits = scaled<S>(x + static_cast<size_t>(i) * stride, factor);
    const V a = magnitude(bits), code = code_of<F>(a, constant(kOne));
    seen.see(code);
    write(whole_code<F>(code, a, bits), codes.data() + static_cast<size_t>(i) * lanes);
  }
  hn::Store(inverse_of(factor), D(), made.scales.data());
  hn::Store(seen.special<F>(constant(kOne)), D(), made.special.data());
  for (int64_t k = 0; k < width; ++k) {
    const auto lane = static_cast<size_t>(k);
    std::byte* const to = job.data.first + static_cast<size_t>(c + k) * job.data.stride + r;
    Doubt doubt{made.special[lane] != 0, 0, 0};
    for (int64_t i = height; i-- > 0;) {
      const std::byte code = codes[static_cast<size_t>(i) * lanes + lane];
      if (!kAccept) to[i] = code;
      else if (code != to[i]) ++doubt.differ, doubt.first = static_cast<int32_t>(i);
    }
    const int64_t block = r / length_of(job);
    const bool right = job.put_scale(block, c + k, static_cast<uint32_t>(made.scales[lane]));
    if (kAccept && (doubt.any() || !right)) job.doubt(block, c + k, doubt, !right);
  }
}

template <class S, class F, bool kAccept> void columns_of(const Fp8Job& job) {
  constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(D()));
  HWY_ALIGN std::array<std::byte, kRun * lanes * 4> x{};
  const int64_t length = length_of(job);
  for (int64_t r = 0; r < job.rows; r += length)
    for (int64_t c = 0; c < job.cols; c += lanes) {
      const int64_t height = std::min(length, job.rows - r), width = std::min(lanes, job.cols - c);
      const std::byte* const from =
          job.x.first + static_cast<size_t>(r) * job.x.stride + static_cast<size_t>(c) * S::kBytes;
      if (width == lanes) {
        column_blocks<S, F, kAccept>(job, from, job.x.stride, r, c, height, width);
        continue;
      }
      constexpr size_t step = static_cast<size_t>(lanes) * S::kBytes;
      for (int64_t i = 0; i < height; ++i)
        std::memcpy(x.data() + static_cast<size_t>(i) * step, from + static_cast<size_t>(i) * job.x.stride,
                    static_cast<size_t>(width) * S::kBytes);
      column_blocks<S, F, kAccept>(job, x.data(), step, r, c, height, width);
    }
}

template <class S, class F, bool kAccept> void directed(const Fp8Job& job) {
  if (job.columns) columns_of<S, F, kAccept>(job);
  else rows_of<S, F, kAccept>(job);
}
template <class S, class F> void asked(const Fp8Job& job) {
  if (job.unknown) directed<S, F, true>(job);
  else directed<S, F, false>(job);
}
template <class S> void of_source(const Fp8Job& job) {
  if (job.element == Element::e4m3) asked<S, E4m3>(job);
  else asked<S, E5m2>(job);
}

template <class F>
void factors_of(bool pow2, const uint32_t* amaxes, uint32_t* factors, uint32_t* inverses, int64_t count) {
  constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(D()));
  HWY_ALIGN std::array<int32_t, lanes> rest{}, made{}, inverse{};
  for (int64_t i = 0; i < count; i += lanes) {
    const size_t n = static_cast<size_t>(std::min(lanes, count - i));
    std::memcpy(rest.data(), amaxes + i, n * 4);
    const auto factor = factor_of<F>(magnitude(hn::Load(D(), rest.data())), pow2);
    hn::Store(hn::BitCast(D(), factor), D(), made.data());
    hn::Store(inverse_of(factor), D(), inverse.data());
    std::memcpy(factors + i, made.data(), n * 4);
    std::memcpy(inverses + i, inverse.data(), n * 4);
  }
}

}  // namespace

void run_fp8(const Fp8Job& job) {
  with_source(job.source, [&](auto source) { of_source<decltype(source)>(job); });
}

uint32_t run_amax(Source source, const std::byte* x, int64_t count) {
  return with_source(source, [&](auto s) { return amax_of<decltype(s)>(x, count); });
}

void run_factors(Element element, bool pow2, const uint32_t* amaxes, uint32_t* factors, uint32_t* inverses,
                 int64_t count) {
  if (element == Element::e4m3) factors_of<E4m3>(pow2, amaxes, factors, inverses, count);
  else factors_of<E5m2>(pow2, amaxes, factors, inverses, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace assay::simd
HWY_AFTER_NAMESPACE();
