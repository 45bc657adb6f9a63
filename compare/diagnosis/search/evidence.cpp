#include "compare/diagnosis/search/evidence.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "compare/arithmetic/expected_values.h"
#include "contract/line.h"

namespace assay::cause {

using std::string;

void Judged::count() {
  of = differ = 0;
  const Codes g(got), w(want);
  for_logical(want.plane, [&](int64_t i) {
    ++of;
    differ += g[i] != w[i];
  });
}

bool LaneState::differs() const {
  return std::any_of(judged.begin(), judged.end(), [](const Judged& j) { return j.differ > 0; });
}

const Judged* LaneState::find(std::string_view stem) const {
  for (const Judged& j : judged)
    if (j.want.plane.name.ends_with(stem)) return &j;
  return nullptr;
}

const Hypothesis* LaneState::row(const string& id, const string& title) {
  if (const auto found = by_id.find(id); found != by_id.end()) return found->second;
  auto named = hypothesis_named(id, lane().problem, *lane().direction);
  if (!named) return nullptr;
  Hypothesis& h = library.emplace_back(std::move(*named));
  if (!title.empty()) h.title = title;
  by_id.emplace(id, &h);
  return &h;
}

std::optional<std::vector<const Hypothesis*>> LaneState::rows(const Ids& ids) const {
  std::vector<const Hypothesis*> out;
  for (const string& id : ids) {
    const auto found = by_id.find(id);
    if (found == by_id.end()) return {};
    out.push_back(found->second);
  }
  return out;
}

// ---- how a replay fits -----------------------------------------------------------------------------------------------------

Fit& Fit::operator+=(const Fit& o) {
  of += o.of, agree += o.agree, differ += o.differ, repaired += o.repaired, changed += o.changed, loss += o.loss;
  scales_agree &= o.scales_agree;
  data_agrees &= o.data_agrees;
  applies |= o.applies;
  return *this;
}

namespace {

void add(Fit& fit, uint32_t made, uint32_t got, uint32_t want) {
  ++fit.of;
  fit.agree += made == got;
  fit.differ += want != got;
  fit.repaired += want != got && made == got;
  fit.changed += made != want;
}

void finish_plane(Fit& fit, bool data) {
  fit.loss = fit.of ? static_cast<double>(fit.of - fit.agree) / static_cast<double>(fit.of) : 0;
  (data ? fit.data_agrees : fit.scales_agree) = fit.agree == fit.of;
}

}  // namespace

Fit fit_sample(const Sample& sample, const Ids& ids) {
  Fit fit;
  const auto rows = sample.lane->rows(ids);
  const auto planes = rows ? sample.lane->replay->run(sample.selection, *rows) : std::nullopt;
  if (!planes) return fit;
  fit.applies = true;
  for (const Sample::Part& part : sample.parts) {
    Fit of_plane;
    const Codes made((*planes)[part.plane]);
    for (size_t k = 0; k < part.at.size(); ++k) add(of_plane, made[part.at[k]], part.got[k], part.want[k]);
    finish_plane(of_plane, part.data);
    fit += of_plane;
  }
  return fit;
}

Fit fit_whole(const LaneState& lane, const Ids& ids) {
  Fit fit;
  const auto rows = lane.rows(ids);
  auto planes = rows ? lane.replay->run({}, *rows) : std::nullopt;
  if (!planes) return fit;
  for (const Hypothesis* h : *rows)
    if (!h->layout.empty()) lay_out(*h, *planes);
  fit.applies = true;
  for (const Judged& j : lane.judged) {
    Fit of_plane;
    const PlaneData& data = (*planes)[j.index];
    if (data.bytes == j.got.bytes) {                                        // what is exact is so in most planes
      of_plane.of = of_plane.agree = j.of;
      of_plane.differ = of_plane.repaired = of_plane.changed = j.differ;
    } else {
      const Codes made(data), got(j.got), want(j.want);
      for_logical(j.want.plane, [&](int64_t i) { add(of_plane, made[i], got[i], want[i]); });
    }
    finish_plane(of_plane, j.is_data());
    fit += of_plane;
  }
  return fit;
}

// ---- samples ---------------------------------------------------------------------------------------------------------------

namespace {

// A plane with one value for each line (N3.12, N10.14).
bool of_lines(const Plane& plane, const Quantizer& q) { return plane.name.ends_with(".amax") || !info(q.format).has_blocks(); }

// Which blocks hold a difference: lines are taken in groups that share a scale, places in blocks.
struct Blocks {
  int64_t height = 1, length = 32, groups = 0, blocks = 0;
  std::vector<uint8_t> bad;                // [groups * blocks]: 1 a code differs, 2 the scale does
  uint8_t& at(int64_t group, int64_t block) { return bad[static_cast<size_t>(group * blocks + block)]; }
};

Blocks blocks_of(const LaneState& lane) {
  const Direction d = *lane.lane().direction;
  const Quantizer& q = *lane.lane().problem.quantizer(d);
  const Shape shape = lane.lane().problem.x.shape;
  const bool as_seen = d == Direction::row || geometry(q, shape, d).transposed;
  Blocks b;
  if (const int64_t n = length_of(q.block)) b.length = n;
  if (is_square(q.block)) b.height = b.length;
  const int64_t lines = d == Direction::row ? shape.rows : shape.cols, places = d == Direction::row ? shape.cols : shape.rows;
  b.groups = ceil_div(lines, b.height);
  b.blocks = ceil_div(places, b.length);
  b.bad.assign(static_cast<size_t>(b.groups * b.blocks), 0);
  for (const Judged& j : lane.judged) {
    if (j.differ == 0 || j.is_scalar()) continue;
    const Plane& plane = j.want.plane;
    const Codes got(j.got), want(j.want);
    if (j.is_data()) {
      for_places(plane, [&](int64_t r, int64_t c, int64_t at) {
        if (got[at] == want[at]) return;
        uint8_t& block = b.at((as_seen ? r : c) / b.height, (as_seen ? c : r) / b.length);
        block = std::max(block, uint8_t{1});
      });
    } else {
      for (int64_t g = 0; g < b.groups; ++g)
        for (int64_t k = 0; k < b.blocks; ++k) {
          const int64_t i = g * b.height, p = k * b.length;
          const int64_t at = of_lines(plane, q) ? i : as_seen ? scale_index(q, plane, i, p) : scale_index(q, plane, p, i);
          if (got[at] != want[at]) b.at(g, k) = 2;
        }
    }
  }
  return b;
}

// Up to n of the indices in `from`, evenly spaced, the first and the last among them.
void pick(std::set<int64_t>& out, const std::vector<int64_t>& from, int64_t n) {
  const int64_t have = static_cast<int64_t>(from.size());
  if (have == 0 || n <= 0) return;
  for (int64_t k = 0; k < std::min(n, have); ++k) out.insert(from[static_cast<size_t>(n == 1 || have == 1 ? 0 : k * (have - 1) / (std::min(n, have) - 1))]);
}

std::vector<int64_t> expand(const std::set<int64_t>& units, int64_t unit, int64_t limit) {
  std::vector<int64_t> out;
  for (const int64_t u : units)
    for (int64_t i = u * unit; i < std::min((u + 1) * unit, limit); ++i) out.push_back(i);
  return out;
}

Selection select(const LaneState& lane, int64_t elements, bool leading) {
  const Lane& l = lane.lane();
  if (!l.direction) return {};
  const Quantizer& q = *l.problem.quantizer(*l.direction);
  const Shape shape = l.problem.x.shape;
  if (shape.count() <= 2 * elements) return {};
  const int64_t lines = *l.direction == Direction::row ? shape.rows : shape.cols, places = *l.direction == Direction::row ? shape.cols : shape.rows;
  if (q.round == Round::sr && q.numerics.draw != Draw::logical) return {};
  Blocks b = blocks_of(lane);
  std::vector<int64_t> all(static_cast<size_t>(b.groups)), bad, scaled;
  std::iota(all.begin(), all.end(), 0);
  for (const int64_t g : all) {
    const uint8_t worst = *std::max_element(b.bad.begin() + g * b.blocks, b.bad.begin() + (g + 1) * b.blocks);
    if (worst > 0) bad.push_back(g);
    if (worst > 1) scaled.push_back(g);
  }
  Selection s;
  s.everything = false;
  std::set<int64_t> groups, blocks;
  if (q.round == Round::sr) {                                              // the leading ones, whole
    const int64_t first = bad.empty() ? 0 : bad.front(), least = std::max<int64_t>(1, elements / (b.height * places));
    const int64_t n = leading ? least : std::max(least, first + 2);
    if (n * b.height * 2 > lines) return {};
    for (int64_t g = 0; g < n; ++g) groups.insert(g);
    s.lines = expand(groups, b.height, lines);
    s.places.resize(static_cast<size_t>(places));
    std::iota(s.places.begin(), s.places.end(), 0);
    return s;
  }
  // Blocks of 128x128 are few: one line of them, two in it.
  const bool huge = b.height * b.length > elements;
  const int64_t width = q.row_scaled ? b.blocks : huge ? std::min<int64_t>(b.blocks, 2) : std::min<int64_t>(b.blocks, std::max<int64_t>(4, 512 / b.length));
  const int64_t height = huge ? 1 : std::max<int64_t>(2, elements / (width * b.length * b.height));
  pick(groups, scaled, (height + 3) / 4);
  if (!huge || groups.empty()) pick(groups, bad, (height + 3) / 4);
  if (!huge || groups.empty()) pick(groups, all, std::max<int64_t>(height / 2, 1));
  std::vector<int64_t> every(static_cast<size_t>(b.blocks)), wrong, misscaled;
  std::iota(every.begin(), every.end(), 0);
  for (const int64_t k : every) {
    uint8_t worst = 0;
    for (const int64_t g : groups) worst = std::max(worst, b.at(g, k));
    if (worst > 0) wrong.push_back(k);
    if (worst > 1) misscaled.push_back(k);
  }
  pick(blocks, misscaled, (width + 3) / 4);
  pick(blocks, wrong, (width + 3) / 4);
  pick(blocks, every, q.row_scaled ? b.blocks : std::max<int64_t>(width / 2, 1));
  s.lines = expand(groups, b.height, lines);
  s.places = expand(blocks, b.length, places);
  return s;
}

// The selection's codes of every judged plane. Nothing where the reference makes other bytes of the part than of the whole.
std::optional<Sample> read_sample(const LaneState& lane, const Selection& selection) {
  Sample out{&lane, selection, {}};
  const auto base = lane.replay->run(selection, {});
  if (!base) return {};
  const Lane& l = lane.lane();
  for (const Judged& j : lane.judged) {
    Sample::Part part;
    part.plane = j.index;
    const Plane &from = j.want.plane, &to = (*base)[j.index].plane;
    part.data = j.is_data() || !l.direction;
    std::vector<int64_t> source;
    const auto pair = [&](int64_t sample, int64_t whole) {
      part.at.push_back(sample);
      source.push_back(whole);
    };
    if (selection.everything) {
      for_logical(from, [&](int64_t i) { pair(i, i); });
    } else if (j.is_scalar()) {
      pair(0, 0);
    } else {
      const Direction d = *l.direction;
      const Quantizer& q = *l.problem.quantizer(d);
      const bool as_seen = d == Direction::row || geometry(q, l.problem.x.shape, d).transposed;
      const int64_t step = part.data ? 1 : std::min<int64_t>(length_of(q.block), 32);
      std::vector<uint8_t> seen(static_cast<size_t>(to.padded.count()));
      for (int64_t i = 0; i < static_cast<int64_t>(selection.lines.size()); ++i) {
        const int64_t fi = selection.lines[static_cast<size_t>(i)];
        if (!part.data && of_lines(from, q)) {
          pair(i, fi);
          continue;
        }
        for (int64_t k = 0; k < static_cast<int64_t>(selection.places.size()); k += step) {
          const int64_t fk = selection.places[static_cast<size_t>(k)];
          const auto index = [&](const Plane& plane, int64_t a, int64_t b) {
            const int64_t r = as_seen ? a : b, c = as_seen ? b : a;
            return part.data ? index_of(plane, r, c) : scale_index(q, plane, r, c);
          };
          const int64_t at = index(to, i, k);
          if (std::exchange(seen[static_cast<size_t>(at)], uint8_t{1})) continue;
          pair(at, index(from, fi, fk));
        }
      }
    }
    const Codes got(j.got), want(j.want), made((*base)[j.index]);
    for (size_t k = 0; k < source.size(); ++k) {
      part.got.push_back(got[source[k]]);
      part.want.push_back(want[source[k]]);
      if (made[part.at[k]] != part.want.back()) return {};
    }
    out.parts.push_back(std::move(part));
  }
  return out;
}

}  // namespace

size_t Sample::elements() const {
  size_t n = 0;
  for (const Part& part : parts) n += part.at.size();
  return n;
}

std::optional<Sample> sample_of(const LaneState& lane, int64_t elements, bool leading) {
  auto sample = read_sample(lane, select(lane, elements, leading));
  return sample ? std::move(sample) : read_sample(lane, {});
}

// ---- the case --------------------------------------------------------------------------------------------------------------

Evidence::Evidence(const Observation& o, Subject& r, const DiagnoseOptions& with)
    : seen(o), reference(r), options(with), jobs(with.jobs > 0 ? with.jobs : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))) {}

