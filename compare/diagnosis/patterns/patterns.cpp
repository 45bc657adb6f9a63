#include "compare/diagnosis/patterns/patterns.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/expected_values.h"

namespace assay {

namespace {

using std::string;

// The codes of a plane's logical elements, row by row.
std::vector<uint32_t> codes_of(const PlaneData& p) {
  const Shape s = p.plane.logical;
  std::vector<uint32_t> out(static_cast<size_t>(s.count()));
  if (!p.plane.packed && p.plane.layout == ScaleLayout::compact && s == p.plane.padded && info(p.plane.encoding).bytes() == 1) {   // the many, quickly
    for (size_t i = 0; i < out.size(); ++i) out[i] = std::to_integer<uint32_t>(p.bytes[i]);
    return out;
  }
  size_t n = 0;
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t c = 0; c < s.cols; ++c) out[n++] = code_at(p.plane, p.bytes, index_of(p.plane, r, c));
  return out;
}

struct Codes {
  int64_t rows = 0, cols = 0;
  std::vector<uint32_t> got, want;
  std::vector<size_t> differ;   // flat indices

  Codes(const PlaneData& g, const PlaneData& w) : rows(g.plane.logical.rows), cols(g.plane.logical.cols), got(codes_of(g)), want(codes_of(w)) {
    for (size_t i = 0; i < got.size(); ++i)
      if (got[i] != want[i]) differ.push_back(i);
  }
  int64_t row(size_t i) const { return static_cast<int64_t>(i) / cols; }
  int64_t col(size_t i) const { return static_cast<int64_t>(i) % cols; }
};

// Whether ScaledValues finds what it reads.
bool can_scale(const Problem& p, const Plane& plane, const std::vector<PlaneData>& in, const std::vector<PlaneData>& out) {
  if (!p.as<Quantize>() || !plane.direction || !plane.name.ends_with(".data") || !find_plane(in, "x")) return false;
  const Direction d = *plane.direction;
  const Quantizer& q = *p.quantizer(d);
  if (!info(q.format).scale) return false;
  if (q.format == FormatId::fp8_delayed) return find_plane(in, plane_name(d, "given.scale"));
  if (q.format == FormatId::nvfp4 && !(q.amax ? find_plane(in, plane_name(d, "given.amax")) : find_plane(out, plane_name(d, "amax")))) return false;
  return find_plane(out, plane_name(d, info(q.format).per_tensor_fp8() ? "scale" : scale_stem(q.scales)));
}

// Counts by name, in the order in which the names were given.
class Histogram {
 public:
  explicit Histogram(std::vector<string> names) : names_(std::move(names)), counts_(names_.size()) {}
  void add(size_t bucket, int64_t times) { counts_[bucket] += times; }
  std::vector<std::pair<string, int64_t>> filled() const {
    std::vector<std::pair<string, int64_t>> out;
    for (size_t i = 0; i < names_.size(); ++i)
      if (counts_[i]) out.emplace_back(names_[i], counts_[i]);
    return out;
  }

