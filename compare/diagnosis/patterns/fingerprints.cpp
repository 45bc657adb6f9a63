#include "compare/diagnosis/patterns/fingerprints.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/expected_values.h"
#include "compare/diagnosis/patterns/plane_codes.h"

namespace assay {

using namespace patterns;

namespace {

using std::string;

constexpr size_t kFew = 8;  // below this, what holds of every second difference may hold by chance

// The differences of one plane, and the fingerprints that were found so far.
struct Differences {
  const Problem& problem;
  const Plane& plane;
  const std::vector<PlaneData>&inputs, &got_all;
  const PlaneCodes codes;
  const Encoding encoding;
  const EncodingInfo& facts;  // of the encoding
  const uint32_t sign;        // the bit of it; 0: none
  const bool scales;
  std::vector<Fingerprint> found;

  Differences(const Problem& p, const PlaneData& got, const PlaneData& want, const std::vector<PlaneData>& in,
              const std::vector<PlaneData>& out)
      : problem(p),
        plane(got.plane),
        inputs(in),
        got_all(out),
        codes(got, want),
        encoding(plane.encoding),
        facts(info(encoding)),
        sign(facts.has_sign() ? 1u << (facts.bits - 1) : 0),
        scales(plane.name.find(".scale") != string::npos) {}

  size_t count() const { return codes.differ.size(); }
  uint32_t first_got() const { return codes.got[codes.differ[0]]; }
  uint32_t first_want() const { return codes.want[codes.differ[0]]; }
  void add(const char* id, string text) { found.push_back({id, std::move(text)}); }

