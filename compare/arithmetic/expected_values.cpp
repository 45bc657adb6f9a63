#include "compare/arithmetic/expected_values.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compare/arithmetic/codes.h"

namespace assay {

namespace {

double value(const PlaneData& p, int64_t row, int64_t col) { return value_of(p.plane.encoding, code_at(p.plane, p.bytes, index_of(p.plane, row, col))); }
double value_at(const PlaneData& p, int64_t index) { return value_of(p.plane.encoding, code_at(p.plane, p.bytes, index)); }

// N17.3: v, at most `slack` off, rounded to a grid first: its ends are, as that is monotone. Nothing where they lie on both sides of the largest value.
std::optional<Scaled> pre_rounded(const Scaled& v, PreRound rule) {
  const bool cuts = rule == PreRound::f16_rz;
  const Encoding e = cuts ? Encoding::f16 : Encoding::bf16;
  const double a = std::fabs(v.value), most = value_of(e, info(e).max_finite);
  if (!std::isfinite(a) || a == 0) return v;
  const auto rounded = [&](double magnitude) {
    if (cuts && magnitude > most) return most;
    if (magnitude >= most + step_at(e, most) / 2) return std::numeric_limits<double>::infinity();
    const double steps = magnitude / step_at(e, magnitude);
    return (cuts ? std::floor(steps) : std::nearbyint(steps)) * step_at(e, magnitude);
  };
  const double low = rounded(std::max(a - v.slack, 0.0)), high = rounded(a + v.slack);
  if (low == high) return Scaled{std::copysign(low, v.value), 0};
  if (std::isinf(high)) return {};
  return Scaled{std::copysign((low + high) / 2, v.value), (high - low) / 2};
}

}  // namespace

double Division::rounded(double quotient) const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (std::fabs(quotient) >= 0x1.ffffffp127) return std::copysign(kInfinity, quotient);   // the midpoint above FLT_MAX
  const double v = static_cast<float>(quotient);
  if (rule_ != ScaleDivision::in_source || source_ == Encoding::f32 || !std::isfinite(v)) return v;
  const double step = step_at(source_, v), nearest = std::nearbyint(v / step) * step;
  return std::fabs(nearest) > value_of(source_, info(source_).max_finite) ? std::copysign(kInfinity, v) : nearest;
}

double Division::encode(double most, double amax) const { return rule_ == ScaleDivision::divide ? rounded(most / amax) : rounded(most * rounded(1 / amax)); }
double Division::decode(double amax, double most) const { return rule_ == ScaleDivision::reciprocal ? rounded(amax * rounded(1 / most)) : rounded(amax / most); }

std::optional<TensorScales> tensor_scales(double amax, const Quantizer& q, Encoding source) {
  if (q.numerics.nvfp4_scale == Nvfp4Scale::unit) return TensorScales{};
  if (!std::isfinite(amax) || amax < 0) return {};
  const double full = q.e4m3_max == E4m3Max::m256 ? 1536.0 : 2688.0;
  const Division division(q, source);
  const double s = amax == 0 ? 1 : std::min(division.encode(full, amax), 0x1.fffffep127);
  return TensorScales{s == 0 ? 1 : s, division.decode(amax, full)};
}

bool reads_decode(Nvfp4Scale rule) { return rule == Nvfp4Scale::decode || rule == Nvfp4Scale::decode_product; }
bool reads_decode(Multiplier rule) { return rule == Multiplier::decode_reciprocal || rule == Multiplier::divide_product; }

double narrowing(double v) { return std::fabs(v) * 0x1p-24 + 0x1p-150; }

int64_t scale_index(const Quantizer& q, const Plane& scales, int64_t i, int64_t j) {
  const int64_t n = length_of(q.block);
  if (n == 0) return q.row_scaled ? i : 0;                                // N3.12
  if (q.format == FormatId::fp8_block && scales.layout == ScaleLayout::gemm) return index_of(scales, i, j / 32);   // N9.6: one of four copies
  if (q.format == FormatId::fp8_block && is_square(q.block)) return index_of(scales, i / n, j / n);
  if (q.format == FormatId::fp8_block) return index_of(scales, j / n, i);
  return scales.tiles_by_columns() ? index_of(scales, i / n, j) : index_of(scales, i, j / n);
}

ScaledValues::ScaledValues(const Problem& p, Direction d, const std::vector<PlaneData>& in, const std::vector<PlaneData>& out) : p_(p), q_(*p.quantizer(d)), d_(d) {
  x_ = find_plane(in, "x");
  transposed_ = geometry(q_, p.x.shape, d).transposed;
  const FormatInfo& f = info(q_.format);
  if (q_.format == FormatId::fp8_delayed) scale_ = find_plane(in, plane_name(d, "given.scale"));
  else if (f.per_tensor_fp8()) scale_ = find_plane(out, plane_name(d, "scale"));
  else if (f.scale) scale_ = find_plane(out, plane_name(d, scale_stem(q_.scales)));
  if (q_.format == FormatId::fp8_current && q_.numerics.scale_order == ScaleOrder::decode_divide) divisor_ = find_plane(out, plane_name(d, "scale_inv"));   // N17.5
  if (q_.format == FormatId::nvfp4) amax_ = q_.amax ? find_plane(in, plane_name(d, "given.amax")) : find_plane(out, plane_name(d, "amax"));
}