 private:
  std::vector<string> names_;
  std::vector<int64_t> counts_;
};

// Pairs of codes that differ, and how often; narrow codes are counted first.
struct Differing {
  uint32_t got = 0, want = 0;
  int64_t count = 0;
};
std::vector<Differing> pairs_of(const EncodingInfo& e, const Codes& codes) {
  std::vector<Differing> out;
  if (e.bits > 8) {
    for (size_t i : codes.differ) out.push_back({codes.got[i], codes.want[i], 1});
    return out;
  }
  std::vector<int64_t> counts(1 << 16);
  for (size_t i : codes.differ) ++counts[codes.got[i] << 8 | codes.want[i]];
  for (uint32_t both = 0; both < counts.size(); ++both)
    if (counts[both]) out.push_back({both >> 8, both & 0xFF, counts[both]});
  return out;
}

std::vector<std::pair<string, int64_t>> distances(Encoding e, const std::vector<Differing>& pairs) {
  static constexpr int64_t kFrom[] = {0, 1, 2, 3, 4, 8, 16, 32, 256};
  Histogram h({"sign of zero", "1", "2", "3", "4..7", "8..15", "16..31", "32..255", "256 and more", "NaN"});
  for (const Differing& p : pairs) {
    const auto apart = codes_apart(e, p.got, p.want);
    h.add(!apart ? std::size(kFrom) : static_cast<size_t>(std::upper_bound(std::begin(kFrom), std::end(kFrom), *apart) - std::begin(kFrom)) - 1, p.count);
  }
  return h.filled();
}

std::vector<std::pair<string, int64_t>> exponents(Encoding e, const std::vector<Differing>& pairs) {
  if (!info(e).is_float()) return {};
  constexpr int kMost = 9;   // buckets of binades, beside zero, NaN and infinity
  std::vector<std::optional<int>> binade(pairs.size());
  int low = 1 << 20, high = -low;
  int64_t zeros = 0, nans = 0, infinite = 0;
  for (size_t k = 0; k < binade.size(); ++k) {
    const double v = value_of(e, pairs[k].want);
    if (v == 0) {
      zeros += pairs[k].count;
    } else if (std::isnan(v)) {
      nans += pairs[k].count;
    } else if (std::isinf(v)) {
      infinite += pairs[k].count;
    } else {
      binade[k] = std::ilogb(v);
      low = std::min(low, *binade[k]);
      high = std::max(high, *binade[k]);
    }
  }
  std::vector<std::pair<string, int64_t>> out;
  if (zeros) out.emplace_back("0", zeros);
  if (low <= high) {
    const int width = (high - low) / kMost + 1;
    std::vector<string> names;
    for (int from = low; from <= high; from += width) names.push_back(width == 1 ? fmt::format("2^{}", from) : fmt::format("2^{}..2^{}", from, std::min(from + width - 1, high)));
    Histogram h(std::move(names));
    for (size_t k = 0; k < binade.size(); ++k)
      if (binade[k]) h.add(static_cast<size_t>((*binade[k] - low) / width), pairs[k].count);
    const auto filled = h.filled();
    out.insert(out.end(), filled.begin(), filled.end());
  }
  if (infinite) out.emplace_back("infinity", infinite);
  if (nans) out.emplace_back("NaN", nans);
  return out;
}

// Where |v| stands between its two neighbours in the encoding: 0 on the lower, 1/2 halfway. Nothing beyond the largest value.
std::optional<double> between_codes(Encoding e, double most, double v) {
  const double a = std::fabs(v);
  if (!(a < most)) return {};
  const double step = step_at(e, a), at = a / step;
  return at - std::floor(at);
}

std::vector<PlaneSummary::Bucket> tie_distances(const Problem& problem, const Plane& plane, const Codes& codes, const std::vector<PlaneData>& in, const std::vector<PlaneData>& out) {
  if (!can_scale(problem, plane, in, out)) return {};
  const ScaledValues scaled(problem, *plane.direction, in, out);
  const Encoding e = plane.encoding;
  const double most = value_of(e, info(e).max_finite);
  static constexpr double kFrom[] = {0x1p-6, 0x1p-4, 0x1p-3, 0x1p-2, 0.375};
  std::vector<PlaneSummary::Bucket> buckets;
  for (const char* name : {"a tie", "below 1/64", "below 1/16", "below 1/8", "below 1/4", "below 3/8", "below 1/2", "has a code", "beyond the largest", "unknown"}) buckets.push_back({name, 0, 0});
  const size_t kExact = 7, kBeyond = 8, kUnknown = 9;
  bool any = false;
  for (size_t i = 0; i < codes.got.size(); ++i) {
    const auto v = scaled.at(codes.row(i), codes.col(i));
    size_t b = kUnknown;
    if (v && !std::isnan(v->value)) {
      any = true;
      const auto f = between_codes(e, most, v->value);
      if (!f) {
        b = std::fabs(v->value) == most ? kExact : kBeyond;
      } else if (*f == 0) {
        b = kExact;
      } else {
        const double distance = std::fabs(*f - 0.5);
        b = distance == 0 || distance * step_at(e, v->value) <= v->slack ? 0 : 1 + static_cast<size_t>(std::upper_bound(std::begin(kFrom), std::end(kFrom), distance) - std::begin(kFrom));
      }
    }
    ++buckets[b].of;
    if (codes.got[i] != codes.want[i]) ++buckets[b].differ;
  }
  if (!any) return {};
  std::erase_if(buckets, [](const auto& b) { return b.of == 0; });
  return buckets;
}

// ---- the tensor -----------------------------------------------------------------------------------------------------

// Where a plane's elements stand in the tensor: the corner of what each belongs to.
struct Corners {
  std::vector<int64_t> row, col;   // of the plane's logical elements, row by row
  int64_t rows = 1, cols = 1;      // of the tensor
};

// Elements that stand for themselves need no region_of, which reads the plane's name.
bool plain(const Problem& problem, const Plane& plane) { return plane.name.ends_with(".data") || (!plane.direction && !problem.as<Update>() && !problem.as<Hadamard>()); }

Corners corners_of(const Problem& problem, const Plane& plane) {
  Corners out;
  const Shape s = plane.logical;
  const bool grouped = !plane.members.empty();
  const bool itself = grouped || plain(problem, plane), swapped = !grouped && plane.transposed;
  out.row.reserve(static_cast<size_t>(s.count()));
  out.col.reserve(static_cast<size_t>(s.count()));
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t c = 0; c < s.cols; ++c) {
      if (itself) {
        out.row.push_back(swapped ? c : r);
        out.col.push_back(swapped ? r : c);
      } else {
        const Region g = region_of(&problem, plane, {false, r, c});
        out.row.push_back(g.row0);
        out.col.push_back(g.col0);
      }
    }
  out.rows = itself ? (swapped ? s.cols : s.rows) : problem.x.shape.rows;
  out.cols = itself ? (swapped ? s.rows : s.cols) : problem.x.shape.cols;
  return out;
}

// ---- coordinates ----------------------------------------------------------------------------------------------------

