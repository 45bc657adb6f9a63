// MXFP4 with default numerics as a side of block_pair.cuh.
#pragma once
#include "fast/lane/mxfp4.cuh"
#include "fast/move/block_pair.cuh"
#include "fast/move/e2m1_lines.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// Lines are rows (kRows) or columns, and stored rows. A block of 32 lies in four lanes; each of them makes
// the scales of 2 of the 8 lines (N15.1, N15.2). Data are 4-byte aligned, the stored rows a multiple of 8
// long.
struct Mxfp4Side {
  static constexpr FormatId kFormat = FormatId::mxfp4;
  static constexpr bool kTileScales = true, kStrip = false, kTileCodes = true, kSecondPass = false,
                        kWide = true;
  Target to;

  template <class S, bool kRows>
  ASSAY_DEVICE void encode(const Extent& extent, const Place& at,
                           const uint32_t (&words)[kPatch][S::kWords]) const {
    constexpr int kLow = kRows ? 1 : 8, kHigh = 2 * kLow;
    const auto scale_code = [](uint32_t amax) { return Hardware::e8m0(as_float(mxfp4_scaled_amax(amax))); };
    uint32_t items[S::kWords];
    const bool nan = maxima<S, kRows>(words, items);
    const uint2 amax = quad_maxima<S, kLow, kHigh>(items, at.lane);
    const uint32_t low = scale_code(amax.x), high = scale_code(amax.y);
    // A scale is not below amax / 6, so a finite block stays below 7; the code of infinity is 254.
    const bool tame = __any_sync(kAllLanes, nan || low > kLargestLineCode || high > kLargestLineCode) == 0;
    const uint2 codes = quad_gather<kLow, kHigh>(low | high << 8, at.lane);
    put_tile_scales<kRows>(extent, at, codes);

    constexpr bool kLineSums = Hardware::kE2m1ByAdder && S::kEncoding == Encoding::bf16;
    if constexpr (kLineSums) {
      if (tame) {
        uint32_t lines[kPatch];
        e2m1_lines_of_bf16<kRows>(words, codes, lines);
        return move_e2m1_lines<kRows>(to.data, extent, at, [&](int l) { return lines[l]; });
      }
    }
    move_e2m1_lines<kRows>(to.data, extent, at, [&](int l) {
      float x[kPatch];
      line_values<S, kRows>(words, l, x);
      return Hardware::e2m1_codes(x, as_float(mx_multiplier(byte_of(codes, l))),
                                  line_signs<S, kRows>(words, l), !kLineSums && tame);  // N15.3
    });
  }

  ASSAY_DEVICE void store_columns(const Extent& extent, const Place& at) const {
    store_e2m1_columns(to.data, extent, at);
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
