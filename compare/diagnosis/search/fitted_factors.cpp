// Codes, or scales of blocks, that were made with another scale than the one that is stored: the ratio of the
// two is fitted. Every code leaves an interval for it, and where all of them meet there is a number.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/expected_values.h"
#include "compare/diagnosis/patterns/plane_codes.h"
#include "compare/diagnosis/search/codes.h"
#include "compare/diagnosis/search/stages.h"

namespace assay::cause {

namespace {

using std::string;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSlack = 0x1p-21;  // of the roundings between a scale and the value that is cast

struct Interval {
  double low = 0, high = kInfinity;
  bool empty() const { return low > high; }
  void meet(double lo, double hi) {
    low = std::max(low, lo * (1 - kSlack));
    high = std::min(high, hi * (1 + kSlack));
  }
};

// The number in the interval with the fewest binary digits.
double simplest(const Interval& i) {
  const int top = std::ilogb(i.high);
  for (int bits = 0; bits < 52; ++bits) {
    const double step = std::ldexp(1.0, top - bits), v = std::ceil(i.low / step) * step;
    if (v > 0 && v <= i.high) return v;
  }
  return (i.low + i.high) / 2;
}

// The magnitudes that are rounded to a code: to the nearest, toward zero, or away from it.
enum class Rounding : uint8_t { nearest, toward_zero, away };
struct RoundingId {
  Rounding rounding;
  const char* id;  // of the row that rounds so; null: as it should be
};
constexpr RoundingId kRoundings[] = {{Rounding::nearest, nullptr},
                                     {Rounding::nearest, "line.element_ties=away"},
                                     {Rounding::toward_zero, "code.toward_zero"},
                                     {Rounding::away, "code.away"}};

Interval rounded_from(Encoding e, uint32_t code, Rounding rounding) {
  const uint32_t m = code & ((1u << (info(e).bits - 1)) - 1), most = info(e).max_finite;
  const double v = value_of(e, m), below = m > 0 ? value_of(e, m - 1) : 0;
  const double above = m < most ? value_of(e, m + 1) : kInfinity;
  switch (rounding) {
    case Rounding::nearest: return {m > 0 ? (below + v) / 2 : 0, m < most ? (v + above) / 2 : kInfinity};
    case Rounding::toward_zero: return {v, above};
    case Rounding::away: return {below, m < most ? v : kInfinity};
  }
  return {};
}

// What all codes of a lane leave for the ratio of the scale that was used to the one that is stored. `under`:
// the planes whose scales elements are held to.
Interval ratio_of_codes(const JudgedLane& lane, const std::vector<PlaneData>& under, Rounding rounding) {
  const JudgedPlane& data = *lane.find(".data");
  const Plane& plane = data.got.plane;
  const Codes got(data.got);
  Interval out;
  // A pack need not have the scales.
  if (!patterns::can_scale(lane.lane().problem, plane, lane.lane().inputs, under)) return {1, 0};
  const ScaledValues scaled(lane.lane().problem, *lane.lane().direction, lane.lane().inputs, under);
  for (int64_t r = 0; r < plane.logical.rows && !out.empty(); ++r)
    for (int64_t c = 0; c < plane.logical.cols && !out.empty(); ++c) {
      const uint32_t code = got[index_of(plane, r, c)];
      const auto v = scaled.at(r, c);
      if (!v || !std::isfinite(v->value) || v->value == 0 || is_nan(plane.encoding, code)) continue;
      const double a = std::fabs(v->value);
      const Interval i = rounded_from(plane.encoding, code, rounding);
      out.meet(i.low / a, i.high / a);
    }
  return out;
}

uint32_t f32_bits(double v) { return std::bit_cast<uint32_t>(static_cast<float>(v)); }
string times_text(double v) { return fmt::format("{:016X}", std::bit_cast<uint64_t>(v)); }

double scalar(const PlaneData* p) { return p ? value_of(Encoding::f32, Codes(*p)[0]) : 0; }

// The planes of a lane as they should be, or as they came.
std::vector<PlaneData> planes_of(const JudgedLane& lane, bool came) {
  std::vector<PlaneData> out;
  for (const JudgedPlane& j : lane.judged) out.push_back(came ? j.got : j.want);
  return out;
}

// The tensor scale S of an NVFP4 line, from the amax plane as it should be.
double tensor_scale(const JudgedLane& lane) {
  const JudgedPlane* amax = lane.find(".amax");
  const double a = amax && amax->is_scalar() ? scalar(&amax->want) : 0;
  return a > 0 ? static_cast<double>(static_cast<float>(2688 / a)) : 0;
}

bool ordinary(const Interval& i) { return !i.empty() && i.low > 0 && std::isfinite(i.high); }
bool holds_one(const Interval& i) { return i.low <= 1 && i.high >= 1; }

// Rows for a ratio of the codes.
std::vector<string> rows_of_codes(const JudgedLane& lane, const Interval& ratio) {
  const Quantizer& q = lane.quantizer();
  if (q.format == FormatId::nvfp4) {
    const double s = tensor_scale(lane);
    if (!(s > 0)) return {};
    const Interval amax{2688 / (s * ratio.high), 2688 / (s * ratio.low)};
    return {fmt::format("tensor_scale.codes_of_amax={:08X}", f32_bits(simplest(amax))),
            "tensor_scale.codes_times=" + times_text(simplest(ratio))};
  }
  // The tensor's own amax comes first: a rule foretells other tensors too, where a number does not.
  const double times = simplest(ratio);
  std::vector<string> out = {"tensor_scale.own_used", times == 0.5 ? "scaled.halved"
                                                      : times == 2 ? "scaled.doubled"
                                                                   : "scaled.times=" + times_text(times)};
  if (info(q.format).per_tensor_fp8() && !q.row_scaled) {
    const JudgedPlane* inverse = lane.find(".scale_inv");
    const double s = inverse ? 1 / scalar(&inverse->want) : 0;
    if (s > 0 && std::isfinite(s))
      out.insert(out.begin() + 1,
                 fmt::format("scaled.by={:08X}", f32_bits(simplest({s * ratio.low, s * ratio.high}))));
  }
  return out;
}

// Elements of a row-scaled tensor that all have one multiplier: a stale one.
std::optional<string> one_multiplier(const JudgedLane& lane, Rounding rounding) {
  const JudgedPlane& data = *lane.find(".data");
  const PlaneData* x = find_plane(lane.lane().inputs, "x");
  if (!lane.quantizer().row_scaled || !x) return {};
  const Matrix m(*x, *lane.lane().direction);
  const bool as_seen = lane.as_seen();
  const Codes got(data.got);
  Interval out;
  for (int64_t i = 0; i < lane.lines() && !out.empty(); ++i)
    for (int64_t j = 0; j < lane.length() && !out.empty(); ++j) {
      const double a = std::fabs(m.value(i, j));
      if (!(a > 0) || !std::isfinite(a)) continue;
      const int64_t at = as_seen ? index_of(data.got.plane, i, j) : index_of(data.got.plane, j, i);
      const Interval one = rounded_from(data.got.plane.encoding, got[at], rounding);
      out.meet(one.low / a, one.high / a);
    }
  if (!ordinary(out)) return {};
  return fmt::format("scaled.by={:08X}", f32_bits(simplest(out)));
}

// Holds rows, alone or with a row of rounding, to everything.
void offer(SearchState& s, const std::vector<string>& rows, const char* rounding) {
  std::vector<Ids> list;
  for (const string& id : rows) {
    bool everywhere = true;
    for (JudgedLane* l : s.bad()) everywhere &= l->row(id) && (!rounding || l->row(rounding));
    if (everywhere) list.push_back(rounding ? Ids{id, rounding} : Ids{id});
  }
  std::vector<Candidate> exact = s.screening.exact_of(s.screening.screen(list), 4);
  s.exact.insert(s.exact.end(), exact.begin(), exact.end());
}

// ---- the scales of blocks ----

// Calls f(amax of the block, code that came, code that is wanted) for every block.
template <class F> void for_blocks(const JudgedLane& lane, F f) {
  const Quantizer& q = lane.quantizer();
  const JudgedPlane* scales = lane.find(scale_stem(q.scales));
  const PlaneData* x = find_plane(lane.lane().inputs, "x");
  const int64_t n = length_of(q.block), height = is_square(q.block) ? n : 1;
  if (!scales || !x || n == 0) return;
  const Matrix m(*x, *lane.lane().direction);
  const bool as_seen = lane.as_seen();
  const Codes got(scales->got), want(scales->want);
  for (int64_t i = 0; i < lane.lines(); i += height)
    for (int64_t j = 0; j < lane.length(); j += n) {
      const int64_t at =
          as_seen ? scale_index(q, scales->got.plane, i, j) : scale_index(q, scales->got.plane, j, i);
      f(m.amax(i, std::min(i + height, lane.lines()), j, std::min(j + n, lane.length())), got[at], want[at]);
    }
}

// NVFP4: the tensor scale that the scales of all blocks were made with.
std::vector<string> rows_of_blocks(const JudgedLane& lane) {
  const double s = tensor_scale(lane);
  if (lane.quantizer().format != FormatId::nvfp4 || lane.quantizer().rht || !(s > 0)) return {};
  Interval used;
  for_blocks(lane, [&](double amax, uint32_t code, uint32_t) {
    if (!(amax > 0) || !std::isfinite(amax) || is_nan(Encoding::e4m3, code)) return;
    const Interval i = rounded_from(Encoding::e4m3, code, Rounding::nearest);
    used.meet(i.low * 6 / amax, i.high * 6 / amax);
  });
  if (!ordinary(used) || (used.low <= s && s <= used.high)) return {};
  const string amax = fmt::format("={:08X}", f32_bits(simplest({2688 / used.high, 2688 / used.low})));
  const string times = "=" + times_text(simplest({used.low / s, used.high / s}));
  std::vector<string> out;
  for (const char* what : {"tensor_scale.of_", "tensor_scale.blocks_of_"})
    out.push_back(what + ("amax" + amax));
  out.push_back("tensor_scale.of_times" + times);
  out.push_back("tensor_scale.blocks_times" + times);
  return out;
}

// The bound of amaxes that makes one scale of all blocks that differ. Of E8M0 and E4M3 a code leaves an
// interval; F32 scales tell it to a place or two.
std::vector<string> rows_of_bounds(const JudgedLane& lane) {
  const Quantizer& q = lane.quantizer();
  const double most = value_of(q.element, info(q.element).max_finite), s = tensor_scale(lane);
  std::optional<uint32_t> common;
  bool one = true, smaller = true, larger = true;
  Interval amaxes{kInfinity, 0};  // of the blocks that differ
  for_blocks(lane, [&](double amax, uint32_t got, uint32_t want) {
    if (got == want) return;
    one &= common.value_or(got) == got;
    common = got;
    (got < want ? larger : smaller) = false;
    amaxes.low = std::min(amaxes.low, amax);
    amaxes.high = std::max(amaxes.high, amax);
  });
  if (!common || !one || smaller == larger) return {};
  Interval bound;
  switch (info(q.format).scale.value_or(Encoding::f32)) {
    case Encoding::e8m0: {
      const double v = value_of(Encoding::e8m0, *common);
      bound = {most * v / 2 * (1 + 0x1p-20), most * v};
      break;
    }
    case Encoding::e4m3: {
      const Interval i = rounded_from(Encoding::e4m3, *common, Rounding::nearest);
      if (!(s > 0)) return {};
      bound = {i.low * 6 / s, i.high * 6 / s};
      break;
    }
    case Encoding::f32: {
      const double v = value_of(Encoding::f32, *common) * most;
      bound = {v * (1 - 0x1p-22), v * (1 + 0x1p-22)};
      break;
    }
    case Encoding::bf16:
    case Encoding::f16:
    case Encoding::e5m2:
    case Encoding::e2m3:
    case Encoding::e3m2:
    case Encoding::e2m1:
    case Encoding::u8:
    case Encoding::u32: return {};  // no format stores such scales
  }
  (smaller ? bound.high : bound.low) =
      smaller ? std::min(bound.high, amaxes.low) : std::max(bound.low, amaxes.high);
  if (!ordinary(bound)) return {};
  return {fmt::format("amax.{}={:08X}", smaller ? "at_most" : "at_least", f32_bits(simplest(bound)))};
}

// The same of row scales, whose amaxes are shown.
std::vector<string> rows_of_row_bounds(const JudgedLane& lane) {
  const JudgedPlane* amax = lane.find(".amax");
  if (!lane.quantizer().row_scaled || info(lane.quantizer().format).has_blocks() || !amax) return {};
  std::optional<uint32_t> common;
  bool one = true;
  const Codes got(amax->got), want(amax->want);
  for_logical(amax->got.plane, [&](int64_t i) {
    if (got[i] == want[i]) return;
    one &= common.value_or(got[i]) == got[i];
    common = got[i];
  });
  if (!common || !one) return {};
  return {fmt::format("amax.at_most={:08X}", *common), fmt::format("amax.at_least={:08X}", *common)};
}

// scale_inv alone is another.
std::vector<string> rows_of_inverse(const JudgedLane& lane) {
  const JudgedPlane* inverse = lane.find(".scale_inv");
  if (!inverse || !inverse->is_scalar() || inverse->differ == 0) return {};
  const double came = scalar(&inverse->got), right = scalar(&inverse->want);
  if (!(came > 0) || !std::isfinite(came) || !(right > 0)) return {};
  return {"tensor_scale.own_stored", fmt::format("tensor_scale.scale_inv_is={:08X}", f32_bits(came)),
          "tensor_scale.scale_inv_times=" + times_text(came / right)};
}

}  // namespace

void try_factors(SearchState& s) {
  const JudgedLane& lane = *s.bad().front();
  const Quantizer& q = lane.quantizer();
  const JudgedPlane* data = lane.find(".data");
  const JudgedPlane* scales = lane.find(scale_stem(q.scales));
  if (s.bad().size() != 1 || !data || q.round == Round::sr || q.four_over_six != FourOverSix::off) return;
  const bool scales_differ = scales && scales->differ > 0;
  for (const RoundingId& r : kRoundings) {
    if (!s.unexplained()) return;
    if (data->differ >= 8 && !scales_differ) {
      const Interval ratio = ratio_of_codes(lane, planes_of(lane, false), r.rounding);
      if (ordinary(ratio) && !holds_one(ratio)) offer(s, rows_of_codes(lane, ratio), r.id);
      if (const auto one = one_multiplier(lane, r.rounding)) offer(s, {*one}, r.id);
    } else if (scales_differ) {
      offer(s, rows_of_blocks(lane), r.id);
      if (s.unexplained()) offer(s, rows_of_bounds(lane), r.id);
      if (s.unexplained()) offer(s, rows_of_row_bounds(lane), r.id);
    }
    if (s.unexplained() && info(q.format).per_tensor_fp8() && !q.row_scaled)
      offer(s, rows_of_inverse(lane), r.id);
  }
}

}  // namespace assay::cause
