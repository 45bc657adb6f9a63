#include "compare/arithmetic/factors.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"

namespace assay {

namespace {

constexpr float kMost = std::numeric_limits<float>::max();

double largest_of(Encoding e) { return value_of(e, info(e).max_finite); }

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// N5.4: of the scale 2^(code - 127); N17.15.
double mx_multiplier(uint32_t code, const Quantizer& q) {
  if (code == 0 && q.numerics.zero_amax == ZeroAmax::divided) return kInfinity;
  return code == 0xFF ? std::numeric_limits<double>::quiet_NaN()
                      : std::ldexp(1.0, 127 - static_cast<int>(code));
}

// min(v, limit), where the rule says what becomes of a NaN.
float at_most(float v, float limit, NanClamp clamp) {
  if (std::isnan(v)) return clamp == NanClamp::propagate ? v : limit;
  return std::min(v, limit);
}

}  // namespace

// ---- divisions ----

double Division::rounded(double quotient) const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (std::fabs(quotient) >= 0x1.ffffffp127)
    return std::copysign(kInfinity, quotient);  // the midpoint above FLT_MAX
  const double v = static_cast<float>(quotient);
  if (rule_ != ScaleDivision::in_source || source_ == Encoding::f32 || !std::isfinite(v)) return v;
  const double step = step_at(source_, v), nearest = std::nearbyint(v / step) * step;
  return std::fabs(nearest) > largest_of(source_) ? std::copysign(kInfinity, v) : nearest;
}

double Division::encode(double most, double amax) const {
  return rule_ == ScaleDivision::divide ? rounded(most / amax) : rounded(most * rounded(1 / amax));
}

double Division::decode(double amax, double most) const {
  return rule_ == ScaleDivision::reciprocal ? rounded(amax * rounded(1 / most)) : rounded(amax / most);
}

// ---- the scales of an NVFP4 tensor ----

double full_range(const Quantizer& q) { return q.e4m3_max == E4m3Max::m256 ? 1536 : 2688; }

// What S is divided from and P by: F * 6, or 1 where the amax is P itself (N17.8).
static double range_of(const Quantizer& q) {
  return q.numerics.nvfp4_scale == Nvfp4Scale::given_product ? 1 : full_range(q);
}

float encode_scale(const Quantizer& q, float amax, Encoding source) {
  const Numerics& n = q.numerics;
  if (n.nvfp4_scale == Nvfp4Scale::unit) return 1;
  if (std::isnan(amax) && n.nan_tensor_amax == NanTensorAmax::unit) return 1;
  const float s = static_cast<float>(Division(q, source).encode(range_of(q), amax));  // N17.14
  const float limited = at_most(s, kMost, n.nan_clamp);
  if (std::isinf(amax) && n.inf_amax == InfAmax::zero) return limited;
  return amax == 0 || limited == 0 ? 1 : limited;
}

std::optional<TensorScales> tensor_scales(double amax, const Quantizer& q, Encoding source) {
  if (q.numerics.nvfp4_scale == Nvfp4Scale::unit) return TensorScales{};
  if (!std::isfinite(amax) || amax < 0) return {};
  return TensorScales{encode_scale(q, static_cast<float>(amax), source),
                      Division(q, source).decode(amax, range_of(q))};
}

bool reads_decode(Nvfp4Scale rule) {
  return rule == Nvfp4Scale::decode || rule == Nvfp4Scale::decode_product ||
         rule == Nvfp4Scale::given_product || rule == Nvfp4Scale::decode_first;
}
bool reads_decode(Multiplier rule) {
  return rule == Multiplier::decode_reciprocal || rule == Multiplier::divide_product ||
         rule == Multiplier::product_reciprocal || rule == Multiplier::divide_twice;
}
bool divides_elements(Multiplier rule) {
  return rule == Multiplier::divide_product || rule == Multiplier::divide_quotient ||
         rule == Multiplier::divide_twice;
}

float zero_scale_multiplier(ZeroMultiplier rule) { return rule == ZeroMultiplier::tiny ? 1e-8f : 0; }

double source_epsilon(Encoding source) { return step_at(source, 1); }

// ---- exact factors ----

// N3.11, N17.5: what elements are scaled by under a number that is given.
static Factor given_factor(double number, const Quantizer& q) {
  switch (q.numerics.scale_order) {
    case ScaleOrder::decode_divide: return {number, true};
    case ScaleOrder::decode_first: return {static_cast<float>(1 / number)};
    case ScaleOrder::encode_first: break;
  }
  return {number};
}

