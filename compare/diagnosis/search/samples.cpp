#include "compare/diagnosis/search/samples.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "compare/arithmetic/expected_values.h"
#include "compare/diagnosis/search/codes.h"

namespace assay::cause {

namespace {

// A plane with one value for each line (N3.12, N10.14).
bool of_lines(const Plane& plane, const Quantizer& q) {
  return plane.name.ends_with(".amax") || !info(q.format).has_blocks();
}

// ---- which blocks are bad ---------------------------------------------------------------------------------

// Which blocks hold a difference: lines are taken in groups that share a scale, places in blocks.
struct Blocks {
  int64_t height = 1, length = 32, groups = 0, blocks = 0;
  std::vector<uint8_t> bad;  // [groups * blocks]: 1 a code differs, 2 the scale does
  uint8_t& at(int64_t group, int64_t block) { return bad[static_cast<size_t>(group * blocks + block)]; }
  uint8_t at(int64_t group, int64_t block) const { return bad[static_cast<size_t>(group * blocks + block)]; }
};

void mark_codes(Blocks& b, const JudgedPlane& data, const PlaneData& made, bool as_seen) {
  const Codes got(data.got), want(made);
  for_places(data.want.plane, [&](int64_t r, int64_t c, int64_t at) {
    if (got[at] == want[at]) return;
    uint8_t& block = b.at((as_seen ? r : c) / b.height, (as_seen ? c : r) / b.length);
    block = std::max(block, uint8_t{1});
  });
}

void mark_scales(Blocks& b, const JudgedPlane& scales, const PlaneData& made, const Quantizer& q,
                 bool as_seen) {
  const Plane& plane = scales.want.plane;
  const Codes got(scales.got), want(made);
  for (int64_t g = 0; g < b.groups; ++g)
    for (int64_t k = 0; k < b.blocks; ++k) {
      const int64_t i = g * b.height, p = k * b.length;
      const int64_t in_blocks = as_seen ? scale_index(q, plane, i, p) : scale_index(q, plane, p, i);
      const int64_t at = of_lines(plane, q) ? i : in_blocks;
      if (got[at] != want[at]) b.at(g, k) = 2;
    }
}

// `made`: what the planes are held to; null: what they should be.
Blocks blocks_of(const JudgedLane& lane, const std::vector<PlaneData>* made = nullptr) {
  const Quantizer& q = lane.quantizer();
  Blocks b;
  if (const int64_t n = length_of(q.block)) b.length = n;
  if (is_square(q.block)) b.height = b.length;
  b.groups = ceil_div(lane.lines(), b.height);
  b.blocks = ceil_div(lane.length(), b.length);
  b.bad.assign(static_cast<size_t>(b.groups * b.blocks), 0);
  for (const JudgedPlane& j : lane.judged) {
    const PlaneData& right = made ? (*made)[j.index] : j.want;
    if ((!made && j.differ == 0) || j.is_scalar()) continue;
    if (j.is_data()) mark_codes(b, j, right, lane.as_seen());
    else mark_scales(b, j, right, q, lane.as_seen());
  }
  return b;
}

// Of `count` groups (or blocks) all, those with a difference, and those with a wrong scale. `worst(n)` is the
// worst mark of the n-th.
struct Marked {
  std::vector<int64_t> all, bad, scaled;
};
template <class Worst> Marked marked(int64_t count, Worst worst) {
  Marked out;
  for (int64_t n = 0; n < count; ++n) {
    const uint8_t mark = worst(n);
    out.all.push_back(n);
    if (mark > 0) out.bad.push_back(n);
    if (mark > 1) out.scaled.push_back(n);
  }
  return out;
}
Marked marked_groups(const Blocks& b) {
  return marked(b.groups, [&](int64_t g) {
    return *std::max_element(b.bad.begin() + g * b.blocks, b.bad.begin() + (g + 1) * b.blocks);
  });
}
Marked marked_blocks(const Blocks& b, const std::set<int64_t>& groups) {
  return marked(b.blocks, [&](int64_t k) {
    uint8_t worst = 0;
    for (const int64_t g : groups) worst = std::max(worst, b.at(g, k));
    return worst;
  });
}

// ---- what is selected -------------------------------------------------------------------------------------

// Up to n of the indices in `from`, evenly spaced, the first and the last among them.
void pick(std::set<int64_t>& out, const std::vector<int64_t>& from, int64_t n) {
  const int64_t have = static_cast<int64_t>(from.size());
  if (have == 0 || n <= 0) return;
  for (int64_t k = 0; k < std::min(n, have); ++k)
    out.insert(from[static_cast<size_t>(n == 1 || have == 1 ? 0 : k * (have - 1) / (std::min(n, have) - 1))]);
}

std::vector<int64_t> expand(const std::set<int64_t>& units, int64_t unit, int64_t limit) {
  std::vector<int64_t> out;
  for (const int64_t u : units)
    for (int64_t i = u * unit; i < std::min((u + 1) * unit, limit); ++i) out.push_back(i);
  return out;
}

// Draws count from the first line, so the leading ones are taken, whole.
Selection leading_lines(const JudgedLane& lane, const Blocks& b, int64_t elements, bool leading) {
  const Marked groups = marked_groups(b);
  const int64_t first = groups.bad.empty() ? 0 : groups.bad.front();
  const int64_t least = std::max<int64_t>(1, elements / (b.height * lane.length()));
  const int64_t n = leading ? least : std::max(least, first + 2);
  if (n * b.height * 2 > lane.lines()) return {};
  std::set<int64_t> taken;
  for (int64_t g = 0; g < n; ++g) taken.insert(g);
  Selection s;
  s.everything = false;
  s.lines = expand(taken, b.height, lane.lines());
  s.places.resize(static_cast<size_t>(lane.length()));
  std::iota(s.places.begin(), s.places.end(), 0);
  return s;
}

// Bad and good blocks from all over the tensor.
Selection spread_blocks(const JudgedLane& lane, const Blocks& b, int64_t elements) {
  // Blocks of 128x128 are few: one line of them, two in it.
  const bool huge = b.height * b.length > elements, row_scaled = lane.quantizer().row_scaled;
  const int64_t few = huge ? 2 : std::max<int64_t>(4, 512 / b.length);
  const int64_t width = row_scaled ? b.blocks : std::min(b.blocks, few);
  const int64_t height = huge ? 1 : std::max<int64_t>(2, elements / (width * b.length * b.height));
  std::set<int64_t> groups, blocks;
  const Marked down = marked_groups(b);
  pick(groups, down.scaled, (height + 3) / 4);
  if (!huge || groups.empty()) pick(groups, down.bad, (height + 3) / 4);
  if (!huge || groups.empty()) pick(groups, down.all, std::max<int64_t>(height / 2, 1));
  const Marked along = marked_blocks(b, groups);
  pick(blocks, along.scaled, (width + 3) / 4);
  pick(blocks, along.bad, (width + 3) / 4);
  pick(blocks, along.all, row_scaled ? b.blocks : std::max<int64_t>(width / 2, 1));
  Selection s;
  s.everything = false;
  s.lines = expand(groups, b.height, lane.lines());
  s.places = expand(blocks, b.length, lane.length());
  return s;
}

Selection select(const JudgedLane& lane, int64_t elements, bool leading) {
  if (!lane.lane().direction || lane.lane().problem.x.shape.count() <= 2 * elements) return {};
  const Quantizer& q = lane.quantizer();
  const bool drawn = q.round == Round::sr;
  if (drawn && q.numerics.draw != Draw::logical) return {};
  const Blocks b = blocks_of(lane);
  return drawn ? leading_lines(lane, b, elements, leading) : spread_blocks(lane, b, elements);
}

// ---- what is read -----------------------------------------------------------------------------------------

// Calls pair(index in the sample's plane, index in the whole plane) for what a selection takes of a plane.
template <class Pair>
void pair_selected(const JudgedLane& lane, const Selection& selection, const Plane& whole,
                   const Plane& sample, bool data, Pair pair) {
  const Quantizer& q = lane.quantizer();
  const bool as_seen = lane.as_seen();
  const auto index = [&](const Plane& plane, int64_t a, int64_t b) {
    const int64_t r = as_seen ? a : b, c = as_seen ? b : a;
    return data ? index_of(plane, r, c) : scale_index(q, plane, r, c);
  };
  const int64_t step = data ? 1 : std::min<int64_t>(length_of(q.block), 32);
  std::vector<uint8_t> seen(static_cast<size_t>(sample.padded.count()));
  for (int64_t i = 0; i < static_cast<int64_t>(selection.lines.size()); ++i) {
    const int64_t line = selection.lines[static_cast<size_t>(i)];
    if (!data && of_lines(whole, q)) {
      pair(i, line);
      continue;
    }
    for (int64_t k = 0; k < static_cast<int64_t>(selection.places.size()); k += step) {
      const int64_t at = index(sample, i, k);
      if (std::exchange(seen[static_cast<size_t>(at)], uint8_t{1})) continue;
      pair(at, index(whole, line, selection.places[static_cast<size_t>(k)]));
    }
  }
}

// The selection's codes of every judged plane. Nothing where the reference makes other bytes of the part than
// of the whole.
std::optional<Sample> read_sample(const JudgedLane& lane, const Selection& selection) {
  Sample out{&lane, selection, {}};
  const auto base = lane.replay->run(selection, {});
  if (!base) return {};
  for (const JudgedPlane& j : lane.judged) {
    Sample::Part part;
    part.plane = j.index;
    part.data = j.is_data() || !lane.lane().direction;
    std::vector<int64_t> source;
    const auto pair = [&](int64_t sample, int64_t whole) {
      part.at.push_back(sample);
      source.push_back(whole);
    };
    if (selection.everything) for_logical(j.want.plane, [&](int64_t i) { pair(i, i); });
    else if (j.is_scalar()) pair(0, 0);
    else pair_selected(lane, selection, j.want.plane, (*base)[j.index].plane, part.data, pair);
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

std::optional<Sample> sample_of(const JudgedLane& lane, int64_t elements, bool leading) {
  auto sample = read_sample(lane, select(lane, elements, leading));
  return sample ? std::move(sample) : read_sample(lane, {});
}

std::optional<Sample> sample_of_rest(const JudgedLane& lane, const std::vector<PlaneData>& made,
                                     int64_t elements) {
  if (lane.lane().problem.x.shape.count() <= 2 * elements) return read_sample(lane, {});
  auto sample = read_sample(lane, spread_blocks(lane, blocks_of(lane, &made), elements));
  return sample ? std::move(sample) : read_sample(lane, {});
}

}  // namespace assay::cause