std::vector<LaneState*> Evidence::lanes_of(std::optional<Direction> d, bool differing) {
  std::vector<LaneState*> out;
  for (LaneState& l : lanes)
    if (l.lane().direction == d && (!differing || l.differs())) out.push_back(&l);
  return out;
}

std::optional<Error> Evidence::gather() {
  if (const auto error = validate(seen.problem)) return *error;
  if (const Support s = reference.supports(seen.problem); !s.yes) return Error{"the reference does not run this line: " + s.why, 0, ""};
  if (seen.got.empty()) return Error{"no output plane of this line is there: there is nothing to judge", 0, ""};
  const std::vector<Plane> planes = output_planes(seen.problem);
  for (const PlaneData& g : seen.got) {
    const auto plane = std::find_if(planes.begin(), planes.end(), [&](const Plane& p) { return p.name == g.plane.name; });
    if (plane == planes.end()) return Error{"plane " + g.plane.name + " is none of this line's output planes", 0, ""};
    if (g.bytes.size() != plane->bytes()) return Error{fmt::format("plane {}: expected {} bytes, found {}", plane->name, plane->bytes(), g.bytes.size()), 0, ""};
  }
  for (const Plane& plane : input_planes(seen.problem)) {
    const PlaneData* in = find_plane(seen.inputs, plane.name);
    if (!in || in->bytes.size() != plane.bytes()) return Error{fmt::format("input plane {}: expected {} bytes, found {}", plane.name, plane.bytes(), in ? in->bytes.size() : 0), 0, ""};
  }
  auto all = assay::lanes_of(seen.problem, seen.inputs, seen.got, reference);
  if (!all) return all.error();
  for (Lane& lane : *all) lanes.emplace_back().replay = std::make_unique<Replay>(std::move(lane), reference);
  std::atomic<bool> failed = false;
  const bool split = seen.problem.as<Split>() != nullptr;
  parallel(jobs, lanes.size(), [&](size_t n) {
    LaneState& lane = lanes[n];
    auto want = lane.replay->run({}, {});
    if (!want) {
      failed = true;
      return;
    }
    const std::vector<PlaneData> got = split ? planes_of_member(seen.got, *lane.lane().member) : seen.got;
    for (size_t i = 0; i < want->size(); ++i) {
      PlaneData& w = (*want)[i];
      const PlaneData* g = find_plane(got, w.plane.name);
      if (!g) continue;
      Judged j{i, {w.plane, g->bytes}, std::move(w), 0, 0};
      j.count();
      if (j.is_scalar() && j.want.plane.name.ends_with(".amax")) lane.replay->observe_amax(value_of(Encoding::f32, Codes(j.got)[0]));
      lane.judged.push_back(std::move(j));
    }
  });
  if (failed) return Error{"the reference does not run this line", 0, ""};
  if (std::any_of(lanes.begin(), lanes.end(), [](const LaneState& l) { return l.differs(); })) parallel(jobs, lanes.size(), [&](size_t n) { add_rows(lanes[n]); });
  return split ? judge_beside() : std::nullopt;
}