double entropy(double p) { return p <= 0 || p >= 1 ? 0 : -p * std::log(p) - (1 - p) * std::log(1 - p); }

// Information, in nats for an element, that being inside gives on differing.
double information(double differ, double all, double inside_differ, double inside) {
  if (inside <= 0 || inside >= all) return 0;
  const double outside = all - inside;
  return entropy(differ / all) - inside / all * entropy(inside_differ / inside) - outside / all * entropy((differ - inside_differ) / outside);
}

// Elements that differ and elements at all, by the value of one coordinate.
struct Counts {
  std::vector<int64_t> differ, of;
  explicit Counts(size_t n) : differ(n), of(n) {}
};

// One way to read a coordinate of the tensor: v / divisor % modulus; a modulus of 0 takes none.
struct Reading {
  int64_t divisor = 1, modulus = 0;
  int64_t operator()(int64_t v) const { return modulus ? v / divisor % modulus : v / divisor; }
};

// A range of readings of one axis, or everything but it.
struct Band {
  bool rows = false, complement = false;
  Reading reading;
  int64_t from = 0, to = 0;   // inclusive
  bool contains(int64_t v) const {
    const int64_t k = reading(v);
    return (k >= from && k <= to) != complement;
  }
};

// The range whose elements differ most beyond what the whole would give, by the largest sum of excess.
Band best_band(const Counts& by_class, double rate, bool lowest) {
  Band best;
  double sum = 0, most = -1;
  int64_t from = 0;
  for (size_t k = 0; k < by_class.of.size(); ++k) {
    const double excess = static_cast<double>(by_class.differ[k]) - rate * static_cast<double>(by_class.of[k]);
    if (sum <= 0) {
      sum = 0;
      from = static_cast<int64_t>(k);
    }
    sum += lowest ? -excess : excess;
    if (sum > most) {
      most = sum;
      best.from = from;
      best.to = static_cast<int64_t>(k);
    }
  }
  best.complement = lowest;
  return best;
}

struct Candidate {
  std::vector<Band> bands;   // all must hold
  int64_t differ = 0, inside = 0;
  double gain = 0;           // share of the uncertainty that is taken away
  bool contains(int64_t r, int64_t c) const {
    return std::all_of(bands.begin(), bands.end(), [&](const Band& b) { return b.contains(b.rows ? r : c); });
  }
};

// What coordinates are counted over: the tensor's elements, and units of which all elements differ for one reason.
struct Grid {
  Counts row{0}, col{0};                 // by coordinate
  Counts unit_row{0}, unit_col{0};       // units by coordinate of the unit
  int64_t unit_rows = 1, unit_cols = 1;  // elements that a unit covers
  int64_t differ = 0, of = 0, unit_differ = 0, units = 0;
};

struct UnitSize {
  int64_t rows = 1, cols = 1;
};
UnitSize block_of(const Problem& problem, const Plane& plane) {
  if (!plane.direction || !plane.members.empty() || !problem.quantizer(*plane.direction)) return {};
  const Quantizer& q = *problem.quantizer(*plane.direction);
  const int64_t n = length_of(q.block);
  if (n == 0) return {};
  if (is_square(q.block)) return {n, n};
  return *plane.direction == Direction::row ? UnitSize{1, n} : UnitSize{n, 1};
}
UnitSize unit_of(const Problem& problem, const Plane& plane) { return plane.name.ends_with(".data") ? block_of(problem, plane) : UnitSize{}; }
// From one element of the plane to the next, in the tensor.
UnitSize step_of(const Problem& problem, const Plane& plane) {
  if (plane.name.find(".scale_") == string::npos || plane.logical.count() == 0) return {};
  const Region first = region_of(&problem, plane, {});
  return {std::max<int64_t>(1, first.row1 - first.row0), std::max<int64_t>(1, first.col1 - first.col0)};
}

Grid grid_of(const Codes& codes, const Corners& at, UnitSize unit) {
  Grid g;
  g.unit_rows = unit.rows;
  g.unit_cols = unit.cols;
  const int64_t down = ceil_div(at.rows, unit.rows), across = ceil_div(at.cols, unit.cols);
  g.row = Counts(static_cast<size_t>(at.rows));
  g.col = Counts(static_cast<size_t>(at.cols));
  std::vector<int8_t> unit_state(static_cast<size_t>(down * across));   // 0 no element, 1 none differs, 2 one does
  for (size_t i = 0; i < codes.got.size(); ++i) {
    const int64_t r = at.row[i], c = at.col[i];
    if (r >= at.rows || c >= at.cols) continue;
    const bool bad = codes.got[i] != codes.want[i];
    ++g.row.of[static_cast<size_t>(r)];
    ++g.col.of[static_cast<size_t>(c)];
    g.row.differ[static_cast<size_t>(r)] += bad;
    g.col.differ[static_cast<size_t>(c)] += bad;
    int8_t& state = unit_state[static_cast<size_t>(unit.rows == 1 && unit.cols == 1 ? r * across + c : r / unit.rows * across + c / unit.cols)];
    state = std::max(state, static_cast<int8_t>(bad ? 2 : 1));
    ++g.of;
    g.differ += bad;
  }
  g.unit_row = Counts(static_cast<size_t>(down));
  g.unit_col = Counts(static_cast<size_t>(across));
  for (int64_t r = 0; r < down; ++r)
    for (int64_t c = 0; c < across; ++c) {
      const int8_t state = unit_state[static_cast<size_t>(r * across + c)];
      for (auto [counts, k] : {std::pair(&g.unit_row, r), std::pair(&g.unit_col, c)}) {
        counts->of[static_cast<size_t>(k)] += state != 0;
        counts->differ[static_cast<size_t>(k)] += state == 2;
      }
      g.units += state != 0;
      g.unit_differ += state == 2;
    }
  return g;
}

