// The stages of the search whose causes are no rows of the library but fitted to the bytes that came: where things stand, which codes stand for others, which part of the tensor is wrong.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>
#include <unordered_map>

#include <fmt/format.h>

#include "compare/diagnosis/search/search.h"
#include "contract/line.h"

namespace assay::cause {

using std::string;

namespace {

// What came, before some of it is put back into its place.
class Kept {
 public:
  explicit Kept(const std::vector<LaneState*>& lanes) : lanes_(lanes) {
    for (const LaneState* l : lanes)
      for (const Judged& j : l->judged) bytes_.push_back(j.got.bytes);
  }
  void restore() {
    size_t n = 0;
    for (LaneState* l : lanes_)
      for (Judged& j : l->judged) {
        j.got.bytes = std::move(bytes_[n++]);
        j.count();
      }
  }

 private:
  const std::vector<LaneState*>& lanes_;
  std::vector<std::vector<std::byte>> bytes_;
};

// Whether two planes hold the same codes in some order.
bool same_codes(const Plane& plane, std::span<const std::byte> a, std::span<const std::byte> b) {
  const Codes x(plane, a), y(plane, b);
  if (info(plane.encoding).bits <= 16) {
    std::vector<int64_t> more(size_t{1} << 16);
    for_logical(plane, [&](int64_t i) { ++more[x[i]], --more[y[i]]; });
    return std::all_of(more.begin(), more.end(), [](int64_t n) { return n == 0; });
  }
  std::unordered_map<uint32_t, int64_t> more;
  for_logical(plane, [&](int64_t i) { ++more[x[i]], --more[y[i]]; });
  return std::all_of(more.begin(), more.end(), [](const auto& c) { return c.second == 0; });
}

}  // namespace

std::vector<LayoutFit> layouts_between(const Plane& plane, std::span<const std::byte> got, std::span<const std::byte> want) {
  std::vector<LayoutFit> fits = fit_layouts(plane, got, want);
  return fits.empty() ? exact_layouts(plane, got, want) : fits;
}

// ---- layouts ---------------------------------------------------------------------------------------------------------------

// The row of a layout of this plane, with what was found for a title.
string Search::add_layout(LaneState& lane, const Judged& j, const LayoutFit& fit) const {
  const string id = "layout." + j.stem() + ":" + fit.name;
  lane.row(id, fmt::format("{}: {}", j.stem(), fit.description));
  return id;
}

// Layouts of planes that differ, by plane stem; puts what came back into its place, so that values can be judged after it.
std::map<string, string> Search::find_layouts() {
  std::map<string, string> found;
  for (LaneState* lane : bad_)
    for (Judged& j : lane->judged) {
      if (j.differ == 0 || j.of < 8) continue;
      const auto fits = layouts_between(j.want.plane, j.got.bytes, j.want.bytes);
      if (fits.empty()) continue;
      // One that has a name says something of other tensors too.
      const auto named = std::find_if(fits.begin(), fits.end(), [](const LayoutFit& f) { return f.named; });
      const LayoutFit& best = named != fits.end() && (named->exact || !fits.front().exact) ? *named : fits.front();
      const double own = 1 - static_cast<double>(j.differ) / static_cast<double>(j.of);
      if (!best.exact && (best.share < 0.5 || best.share < own + 0.2)) continue;
      auto undone = relayout(best, j.want.plane, j.got.bytes, j.want.bytes);
      if (!undone) continue;
      const string id = add_layout(*lane, j, best);
      found[j.stem()] = id;
      for (const LayoutFit& f : fits)
        if (f.exact && f.named && f.name != best.name) alternatives_.push_back(add_layout(*lane, j, f));
      j.got.bytes = std::move(*undone);
      j.count();
    }
  return found;
}

void Search::try_layouts() {
  Kept came(bad_);
  Ids placed;
  for (const auto& [stem, id] : find_layouts()) placed.push_back(id);
  if (placed.empty()) return;
  const bool nothing_left = std::none_of(bad_.begin(), bad_.end(), [](const LaneState* l) { return l->differs(); });
  std::vector<Candidate> values;                                            // of what is left
  if (!nothing_left && unexplained()) {
    values = screen(sampled(4096), library([](const Hypothesis& h) { return !h.named_set && !h.wide; }));
    std::erase_if(values, [](const Candidate& c) { return !c.sample.exact(); });
    if (values.size() > 16) values.resize(16);
  }
  came.restore();
  if (nothing_left) {
    std::vector<Candidate> layouts = {{placed, {}, {}}};
    if (placed.size() == 1)
      for (const string& id : alternatives_) layouts.push_back({{id}, {}, {}});
    confirm(layouts);
    std::erase_if(layouts, [](const Candidate& c) { return !c.whole.exact(); });
    exact_.insert(exact_.begin(), layouts.begin(), layouts.end());
  } else if (unexplained()) {
    for (Candidate& c : values) c.ids.insert(c.ids.end(), placed.begin(), placed.end());
    values.push_back({placed, {}, {}});
    confirm(values);
    for (const Candidate& c : values)
      if (c.whole.exact()) exact_.push_back(c);
    if (unexplained() && values.back().whole.repaired > values.back().whole.differ / 2) singles_.insert(singles_.begin(), values.back());
  }
}

// ---- codes and places ------------------------------------------------------------------------------------------------------

// Codes replaced by others, the same everywhere, each often enough not to be chance.
void Search::try_map() {
  constexpr int64_t kLeast = 3;
  std::map<uint32_t, std::pair<uint32_t, int64_t>> map;
  for (const LaneState* l : bad_)
    for (const Judged& j : l->judged) {
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
  if (!pairs.empty()) exact_ = exact_of_ids({"code.map:" + pairs}, 1);
}

namespace {

// Whether codes that stand elsewhere, and nothing else, make the data of a lane.
bool moved_only(const LaneState& lane, const Hypothesis& h) {
  const Direction d = *lane.lane().direction;
  const Shape x = lane.lane().problem.x.shape;
  const int64_t lines = d == Direction::row ? x.rows : x.cols, length = d == Direction::row ? x.cols : x.rows;
  const bool as_seen = d == Direction::row || geometry(*lane.lane().problem.quantizer(d), x, d).transposed;
  for (const Judged& j : lane.judged) {
    if (!j.is_data()) continue;
    const Codes got(j.got), want(j.want);
    const auto at = [&](int64_t i, int64_t k) { return as_seen ? index_of(j.want.plane, i, k) : index_of(j.want.plane, k, i); };
    for (int64_t i = 0; i < lines; ++i)
      for (int64_t k = 0; k < length; ++k) {
        const auto [a, b] = h.code_place(i, k, lines, length);
        if (got[at(i, k)] != want[at(a, b)]) return false;
      }
  }
  return true;
}

}  // namespace

// Codes of every n-th row or column that are their neighbours'; rows or columns that stand further on. Where scales are right.
void Search::try_places() {
  int64_t common[2] = {0, 0}, first[2] = {-1, -1};                         // rows, columns: the greatest common divisor of the distances between those that differ
  for (const LaneState* l : bad_)
    for (const Judged& j : l->judged) {
      if (j.differ == 0) continue;
      if (!j.is_data()) return;
      const Codes got(j.got), want(j.want);
      std::vector<bool> differs[2] = {std::vector<bool>(static_cast<size_t>(l->lane().problem.x.shape.rows)), std::vector<bool>(static_cast<size_t>(l->lane().problem.x.shape.cols))};
      for_places(j.want.plane, [&](int64_t i, int64_t k, int64_t at) {
        if (got[at] == want[at]) return;
        differs[0][static_cast<size_t>(j.want.plane.transposed ? k : i)] = true;
        differs[1][static_cast<size_t>(j.want.plane.transposed ? i : k)] = true;
      });
      for (int axis = 0; axis < 2; ++axis)
        for (int64_t at = 0; at < static_cast<int64_t>(differs[axis].size()); ++at) {
          if (!differs[axis][static_cast<size_t>(at)]) continue;
          if (first[axis] < 0) first[axis] = at;
          common[axis] = std::gcd(common[axis], std::abs(at - first[axis]));
        }
    }
  std::vector<Candidate> out;
  const auto consider = [&](const string& id) {
    for (LaneState* l : bad_)
      if (const Hypothesis* h = l->row(id); !h || !moved_only(*l, *h)) return;
    out.push_back({{id}, {}, {}});
  };
  for (int axis = 0; axis < 2; ++axis) {
    const char* what = axis == 0 ? "row" : "column";
    for (const int64_t by : {1, -1}) consider(fmt::format("code.{}s_rotated:{}", what, by));
    if (common[axis] > 1)
      for (const char* kind : {"repeats", "ahead"}) consider(fmt::format("code.{}_{}:{}/{}", what, kind, first[axis] % common[axis], common[axis]));
  }
  confirm(out);
  std::erase_if(out, [](const Candidate& c) { return !c.whole.exact(); });
  exact_ = std::move(out);
}

// One part of the tensor that was not read or not written: where the codes that differ lie, and the tiles around them.
void Search::try_regions() {
  const Judged* data = bad_.front()->find(".data");
  if (bad_.size() != 1 || !data || data->differ == 0) return;
  const Shape shape = bad_.front()->lane().problem.x.shape;
  const Plane& plane = data->want.plane;
  Region box{shape.rows, 0, shape.cols, 0};
  const Codes got(data->got), want(data->want);
  std::optional<uint32_t> constant;                                        // that all have which differ
  bool constants = data->differ >= 32;                                      // of fewer it says nothing
  for_places(plane, [&](int64_t i, int64_t j, int64_t at) {
    if (got[at] == want[at]) return;
    constants &= constant.value_or(got[at]) == got[at];
    constant = got[at];
    const int64_t r = plane.transposed ? j : i, c = plane.transposed ? i : j;
    box = {std::min(box.row0, r), std::max(box.row1, r + 1), std::min(box.col0, c), std::max(box.col1, c + 1)};
  });
  std::set<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>> regions;   // the smallest first
  for (const int64_t tall : {1, 8, 16, 32, 64, 128})
    for (const int64_t wide : {1, 8, 16, 32, 64, 128, 1 << 30}) {
      const Region r{box.row0 / tall * tall, std::min(round_up(box.row1, tall), shape.rows), box.col0 / wide * wide, std::min(round_up(box.col1, wide), shape.cols)};
      if ((r.row1 - r.row0) * (r.col1 - r.col0) == shape.count()) continue;   // of everything there are rows in the library
      regions.insert({(r.row1 - r.row0) * (r.col1 - r.col0), r.row0, r.row1, r.col0, r.col1});
    }
  std::vector<string> tried;                                               // what explains the other direction comes first
  for (const Candidate& c : elsewhere_)
    if (c.whole.exact() && c.ids.size() == 1 && c.ids[0].find(':') != string::npos) tried.push_back(c.ids[0]);
  std::vector<string> kinds = {"code.zero", "input.above", "input.left", "input.zero", "output.zero"};
  if (constants && *constant != 0) kinds = {fmt::format("code.is={:02X}", *constant)};
  for (const auto& [area, row0, row1, col0, col1] : regions)
    for (const string& kind : kinds)
      if (const string id = fmt::format("{}:{}-{},{}-{}", kind, row0, row1, col0, col1); std::find(tried.begin(), tried.end(), id) == tried.end()) tried.push_back(id);
  constexpr size_t kMost = 120;
  std::erase_if(tried, [&](const string& id) { return !bad_.front()->row(id); });
  if (tried.size() > kMost) tried.resize(kMost);
  exact_ = exact_of_ids(tried, 16);
  if (exact_.size() > 4) exact_.resize(4);
}

// The scale or the amax of a tensor that came, where everything else follows it. One number tells no rule, so a value and a rule that gives it are offered together, and neither is certain.
void Search::try_tensor_values() {
  LaneState& lane = *bad_.front();
  const Quantizer& q = *lane.lane().problem.quantizer(*d_);
  if (bad_.size() != 1 || q.row_scaled || q.round == Round::sr) return;
  const Judged *amax = lane.find(".amax"), *scale = lane.find(".scale"), *inverse = lane.find(".scale_inv"), *data = lane.find(".data");
  if (!data || data->differ < 8) return;
  const auto number = [](const PlaneData& p) { return static_cast<float>(value_of(Encoding::f32, Codes(p)[0])); };
  const auto bits = [](float v) { return std::bit_cast<uint32_t>(v); };
  if (amax && amax->is_scalar() && amax->differ > 0 && !q.amax && q.format != FormatId::fp8_delayed) {   // the larger ones have rows of their own
    if (const float came = number(amax->got); came > 0 && came < number(amax->want)) exact_ = exact_of_ids({fmt::format("tensor_amax.at_most={:08X}", bits(came)), fmt::format("tensor_amax.is={:08X}", bits(came))}, 2);
    return;
  }
  if (!info(q.format).per_tensor_fp8() || !inverse || inverse->differ == 0) return;
  const float inv = number(inverse->got), inv_right = number(inverse->want), of_inverse = 1 / inv;
  if (!(inv > 0) || !std::isfinite(inv) || !(of_inverse > 0) || !std::isfinite(of_inverse)) return;
  std::vector<float> scales;
  if (scale) scales = {number(scale->got)};
  else                                                                      // those whose reciprocal it is
    for (const float s : {of_inverse, std::nextafter(of_inverse, 0.0f), std::nextafter(of_inverse, 2 * of_inverse)})
      if (1 / s == inv) scales.push_back(s);
  if (scales.empty()) scales = {of_inverse};
  const PlaneData* given = find_plane(lane.lane().inputs, plane_name(*d_, "given.scale"));
  const double right = scale ? static_cast<double>(number(scale->want)) : given ? static_cast<double>(number(*given)) : 1 / static_cast<double>(inv_right);
  for (const float s : scales) {
    exact_ = exact_of_ids({fmt::format("tensor_scale.is={:08X},{:08X}", bits(s), bits(inv)),
                           fmt::format("tensor_scale.times={:016X},{:016X}", std::bit_cast<uint64_t>(static_cast<double>(s) / right), std::bit_cast<uint64_t>(static_cast<double>(inv) / static_cast<double>(inv_right)))}, 2);
    if (!unexplained()) return;
  }
}

// A value and a place: what a single cause makes of one plane holds the same codes as what came, in another order, and every other plane is right.
void Search::try_displaced() {
  LaneState& lane = *bad_.front();
  const size_t most = whole_is_large() ? 12 : 64;
  std::vector<const Candidate*> few;
  for (const Candidate& c : singles_)
    if (c.ids.size() == 1 && few.size() < most && (c.sample.scales_agree || c.sample.data_agrees) && !lane.by_id.at(c.ids[0])->named_set) few.push_back(&c);
  std::vector<std::optional<std::pair<const Judged*, LayoutFit>>> moved(few.size());
  parallel(evidence_.jobs, few.size(), [&](size_t n) {
    const auto rows = lane.rows(few[n]->ids);
    const auto planes = rows && evidence_.in_time() ? lane.replay->run({}, *rows) : std::nullopt;
    if (!planes) return;
    const Judged* one = nullptr;
    for (const Judged& j : lane.judged) {
      const PlaneData& made = (*planes)[j.index];
      const Codes x(j.got), y(made);
      bool equal = true;
      if (made.bytes != j.got.bytes) for_logical(j.want.plane, [&](int64_t i) { equal &= x[i] == y[i]; });
      if (equal) continue;
      if (one || !same_codes(j.want.plane, j.got.bytes, made.bytes)) return;
      one = &j;
    }
    if (!one) return;
    for (LayoutFit& f : layouts_between(one->want.plane, one->got.bytes, (*planes)[one->index].bytes))
      if (f.exact && f.named) {
        moved[n].emplace(one, std::move(f));
        return;
      }
  });
  std::vector<Candidate> out;
  for (size_t n = 0; n < few.size(); ++n) {
    if (!moved[n]) continue;
    string id;
    for (LaneState* l : bad_) id = add_layout(*l, *moved[n]->first, moved[n]->second);
    out.push_back({{few[n]->ids[0], id}, {}, {}});
  }
  confirm(out);
  std::erase_if(out, [](const Candidate& c) { return !c.whole.exact(); });
  exact_ = std::move(out);
}

}  // namespace assay::cause