// The rows that can change a lane's bytes.
void Evidence::add_rows(LaneState& lane) const {
  const Lane& l = lane.lane();
  const std::optional<Direction> d = l.direction;
  for (Hypothesis& h : d ? hypotheses(l.problem, *d) : line_hypotheses(l.problem)) {
    if (!h.keys.empty() && !h.element) {
      const auto changed = with_keys(l.problem, h.keys);
      if (!changed || *changed == l.problem) continue;
    }
    const Hypothesis& row = lane.library.emplace_back(std::move(h));
    lane.by_id.emplace(row.id, &row);
  }
  if (d == Direction::row && l.other && l.other->rht)
    for (const char* how : {"", ",own_amax", ",unrounded", ",unrounded,own_amax"}) lane.row(fmt::format("input.rotated:0x{:04X}{}", l.other->sign_mask, how));
  if (const Judged* amax = lane.find(".amax"); d && amax && amax->is_scalar()) {
    const uint32_t got = Codes(amax->got)[0], want = Codes(amax->want)[0];
    if (got > want && got < info(Encoding::f32).infinity)                   // codes of amaxes order as they do
      for (const char* how : {"at_least", "is"}) lane.row(fmt::format("tensor_amax.{}={:08X}", how, got));
  }
}

// Offsets: planes that are the case's, not a member's.
std::optional<Error> Evidence::judge_beside() {
  std::vector<PlaneData> want;
  std::vector<Buffer> out;
  for (const Plane& plane : output_planes(seen.problem)) want.push_back({plane, std::vector<std::byte>(plane.bytes())});
  for (PlaneData& w : want) out.push_back({&w.plane, w.bytes});
  try {
    reference.run(seen.problem, views(seen.inputs), out, Environment{});
  } catch (const std::exception& e) {
    return Error{e.what(), 0, ""};
  }
  for (const PlaneData& w : want) {
    const PlaneData* g = find_plane(seen.got, w.plane.name);
    if (!g || !w.plane.members.empty()) continue;
    int64_t differ = 0;
    for (int64_t i = 0; i < w.plane.logical.count(); ++i) differ += Codes(w.plane, g->bytes)[i] != Codes(w)[i];
    beside_of += w.plane.logical.count();
    beside_differ += differ;
    if (differ) beside.push_back({*g, w});
  }
  return {};
}

}  // namespace assay::cause