Counts by_reading(const Counts& by_value, Reading reading) {
  const int64_t n = static_cast<int64_t>(by_value.of.size());
  Counts out(static_cast<size_t>(reading.modulus ? reading.modulus : reading(n - 1) + 1));
  for (int64_t v = 0; v < n; ++v) {
    const size_t k = static_cast<size_t>(reading(v));
    out.of[k] += by_value.of[static_cast<size_t>(v)];
    out.differ[k] += by_value.differ[static_cast<size_t>(v)];
  }
  return out;
}

// Twice the log likelihood ratio of "inside differs at its own rate" against chance, in units where a unit is one observation.
double significance(const Grid& g, const Band& b) {
  const int64_t size = b.rows ? g.unit_rows : g.unit_cols, n = static_cast<int64_t>(b.rows ? g.row.of.size() : g.col.of.size());
  bool whole = true;   // a unit lies inside or outside, never across
  for (int64_t v = 0; v < n && whole; ++v) whole = b.contains(v) == b.contains(v / size * size);
  const Counts& counts = whole ? (b.rows ? g.unit_row : g.unit_col) : (b.rows ? g.row : g.col);
  int64_t differ = 0, inside = 0;
  for (size_t k = 0; k < counts.of.size(); ++k)
    if (b.contains(static_cast<int64_t>(k) * (whole ? size : 1))) {
      differ += counts.differ[k];
      inside += counts.of[k];
    }
  const double all = static_cast<double>(whole ? g.units : g.of), bad = static_cast<double>(whole ? g.unit_differ : g.differ);
  return 2 * all * information(bad, all, static_cast<double>(differ), static_cast<double>(inside));
}

// Readings that kernels and layouts have: single coordinates, positions in vectors, blocks and tiles, lanes of a warp with 2 to 16 elements each, groups taken in turn.
constexpr Reading kReadings[] = {{1, 0},  {1, 2},  {1, 4},  {1, 8},   {1, 16},  {1, 32},  {1, 64},  {1, 128}, {2, 32},  {4, 32},  {8, 32},
                                 {16, 32}, {8, 2}, {16, 2}, {16, 4}, {16, 8}, {32, 2}, {32, 4}, {64, 2}, {128, 2}, {128, 4}};

constexpr double kSure = 45;        // of significance(): far beyond what the best of all ranges of all readings reaches by chance
constexpr double kWorth = 0.08;     // of Candidate::gain
constexpr size_t kShown = 6;

// `step`: elements of the tensor from one coordinate to the next; `n` coordinates cover `length` elements.
string band_text(Band b, int64_t n, int64_t block, int64_t step, int64_t length) {
  const string axis = b.rows ? "row" : "column";
  string what = axis, note;
  const Reading r = b.reading;
  if (r.divisor * step > 1 && r.modulus) what += fmt::format(" / {}", r.divisor * step);
  if (r.modulus) what += fmt::format(" % {}", r.modulus);
  if (r.modulus == 32 && r.divisor > 1 && step == 1) note = fmt::format("lanes of {} elements", r.divisor);
  if (!r.modulus && r.divisor == 1 && step > 1) {
    n = length;
    b.from *= step;
    b.to = std::min((b.to + 1) * step, n) - 1;
    block = step;
  }
  if (!r.modulus && r.divisor == 1 && !b.complement) {
    if (b.from == n - 1) return fmt::format("the last {}", axis);
    if (b.from == b.to && b.from == 0) return fmt::format("the first {}", axis);
    if (b.to == n - 1 && block > 1 && n % block != 0 && b.from == n / block * block) return fmt::format("the partial last block ({}s {}..{})", axis, b.from, b.to);
    if (b.from > 0 && b.to == n - 1) return fmt::format("{} >= {}", axis, b.from);
    if (b.from == 0) return fmt::format("{} < {}", axis, b.to + 1);
  }
  if (block > 1 && r.divisor == 1 && r.modulus == block && !b.complement) {
    if (b.from == block - 1) note = "the last of each block";
    else if (b.to == 0) note = "the first of each block";
    else if (b.from == block / 2 && b.to == block - 1) note = "the second half of each block";
    else if (b.from == 0 && b.to == block / 2 - 1) note = "the first half of each block";
  }
  what += b.from == b.to ? fmt::format(" {} {}", b.complement ? "!=" : "==", b.from) : fmt::format(" {} {}..{}", b.complement ? "not in" : "in", b.from, b.to);
  return note.empty() ? what : fmt::format("{} ({})", what, note);
}

}  // namespace