std::optional<double> ScaledValues::element(int64_t i, int64_t j) const {
  if (d_ == Direction::col && p_.row && p_.col_source == ColSource::row_dequantized) return {};
  const int64_t r = transposed_ ? j : i, c = transposed_ ? i : j;
  if (!q_.rht) return value(*x_, r, c);
  if (p_.x.fill.kind != FillKind::exact_sums) return {};                  // small integers: every sum is exact, whatever its order
  const auto sum = rotated(*x_, q_.sign_mask, r, c);
  return sum ? std::optional(*sum / 4) : std::nullopt;
}

std::optional<TensorScales> ScaledValues::tensor_scales(int64_t i) const { return assay::tensor_scales(value_at(*amax_, q_.row_scaled ? i : 0), q_, p_.x.source); }

std::optional<ScaledValues::Factor> ScaledValues::factor(int64_t i, int64_t j) const {
  if (divisor_) return Factor{value_at(*divisor_, scale_index(q_, divisor_->plane, i, j)), 0, true};
  const uint32_t code = code_at(scale_->plane, scale_->bytes, scale_index(q_, scale_->plane, i, j));
  const double scale = value_of(scale_->plane.encoding, code);
  const ScaleOrder order = q_.numerics.scale_order;
  if (info(q_.format).per_tensor_fp8()) return Factor{scale, 0};
  if (q_.format == FormatId::mxfp8 || q_.format == FormatId::mxfp4)       // N5.4
    return Factor{code == 0xFF ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, 127 - static_cast<int>(code)), 0};
  if (q_.format == FormatId::nvfp4) return nvfp4_factor(i, code, scale);
  // N9.2: the scale is not stored, its reciprocal is; in GEMM layout only its exponent, and of a subnormal nothing (N9.6).
  if (!std::isfinite(scale) || scale == 0) return {};
  if (q_.scale_from == ScaleFrom::scale && scale_->plane.layout == ScaleLayout::gemm) return {};   // a given scale is any
  if (order != ScaleOrder::encode_first && scale_->plane.layout == ScaleLayout::gemm && code == 0) return {};
  if (order == ScaleOrder::decode_divide) return Factor{scale, 0, true};   // N17.5
  const Division division(q_, p_.x.source);
  if (order == ScaleOrder::decode_first) return Factor{division.rounded(1 / scale), 0};   // N17.5: one step from what is stored
  if (q_.pow2) return Factor{1 / scale, 0};
  const double unsure = q_.numerics.scale_division == ScaleDivision::in_source ? step_at(p_.x.source, scale) / scale : 0;   // N17.14: the reciprocal has fewer digits
  return Factor{1 / scale, (unsure + 0x1p-20) / scale};
}

std::optional<ScaledValues::Factor> ScaledValues::nvfp4_factor(int64_t i, uint32_t code, double scale) const {
  constexpr double kMost = 0x1.fffffep127;
  const Numerics& n = q_.numerics;
  const auto t = tensor_scales(i);                                        // N10.8
  if (!t || std::isnan(scale) || code >= 0x80) return {};
  if (scale == 0 && n.zero_multiplier == ZeroMultiplier::zero) return Factor{0, 0};   // N17.10
  if (n.multiplier == Multiplier::bf16_quotient) {
    const double most = value_of(Encoding::bf16, info(Encoding::bf16).max_finite), quotient = std::min(scale == 0 ? most : t->encode / scale, most);
    if (std::isnan(quotient)) return {};
    const double step = step_at(Encoding::bf16, quotient), lower = std::floor(quotient / step) * step, above = quotient - lower;
    if (std::fabs(above - step / 2) <= quotient * 0x1p-20) return Factor{quotient, step / 2};
    return Factor{above < step / 2 ? lower : lower + step, 0};
  }
  // N17.10: P has fewer digits where S is near the largest, and no special case of an amax of 0.
  const bool divides = n.multiplier == Multiplier::divide_product || n.multiplier == Multiplier::divide_quotient;
  if (n.multiplier != Multiplier::reciprocal && n.nvfp4_scale != Nvfp4Scale::unit && (t->encode > 0x1p100 || value_at(*amax_, q_.row_scaled ? i : 0) == 0)) return {};
  if (reads_decode(n.multiplier) && t->decode == 0) return {};
  const double s = reads_decode(n.multiplier) ? 1 / t->decode : t->encode;
  if (divides) return Factor{scale / s, scale == 0 ? 0 : 0x1p-21, true};
  const double r = scale == 0 ? std::numeric_limits<double>::infinity() : s / scale;
  if (r > kMost * (1 + 0x1p-15)) return Factor{kMost, 0};
  // Near the largest S the decode scale is subnormal and has fewer digits (N10.7).
  return Factor{r, r * (s > 0x1p100 ? 0x1p-15 : 0x1p-21)};
}

std::optional<Scaled> ScaledValues::at(int64_t i, int64_t j) const {
  const auto x = element(i, j);
  const auto f = x ? factor(i, j) : std::nullopt;
  if (!f) return {};
  Scaled v;
  v.value = f->divides ? *x / f->value : *x * f->value;
  v.slack = f->divides ? std::fabs(v.value) * f->slack : std::fabs(*x * f->slack);
  // 48 significant bits at most, and a quotient is that far from what binary32 has; such a value is not rounded again.
  const bool stands = v.slack == 0 && (!std::isfinite(v.value) || static_cast<double>(static_cast<float>(v.value)) == v.value);
  if (!stands) v.slack += narrowing(v.value);
  if (!std::isfinite(v.value)) v.slack = 0;
  if (q_.numerics.pre_round == PreRound::none) return v;
  return pre_rounded(v, q_.numerics.pre_round);
}

}  // namespace assay
