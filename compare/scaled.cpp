#include "compare/scaled.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "compare/describe.h"

namespace assay {

namespace {

double value(const PlaneData& p, int64_t row, int64_t col) { return value_of(p.plane.encoding, code_at(p.plane, p.bytes, index_of(p.plane, row, col))); }
double value_at(const PlaneData& p, int64_t index) { return value_of(p.plane.encoding, code_at(p.plane, p.bytes, index)); }

}  // namespace

double narrowing(double v) { return std::fabs(v) * 0x1p-24 + 0x1p-150; }

int64_t scale_index(const Quantizer& q, const Plane& scales, int64_t i, int64_t j) {
  const int64_t n = length_of(q.block);
  if (n == 0) return 0;
  if (q.format == FormatId::fp8_block && scales.layout == ScaleLayout::gemm) return index_of(scales, i, j / 32);   // N9.6: one of four copies
  if (q.format == FormatId::fp8_block && is_square(q.block)) return index_of(scales, i / n, j / n);
  if (q.format == FormatId::fp8_block) return index_of(scales, j / n, i);
  return scales.tiles_by_columns() ? index_of(scales, i / n, j) : index_of(scales, i, j / n);
}

std::optional<double> rotated(const PlaneData& x, uint16_t sign_mask, int64_t r, int64_t c) {
  const int64_t first = r / 16 * 16;
  const unsigned j = static_cast<unsigned>(r % 16);
  double sum = 0;
  for (unsigned i = 0; i < 16; ++i) {                                     // N11.1
    const double v = value(x, first + i, c);
    if (!std::isfinite(v)) return {};
    sum += ((sign_mask >> i & 1) ^ (std::popcount(i & j) & 1)) != 0 ? -v : v;
  }
  return sum;
}

ScaledValues::ScaledValues(const Problem& p, Direction d, const std::vector<PlaneData>& in, const std::vector<PlaneData>& out) : p_(p), q_(*p.quantizer(d)), d_(d) {
  x_ = find_plane(in, "x");
  transposed_ = geometry(q_, p.x.shape, d).transposed;
  const FormatInfo& f = info(q_.format);
  if (q_.format == FormatId::fp8_delayed) scale_ = find_plane(in, plane_name(d, "given.scale"));
  else if (f.per_tensor_fp8()) scale_ = find_plane(out, plane_name(d, "scale"));
  else if (f.scale) scale_ = find_plane(out, plane_name(d, scale_stem(q_.scales)));
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

std::optional<double> ScaledValues::encode_scale(int64_t i) const {
  const double a = value_at(*amax_, q_.row_scaled ? i : 0);
  if (a == 0) return 1;
  if (!std::isfinite(a) || a < 0) return {};
  const double s = (q_.e4m3_max == E4m3Max::m256 ? 1536.0 : 2688.0) / a;
  if (s > 0x1.fffffep127) return 0x1.fffffep127;
  return static_cast<double>(static_cast<float>(s));                      // narrowed once, as binary32 divides
}

std::optional<Scaled> ScaledValues::multiplier(int64_t i, int64_t j) const {
  const uint32_t code = code_at(scale_->plane, scale_->bytes, scale_index(q_, scale_->plane, i, j));
  const double scale = value_of(scale_->plane.encoding, code);
  if (info(q_.format).per_tensor_fp8()) return Scaled{scale, 0};
  if (q_.format == FormatId::mxfp8 || q_.format == FormatId::mxfp4)       // N5.4
    return Scaled{code == 0xFF ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, 127 - static_cast<int>(code)), 0};
  if (q_.format == FormatId::fp8_block) {                                 // N9.2: the scale is not stored, its reciprocal is
    if (!std::isfinite(scale) || scale == 0) return {};
    return Scaled{1 / scale, q_.pow2 ? 0 : 0x1p-20 / scale};
  }
  const auto s = encode_scale(i);                                         // N10.8
  if (!s || std::isnan(scale)) return {};
  if (q_.numerics.multiplier == Multiplier::bf16_quotient) {
    const double most = value_of(Encoding::bf16, info(Encoding::bf16).max_finite), quotient = std::min(scale == 0 ? most : *s / scale, most);
    if (std::isnan(quotient)) return {};
    const double step = step_at(Encoding::bf16, quotient), lower = std::floor(quotient / step) * step, above = quotient - lower;
    if (std::fabs(above - step / 2) <= quotient * 0x1p-20) return Scaled{quotient, step / 2};
    return Scaled{above < step / 2 ? lower : lower + step, 0};
  }
  constexpr double kMost = 0x1.fffffep127;
  const double r = scale == 0 ? std::numeric_limits<double>::infinity() : *s / scale;
  if (r > kMost * (1 + 0x1p-15)) return Scaled{kMost, 0};
  // Near the largest S the decode scale is subnormal and has fewer digits (N10.7).
  return Scaled{r, r * (*s > 0x1p100 ? 0x1p-15 : 0x1p-21)};
}

std::optional<Scaled> ScaledValues::at(int64_t i, int64_t j) const {
  const auto x = element(i, j);
  const auto m = x ? multiplier(i, j) : std::nullopt;
  if (!m) return {};
  Scaled v{*x * m->value, std::fabs(*x) * m->slack};
  // 48 significant bits at most; a value that binary32 has is not rounded again.
  const bool stands = v.slack == 0 && (!std::isfinite(v.value) || static_cast<double>(static_cast<float>(v.value)) == v.value);
  if (!stands) v.slack += narrowing(v.value);
  if (!std::isfinite(v.value)) v.slack = 0;
  return v;
}

}  // namespace assay