PlaneSummary summarize(const Problem& problem, const PlaneData& got, const PlaneData& want, const std::vector<PlaneData>& inputs, const std::vector<PlaneData>& got_all) {
  const Codes codes(got, want);
  PlaneSummary s;
  s.plane = got.plane.name;
  s.encoding = info(got.plane.encoding).name;
  s.differ = static_cast<int64_t>(codes.differ.size());
  s.of = static_cast<int64_t>(codes.got.size());
  if (s.differ == 0) return s;
  const std::vector<Differing> pairs = pairs_of(info(got.plane.encoding), codes);
  s.code_distance = distances(got.plane.encoding, pairs);
  s.exponent = exponents(got.plane.encoding, pairs);
  s.tie_distance = tie_distances(problem, got.plane, codes, inputs, got_all);
  return s;
}

HeatMap heat_map(const Problem& problem, const PlaneData& got, const PlaneData& want) {
  constexpr int64_t kMost = 64;
  const Codes codes(got, want);
  const Corners at = corners_of(problem, got.plane);
  HeatMap map;
  map.plane = got.plane.name;
  while (ceil_div(at.rows, map.tile_rows) > kMost) map.tile_rows *= 2;
  while (ceil_div(at.cols, map.tile_cols) > kMost) map.tile_cols *= 2;
  map.rows = ceil_div(at.rows, map.tile_rows);
  map.cols = ceil_div(at.cols, map.tile_cols);
  map.differ.resize(static_cast<size_t>(map.rows * map.cols));
  map.of.resize(map.differ.size());
  for (size_t i = 0; i < codes.got.size(); ++i) {
    const int64_t r = at.row[i] / map.tile_rows, c = at.col[i] / map.tile_cols;
    if (r >= map.rows || c >= map.cols) continue;
    const size_t tile = static_cast<size_t>(r * map.cols + c);
    ++map.of[tile];
    map.differ[tile] += codes.got[i] != codes.want[i];
  }
  return map;
}

