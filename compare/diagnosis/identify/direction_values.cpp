#include "compare/diagnosis/identify/direction_values.h"

#include <cmath>
#include <limits>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/expected_values.h"

namespace assay::coherent {

using std::string;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What a scaled value was that became `code`.
Interval before_rounding(const Quantizer& q, uint32_t code) {
  const Encoding e = q.element;
  const EncodingInfo& i = info(e);
  const bool overflows = q.numerics.element_overflow == ElementOverflow::nan;
  if (is_nan(e, code)) return {overflows ? Interval::Kind::open : Interval::Kind::nan, 0, 0};
  const double v = value_of(e, code), a = std::fabs(v), most = value_of(e, i.max_finite);
  const bool negative = i.has_sign() && (code >> (i.bits - 1) & 1) != 0;
  const bool drawn = q.round == Round::sr;
  double low = 0, high = kInfinity;
  if (std::isinf(v)) {
    low = most;
  } else {
    // The neighbours in magnitude: between them under a stochastic rounding, half way to them otherwise,
    // either end included.
    const uint32_t m = code & (i.has_sign() ? (1u << (i.bits - 1)) - 1 : ~0u);
    const double below = m == 0 ? 0 : value_of(e, m - 1), above = a >= most ? kInfinity : value_of(e, m + 1);
    low = m == 0 ? 0 : drawn ? below : (below + a) / 2;
    high = drawn ? above : (above + a) / 2;
  }
  if (a == 0 && q.numerics.neg_zero == NegZero::drop)
    return {Interval::Kind::known, -high, high};  // N17.4: the sign is lost
  return {Interval::Kind::known, negative ? -high : low, negative ? -low : high};
}

// How far a scaled value may lie from the exact one, of its magnitude.
double slack_of(const Quantizer& q, Encoding source) {
  double out = q.numerics.multiplier == Multiplier::bf16_quotient ? 0x1p-7 : 0x1p-19;
  if (q.numerics.pre_round == PreRound::bf16) out += 0x1p-8;
  if (q.numerics.pre_round == PreRound::f16_rz || q.numerics.pre_round == PreRound::f16) out += 0x1p-9;
  const bool in_source = q.numerics.scale_division == ScaleDivision::in_source;
  if (in_source && info(q.format).scale == Encoding::f32)
    out += step_at(source, 1);  // N17.14: the stored scale has fewer digits
  return out;
}

}  // namespace

Interval widened(Interval i, double slack, double least) {
  i.low -= std::fabs(i.low) * slack + least;
  i.high += std::fabs(i.high) * slack + least;
  return i;
}

bool disjoint(const Interval& a, const Interval& b) { return a.low > b.high || b.low > a.high; }

DirectionValues::DirectionValues(const Problem& p, Direction d, const std::vector<PlaneData>& planes)
    : q_(*p.quantizer(d)), source_(p.x.source), d_(d) {
  find_planes(planes);
  if (!trouble_.empty() || !scale_) return;
  for (uint32_t code = 0; code < 256 && info(q_.element).bits <= 8; ++code)
    intervals_[code] = before_rounding(q_, code);
  slack_ = slack_of(q_, source_);
}

void DirectionValues::find_planes(const std::vector<PlaneData>& planes) {
  const auto find = [&](const string& name) {
    const PlaneData* plane = find_plane(planes, name);
    if (!plane) trouble_ = "the pack holds no " + name;
    return plane;
  };
  data_ = find(plane_name(d_, "data"));
  if (!data_) return;
  transposed_ = data_->plane.transposed;
  const FormatInfo& f = info(q_.format);
  if (!f.scale) return;  // identity: the values themselves
  scale_ = find(plane_name(d_, f.per_tensor_fp8() ? "scale_inv" : scale_stem(q_.scales)));
  if (!scale_) return;
  if (q_.format != FormatId::nvfp4 || q_.numerics.nvfp4_scale == Nvfp4Scale::unit) return;
  amax_ = find_plane(planes, plane_name(d_, q_.amax ? "given.amax" : "amax"));
  if (q_.amax && !amax_) given_ = value_of(Encoding::f32, *q_.amax);
  unscaled_ = !amax_ && !given_;
}