  // Whether holds(got, want) wherever they differ.
  template <class Holds> bool everywhere(Holds holds) const {
    return std::all_of(codes.differ.begin(), codes.differ.end(),
                       [&](size_t i) { return holds(codes.got[i], codes.want[i]); });
  }
};

// ---- the order of the codes -------------------------------------------------------------------------------

uint64_t mixed(uint64_t v) {  // so that sums tell multisets apart
  v = (v ^ (v >> 30)) * 0xBF58476D1CE4E5B9u;
  v = (v ^ (v >> 27)) * 0x94D049BB133111EBu;
  return v ^ (v >> 31);
}

struct Multisets {
  bool plane = false, rows = false, columns = false;
};
Multisets multisets(const PlaneCodes& codes) {
  std::vector<uint64_t> row(static_cast<size_t>(codes.rows)), col(static_cast<size_t>(codes.cols));
  for (size_t i : codes.differ) {
    const uint64_t moved = mixed(codes.got[i] + 1) - mixed(codes.want[i] + 1);
    row[static_cast<size_t>(codes.row(i))] += moved;
    col[static_cast<size_t>(codes.col(i))] += moved;
  }
  const auto none = [](const std::vector<uint64_t>& sums) {
    return std::all_of(sums.begin(), sums.end(), [](uint64_t s) { return s == 0; });
  };
  return {std::accumulate(row.begin(), row.end(), uint64_t{0}) == 0, none(row), none(col)};
}

void look_for_order(Differences& d) {
  if (d.count() < kFew) return;
  const Multisets m = multisets(d.codes);
  if (m.plane) d.add("multiset", "the codes are a permutation of the wanted ones: a layout, not values");
  if (m.rows && d.codes.cols > 1)
    d.add("multiset_rows", "every stored row holds the wanted codes in another order");
  else if (m.columns && d.codes.rows > 1)
    d.add("multiset_columns", "every stored column holds the wanted codes in another order");
}

// ---- single codes -----------------------------------------------------------------------------------------

void look_for_special_values(Differences& d) {
  if (!d.facts.is_float()) return;
  const Encoding e = d.encoding;
  const uint32_t sign = d.sign;
  if (d.everywhere([&](uint32_t g, uint32_t w) { return is_nan(e, g) && !is_nan(e, w); }))
    d.add("nan_got", "NaN wherever they differ, and a number is wanted");
  if (d.everywhere([&](uint32_t g, uint32_t w) { return !is_nan(e, g) && is_nan(e, w); }))
    d.add("nan_want", "only where NaN is wanted");
  if (d.everywhere([&](uint32_t g, uint32_t w) { return sign && g == (w ^ sign) && (g & ~sign) == 0; })) {
    d.add("zero_sign", "only the sign of zeros");
  } else if (e != Encoding::e8m0) {
    if (d.everywhere([&](uint32_t g, uint32_t) { return (g & ~sign) == 0; }))
      d.add("zero_got", "zero wherever they differ");
    if (d.everywhere([&](uint32_t, uint32_t w) { return (w & ~sign) == 0; }))
      d.add("zero_want", "only where a zero is wanted");
    if (sign && d.everywhere([&](uint32_t g, uint32_t w) { return g == (w ^ sign); }))
      d.add("sign", "only the sign");
  }
}

// Whether scales are `step` codes off wherever they differ.
bool off_by(const Differences& d, int step) {
  return d.scales && d.facts.bits == 8 && d.everywhere([&](uint32_t g, uint32_t w) {
    const auto a = ordinal(d.encoding, g), b = ordinal(d.encoding, w);
    return a && b && *a - *b == step;
  });
}

void look_for_one_code_or_bit(Differences& d) {
  if (d.count() < 4) return;
  const uint32_t first = d.first_got(), flipped = first ^ d.first_want();
  // A rule that is one off in one binade writes one code too; the step says more of it.
  const bool step = off_by(d, 1) || off_by(d, -1);
  if (!step && d.everywhere([&](uint32_t g, uint32_t) { return g == first; }))
    d.add("constant", fmt::format("the code {} wherever they differ", code_hex(d.encoding, first)));
  const bool one_bit = (flipped & (flipped - 1)) == 0 && flipped != d.sign;
  if (!one_bit || !d.everywhere([&](uint32_t g, uint32_t w) { return (g ^ w) == flipped; })) return;
  int bit = 0;
  while (flipped >> bit != 1) ++bit;
  d.add("bit", fmt::format("bit {} of the code is inverted, and nothing else differs", bit));
}

// ---- magnitudes -------------------------------------------------------------------------------------------

void look_for_magnitudes(Differences& d) {
  if (!d.facts.is_float()) return;
  const Encoding e = d.encoding;
  if (e != Encoding::e8m0 && d.everywhere([&](uint32_t, uint32_t w) { return is_saturated(e, w); }))
    d.add("maximum", "only where the wanted code has the largest magnitude");
  if (d.count() < kFew) return;
  const auto magnitude = [&](uint32_t code) { return std::fabs(value_of(e, code)); };
  if (d.everywhere([&](uint32_t g, uint32_t w) { return magnitude(g) < magnitude(w); }))
    d.add("smaller", "smaller in magnitude wherever they differ");
  if (d.everywhere([&](uint32_t g, uint32_t w) { return magnitude(g) > magnitude(w); }))
    d.add("larger", "larger in magnitude wherever they differ");
}

void look_for_steps_of_scales(Differences& d) {
  for (const int step : {1, -1})
    if (off_by(d, step))
      d.add(step > 0 ? "scale_up" : "scale_down",
            fmt::format("scales are exactly one code too {} wherever they differ",
                        step > 0 ? "large" : "small"));
}

void look_for_a_factor(Differences& d) {
  const Encoding e = d.encoding;
  if (d.facts.bits != 32 || !d.facts.is_float() || d.count() < 2) return;
  const double factor = value_of(e, d.first_got()) / value_of(e, d.first_want());
  if (!std::isfinite(factor) || factor == 0) return;
  const auto has_it = [&](uint32_t g, uint32_t w) {
    return std::fabs(value_of(e, g) / value_of(e, w) / factor - 1) <= 0x1p-22;
  };
  if (!d.everywhere(has_it)) return;
  const string text = number_text(static_cast<float>(factor));
  d.add("scale_factor", fmt::format("{} times the wanted value wherever they differ", text));
}

void look_for_neighbours(Differences& d) {
  if (!d.facts.is_float() || d.facts.bits > 8 || d.scales) return;
  if (d.everywhere([&](uint32_t g, uint32_t w) { return codes_apart(d.encoding, g, w) == 1; }))
    d.add("neighbours", "one code apart wherever they differ");
}

// ---- the values that were rounded -------------------------------------------------------------------------

// Whether codes go to the larger neighbour as often as the part that is dropped says, over eight classes of
// that part: a mixture of other roundings, or noise on the values, does not.
bool rises_with_the_rest(const Differences& d, const ScaledValues& scaled) {
  constexpr size_t kClasses = 8;
  std::array<double, kClasses> of{}, up{}, part{};
  const double most = value_of(d.encoding, d.facts.max_finite);
  const PlaneCodes& codes = d.codes;
  for (size_t i = 0; i < codes.got.size(); ++i) {
    const auto v = scaled.at(codes.row(i), codes.col(i));
    if (!v || !std::isfinite(v->value)) continue;
    const double a = std::fabs(v->value), got = std::fabs(value_of(d.encoding, codes.got[i]));
    const auto f = between_codes(d.encoding, most, a);
    if (!f || *f <= 0 || *f >= 1) continue;
    const size_t k = std::min(kClasses - 1, static_cast<size_t>(*f * kClasses));
    of[k] += 1, up[k] += got > a, part[k] += *f;
  }
  size_t judged = 0;
  for (size_t k = 0; k < kClasses; ++k) {
    if (of[k] < 32) continue;
    ++judged;
    const double p = part[k] / of[k], deviation = std::sqrt(p * (1 - p) / of[k]);
    if (std::fabs(up[k] / of[k] - p) > 5 * deviation + 0.01) return false;
  }
  return judged >= 4;
}

void look_for_roundings(Differences& d) {
  if (!can_scale(d.problem, d.plane, d.inputs, d.got_all)) return;
  const ScaledValues scaled(d.problem, *d.plane.direction, d.inputs, d.got_all);
  const Encoding e = d.encoding;
  const PlaneCodes& codes = d.codes;
  const double most = value_of(e, d.facts.max_finite);
  bool ties = true, adjacent = d.count() >= kFew, up = false, down = false;
  for (size_t i : codes.differ) {
    const auto v = scaled.at(codes.row(i), codes.col(i));
    const double got = std::fabs(value_of(e, codes.got[i]));
    if (!v || !std::isfinite(v->value) || std::isnan(got)) {
      ties = adjacent = false;
      break;
    }
    const double a = std::fabs(v->value), step = step_at(e, a);
    const auto f = between_codes(e, most, a);
    const bool tie =
        f ? std::fabs(*f - 0.5) * step <= v->slack : std::fabs(a - (most + step_at(e, most) / 2)) <= v->slack;
    ties = ties && tie;
    const double low = std::floor((a - v->slack) / step) * step,
                 high = std::ceil((a + v->slack) / step) * step;
    const bool other_sign = std::signbit(value_of(e, codes.got[i])) != std::signbit(v->value);
    const bool opposite = a > v->slack && got != 0 && other_sign;
    adjacent = adjacent && f && !opposite && (got == low || got == high);
    (got > a ? up : down) = true;
    if (!ties && !adjacent) break;
  }
  if (ties) d.add("ties", "only where the scaled value lies halfway between two codes");
  if (adjacent && !ties && up && down && rises_with_the_rest(d, scaled))
    d.add("adjacent",
          "the scaled value rounded to one of its two neighbours, down and up: as stochastic rounding does");
}

// ---- the amax of blocks -----------------------------------------------------------------------------------

// Where in a block its largest element stands: the least and the largest index of it along the contracted
// dimension.
struct Largest {
  int64_t first = 0, last = -1;  // last < 0: a block of zeros has no largest element
  bool negative = true;
};
Largest largest_of(const Region& block, const PlaneData& x, bool down) {
  Largest out;
  double most = 0;
  for (int64_t r = block.row0; r < block.row1; ++r)
    for (int64_t c = block.col0; c < block.col1; ++c) {
      const double v = value_of(x.plane.encoding, code_at(x.plane, x.bytes, index_of(x.plane, r, c)));
      const double a = std::fabs(v);
      if (!(a >= most) || a == 0) continue;
      const int64_t k = down ? r - block.row0 : c - block.col0;
      if (a > most) out = {k, k, true};
      most = a;
      out.first = std::min(out.first, k);
      out.last = std::max(out.last, k);
      out.negative = out.negative && v < 0;
    }
  return out;
}

// Where the largest element stands in each block whose scale differs, over all these blocks.
struct BadBlocks {
  int64_t blocks = 0, length = 0;
  Largest at;
};
std::optional<BadBlocks> bad_blocks(const Differences& d) {
  const PlaneData* x = find_plane(d.inputs, "x");
  const Problem& problem = d.problem;
  const bool of_blocks = d.plane.direction && d.plane.name.find(".scale_") != string::npos;
  if (!problem.as<Quantize>() || !x || !of_blocks) return {};
  const bool down = *d.plane.direction == Direction::col;  // blocks run down the tensor's columns
  const Quantizer& q = *problem.quantizer(*d.plane.direction);
  const int64_t n = length_of(q.block);
  if (n == 0 || q.rht || (down && problem.row && problem.col_source == ColSource::row_dequantized)) return {};
  BadBlocks out{0, n, {n, -1, true}};
  for (size_t i : d.codes.differ) {
    const Region block = region_of(&problem, d.plane, {false, d.codes.row(i), d.codes.col(i)});
    const Largest one = largest_of(block, *x, down);
    if (one.last < 0) return {};
    ++out.blocks;
    out.at.first = std::min(out.at.first, one.first);
    out.at.last = std::max(out.at.last, one.last);
    out.at.negative = out.at.negative && one.negative;
  }
  return out;
}

void look_for_places_of_the_amax(Differences& d) {
  const auto bad = bad_blocks(d);
  if (!bad || bad->blocks < 3) return;
  const int64_t half = bad->length / 2;
  const bool many = bad->blocks >= static_cast<int64_t>(kFew);
  const string in_every = "in every block whose scale differs the largest element ";
  if (bad->at.first == bad->at.last)
    d.add("amax_index", fmt::format("{}is at index {} of {}", in_every, bad->at.first, bad->length));
  else if (bad->at.first >= bad->length - bad->length / 4)
    d.add("amax_last_quarter", in_every + "is in the last quarter");
  else if (many && bad->at.first >= half) d.add("amax_second_half", in_every + "stands in the second half");
  else if (many && bad->at.last < half) d.add("amax_first_half", in_every + "stands in the first half");
  if (bad->at.negative && many) d.add("amax_negative", in_every + "is negative");
}

}  // namespace

std::vector<Fingerprint> fingerprints(const Problem& problem, const PlaneData& got, const PlaneData& want,
                                      const std::vector<PlaneData>& inputs,
                                      const std::vector<PlaneData>& got_all) {
  Differences d(problem, got, want, inputs, got_all);
  if (d.count() == 0) return {};
  look_for_order(d);
  look_for_special_values(d);
  look_for_one_code_or_bit(d);
  look_for_magnitudes(d);
  look_for_steps_of_scales(d);
  look_for_a_factor(d);
  look_for_neighbours(d);
  look_for_roundings(d);
  look_for_places_of_the_amax(d);
  return std::move(d.found);
}

}  // namespace assay