std::vector<Coordinate> coordinates(const Problem& problem, const PlaneData& got, const PlaneData& want) {
  const Codes codes(got, want);
  if (codes.differ.empty() || codes.differ.size() == codes.got.size()) return {};
  if (!got.plane.members.empty()) {   // of a whole split: which members
    std::vector<Coordinate> out;
    for (size_t m = 0; m < got.plane.members.size(); ++m) {
      const Member& member = got.plane.members[m];
      const auto from = std::lower_bound(codes.differ.begin(), codes.differ.end(), static_cast<size_t>(member.offset));
      const int64_t differ = std::lower_bound(from, codes.differ.end(), static_cast<size_t>(member.offset + member.padded.count())) - from;
      if (static_cast<double>(differ) > 0.9 * static_cast<double>(codes.differ.size()))
        out.push_back({fmt::format("member {}", m), differ, static_cast<int64_t>(codes.differ.size()), member.padded.count(), static_cast<int64_t>(codes.got.size())});
    }
    return out;
  }
  Corners at = corners_of(problem, got.plane);
  const UnitSize unit = unit_of(problem, got.plane), step = step_of(problem, got.plane);
  const Shape length{at.rows, at.cols};
  if (step.rows > 1 || step.cols > 1) {
    for (int64_t& r : at.row) r /= step.rows;
    for (int64_t& c : at.col) c /= step.cols;
    at.rows = ceil_div(at.rows, step.rows);
    at.cols = ceil_div(at.cols, step.cols);
  }
  const Grid grid = grid_of(codes, at, unit);
  if (grid.differ == 0 || grid.differ == grid.of) return {};
  // All that differs in one small box: said whether chance could have put it there or not.
  int64_t row0 = at.rows, row1 = -1, col0 = at.cols, col1 = -1, boxed = 0;
  for (size_t i : codes.differ)
    if (at.row[i] < at.rows && at.col[i] < at.cols) row0 = std::min(row0, at.row[i]), row1 = std::max(row1, at.row[i]), col0 = std::min(col0, at.col[i]), col1 = std::max(col1, at.col[i]);
  for (size_t i = 0; i < codes.got.size(); ++i) boxed += at.row[i] >= row0 && at.row[i] <= row1 && at.col[i] >= col0 && at.col[i] <= col1;
  const double all = static_cast<double>(grid.of), bad = static_cast<double>(grid.differ), rate = bad / all, uncertainty = all * entropy(rate);

  std::vector<Candidate> found;
  auto consider = [&](Candidate c) {
    c.gain = all * information(bad, all, static_cast<double>(c.differ), static_cast<double>(c.inside)) / uncertainty;
    const bool denser = static_cast<double>(c.differ) * all > bad * static_cast<double>(c.inside);
    if (denser && c.gain > 0) found.push_back(std::move(c));
  };
  for (const bool rows : {true, false}) {
    const Counts& counts = rows ? grid.row : grid.col;
    for (const Reading& reading : kReadings) {
      if (reading.modulus && static_cast<int64_t>(counts.of.size()) < reading.divisor * reading.modulus) continue;   // repeats nowhere
      const Counts classes = by_reading(counts, reading);
      for (const bool lowest : {false, true}) {
        Band b = best_band(classes, rate, lowest);
        b.rows = rows;
        b.reading = reading;
        if (significance(grid, b) < kSure) continue;
        Candidate c;
        c.bands = {b};
        for (size_t k = 0; k < classes.of.size(); ++k)
          if ((static_cast<int64_t>(k) >= b.from && static_cast<int64_t>(k) <= b.to) != b.complement) {
            c.differ += classes.differ[k];
            c.inside += classes.of[k];
          }
        consider(std::move(c));
      }
    }
  }
  auto better = [](const Candidate& a, const Candidate& b) { return a.gain > b.gain + 1e-9; };
  std::stable_sort(found.begin(), found.end(), better);

  // The best of rows and the best of columns at once: a tile, or a lane in some rows.
  const auto of_axis = [&](bool rows) { return std::find_if(found.begin(), found.end(), [&](const Candidate& c) { return c.bands[0].rows == rows; }); };
  if (const auto r = of_axis(true), c = of_axis(false); r != found.end() && c != found.end()) {
    Candidate both;
    both.bands = {r->bands[0], c->bands[0]};
    std::vector<char> in_row(static_cast<size_t>(at.rows)), in_col(static_cast<size_t>(at.cols));
    for (int64_t v = 0; v < at.rows; ++v) in_row[static_cast<size_t>(v)] = r->bands[0].contains(v);
    for (int64_t v = 0; v < at.cols; ++v) in_col[static_cast<size_t>(v)] = c->bands[0].contains(v);
    for (size_t i = 0; i < codes.got.size(); ++i)
      if (at.row[i] < at.rows && at.col[i] < at.cols && in_row[static_cast<size_t>(at.row[i])] && in_col[static_cast<size_t>(at.col[i])]) {
        ++both.inside;
        both.differ += codes.got[i] != codes.want[i];
      }
    consider(std::move(both));
    std::stable_sort(found.begin(), found.end(), better);
  }

  // What says the same as a better one, or less, is left out: on a sample whose stride is no power of two.
  std::vector<Candidate> kept;
  const size_t stride = codes.got.size() / 16384 * 2 + 1;
  for (const Candidate& c : found) {
    if (c.gain < kWorth || kept.size() == kShown) break;
    const bool news = std::all_of(kept.begin(), kept.end(), [&](const Candidate& k) {
      int64_t either = 0, both = 0, inside = 0, other = 0;
      for (size_t i = 0; i < codes.got.size(); i += stride) {
        const bool a = c.contains(at.row[i], at.col[i]), b = k.contains(at.row[i], at.col[i]);
        either += a || b;
        both += a && b;
        inside += a;
        other += b;
      }
      return both * 3 < either * 2 && both != inside && both != other;   // neither alike, nor one inside the other
    });
    if (news) kept.push_back(c);
  }
  std::vector<Coordinate> out;
  const bool known = std::any_of(kept.begin(), kept.end(), [&](const Candidate& c) { return c.differ == grid.differ && c.inside == boxed; });
  if (boxed * 8 <= grid.of && !known) {
    const auto range = [](const char* axis, int64_t from, int64_t to, int64_t step, int64_t of) {
      const int64_t a = from * step, b = std::min((to + 1) * step, of) - 1;
      return a == b ? fmt::format("{} {}", axis, a) : fmt::format("{}s {}..{}", axis, a, b);
    };
    out.push_back({fmt::format("all in {}, {}", range("row", row0, row1, step.rows, length.rows), range("column", col0, col1, step.cols, length.cols)), grid.differ, grid.differ, boxed, grid.of});
  }
  for (const Candidate& c : kept) {
    Coordinate to;
    for (const Band& b : c.bands)
      to.what += (to.what.empty() ? "" : " and ") + (b.rows ? band_text(b, at.rows, unit.rows, step.rows, length.rows) : band_text(b, at.cols, unit.cols, step.cols, length.cols));
    to.differ = c.differ;
    to.differ_of = grid.differ;
    to.inside = c.inside;
    to.inside_of = grid.of;
    out.push_back(std::move(to));
  }
  if (out.size() > kShown) out.pop_back();
  return out;
}

