#include "compare/arithmetic/expected_values.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compare/arithmetic/codes.h"

namespace assay {

namespace {

double value(const PlaneData& p, int64_t row, int64_t col) {
  return value_of(p.plane.encoding, code_at(p.plane, p.bytes, index_of(p.plane, row, col)));
}
double value_at(const PlaneData& p, int64_t index) {
  return value_of(p.plane.encoding, code_at(p.plane, p.bytes, index));
}

// N17.3: v, at most `slack` off, rounded to a grid first: its ends are, as that is monotone. Nothing where
// they lie on both sides of the largest value.
std::optional<Scaled> pre_rounded(const Scaled& v, PreRound rule) {
  const bool cuts = rule == PreRound::f16_rz;
  const Encoding e = rule == PreRound::bf16 ? Encoding::bf16 : Encoding::f16;
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

double narrowing(double v) { return std::fabs(v) * 0x1p-24 + 0x1p-150; }

int64_t scale_index(const Quantizer& q, const Plane& scales, int64_t i, int64_t j) {
  const int64_t n = length_of(q.block);
  if (n == 0) return q.row_scaled ? i : 0;  // N3.12
  if (q.format == FormatId::fp8_block && scales.layout == ScaleLayout::gemm)
    return index_of(scales, i, j / 32);  // N9.6: one of four copies
  if (q.format == FormatId::fp8_block && is_square(q.block)) return index_of(scales, i / n, j / n);
  if (q.format == FormatId::fp8_block) return index_of(scales, j / n, i);
  return scales.tiles_by_columns() ? index_of(scales, i / n, j) : index_of(scales, i, j / n);
}

ScaledValues::ScaledValues(const Problem& p, Direction d, const std::vector<PlaneData>& in,
                           const std::vector<PlaneData>& out)
    : p_(p), q_(*p.quantizer(d)), d_(d) {
  x_ = find_plane(in, "x");
  transposed_ = geometry(q_, p.x.shape, d).transposed;
  const FormatInfo& f = info(q_.format);
  if (q_.format == FormatId::fp8_delayed) scale_ = find_plane(in, plane_name(d, "given.scale"));
  else if (f.per_tensor_fp8()) scale_ = find_plane(out, plane_name(d, "scale"));
  else if (f.scale) scale_ = find_plane(out, plane_name(d, scale_stem(q_.scales)));
  if (q_.format == FormatId::fp8_current && q_.numerics.scale_order == ScaleOrder::decode_divide)
    divisor_ = find_plane(out, plane_name(d, "scale_inv"));  // N17.5
  if (q_.format == FormatId::nvfp4)
    amax_ = q_.amax ? find_plane(in, plane_name(d, "given.amax")) : find_plane(out, plane_name(d, "amax"));
}

std::optional<double> ScaledValues::element(int64_t i, int64_t j) const {
  if (!x_) return {};
  if (d_ == Direction::col && p_.row && p_.col_source == ColSource::row_dequantized) return {};
  const int64_t r = transposed_ ? j : i, c = transposed_ ? i : j;
  if (!q_.rht) return value(*x_, r, c);
  if (p_.x.fill.kind != FillKind::exact_sums)
    return {};  // small integers: every sum is exact, whatever its order
  const auto sum = rotated(*x_, q_.sign_mask, r, c);
  return sum ? std::optional(*sum / 4) : std::nullopt;
}

double ScaledValues::tensor_amax(int64_t i) const { return value_at(*amax_, q_.row_scaled ? i : 0); }

std::optional<TensorScales> ScaledValues::tensor_scales(int64_t i) const {
  if (!amax_) return {};
  return assay::tensor_scales(tensor_amax(i), q_, p_.x.source);
}

std::optional<Factor> ScaledValues::factor(int64_t i, int64_t j) const {
  if (q_.format == FormatId::nvfp4 && !amax_) return {};
  if (divisor_) return Factor{value_at(*divisor_, scale_index(q_, divisor_->plane, i, j)), true};
  if (!scale_) return {};
  const uint32_t code = code_at(scale_->plane, scale_->bytes, scale_index(q_, scale_->plane, i, j));
  return factor_within(q_, p_.x.source, scale_->plane, code, amax_ ? tensor_amax(i) : 0);
}

std::optional<Scaled> ScaledValues::at(int64_t i, int64_t j) const {
  const auto x = element(i, j);
  const auto f = x ? factor(i, j) : std::nullopt;
  if (!f) return {};
  if (f->before != 1 && *x != 0 && std::fabs(*x / f->before) < 0x1p-126)
    return {};  // N17.10: fl(x / P) has few digits, or is 0
  Scaled v;
  v.value = f->divides ? *x / f->before / f->value : *x * f->value;
  v.slack = f->divides ? std::fabs(v.value) * f->slack : std::fabs(*x * f->slack);
  // 48 significant bits at most, and a quotient is that far from what binary32 has; such a value is not
  // rounded again.
  const bool stands = v.slack == 0 && (!std::isfinite(v.value) ||
                                       static_cast<double>(static_cast<float>(v.value)) == v.value);
  if (!stands) v.slack += narrowing(v.value);
  if (!std::isfinite(v.value)) v.slack = 0;
  if (q_.numerics.pre_round == PreRound::none) return v;
  return pre_rounded(v, q_.numerics.pre_round);
}

}  // namespace assay