Factor Factors::of(uint32_t scale_code, Encoding scales, double amax, double tensor_amax,
                   double scale) const {
  switch (q_.format) {
    case FormatId::fp8_delayed: return given_factor(scale, q_);
    case FormatId::fp8_current:
      return q_.numerics.scale_order == ScaleOrder::decode_divide ? Factor{value_of(scales, scale_code), true}
                                                                  : Factor{scale};
    case FormatId::mxfp8:
    case FormatId::mxfp6:
    case FormatId::mxfp4: return {mx_multiplier(scale_code, q_)};
    case FormatId::fp8_block: return fp8_block(value_of(scales, scale_code), amax);
    case FormatId::nvfp4:
      return nvfp4(static_cast<float>(value_of(scales, scale_code)), static_cast<float>(tensor_amax));
    case FormatId::identity: break;
  }
  return {1};
}

double Factors::scaled(double x, const Factor& f) const {
  const double exact =
      f.divides ? static_cast<double>(static_cast<float>(x / f.before)) / f.value
                : x * f.value;  // of two binary32 values: narrowing a binary64 quotient is exact too
  const double y = static_cast<float>(exact);
  if (q_.numerics.pre_round == PreRound::bf16)
    return value_of(Encoding::bf16, nearest_code(Encoding::bf16, y));
  if (q_.numerics.pre_round == PreRound::f16) return value_of(Encoding::f16, nearest_code(Encoding::f16, y));
  if (q_.numerics.pre_round == PreRound::f16_rz && std::isfinite(y))
    return value_of(Encoding::f16, truncated_code(Encoding::f16, y));
  return y;
}

// N9.1, N9.2, N17.5.
Factor Factors::fp8_block(double scale_inv, double amax) const {
  const Numerics& n = q_.numerics;
  if (n.scale_order == ScaleOrder::decode_divide) return {scale_inv, true};
  if (n.scale_order == ScaleOrder::decode_first) return {Division(q_, source_).rounded(1 / scale_inv)};
  const double least = std::max(amax, value_of(Encoding::f32, q_.eps));
  if (least == 0 && n.zero_amax == ZeroAmax::divided) return {kInfinity};                    // N17.15
  if (least == 0 && n.zero_amax == ZeroAmax::epsilon) return {1 / source_epsilon(source_)};  // N17.15
  if (least == 0 || std::isnan(amax) || (std::isinf(least) && n.inf_amax == InfAmax::unit)) return {1};
  double scale = Division(q_, source_).encode(largest_of(q_.element), least);
  if (std::isinf(scale))
    scale = largest_of(n.scale_limit == ScaleLimit::source_max ? source_ : Encoding::f32);
  return {q_.pow2 && scale > 0 ? std::exp2(std::ilogb(scale)) : scale};
}

// N10.8, N17.10.
Factor Factors::nvfp4(float s, float tensor_amax) const {
  const Numerics& n = q_.numerics;
  const float encode = encode_scale(q_, tensor_amax, source_);
  const bool unit = n.nvfp4_scale == Nvfp4Scale::unit;
  const float p = unit ? 1 : static_cast<float>(Division(q_, source_).decode(tensor_amax, range_of(q_)));
  if (s == 0 && n.zero_multiplier != ZeroMultiplier::limit) return {zero_scale_multiplier(n.zero_multiplier)};
  switch (n.multiplier) {
    case Multiplier::divide_product: return {s * p, true};
    case Multiplier::divide_quotient: return {s / encode, true};
    case Multiplier::divide_twice: return {s, true, 0, p};
    case Multiplier::product_reciprocal: return {1.0f / (s * p)};
    case Multiplier::quotient: return {at_most(encode / s, kMost, n.nan_clamp)};
    case Multiplier::decode_reciprocal: return {at_most(1.0f / p / s, kMost, n.nan_clamp)};
    case Multiplier::bf16_quotient:
      return {bf16_of(at_most(encode / s, static_cast<float>(largest_of(Encoding::bf16)), n.nan_clamp))};
    case Multiplier::reciprocal: break;
  }
  return {at_most(1.0f / (s * (1.0f / encode)), kMost, n.nan_clamp)};
}

// Whether a number is infinite in binary32; nothing where it is infinite or nearly so.
static std::optional<bool> overflows(double number) {
  constexpr double kUnsure = 0x1p-20, kLargest = static_cast<double>(kMost);  // it is rounded twice
  if (std::fabs(number / kLargest - 1) < kUnsure) return {};
  return number > kLargest;
}

std::optional<bool> inverts_infinity(Multiplier rule, double product) {
  if (rule != Multiplier::reciprocal && rule != Multiplier::product_reciprocal) return false;
  return overflows(product);
}

// ---- factors with slack ----