namespace {

// ---- fingerprints ---------------------------------------------------------------------------------------------------

uint64_t mixed(uint64_t v) {   // so that sums tell multisets apart
  v = (v ^ (v >> 30)) * 0xBF58476D1CE4E5B9u;
  v = (v ^ (v >> 27)) * 0x94D049BB133111EBu;
  return v ^ (v >> 31);
}

struct Multisets {
  bool plane = false, rows = false, columns = false;
};
Multisets multisets(const Codes& codes) {
  std::vector<uint64_t> row(static_cast<size_t>(codes.rows)), col(static_cast<size_t>(codes.cols));
  for (size_t i : codes.differ) {
    const uint64_t moved = mixed(codes.got[i] + 1) - mixed(codes.want[i] + 1);
    row[static_cast<size_t>(codes.row(i))] += moved;
    col[static_cast<size_t>(codes.col(i))] += moved;
  }
  const auto none = [](const std::vector<uint64_t>& sums) { return std::all_of(sums.begin(), sums.end(), [](uint64_t s) { return s == 0; }); };
  return {std::accumulate(row.begin(), row.end(), uint64_t{0}) == 0, none(row), none(col)};
}

// Where the largest element of each block stands whose scale differs.
struct BadBlocks {
  int64_t blocks = 0, length = 0;
  int64_t first = 0, last = 0;   // least and largest index of it along the contracted dimension, over all those blocks
  bool negative = true;
};
std::optional<BadBlocks> bad_blocks(const Problem& problem, const Plane& plane, const Codes& codes, const std::vector<PlaneData>& inputs) {
  const PlaneData* x = find_plane(inputs, "x");
  if (!problem.as<Quantize>() || !x || !plane.direction || plane.name.find(".scale_") == string::npos) return {};
  const Direction d = *plane.direction;
  const Quantizer& q = *problem.quantizer(d);
  const int64_t n = length_of(q.block);
  if (n == 0 || q.rht || (d == Direction::col && problem.row && problem.col_source == ColSource::row_dequantized)) return {};
  const bool down = d == Direction::col;   // blocks run down the tensor's columns
  BadBlocks out;
  out.length = out.first = n;
  out.last = -1;
  for (size_t i : codes.differ) {
    const Region g = region_of(&problem, plane, {false, codes.row(i), codes.col(i)});
    double most = 0;
    int64_t first = n, last = -1;
    bool negative = true;
    for (int64_t r = g.row0; r < g.row1; ++r)
      for (int64_t c = g.col0; c < g.col1; ++c) {
        const double v = value_of(x->plane.encoding, code_at(x->plane, x->bytes, index_of(x->plane, r, c))), a = std::fabs(v);
        if (!(a >= most) || a == 0) continue;
        const int64_t k = down ? r - g.row0 : c - g.col0;
        if (a > most) {
          first = last = k;
          negative = true;
        }
        most = a;
        first = std::min(first, k);
        last = std::max(last, k);
        negative = negative && v < 0;
      }
    if (last < 0) return {};   // a block of zeros has no largest element
    ++out.blocks;
    out.first = std::min(out.first, first);
    out.last = std::max(out.last, last);
    out.negative = out.negative && negative;
  }
  return out;
}

}  // namespace

