// The kernels of MXFP8 and FP8, compiled once for every instruction set (foreach_target.h includes this file
// again for each).
#include <algorithm>
#include <array>
#include <cstring>

#include "fast/simd/kernels.h"
#include "fast/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fast/simd/kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fast/simd/packed.h"
#include "fast/simd/steps.h"

HWY_BEFORE_NAMESPACE();
namespace assay::simd {
namespace HWY_NAMESPACE {

void run_mxfp4(const Job&);       // fast/simd/mxfp4.cpp
void run_nvfp4(const Nvfp4Job&);  // fast/simd/nvfp4.cpp
void run_nvfp4_chain(const uint32_t* amaxes, Nvfp4Chain* out, int64_t count);

constexpr int64_t kBlock = 32;  // N5.1
// The codes of a quantizer are written, or compared with those of a dump. What was seen of a block, or of
// neighbouring ones lane by lane.
struct Seen {
  using U = hn::RebindToUnsigned<D>;
  V equal;           // how many codes were the recorded ones
  V alike, leading;  // -1: all were so far; how many were before the first other one
  V most;            // the largest code without its sign
  hn::Vec<U> least;  // the least but 0, less 1

  static HWY_INLINE Seen nothing() {
    const V zero = hn::Zero(D());
    return {zero, constant(-1), zero, zero, hn::Set(U(), 0xFFFFFFFFu)};
  }

  template <class F> HWY_INLINE void add(V code, V bits, const std::byte* recorded) {
    const hn::Rebind<uint8_t, D> bytes;
    const V there = hn::PromoteTo(D(), hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(recorded)));
    const V same = hn::VecFromMask(D(), hn::Eq(there, hn::Or(code, sign_of<F>(bits))));
    equal = hn::Sub(equal, same);
    alike = hn::And(alike, same);
    leading = hn::Sub(leading, alike);
    see(code);
  }
  HWY_INLINE void see(V code) {
    most = hn::Max(most, code);
    least = hn::Min(least, hn::BitCast(U(), hn::Sub(code, constant(1))));
  }
  // Not 0 where a code is subnormal or one of the largest magnitude, as those of NaN and infinity are, and
  // where the amax is infinite.
  template <class F> HWY_INLINE V special(V k) const {
    constexpr uint32_t kNormal = 1u << F::kMantissa;
    const V subnormal = hn::BitCast(D(), hn::VecFromMask(U(), hn::Gt(hn::Set(U(), kNormal - 1), least)));
    const V top = hn::VecFromMask(D(), hn::Gt(most, constant(F::kTop - 1)));
    const V infinite = hn::VecFromMask(D(), hn::Gt(k, constant(kInfiniteScale - 1)));
    return hn::Or(infinite, hn::Or(subnormal, top));
  }
  // Of one block in n vectors.
  template <class F> HWY_INLINE Doubt of_block(V k, int64_t n) const {
    const V rare = special<F>(k), differ = hn::Sub(constant(static_cast<int32_t>(n)), equal);
    if (HWY_LIKELY(hn::AllTrue(D(), hn::Eq(hn::Or(rare, differ), hn::Zero(D()))))) return {};
    return {!hn::AllTrue(D(), hn::Eq(rare, hn::Zero(D()))), hn::GetLane(hn::SumOfLanes(D(), differ)), 0};
  }
};

// Of as many neighbouring blocks down columns as a vector has lanes.
struct Columns {
  static constexpr size_t kMost = 16;  // lanes of any target
  HWY_ALIGN std::array<int32_t, kMost> scales{}, special{}, equal{}, leading{};
  template <class F> HWY_INLINE void put(const Seen& seen, V k) {
    hn::Store(seen.special<F>(k), D(), special.data());
    hn::Store(seen.equal, D(), equal.data());
    hn::Store(seen.leading, D(), leading.data());
  }
  Doubt of(size_t lane, int64_t height) const {
    const int32_t differ = static_cast<int32_t>(height) - equal[lane];
    return {special[lane] != 0, differ, differ ? leading[lane] : 0};
  }
};

// Vectors [at, at + n) of one block or of a row of neighbouring blocks, `step` and `to_step` bytes apart in x
// and data.
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

// Whether n vectors of codes are ordinary ones, which are then written, or are the recorded ones, none of the
// largest magnitude. `bits(i)` gives the elements, scaled but for what is taken from the codes.
template <class F, bool kAccept, class Bits>
HWY_INLINE bool ordinary_codes(Bits bits, V taken, std::byte* data, int64_t n) {
  constexpr size_t lanes = hn::MaxLanes(D());
  const hn::Rebind<uint8_t, D> bytes;
  auto codes = OrdinaryCodes<F>::none();
  V differ = hn::Zero(D()), most = differ;
  for (int64_t i = 0; i < n; ++i) {
    const V x = bits(i), code = codes.add(magnitude(x), taken), whole = hn::Or(code, sign_of<F>(x));
    std::byte* const at = data + static_cast<size_t>(i) * lanes;
    if constexpr (kAccept) {
      most = hn::Max(most, code);
      const auto there = hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(at));
      differ = hn::Or(differ, hn::Xor(whole, hn::PromoteTo(D(), there)));
    } else {
      write(whole, at);
    }
  }
  if (!kAccept) return codes.hold();
  return codes.hold() && hn::AllTrue(D(), hn::Eq(differ, hn::Zero(D()))) &&
         hn::AllTrue(D(), hn::Lt(most, constant(F::kTop)));
}

