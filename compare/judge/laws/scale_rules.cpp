#include "compare/judge/laws/scale_rules.h"

#include <algorithm>
#include <cmath>

#include "compare/arithmetic/codes.h"
#include "compare/judge/laws/rounding.h"

namespace assay {

// N17.11: 7/512 is the largest below 2^-6, and 448 stands for 248 and more.
static bool fits_away_240(uint32_t c, double v, double slack) {
  if (c == 0x7E) return v + slack >= 248;
  if (c > 0x77 || v - slack >= 248) return false;
  if (c == 0x07 && v < 0x1p-6) return v + slack >= 6.5 / 512;
  if (c == 0x08 && v + slack < 0x1p-6) return false;
  return nearest(Encoding::e4m3, c, v, slack + 0x1p-34, {})
      .empty();  // a tie goes up, and so does 2^-10 but for its last place
}

bool nvfp4_scale_fits(const Quantizer& q, Encoding source, const TensorScales& t, uint32_t k, double amax) {
  const Numerics& n = q.numerics;
  const bool by_p = reads_decode(n.nvfp4_scale);
  if (by_p && (t.encode > 0x1p100 || t.decode == 0))
    return true;  // P is subnormal; or 0, whose quotients are IEEE's
  if (n.nvfp4_scale != Nvfp4Scale::folded && amax < 0x1p-100)
    return true;  // b / 6 is subnormal, and may be 0
  const Encoding e = Encoding::e4m3;
  const bool sixth = n.nvfp4_scale == Nvfp4Scale::quotient_first || n.nvfp4_scale == Nvfp4Scale::decode ||
                     n.nvfp4_scale == Nvfp4Scale::unit;
  const double b = sixth ? Division(q, source).rounded(amax / 6) : amax / 6;  // N17.14
  const bool overflows =
      (n.nvfp4_scale == Nvfp4Scale::decode_product || n.nvfp4_scale == Nvfp4Scale::given_product) &&
      std::isinf(static_cast<float>(6 * t.decode));
  if (overflows && std::isinf(amax)) return true;  // v is a NaN
  const double exact = overflows ? 0 : by_p ? b / t.decode : b * t.encode;
  if (n.nvfp4_floor == Nvfp4Floor::one && exact > 0 && exact < 0x1p-120)
    return k == 0x38 || k == 0x01;  // v may be 0, or was on the way
  const double least = n.nvfp4_floor == Nvfp4Floor::least_normal       ? 0x1p-6
                       : n.nvfp4_floor == Nvfp4Floor::one && exact > 0 ? 0x1p-9
                                                                       : 0.0;
  const double v = std::max(exact, least);
  // fl(b / P) may be subnormal, and is off by half of 2^-149 before it is divided.
  const double first_rounding = n.nvfp4_scale == Nvfp4Scale::decode_first ? 0x1p-150 / 6 : 0;
  const double slack = std::isfinite(v) ? v * 0x1p-21 + narrowing(v) + first_rounding : 0;
  const auto fits = [&](uint32_t c) {
    if (n.scale_round == ScaleRound::rne) return nearest(e, c, v, slack, {}).empty();
    if (n.scale_round == ScaleRound::away_240) return fits_away_240(c, v, slack);
    if (is_nan(e, c) || c >= 0x80) return false;
    const double most = value_of(e, info(e).max_finite), got = value_of(e, c);
    return (got >= v - slack || got == most) && (c == 0 || value_of(e, c - 1) < v + slack);
  };
  const uint32_t for_zero = n.nvfp4_floor == Nvfp4Floor::one      ? 0x38
                            : n.nvfp4_floor == Nvfp4Floor::eighth ? 0x20
                                                                  : 0;  // N17.9
  if (k == for_zero && fits(0)) return true;
  if (fits(k) && (k != 0 || for_zero == 0)) return true;
  return q.four_over_six != FourOverSix::off && nearest(e, k, v * 1.5, slack * 2, {}).empty();  // N10.10
}

namespace {

// N17.6 of a finite amax, and N5.3: each rule as the interval of amaxes that have the scale 2^(k - 127). Ends
// that a rounded p decides have slack.
bool e8m0_fits(const Quantizer& q, uint32_t k, double amax) {
  const double most = value_of(q.element, info(q.element).max_finite), scale = value_of(Encoding::e8m0, k);
  constexpr double kSlack = 0x1p-22;  // p is off by two roundings at most (N5.2, N15.2, N18.2)
  const bool least = k == 0;          // what lies below is clamped to it
  const auto within = [&](double low, double high, double slack) {
    return (least || amax >= low * (1 - slack)) && amax <= high * (1 + slack);
  };
  const auto below = [&](double low, double high) { return (least || amax >= low) && amax < high; };
  const double unit = scale * std::ldexp(1.0, std::ilogb(most));  // 2^emax scales
  const auto rounds_up = [](int m) {
    return 1 - std::ldexp(1.0, -m - 2);
  };  // of 2^e, what half a unit of the binade below brings there
  switch (q.numerics.mx_scale) {
    case MxScale::up: return within(most * scale / 2, most * scale, kSlack);
    case MxScale::floor: return below(unit, 2 * unit);
    case MxScale::ceil: return (least || amax > unit / 2) && amax <= unit;
    case MxScale::even:
      return below(unit * rounds_up(info(q.element).mantissa_bits),
                   2 * unit * rounds_up(info(q.element).mantissa_bits));
    case MxScale::even_e2m1: return below(unit * rounds_up(1), 2 * unit * rounds_up(1));
    case MxScale::down: return within(most * scale, 2 * most * scale, kSlack);
    case MxScale::nearest:
      return within(most * scale * (k == 1 ? 0.5 : 0.75), most * scale * (least ? 1 : 1.5), kSlack);
  }
  return false;
}

// N3.3 to N3.7, N17.5: the scale of a block of fp8_block, made anew from its amax.
bool block_scale_fits(const Quantizer& q, Encoding source, uint32_t k, double scale, double amax) {
  const double most = value_of(q.element, info(q.element).max_finite);
  const double eps = value_of(Encoding::f32, q.eps), a = amax < eps ? eps : amax;
  if (a == 0 && q.numerics.zero_amax == ZeroAmax::divided) return k == 0;  // N17.15; in E8M0 the code 00
  if (a == 0 && q.numerics.zero_amax == ZeroAmax::epsilon) return scale == source_epsilon(source);
  if (a == 0 || (std::isinf(a) && q.numerics.inf_amax == InfAmax::unit)) return scale == 1;
  if (std::isinf(a)) return std::isinf(scale) || k == 0xFF;
  const Division division(q, source);
  const bool encodes = q.numerics.scale_order == ScaleOrder::encode_first;
  double want = encodes ? division.encode(most, a) : division.decode(a, most);  // N3.3, N17.5
  if (!std::isfinite(want) || want == 0) return true;  // N3.5: what replaces an infinite scale; N17.5
  const double power = std::ldexp(1.0, std::ilogb(want));
  if (q.pow2) want = encodes || power == want ? power : 2 * power;  // N3.6, N17.5
  if (encodes) want = division.rounded(1 / want);                   // N3.7
  return want < 0x1p-126 || std::isinf(want) || scale == want;
}

}  // namespace

bool scale_fits(const Quantizer& q, Encoding source, const std::optional<TensorScales>& of_tensor, uint32_t k,
                Encoding e, double amax, bool nan) {
  if (info(q.format).family == Family::nvfp4)
    return !of_tensor || nan || nvfp4_scale_fits(q, source, *of_tensor, k, amax);
  if (info(q.format).family == Family::fp8_block) return block_scale_fits(q, source, k, value_of(e, k), amax);
  // N5.7, N10.4, N17.12
  const bool spreads = nan && (q.numerics.nan_amax == NanAmax::propagate || q.scale_from == ScaleFrom::amax);
  if (spreads) return k == 0xFF;
  if (std::isinf(amax)) return k == (q.numerics.mx_inf == MxInf::nan ? 0xFF : 0xFE);  // N5.3, N17.7
  return k != 0xFF && e8m0_fits(q, k, amax);
}

}  // namespace assay