std::vector<Fingerprint> fingerprints(const Problem& problem, const PlaneData& got, const PlaneData& want, const std::vector<PlaneData>& inputs, const std::vector<PlaneData>& got_all) {
  const Codes codes(got, want);
  std::vector<Fingerprint> out;
  const size_t n = codes.differ.size();
  if (n == 0) return out;
  const Plane& plane = got.plane;
  const Encoding id = plane.encoding;
  const EncodingInfo& e = info(id);
  auto add = [&](const char* id, string text) { out.push_back({id, std::move(text)}); };
  // Whether something holds wherever they differ.
  auto everywhere = [&](auto holds) { return std::all_of(codes.differ.begin(), codes.differ.end(), [&](size_t i) { return holds(codes.got[i], codes.want[i]); }); };
  const uint32_t sign = e.has_sign() ? 1u << (e.bits - 1) : 0;
  const bool scales = plane.name.find(".scale") != string::npos;
  constexpr size_t kFew = 8;   // below this what holds of every second difference may hold by chance

  if (n >= kFew) {
    const Multisets m = multisets(codes);
    if (m.rows && codes.cols > 1) add("multiset_rows", "every stored row holds the wanted codes in another order");
    else if (m.columns && codes.rows > 1) add("multiset_columns", "every stored column holds the wanted codes in another order");
    if (m.plane) out.insert(out.begin(), Fingerprint{"multiset", "the codes are a permutation of the wanted ones: a layout, not values"});
  }
  if (e.is_float()) {
    if (everywhere([&](uint32_t g, uint32_t w) { return is_nan(id, g) && !is_nan(id, w); })) add("nan_got", "NaN wherever they differ, and a number is wanted");
    if (everywhere([&](uint32_t g, uint32_t w) { return !is_nan(id, g) && is_nan(id, w); })) add("nan_want", "only where NaN is wanted");
    const bool zeros = everywhere([&](uint32_t g, uint32_t w) { return sign && g == (w ^ sign) && (g & ~sign) == 0; });
    if (zeros) {
      add("zero_sign", "only the sign of zeros");
    } else if (plane.encoding != Encoding::e8m0) {
      if (everywhere([&](uint32_t g, uint32_t) { return (g & ~sign) == 0; })) add("zero_got", "zero wherever they differ");
      if (everywhere([&](uint32_t, uint32_t w) { return (w & ~sign) == 0; })) add("zero_want", "only where a zero is wanted");
      if (sign && everywhere([&](uint32_t g, uint32_t w) { return g == (w ^ sign); })) add("sign", "the sign, and nothing else");
    }
  }
  if (n >= 4) {
    const uint32_t first = codes.got[codes.differ[0]], flipped = first ^ codes.want[codes.differ[0]];
    if (everywhere([&](uint32_t g, uint32_t) { return g == first; })) add("constant", fmt::format("the code {} wherever they differ", code_hex(id, first)));
    if ((flipped & (flipped - 1)) == 0 && flipped != sign && everywhere([&](uint32_t g, uint32_t w) { return (g ^ w) == flipped; })) {
      int bit = 0;
      while (flipped >> bit != 1) ++bit;
      add("bit", fmt::format("bit {} of the code is the other way round, and nothing else", bit));
    }
  }
  if (e.is_float() && plane.encoding != Encoding::e8m0 && everywhere([&](uint32_t, uint32_t w) { return is_saturated(id, w); }))
    add("maximum", "only where the wanted code has the largest magnitude");
  if (e.is_float() && n >= kFew) {
    auto compared = [&](bool below) {
      return everywhere([&](uint32_t g, uint32_t w) {
        const double a = std::fabs(value_of(id, g)), b = std::fabs(value_of(id, w));
        return below ? a < b : a > b;
      });
    };
    if (compared(true)) add("smaller", "smaller in magnitude wherever they differ");
    if (compared(false)) add("larger", "larger in magnitude wherever they differ");
  }
  if (scales && e.bits == 8) {
    for (const int step : {1, -1})
      if (everywhere([&](uint32_t g, uint32_t w) {
            const auto a = ordinal(id, g), b = ordinal(id, w);
            return a && b && *a - *b == step;
          }))
        add(step > 0 ? "scale_up" : "scale_down", fmt::format("scales are exactly one code too {} wherever they differ", step > 0 ? "large" : "small"));
  }
  if (e.bits == 32 && e.is_float() && n >= 2) {
    const double factor = value_of(id, codes.got[codes.differ[0]]) / value_of(id, codes.want[codes.differ[0]]);
    if (std::isfinite(factor) && factor != 0 && everywhere([&](uint32_t g, uint32_t w) { return std::fabs(value_of(id, g) / value_of(id, w) / factor - 1) <= 0x1p-22; }))
      add("scale_factor", fmt::format("{} times the wanted value wherever they differ", number_text(static_cast<float>(factor))));
  }
  if (e.is_float() && e.bits <= 8 && !scales && everywhere([&](uint32_t g, uint32_t w) { return codes_apart(id, g, w) == 1; })) add("neighbours", "one code apart wherever they differ");

  if (can_scale(problem, plane, inputs, got_all)) {
    const ScaledValues scaled(problem, *plane.direction, inputs, got_all);
    const double most = value_of(id, e.max_finite);
    bool ties = true, adjacent = n >= kFew, up = false, down = false;
    for (size_t i : codes.differ) {
      const auto v = scaled.at(codes.row(i), codes.col(i));
      const double got_value = std::fabs(value_of(id, codes.got[i]));
      if (!v || !std::isfinite(v->value) || std::isnan(got_value)) {
        ties = adjacent = false;
        break;
      }
      const double a = std::fabs(v->value), step = step_at(id, a);
      const auto f = between_codes(id, most, a);
      ties = ties && ((f && std::fabs(*f - 0.5) * step <= v->slack) || (!f && std::fabs(a - (most + step_at(id, most) / 2)) <= v->slack));
      const double low = std::floor((a - v->slack) / step) * step, high = std::ceil((a + v->slack) / step) * step;
      const bool opposite = a > v->slack && got_value != 0 && std::signbit(value_of(id, codes.got[i])) != std::signbit(v->value);
      adjacent = adjacent && f && !opposite && (got_value == low || got_value == high);
      (got_value > a ? up : down) = true;
      if (!ties && !adjacent) break;
    }
    if (ties) add("ties", "only where the scaled value lies halfway between two codes");
    if (adjacent && !ties && up && down) add("adjacent", "the scaled value rounded to one of its two neighbours, down and up: as stochastic rounding does");
  }

  if (const auto bad = bad_blocks(problem, plane, codes, inputs); bad && bad->blocks >= 3) {
    const int64_t half = bad->length / 2;
    const char* kBlocks = "in every block whose scale differs the largest element ";
    if (bad->first == bad->last) add("amax_index", fmt::format("{}stands at index {} of {}", kBlocks, bad->first, bad->length));
    else if (bad->first >= bad->length - bad->length / 4) add("amax_last_quarter", string(kBlocks) + "stands in the last quarter");
    else if (bad->blocks >= static_cast<int64_t>(kFew) && bad->first >= half) add("amax_second_half", string(kBlocks) + "stands in the second half");
    else if (bad->blocks >= static_cast<int64_t>(kFew) && bad->last < half) add("amax_first_half", string(kBlocks) + "stands in the first half");
    if (bad->negative && bad->blocks >= static_cast<int64_t>(kFew)) add("amax_negative", string(kBlocks) + "is negative");
  }
  return out;
}

}  // namespace assay
