#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/places.h"
#include "compare/diagnosis/search/codes.h"
#include "compare/diagnosis/search/stages.h"

namespace assay::cause {

using std::string;

// Codes replaced by others, the same everywhere, each often enough not to be chance.
void try_code_map(SearchState& s) {
  constexpr int64_t kLeast = 3;
  std::map<uint32_t, std::pair<uint32_t, int64_t>> map;
  for (const JudgedLane* l : s.bad())
    for (const JudgedPlane& j : l->judged) {
      if (!j.is_data() || info(j.want.plane.encoding).bits > 8) {
        if (j.differ > 0) return;
        continue;
      }
      std::vector<int64_t> times(size_t{1} << 16);
      const Codes got(j.got), want(j.want);
      for_logical(j.want.plane, [&](int64_t i) { ++times[want[i] << 8 | got[i]]; });
      for (uint32_t w = 0; w < 256; ++w)
        for (uint32_t g = 0; g < 256; ++g) {
          if (times[w << 8 | g] == 0) continue;
          const auto [at, fresh] = map.try_emplace(w, g, 0);
          if (at->second.first != g) return;
          at->second.second += times[w << 8 | g];
        }
    }
  string pairs;
  for (const auto& [want, to] : map) {
    if (to.first == want) continue;
    if (to.second < kLeast) return;
    pairs += fmt::format("{}{:02X}>{:02X}", pairs.empty() ? "" : ",", want, to.first);
  }
  if (!pairs.empty()) s.exact = s.screening.exact_of_ids({"code.map:" + pairs}, 1);
}

namespace {

// Whether codes that stand elsewhere, and nothing else, make the data of a lane.
bool moved_only(const JudgedLane& lane, const Hypothesis& h) {
  const int64_t lines = lane.lines(), length = lane.length();
  const bool as_seen = lane.as_seen();
  for (const JudgedPlane& j : lane.judged) {
    if (!j.is_data()) continue;
    const Codes got(j.got), want(j.want);
    const auto at = [&](int64_t i, int64_t k) {
      return as_seen ? index_of(j.want.plane, i, k) : index_of(j.want.plane, k, i);
    };
    for (int64_t i = 0; i < lines; ++i)
      for (int64_t k = 0; k < length; ++k) {
        const auto [a, b] = h.code_place(i, k, lines, length);
        if (got[at(i, k)] != want[at(a, b)]) return false;
      }
  }
  return true;
}

// The first row or column in which codes differ, and the greatest common divisor of the distances from it to
// the others.
struct Spacing {
  int64_t first = -1, common = 0;
  void add(const std::vector<bool>& differs) {
    for (int64_t at = 0; at < static_cast<int64_t>(differs.size()); ++at) {
      if (!differs[static_cast<size_t>(at)]) continue;
      if (first < 0) first = at;
      common = std::gcd(common, std::abs(at - first));
    }
  }
};

// The spacing of rows and of columns; nothing where scales are wrong.
std::optional<std::array<Spacing, 2>> spacings(const std::vector<JudgedLane*>& lanes) {
  std::array<Spacing, 2> out;
  for (const JudgedLane* l : lanes)
    for (const JudgedPlane& j : l->judged) {
      if (j.differ == 0) continue;
      if (!j.is_data()) return {};
      const Codes got(j.got), want(j.want);
      const Shape shape = l->lane().problem.x.shape;
      std::vector<bool> rows(static_cast<size_t>(shape.rows)), cols(static_cast<size_t>(shape.cols));
      for_places(j.want.plane, [&](int64_t i, int64_t k, int64_t at) {
        if (got[at] == want[at]) return;
        rows[static_cast<size_t>(j.want.plane.transposed ? k : i)] = true;
        cols[static_cast<size_t>(j.want.plane.transposed ? i : k)] = true;
      });
      out[0].add(rows);
      out[1].add(cols);
    }
  return out;
}

}  // namespace

// Codes of every n-th row or column that are their neighbours'; rows or columns that stand further on. Where
// scales are right.
void try_places(SearchState& s) {
  const auto spacing = spacings(s.bad());
  if (!spacing) return;
  std::vector<Candidate> out;
  const auto consider = [&](const string& id) {
    for (JudgedLane* l : s.bad())
      if (const Hypothesis* h = l->row(id); !h || !moved_only(*l, *h)) return;
    out.push_back({{id}, {}, {}});
  };
  for (size_t axis = 0; axis < 2; ++axis) {
    const char* what = axis == 0 ? "row" : "column";
    const auto [first, common] = (*spacing)[axis];
    for (const int64_t by : {1, -1}) consider(fmt::format("code.{}s_rotated:{}", what, by));
    if (common > 1)
      for (const char* kind : {"repeats", "ahead"})
        consider(fmt::format("code.{}_{}:{}/{}", what, kind, first % common, common));
  }
  s.screening.confirm(out);
  std::erase_if(out, [](const Candidate& c) { return !c.whole.exact(); });
  s.exact = std::move(out);
}

namespace {

int64_t area(const Region& r) { return (r.row1 - r.row0) * (r.col1 - r.col0); }

// What differs of a lane's data, but for what lies in `spared` regions.
struct Differing {
  Region box;                        // around it
  std::optional<uint32_t> constant;  // the code that all of it has
  bool empty() const { return box.row0 >= box.row1; }
};
Differing differing(const JudgedPlane& data, Shape shape, const std::vector<Region>& spared = {}) {
  const Plane& plane = data.want.plane;
  const Codes got(data.got), want(data.want);
  Differing out{{shape.rows, 0, shape.cols, 0}, {}};
  bool constant = data.differ >= 32;  // of fewer it says nothing
  for_places(plane, [&](int64_t i, int64_t j, int64_t at) {
    if (got[at] == want[at]) return;
    const int64_t r = plane.transposed ? j : i, c = plane.transposed ? i : j;
    if (std::any_of(spared.begin(), spared.end(),
                    [&](const Region& s) { return r >= s.row0 && r < s.row1 && c >= s.col0 && c < s.col1; }))
      return;
    constant &= out.constant.value_or(got[at]) == got[at];
    out.constant = got[at];
    Region& box = out.box;
    box = {std::min(box.row0, r), std::max(box.row1, r + 1), std::min(box.col0, c),
           std::max(box.col1, c + 1)};
  });
  if (!constant) out.constant.reset();
  return out;
}

// The tiles around a box, the smallest first, but for the whole tensor: of that there are rows in the
// library.
std::vector<Region> tiles_around(const Region& box, Shape shape) {
  std::vector<Region> out;
  for (const int64_t tall : {1, 8, 16, 32, 64, 128})
    for (const int64_t wide : {1, 8, 16, 32, 64, 128, 1 << 30}) {
      const Region r{box.row0 / tall * tall, std::min(round_up(box.row1, tall), shape.rows),
                     box.col0 / wide * wide, std::min(round_up(box.col1, wide), shape.cols)};
      if (area(r) != shape.count()) out.push_back(r);
    }
  const auto key = [](const Region& r) { return std::tuple(area(r), r.row0, r.row1, r.col0, r.col1); };
  std::sort(out.begin(), out.end(), [&](const Region& a, const Region& b) { return key(a) < key(b); });
  const auto same = [&](const Region& a, const Region& b) { return key(a) == key(b); };
  out.erase(std::unique(out.begin(), out.end(), same), out.end());
  return out;
}

// The blocks whose scale differs, where they are few: all their codes follow the scale, also those of
// elements that were read and written as they should be.
std::vector<Region> blocks_of_wrong_scales(const JudgedLane& lane) {
  constexpr int64_t kMost = 64;
  std::vector<Region> out;
  for (const JudgedPlane& j : lane.judged) {
    if (j.is_data() || j.is_scalar() || j.differ == 0) continue;
    if (j.differ > kMost) return {};
    const Codes got(j.got), want(j.want);
    for_places(j.want.plane, [&](int64_t r, int64_t c, int64_t at) {
      if (got[at] != want[at]) out.push_back(region_of(&lane.lane().problem, j.want.plane, {false, r, c}));
    });
  }
  return out;
}

}  // namespace

// One part of the tensor that was not read or not written: where the codes that differ lie, and the tiles
// around them.
void try_regions(SearchState& s) {
  constexpr size_t kMost = 180, kMostSmaller = 12;
  JudgedLane& lane = *s.bad().front();
  const JudgedPlane* data = lane.find(".data");
  if (s.bad().size() != 1 || !data || data->differ == 0) return;
  const Shape shape = lane.lane().problem.x.shape;
  const Differing what = differing(*data, shape);
  std::vector<string> tried;  // what explains the other direction comes first
  for (const Candidate& c : s.elsewhere)
    if (c.whole.exact() && c.ids.size() == 1 && c.ids[0].find(':') != string::npos) tried.push_back(c.ids[0]);
  std::vector<string> kinds = {"code.zero", "input.above", "input.left", "input.zero", "output.zero"};
  if (what.constant && *what.constant != 0) kinds = {fmt::format("code.is={:02X}", *what.constant)};
  std::vector<Region> tiles = tiles_around(what.box, shape);
  if (const auto spared = blocks_of_wrong_scales(lane); !spared.empty())
    if (const Differing rest = differing(*data, shape, spared); !rest.empty()) {
      std::vector<Region> smaller = tiles_around(rest.box, shape);
      if (smaller.size() > kMostSmaller) smaller.resize(kMostSmaller);
      tiles.insert(tiles.begin(), smaller.begin(), smaller.end());
    }
  for (const Region& r : tiles)
    for (const string& kind : kinds) {
      const string id = fmt::format("{}:{}-{},{}-{}", kind, r.row0, r.row1, r.col0, r.col1);
      if (std::find(tried.begin(), tried.end(), id) == tried.end()) tried.push_back(id);
    }
  std::erase_if(tried, [&](const string& id) { return !lane.row(id); });
  if (tried.size() > kMost) tried.resize(kMost);
  s.exact = s.screening.exact_of_ids(tried, 16);
  if (s.exact.size() > 4) s.exact.resize(4);
}

namespace {

float number(const PlaneData& p) { return static_cast<float>(value_of(Encoding::f32, Codes(p)[0])); }
uint32_t bits(float v) { return std::bit_cast<uint32_t>(v); }
uint64_t bits(double v) { return std::bit_cast<uint64_t>(v); }
bool positive(float v) { return v > 0 && std::isfinite(v); }

// An amax that is too small; the larger ones have rows of their own.
void try_tensor_amax(SearchState& s, const JudgedPlane& amax) {
  const float came = number(amax.got);
  if (!(came > 0) || !(came < number(amax.want))) return;
  const std::vector<string> ids = {fmt::format("tensor_amax.at_most={:08X}", bits(came)),
                                   fmt::format("tensor_amax.is={:08X}", bits(came))};
  s.exact = s.screening.exact_of_ids(ids, 2);
}

// The scales whose reciprocal came.
std::vector<float> scales_of(float inverse) {
  const float s = 1 / inverse;
  std::vector<float> out;
  for (const float near : {s, std::nextafter(s, 0.0f), std::nextafter(s, 2 * s)})
    if (1 / near == inverse) out.push_back(near);
  if (out.empty()) out = {s};
  return out;
}

void try_tensor_scale(SearchState& s, const JudgedLane& lane, const JudgedPlane* scale,
                      const JudgedPlane& inverse) {
  const float inv = number(inverse.got), inv_right = number(inverse.want);
  if (!positive(inv) || !positive(1 / inv)) return;
  const PlaneData* given = find_plane(lane.lane().inputs, plane_name(*s.direction, "given.scale"));
  double right = 1 / static_cast<double>(inv_right);
  if (scale) right = static_cast<double>(number(scale->want));
  else if (given) right = static_cast<double>(number(*given));
  for (const float came : scale ? std::vector<float>{number(scale->got)} : scales_of(inv)) {
    const double times = static_cast<double>(came) / right;
    const double inv_times = static_cast<double>(inv) / static_cast<double>(inv_right);
    const std::vector<string> ids = {
        fmt::format("tensor_scale.is={:08X},{:08X}", bits(came), bits(inv)),
        fmt::format("tensor_scale.times={:016X},{:016X}", bits(times), bits(inv_times))};
    s.exact = s.screening.exact_of_ids(ids, 2);
    if (!s.unexplained()) return;
  }
}

}  // namespace

// The scale or the amax of a tensor that came, where everything else follows it. One number tells no rule, so
// a value and a rule that gives it are offered together, and neither is certain.
void try_tensor_values(SearchState& s) {
  const JudgedLane& lane = *s.bad().front();
  const Quantizer& q = lane.quantizer();
  if (s.bad().size() != 1 || q.row_scaled || q.round == Round::sr) return;
  const JudgedPlane *amax = lane.find(".amax"), *inverse = lane.find(".scale_inv"),
                    *data = lane.find(".data");
  if (!data || data->differ < 8) return;
  const bool own_amax = !q.amax && q.format != FormatId::fp8_delayed;
  if (amax && amax->is_scalar() && amax->differ > 0 && own_amax) return try_tensor_amax(s, *amax);
  if (info(q.format).per_tensor_fp8() && inverse && inverse->differ > 0)
    try_tensor_scale(s, lane, lane.find(".scale"), *inverse);
}

}  // namespace assay::cause
