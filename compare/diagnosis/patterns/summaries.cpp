#include "compare/diagnosis/patterns/summaries.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/expected_values.h"
#include "compare/diagnosis/patterns/corners.h"
#include "compare/diagnosis/patterns/plane_codes.h"

namespace assay {

using namespace patterns;

namespace {

using std::string;

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
std::vector<Differing> pairs_of(const EncodingInfo& e, const PlaneCodes& codes) {
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
    h.add(!apart ? std::size(kFrom)
                 : static_cast<size_t>(std::upper_bound(std::begin(kFrom), std::end(kFrom), *apart) -
                                       std::begin(kFrom)) -
                       1,
          p.count);
  }
  return h.filled();
}

std::vector<std::pair<string, int64_t>> exponents(Encoding e, const std::vector<Differing>& pairs) {
  if (!info(e).is_float()) return {};
  constexpr int kMost = 9;  // buckets of binades, beside zero, NaN and infinity
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
    for (int from = low; from <= high; from += width)
      names.push_back(width == 1 ? fmt::format("2^{}", from)
                                 : fmt::format("2^{}..2^{}", from, std::min(from + width - 1, high)));
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

std::vector<PlaneSummary::Bucket> tie_distances(const Problem& problem, const Plane& plane,
                                                const PlaneCodes& codes, const std::vector<PlaneData>& in,
                                                const std::vector<PlaneData>& out) {
  if (!can_scale(problem, plane, in, out)) return {};
  const ScaledValues scaled(problem, *plane.direction, in, out);
  const Encoding e = plane.encoding;
  const double most = value_of(e, info(e).max_finite);
  static constexpr double kFrom[] = {0x1p-6, 0x1p-4, 0x1p-3, 0x1p-2, 0.375};
  std::vector<PlaneSummary::Bucket> buckets;
  for (const char* name : {"a tie", "below 1/64", "below 1/16", "below 1/8", "below 1/4", "below 3/8",
                           "below 1/2", "has a code", "beyond the largest", "unknown"})
    buckets.push_back({name, 0, 0});
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
        b = distance == 0 || distance * step_at(e, v->value) <= v->slack
                ? 0
                : 1 + static_cast<size_t>(std::upper_bound(std::begin(kFrom), std::end(kFrom), distance) -
                                          std::begin(kFrom));
      }
    }
    ++buckets[b].of;
    if (codes.got[i] != codes.want[i]) ++buckets[b].differ;
  }
  if (!any) return {};
  std::erase_if(buckets, [](const auto& b) { return b.of == 0; });
  return buckets;
}

}  // namespace

PlaneSummary summarize(const Problem& problem, const PlaneData& got, const PlaneData& want,
                       const std::vector<PlaneData>& inputs, const std::vector<PlaneData>& got_all) {
  const PlaneCodes codes(got, want);
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
  const PlaneCodes codes(got, want);
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

}  // namespace assay