// What is made of a block along a row: its scale as it is stored, where it has its own.
struct RowBlock {
  uint32_t scale;
  Doubt doubt;
};
template <class S, class F, bool kAccept> HWY_INLINE RowBlock row_block(const std::byte* x, std::byte* data) {
  constexpr size_t lanes = hn::MaxLanes(D());
  constexpr int64_t vectors = kBlock / static_cast<int64_t>(lanes);
  if constexpr (std::is_same_v<S, FromBf16>)
    if (const int k = packed_row_block<F, kAccept>(x, data); HWY_LIKELY(k >= 0))
      return {static_cast<uint32_t>(k), {}};
  V most = hn::Zero(D());
  for (int64_t i = 0; i < vectors; ++i)
    most = amax_step(most, magnitude(S::load(x + static_cast<size_t>(i) * lanes * S::kBytes)));
  const V k = scale_of<F>(hn::MaxOfLanes(D(), most));
  const auto scale = static_cast<uint32_t>(hn::GetLane(k));
  if (!std::is_same_v<S, FromBf16> && scale >= kTinyScale && scale < kInfiniteScale) {
    const auto bits = [&](int64_t i) { return S::load(x + static_cast<size_t>(i) * lanes * S::kBytes); };
    if (ordinary_codes<F, kAccept>(bits, OrdinaryCodes<F>::taken(k), data, vectors)) return {scale, {}};
  }
  const Seen seen = codes_of<S, F, kAccept>(x, lanes * S::kBytes, data, lanes, vectors, k);
  return {scale, kAccept ? seen.of_block<F>(k, vectors) : Doubt{}};
}

