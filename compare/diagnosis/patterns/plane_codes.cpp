#include "compare/diagnosis/patterns/plane_codes.h"

#include <cmath>

#include "compare/arithmetic/codes.h"

namespace assay::patterns {

namespace {

// The codes of a plane's logical elements, row by row.
std::vector<uint32_t> codes_of(const PlaneData& p) {
  const Shape s = p.plane.logical;
  std::vector<uint32_t> out(static_cast<size_t>(s.count()));
  if (!p.plane.packed && p.plane.layout == ScaleLayout::compact && s == p.plane.padded &&
      info(p.plane.encoding).bytes() == 1) {  // the many, quickly
    for (size_t i = 0; i < out.size(); ++i) out[i] = std::to_integer<uint32_t>(p.bytes[i]);
    return out;
  }
  size_t n = 0;
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t c = 0; c < s.cols; ++c) out[n++] = code_at(p.plane, p.bytes, index_of(p.plane, r, c));
  return out;
}

}  // namespace

PlaneCodes::PlaneCodes(const PlaneData& g, const PlaneData& w)
    : rows(g.plane.logical.rows), cols(g.plane.logical.cols), got(codes_of(g)), want(codes_of(w)) {
  for (size_t i = 0; i < got.size(); ++i)
    if (got[i] != want[i]) differ.push_back(i);
}

bool can_scale(const Problem& p, const Plane& plane, const std::vector<PlaneData>& in,
               const std::vector<PlaneData>& out) {
  if (!p.as<Quantize>() || !plane.direction || !plane.name.ends_with(".data") || !find_plane(in, "x"))
    return false;
  const Direction d = *plane.direction;
  const Quantizer& q = *p.quantizer(d);
  if (!info(q.format).scale) return false;
  if (q.format == FormatId::fp8_delayed) return find_plane(in, plane_name(d, "given.scale"));
  if (q.format == FormatId::nvfp4 &&
      !(q.amax ? find_plane(in, plane_name(d, "given.amax")) : find_plane(out, plane_name(d, "amax"))))
    return false;
  return find_plane(out, plane_name(d, info(q.format).per_tensor_fp8() ? "scale" : scale_stem(q.scales)));
}

std::optional<double> between_codes(Encoding e, double most, double v) {
  const double a = std::fabs(v);
  if (!(a < most)) return {};
  const double step = step_at(e, a), at = a / step;
  return at - std::floor(at);
}

}  // namespace assay::patterns