namespace {

// N10.8 with bf16_quotient: S / scale rounded to bf16, or the two neighbours where the quotient is near their
// middle.
std::optional<Factor> bf16_quotient_within(double encode, double scale) {
  const double most = largest_of(Encoding::bf16);
  const double quotient = std::min(scale == 0 ? most : encode / scale, most);
  if (std::isnan(quotient)) return {};
  const double step = step_at(Encoding::bf16, quotient), lower = std::floor(quotient / step) * step;
  const double above = quotient - lower;
  if (std::fabs(above - step / 2) <= quotient * 0x1p-20) return Factor{quotient, false, step / 2};
  return Factor{above < step / 2 ? lower : lower + step};
}

// N17.10: fl(s P) or fl(s / S), which may be infinite; nothing where it is nearly so.
std::optional<Factor> divisor_within(double divisor, double slack) {
  const std::optional<bool> infinite = overflows(divisor);
  if (!infinite) return {};
  return *infinite ? Factor{kInfinity, true} : Factor{divisor, true, slack};
}

std::optional<Factor> nvfp4_within(const Quantizer& q, Encoding source, uint32_t code, double scale,
                                   double tensor_amax) {
  const Numerics& n = q.numerics;
  const auto t = tensor_scales(tensor_amax, q, source);  // N10.8
  if (!t || std::isnan(scale) || code >= 0x80) return {};
  if (scale == 0 && n.zero_multiplier != ZeroMultiplier::limit)
    return Factor{zero_scale_multiplier(n.zero_multiplier)};  // N17.10
  if (n.multiplier == Multiplier::bf16_quotient) return bf16_quotient_within(t->encode, scale);
  // N17.10: P has fewer digits where S is near the largest, and no special case of an amax of 0.
  const bool special = t->encode > 0x1p100 || tensor_amax == 0;
  if (n.multiplier != Multiplier::reciprocal && n.nvfp4_scale != Nvfp4Scale::unit && special) return {};
  if (reads_decode(n.multiplier) && (t->decode == 0 || scale * t->decode > static_cast<double>(kMost)))
    return {};
  const double s = reads_decode(n.multiplier) ? 1 / t->decode : t->encode;
  const double slack = scale == 0 ? 0 : 0x1p-21;
  if (n.multiplier == Multiplier::divide_twice) return Factor{scale, true, slack, t->decode};
  if (divides_elements(n.multiplier)) return divisor_within(scale / s, slack);
  if (n.multiplier == Multiplier::reciprocal && std::isinf(static_cast<float>(1 / t->encode)))
    return {};  // given_product: 1 / S overflows (N10.7)
  // An infinity times a multiplier of 0 is a NaN.
  const std::optional<bool> vanishes = inverts_infinity(n.multiplier, scale / s);
  if (!vanishes) return {};
  if (*vanishes) return Factor{0};
  if (n.multiplier == Multiplier::product_reciprocal && scale / s < 0x1p-100)
    return {};  // infinite, or nearly
  const double r = scale == 0 ? std::numeric_limits<double>::infinity() : s / scale;
  if (r > static_cast<double>(kMost) * (1 + 0x1p-15)) return Factor{kMost};
  // Near the largest S the decode scale is subnormal and has fewer digits (N10.7).
  // A subnormal multiplier is a step of 2^-149 or less off.
  return Factor{r, false, r * (s > 0x1p100 ? 0x1p-15 : 0x1p-21) + 0x1p-149};
}

// N9.2: the scale is not stored, its reciprocal is; in GEMM layout only its exponent, and of a subnormal
// nothing (N9.6).
std::optional<Factor> fp8_block_within(const Quantizer& q, Encoding source, const Plane& scales,
                                       uint32_t code, double scale) {
  const ScaleOrder order = q.numerics.scale_order;
  const bool gemm = scales.layout == ScaleLayout::gemm;
  if (!std::isfinite(scale) || scale == 0) return {};
  if (gemm && q.scale_from == ScaleFrom::scale) return {};  // a given scale is any
  const bool zero =
      q.numerics.zero_amax == ZeroAmax::divided;  // N17.15: the code 00 may stand for a scale_inv of 0
  if (gemm && code == 0 && (order != ScaleOrder::encode_first || zero)) return {};
  if (order == ScaleOrder::decode_divide) return Factor{scale, true};  // N17.5
  if (order == ScaleOrder::decode_first)
    return Factor{Division(q, source).rounded(1 / scale)};  // N17.5: one step from what is stored
  if (q.pow2) return Factor{1 / scale};
  // N17.14: in_source, the reciprocal has fewer digits.
  const double unsure =
      q.numerics.scale_division == ScaleDivision::in_source ? step_at(source, scale) / scale : 0;
  return Factor{1 / scale, false, (unsure + 0x1p-20) / scale};
}

}  // namespace

std::optional<Factor> factor_within(const Quantizer& q, Encoding source, const Plane& scales, uint32_t code,
                                    double tensor_amax) {
  const double scale = value_of(scales.encoding, code);
  switch (info(q.format).family) {
    case Family::fp8_tensor:
      return q.format == FormatId::fp8_delayed ? given_factor(scale, q) : Factor{scale};
    case Family::mx: return Factor{mx_multiplier(code, q)};
    case Family::nvfp4: return nvfp4_within(q, source, code, scale, tensor_amax);
    case Family::fp8_block: return fp8_block_within(q, source, scales, code, scale);
    case Family::identity: break;
  }
  return Factor{1};
}

}  // namespace assay