template <class S, class F, bool kAccept> void rows_of(const Job& job) {
  const int64_t whole = job.cols / kBlock, rest = job.cols % kBlock;
  HWY_ALIGN std::array<std::byte, kBlock * 4> x{};  // of the last block of a row, where it is shorter
  HWY_ALIGN std::array<std::byte, kBlock> data{};
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
    if constexpr (std::is_same_v<S, FromBf16>) {
      const size_t end = static_cast<size_t>(whole) / kTogether * kTogether;
      for (size_t count = 0; done < end; done += count) {
        count = std::min(kMostRowBlocks, end - done);
        const auto again = [&](size_t b, size_t n) { one_by_one(done + b, done + b + n); };
        const auto top = [&](size_t b) { job.doubt(r, static_cast<int64_t>(done + b), {true, 0, 0}, false); };
        packed_row_blocks<F, kAccept>(from + done * kBlock * S::kBytes, to + done * kBlock, scales + done,
                                      count, again, top);
      }
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
  for (int64_t r = 0; r < job.rows; r += kBlock) {
    const int64_t height = std::min(kBlock, job.rows - r);
    std::byte* const scales = job.scales.first + static_cast<size_t>(r / kBlock) * job.scales.stride;
    for (int64_t c = 0, done = lanes; c < job.cols; c += done) {
      const int64_t width = std::min(lanes, job.cols - c);
      const std::byte* from =
          job.x.first + static_cast<size_t>(r) * job.x.stride + static_cast<size_t>(c) * S::kBytes;
      std::byte* const to = job.data.first + static_cast<size_t>(r) * job.data.stride + c;
      if constexpr (std::is_same_v<S, FromBf16>) {
        const auto top = [&](int64_t at) { job.doubt(r / kBlock, c + at, {true, 0, 0}, false); };
        const bool packed =
            job.cols - c >= kPackedColumns &&
            packed_columns<F, kAccept>(from, job.x.stride, to, job.data.stride, height, scales + c, top);
        done = packed ? kPackedColumns : lanes;
        if (packed) continue;
      }
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

// ---- FP8 with scales of binary32 -----------------------------------------------------------------

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

// The largest magnitude that is no NaN (N3.1), as bits of binary32.
template <class S> HWY_INLINE uint32_t amax_of(const std::byte* x, int64_t count) {
  constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(D()));
  HWY_ALIGN std::array<std::byte, lanes * 4> rest{};
  V most = hn::Zero(D());
  int64_t first = 0;
  if constexpr (std::is_same_v<S, FromBf16>) {
    constexpr auto halves = static_cast<int64_t>(kHalfLanes);
    const uint32_t found = packed_amax(x, count / halves);
    if (found <= kInfiniteHalf)
      most = constant(static_cast<int32_t>(found << 16)), first = count / halves * halves;
  }
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

constexpr int64_t kLongest = 128;  // elements of the longest block

// A block along a row, filled up with zeros to whole vectors.
template <class S, class F, bool kAccept>
HWY_INLINE RowBlock fp8_row_block(const Fp8Job& job, const std::byte* x, std::byte* data, int64_t vectors) {
  constexpr size_t lanes = hn::MaxLanes(D());
  auto factor = hn::BitCast(W(), constant(static_cast<int32_t>(job.scale)));
  if (job.blocks)
    factor = factor_of<F>(
        constant(static_cast<int32_t>(amax_of<S>(x, vectors * static_cast<int64_t>(lanes)))), job.pow2);
  const auto scale = static_cast<uint32_t>(hn::GetLane(inverse_of(factor)));
  const auto elements = [&](int64_t i) {
    return scaled<S>(x + static_cast<size_t>(i) * lanes * S::kBytes, factor);
  };
  if (ordinary_codes<F, kAccept>(elements, OrdinaryCodes<F>::taken(constant(kOne)), data, vectors))
    return {scale, {}};
  Seen seen = Seen::nothing();
  for (int64_t i = 0; i < vectors; ++i) {
    const V bits = elements(i);
    const V a = magnitude(bits), code = code_of<F>(a, constant(kOne));
    std::byte* const to = data + static_cast<size_t>(i) * lanes;
    if constexpr (kAccept) seen.add<F>(code, bits, to);
    else write(whole_code<F>(code, a, bits), to);
  }
  return {scale, kAccept ? seen.of_block<F>(constant(kOne), vectors) : Doubt{}};
}

template <class S, class F, bool kAccept> void fp8_rows_of(const Fp8Job& job) {
  constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(D()));
  HWY_ALIGN std::array<std::byte, kLongest * 4> x{};
  HWY_ALIGN std::array<std::byte, kLongest> data{};
  for (int64_t r = 0; r < job.rows; ++r)
    for (int64_t c = 0; c < job.cols; c += job.length) {
      const int64_t n = std::min(job.length, job.cols - c);
      const std::byte* from =
          job.x.first + static_cast<size_t>(r) * job.x.stride + static_cast<size_t>(c) * S::kBytes;
      std::byte* const to = job.data.first + static_cast<size_t>(r) * job.data.stride + c;
      const bool whole = n % lanes == 0;
      if (!whole) {
        x.fill(std::byte{0});
        data.fill(static_cast<std::byte>(job.scale >> 24 & 0x80));  // the codes of these zeros
        std::memcpy(x.data(), from, static_cast<size_t>(n) * S::kBytes);
        if (kAccept) std::memcpy(data.data(), to, static_cast<size_t>(n));
        from = x.data();
      }
      const RowBlock made =
          fp8_row_block<S, F, kAccept>(job, from, whole ? to : data.data(), (n + lanes - 1) / lanes);
      if (!kAccept && !whole) std::memcpy(to, data.data(), static_cast<size_t>(n));
      const bool right = job.put_scale(c / job.length, r, made.scale);
      if (kAccept && (made.doubt.any() || !right)) job.doubt(r, c / job.length, made.doubt, !right);
    }
}

// As many neighbouring blocks down columns as a vector has lanes; data are stored transposed (N3.9, N9.3).
template <class S, class F, bool kAccept>
void fp8_column_blocks(const Fp8Job& job, const std::byte* x, size_t stride, int64_t r, int64_t c,
                       int64_t height, int64_t width) {
  constexpr size_t lanes = hn::MaxLanes(D());
  HWY_ALIGN std::array<std::byte, kLongest * lanes> codes;
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
    const bool right = job.put_scale(r / job.length, c + k, static_cast<uint32_t>(made.scales[lane]));
    if (kAccept && (doubt.any() || !right)) job.doubt(r / job.length, c + k, doubt, !right);
  }
}

template <class S, class F, bool kAccept> void fp8_columns_of(const Fp8Job& job) {
  constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(D()));
  HWY_ALIGN std::array<std::byte, kLongest * lanes * 4> x{};
  for (int64_t r = 0; r < job.rows; r += job.length)
    for (int64_t c = 0; c < job.cols; c += lanes) {
      const int64_t height = std::min(job.length, job.rows - r), width = std::min(lanes, job.cols - c);
      const std::byte* const from =
          job.x.first + static_cast<size_t>(r) * job.x.stride + static_cast<size_t>(c) * S::kBytes;
      if (width == lanes) {
        fp8_column_blocks<S, F, kAccept>(job, from, job.x.stride, r, c, height, width);
        continue;
      }
      constexpr size_t step = static_cast<size_t>(lanes) * S::kBytes;
      for (int64_t i = 0; i < height; ++i)
        std::memcpy(x.data() + static_cast<size_t>(i) * step, from + static_cast<size_t>(i) * job.x.stride,
                    static_cast<size_t>(width) * S::kBytes);
      fp8_column_blocks<S, F, kAccept>(job, x.data(), step, r, c, height, width);
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

template <class S, class F, bool kAccept> void fp8_directed(const Fp8Job& job) {
  if (job.columns) fp8_columns_of<S, F, kAccept>(job);
  else fp8_rows_of<S, F, kAccept>(job);
}
template <class S, class F> void fp8_asked(const Fp8Job& job) {
  if (job.unknown) fp8_directed<S, F, true>(job);
  else fp8_directed<S, F, false>(job);
}
template <class S> void fp8_of_source(const Fp8Job& job) {
  if (job.element == Element::e4m3) fp8_asked<S, E4m3>(job);
  else fp8_asked<S, E5m2>(job);
}
void run_fp8(const Fp8Job& job) {
  switch (job.source) {
    case Source::bf16: return fp8_of_source<FromBf16>(job);
    case Source::f16: return fp8_of_source<FromF16>(job);
    case Source::f32: return fp8_of_source<FromF32>(job);
  }
}

void run_job(const Job& job) {
  if (job.element == Element::e2m1) return run_mxfp4(job);
  switch (job.source) {
    case Source::bf16: return of_source<FromBf16>(job);
    case Source::f16: return of_source<FromF16>(job);
    case Source::f32: return of_source<FromF32>(job);
  }
}

// ---- the steps alone ------------------------------------------------------------------------------

template <class S, class F> void cast_of(const std::byte* x, std::byte* y, int64_t count) {
  constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(D()));
  HWY_ALIGN std::array<std::byte, 64> rest{};
  HWY_ALIGN std::array<std::byte, 16> made{};
  for (int64_t i = 0; i < count; i += lanes) {
    const size_t n = static_cast<size_t>(std::min(lanes, count - i));
    const std::byte* from = x + static_cast<size_t>(i) * S::kBytes;
    if (n < static_cast<size_t>(lanes)) {
      std::memcpy(rest.data(), from, n * S::kBytes);
      from = rest.data();
    }
    const V bits = S::load(from);
    const V a = magnitude(bits);
    write(whole_code<F>(code_of<F>(a, constant(kOne)), a, bits), made.data());
    std::memcpy(y + i, made.data(), n);
  }
}
template <class S> void cast_from(Element element, const std::byte* x, std::byte* y, int64_t count) {
  switch (element) {
    case Element::e4m3: return cast_of<S, E4m3>(x, y, count);
    case Element::e5m2: return cast_of<S, E5m2>(x, y, count);
    case Element::e2m1: return cast_of<S, E2m1>(x, y, count);
  }
}
void run_cast(Source source, Element element, const std::byte* x, std::byte* y, int64_t count) {
  switch (source) {
    case Source::bf16: return cast_from<FromBf16>(element, x, y, count);
    case Source::f16: return cast_from<FromF16>(element, x, y, count);
    case Source::f32: return cast_from<FromF32>(element, x, y, count);
  }
}

template <class F> void scales_of(const uint32_t* amaxes, uint8_t* scales, int64_t count) {
  constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(D()));
  HWY_ALIGN std::array<uint32_t, 16> rest{};
  HWY_ALIGN std::array<std::byte, 16> made{};
  for (int64_t i = 0; i < count; i += lanes) {
    const size_t n = static_cast<size_t>(std::min(lanes, count - i));
    std::memcpy(rest.data(), amaxes + i, n * 4);
    const V bits = FromF32::load(reinterpret_cast<const std::byte*>(rest.data()));
    write(scale_of<F>(magnitude(bits)), made.data());
    std::memcpy(scales + i, made.data(), n);
  }
}
void run_scales(Element element, const uint32_t* amaxes, uint8_t* scales, int64_t count) {
  switch (element) {
    case Element::e4m3: return scales_of<E4m3>(amaxes, scales, count);
    case Element::e5m2: return scales_of<E5m2>(amaxes, scales, count);
    case Element::e2m1: return scales_of<E2m1>(amaxes, scales, count);
  }
}

uint32_t run_amax(Source source, const std::byte* x, int64_t count) {
  switch (source) {
    case Source::bf16: return amax_of<FromBf16>(x, count);
    case Source::f16: return amax_of<FromF16>(x, count);
    case Source::f32: return amax_of<FromF32>(x, count);
  }
  return 0;
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
void run_factors(Element element, bool pow2, const uint32_t* amaxes, uint32_t* factors, uint32_t* inverses,
                 int64_t count) {
  if (element == Element::e4m3) factors_of<E4m3>(pow2, amaxes, factors, inverses, count);
  else factors_of<E5m2>(pow2, amaxes, factors, inverses, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace assay::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay::simd {

// Highway's own choice of a target needs its library; this one needs the headers alone.
const Kernels* kernels_of(std::string_view target) {
#if HWY_TARGETS & HWY_AVX3
  static constexpr Kernels kAvx3 = {N_AVX3::run_job,   N_AVX3::run_cast,       N_AVX3::run_scales,
                                    N_AVX3::run_fp8,   N_AVX3::run_factors,    N_AVX3::run_amax,
                                    N_AVX3::run_nvfp4, N_AVX3::run_nvfp4_chain};
  if (target == "AVX3") return &kAvx3;
#endif
#if HWY_TARGETS & HWY_AVX2
  static constexpr Kernels kAvx2 = {N_AVX2::run_job,   N_AVX2::run_cast,       N_AVX2::run_scales,
                                    N_AVX2::run_fp8,   N_AVX2::run_factors,    N_AVX2::run_amax,
                                    N_AVX2::run_nvfp4, N_AVX2::run_nvfp4_chain};
  if (target == "AVX2") return &kAvx2;
#endif
#if HWY_TARGETS & HWY_NEON
  static constexpr Kernels kNeon = {N_NEON::run_job,   N_NEON::run_cast,       N_NEON::run_scales,
                                    N_NEON::run_fp8,   N_NEON::run_factors,    N_NEON::run_amax,
                                    N_NEON::run_nvfp4, N_NEON::run_nvfp4_chain};
  if (target == "NEON") return &kNeon;
#endif
  return nullptr;
}

}  // namespace assay::simd
#endif