// ---- codes ------------------------------------------------------------------------------------------------

uint32_t DirectionValues::code(int64_t r, int64_t c) const {
  const Plane& plane = data_->plane;
  return code_at(plane, data_->bytes, transposed_ ? index_of(plane, c, r) : index_of(plane, r, c));
}

uint32_t DirectionValues::scale_code(int64_t r, int64_t c) const {
  return code_at(scale_->plane, scale_->bytes, scale_at(r, c));
}

int64_t DirectionValues::scale_at(int64_t r, int64_t c) const {
  const int64_t i = transposed_ ? c : r, j = transposed_ ? r : c;
  if (length_of(q_.block) == 0)
    return scale_->plane.logical.rows > 1 ? i : 0;  // one for each stored row, or one
  return scale_index(q_, scale_->plane, i, j);
}

// ---- values -----------------------------------------------------------------------------------------------

double DirectionValues::tensor_amax(int64_t r, int64_t c) const {
  return given_ ? *given_
                : value_of(Encoding::f32,
                           code_at(amax_->plane, amax_->bytes, q_.row_scaled ? (transposed_ ? c : r) : 0));
}

// N10.15 multiplies scale and amax first.
bool DirectionValues::overflows(int64_t r, int64_t c) const {
  return q_.format == FormatId::nvfp4 && q_.numerics.nvfp4_scale != Nvfp4Scale::unit &&
         value_of(scale_->plane.encoding, scale_code(r, c)) * tensor_amax(r, c) >= 0x1p127;
}

// What one unit of the code's value is, of the element at (r, c); 0: it is not known.
double DirectionValues::unit(int64_t r, int64_t c) const {
  if (!scale_) return 1;
  const double scale = value_of(scale_->plane.encoding, scale_code(r, c));
  if (!std::isfinite(scale) || scale == 0) return 0;
  if (q_.format != FormatId::nvfp4)
    return std::fabs(scale) < 0x1p-126 && scale_->plane.encoding == Encoding::f32 ? 0 : scale;
  if (q_.numerics.nvfp4_scale == Nvfp4Scale::unit) return scale;
  const double a = tensor_amax(r, c);
  const double s = static_cast<double>(encode_scale(q_, static_cast<float>(a), source_));
  return a > 0 && std::isfinite(a) && s < 0x1p127 ? scale / s : 0;
}

Interval DirectionValues::at(int64_t r, int64_t c) const {
  const uint32_t k = code(r, c);
  if (!scale_) {
    const double v = value_of(data_->plane.encoding, k);
    return std::isnan(v) ? Interval{Interval::Kind::nan, 0, 0} : Interval{Interval::Kind::known, v, v};
  }
  const double u = unit(r, c);
  Interval i = intervals_[k & 0xFF];
  if (u == 0 || i.kind != Interval::Kind::known) return u == 0 ? Interval{} : i;
  return widened({i.kind, i.low * u, i.high * u}, slack_, 0x1p-148 * u);
}

double DirectionValues::middle(int64_t r, int64_t c) const {
  return scale_ ? value_of(q_.element, code(r, c)) * unit(r, c) : value_of(data_->plane.encoding, code(r, c));
}

Interval DirectionValues::decoded(int64_t r, int64_t c, Encoding source) const {
  if (!scale_) return at(r, c);
  const double u = unit(r, c), v = value_of(q_.element, code(r, c)) * u;
  if (u == 0 || std::isinf(v) || overflows(r, c)) return {};
  if (std::isnan(v)) return {Interval::Kind::nan, 0, 0};
  const double half = source == Encoding::f32
                          ? 0
                          : step_at(source, v) / 2;  // narrowed to x's encoding, beyond which is infinity
  Interval i = widened({Interval::Kind::known, v - half, v + half}, 0x1p-19, 0x1p-148);
  const double most = value_of(source, info(source).max_finite);
  if (i.low < -most) i.low = -kInfinity;
  if (i.high > most) i.high = kInfinity;
  return i;
}

}  // namespace assay::coherent
