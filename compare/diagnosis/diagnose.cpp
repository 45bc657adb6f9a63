#include "compare/diagnosis/diagnose.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <set>
#include <thread>
#include <unordered_map>

#include <fmt/format.h>

#include "compare/describe.h"
#include "compare/diagnosis/layouts.h"
#include "compare/diagnosis/patterns.h"
#include "compare/diagnosis/replay.h"
#include "compare/judge.h"
#include "compare/scaled.h"
#include "contract/line.h"

namespace assay {

namespace {

using std::string;
using Ids = std::vector<string>;

template <class Body>
void parallel(int jobs, size_t count, Body body) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i; (i = next++) < count;) body(i);
  };
  std::vector<std::jthread> others;
  for (size_t t = 1; t < std::min<size_t>(static_cast<size_t>(std::max(jobs, 1)), count); ++t) others.emplace_back(work);
  work();
}

// ---- what is judged --------------------------------------------------------------------------------------------------------

// One plane of a lane: as it came, as it should be.
struct Judged {
  size_t index = 0;                    // among the lane's output planes
  PlaneData got, want;
  int64_t of = 0, differ = 0;
};

// Calls f(flat index) for every logical element.
template <class F>
void for_logical(const Plane& plane, F f) {
  if (plane.logical == plane.padded && plane.layout == ScaleLayout::compact) {
    for (int64_t i = 0; i < plane.logical.count(); ++i) f(i);
  } else {
    for (int64_t r = 0; r < plane.logical.rows; ++r)
      for (int64_t c = 0; c < plane.logical.cols; ++c) f(index_of(plane, r, c));
  }
}

struct LaneState {
  std::deque<Hypothesis> library;
  std::unordered_map<string, const Hypothesis*> by_id;
  std::unique_ptr<Replay> replay;
  std::vector<PlaneData> want;         // all planes
  std::vector<Judged> judged;          // those that came
  bool differs() const {
    return std::any_of(judged.begin(), judged.end(), [](const Judged& j) { return j.differ > 0; });
  }
  const Lane& lane() const { return replay->lane(); }
  const Judged* find(std::string_view stem) const {
    for (const Judged& j : judged)
      if (j.want.plane.name.ends_with(stem)) return &j;
    return nullptr;
  }
};

void count(Judged& j) {
  j.of = j.differ = 0;
  for_logical(j.want.plane, [&](int64_t i) {
    ++j.of;
    j.differ += code_at(j.want.plane, j.got.bytes, i) != code_at(j.want.plane, j.want.bytes, i);
  });
}

// How a replay fits what came.
struct Fit {
  int64_t of = 0, agree = 0, differ = 0, repaired = 0, changed = 0;   // changed: from what is wanted
  double loss = 0;                     // over planes: the share that does not agree
  bool scales_agree = true;            // every plane but the data
  bool applies = false;
  bool exact() const { return applies && agree == of; }
  Fit& operator+=(const Fit& o) {
    of += o.of, agree += o.agree, differ += o.differ, repaired += o.repaired, changed += o.changed, loss += o.loss;
    scales_agree &= o.scales_agree;
    applies |= o.applies;
    return *this;
  }
};

void add(Fit& fit, uint32_t made, uint32_t got, uint32_t want) {
  ++fit.of;
  fit.agree += made == got;
  fit.differ += want != got;
  fit.repaired += want != got && made == got;
  fit.changed += made != want;
}

// ---- samples ---------------------------------------------------------------------------------------------------------------

struct Sample {
  const LaneState* lane = nullptr;
  Selection selection;
  struct Part {
    size_t plane = 0;                  // among the replay's planes
    bool data = false;
    std::vector<int64_t> at;           // in the replay's plane
    std::vector<uint32_t> got, want;
  };
  std::vector<Part> parts;
};

constexpr int64_t kSampleElements = 4096, kPairElements = 512;
constexpr size_t kMostPairs = 96;      // that are tried on a whole sample
constexpr size_t kPairWork = size_t{1} << 25;   // elements that pairs are replayed on before that

// Which blocks hold a difference: lines are taken in groups that share a scale, places in blocks.
struct Blocks {
  int64_t height = 1, length = 32, groups = 0, blocks = 0;
  std::vector<uint8_t> bad;            // [groups * blocks]: 1 a code differs, 2 the scale does
};

Blocks blocks_of(const LaneState& lane) {
  const Direction d = *lane.lane().direction;
  const Quantizer& q = *lane.lane().problem.quantizer(d);
  const Shape shape = lane.lane().problem.x.shape;
  const bool transposed = geometry(q, shape, d).transposed;
  Blocks b;
  if (const int64_t n = length_of(q.block)) b.length = n;
  if (is_square(q.block)) b.height = b.length;
  const int64_t lines = d == Direction::row ? shape.rows : shape.cols, places = d == Direction::row ? shape.cols : shape.rows;
  b.groups = ceil_div(lines, b.height);
  b.blocks = ceil_div(places, b.length);
  b.bad.assign(static_cast<size_t>(b.groups * b.blocks), 0);
  for (const Judged& j : lane.judged) {
    if (j.differ == 0 || j.want.plane.padded == Shape{1, 1}) continue;
    const Plane& plane = j.want.plane;
    if (plane.name.ends_with(".data")) {
      for (int64_t r = 0; r < plane.logical.rows; ++r)
        for (int64_t c = 0; c < plane.logical.cols; ++c) {
          const int64_t at = index_of(plane, r, c);
          if (code_at(plane, j.got.bytes, at) == code_at(plane, j.want.bytes, at)) continue;
          const bool as_seen = d == Direction::row || transposed;
          uint8_t& block = b.bad[static_cast<size_t>((as_seen ? r : c) / b.height * b.blocks + (as_seen ? c : r) / b.length)];
          block = std::max(block, uint8_t{1});
        }
    } else {
      for (int64_t g = 0; g < b.groups; ++g)
        for (int64_t k = 0; k < b.blocks; ++k) {
          const int64_t i = g * b.height, p = k * b.length;
          const int64_t at = plane.name.ends_with(".amax") ? std::min(i, plane.padded.count() - 1) : d == Direction::row || transposed ? scale_index(q, plane, i, p) : scale_index(q, plane, p, i);
          if (code_at(plane, j.got.bytes, at) != code_at(plane, j.want.bytes, at)) b.bad[static_cast<size_t>(g * b.blocks + k)] = 2;
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

Selection select(const LaneState& lane, int64_t elements) {
  const Lane& l = lane.lane();
  if (!l.direction) return {};
  const Quantizer& q = *l.problem.quantizer(*l.direction);
  const Shape shape = l.problem.x.shape;
  if (shape.count() <= 2 * elements) return {};
  const int64_t lines = *l.direction == Direction::row ? shape.rows : shape.cols, places = *l.direction == Direction::row ? shape.cols : shape.rows;
  if (q.round == Round::sr && q.numerics.draw != Draw::logical) return {};
  const Blocks b = blocks_of(lane);
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
  if (q.round == Round::sr) {                                              // draws count from the first line: the leading ones, whole
    const int64_t first = bad.empty() ? 0 : bad.front(), least = std::max<int64_t>(1, elements / (b.height * places));
    const int64_t n = std::max(least, first + 2);
    if (n * b.height * 2 > lines) return {};
    for (int64_t g = 0; g < n; ++g) groups.insert(g);
    s.lines = expand(groups, b.height, lines);
    s.places.resize(static_cast<size_t>(places));
    std::iota(s.places.begin(), s.places.end(), 0);
    return s;
  }
  const int64_t width = q.row_scaled ? b.blocks : std::min<int64_t>(b.blocks, std::max<int64_t>(4, 512 / b.length));
  const int64_t height = std::max<int64_t>(2, elements / (width * b.length * b.height));
  pick(groups, scaled, (height + 3) / 4);
  pick(groups, bad, (height + 3) / 4);
  pick(groups, all, height / 2);
  std::vector<int64_t> every(static_cast<size_t>(b.blocks)), wrong, misscaled;
  std::iota(every.begin(), every.end(), 0);
  for (const int64_t k : every) {
    uint8_t worst = 0;
    for (const int64_t g : groups) worst = std::max(worst, b.bad[static_cast<size_t>(g * b.blocks + k)]);
    if (worst > 0) wrong.push_back(k);
    if (worst > 1) misscaled.push_back(k);
  }
  pick(blocks, misscaled, (width + 3) / 4);
  pick(blocks, wrong, (width + 3) / 4);
  pick(blocks, every, q.row_scaled ? b.blocks : width / 2);
  s.lines = expand(groups, b.height, lines);
  s.places = expand(blocks, b.length, places);
  return s;
}

// The sample's codes of every judged plane. Nothing where the reference makes other bytes of the part than of the whole.
std::optional<Sample> sample_of(const LaneState& lane, const Selection& selection) {
  Sample out{&lane, selection, {}};
  const auto base = lane.replay->run(selection, {});
  if (!base) return {};
  const Lane& l = lane.lane();
  for (const Judged& j : lane.judged) {
    Sample::Part part;
    part.plane = j.index;
    const Plane &from = j.want.plane, &to = (*base)[j.index].plane;
    part.data = from.name.ends_with(".data") || !l.direction;
    std::vector<int64_t> source;
    const auto pair = [&](int64_t sample, int64_t whole) {
      part.at.push_back(sample);
      source.push_back(whole);
    };
    if (selection.everything) {
      for_logical(from, [&](int64_t i) { pair(i, i); });
    } else if (from.padded == Shape{1, 1}) {
      pair(0, 0);
    } else {
      const Direction d = *l.direction;
      const Quantizer& q = *l.problem.quantizer(d);
      const bool as_seen = d == Direction::row || geometry(q, l.problem.x.shape, d).transposed;
      const int64_t step = part.data ? 1 : std::min<int64_t>(length_of(q.block), 32);
      std::vector<uint8_t> seen(static_cast<size_t>(to.padded.count()));
      for (int64_t i = 0; i < static_cast<int64_t>(selection.lines.size()); ++i) {
        const int64_t fi = selection.lines[static_cast<size_t>(i)];
        if (from.name.ends_with(".amax")) {
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
    for (size_t k = 0; k < source.size(); ++k) {
      part.got.push_back(code_at(from, j.got.bytes, source[k]));
      part.want.push_back(code_at(from, j.want.bytes, source[k]));
      if (code_at(to, (*base)[j.index].bytes, part.at[k]) != part.want.back()) return {};
    }
    out.parts.push_back(std::move(part));
  }
  return out;
}

// ---- the search ------------------------------------------------------------------------------------------------------------

// An explanation of the lanes of one direction.
struct Candidate {
  Ids ids;
  Fit sample, whole;
};

class Search {
 public:
  Search(const Observation& seen, Subject& reference, const DiagnoseOptions& options)
      : seen_(seen), reference_(reference), options_(options), jobs_(options.jobs > 0 ? options.jobs : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))) {}

  Result<Diagnosis> run();

 private:
  using Clock = std::chrono::steady_clock;
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool in_time() const { return elapsed() < options_.budget; }
  void progress(const string& text) const {
    if (options_.on_progress) options_.on_progress(text);
  }

  std::optional<Error> prepare();
  std::vector<LaneState*> lanes(std::optional<Direction> d, bool differing) {
    std::vector<LaneState*> out;
    for (LaneState& l : lanes_)
      if (l.lane().direction == d && (!differing || l.differs())) out.push_back(&l);
    return out;
  }

  std::optional<std::vector<const Hypothesis*>> resolve(const LaneState& lane, const Ids& ids) const;
  Fit fit_sample(const Sample& sample, const Ids& ids);
  Fit fit_samples(const std::vector<Sample>& samples, const Ids& ids);
  Fit fit_whole(const LaneState& lane, const Ids& ids);
  void confirm(std::vector<Candidate>& candidates, std::optional<Direction> d);
  std::vector<Candidate> search(std::optional<Direction> d);
  void find_layouts(LaneState& lane, std::map<string, string>& found);
  std::vector<Candidate> wide_ones(std::optional<Direction> d);
  std::optional<Candidate> fitted_map(std::optional<Direction> d);
  std::vector<Candidate> regions(std::optional<Direction> d);
  std::vector<Candidate> places(std::optional<Direction> d);

  Explanation explanation(const std::vector<std::pair<Ids, std::optional<Direction>>>& parts);
  void combine(Diagnosis& out);
  void describe(Diagnosis& out);
  void stages(Diagnosis& out);
  void separate(Diagnosis& out);
  void find_invisible(Diagnosis& out);
  Stage stage_of_unexplained(const LaneState& lane) const;
  std::vector<Candidate> displaced(std::optional<Direction> d, const std::vector<Candidate>& singles);

  const Observation& seen_;
  Subject& reference_;
  const DiagnoseOptions& options_;
  int jobs_;
  Clock::time_point start_ = Clock::now();
  std::deque<LaneState> lanes_;
  Ids alternatives_;                   // to the layouts that were found, exact as well
  std::map<std::optional<Direction>, std::vector<Candidate>> found_;
  std::map<std::optional<Direction>, std::vector<string>> unseen_;   // ids that change nothing in the samples
  std::vector<std::pair<PlaneData, PlaneData>> beside_;   // planes of no lane that differ: got, want
  int64_t beside_of_ = 0, beside_differ_ = 0;
};

std::optional<Error> Search::prepare() {
  if (const auto error = validate(seen_.problem)) return *error;
  if (const Support s = reference_.supports(seen_.problem); !s.yes) return Error{"the reference does not run this line: " + s.why, 0, ""};
  if (seen_.got.empty()) return Error{"no output plane of this line is there: there is nothing to judge", 0, ""};
  const std::vector<Plane> planes = output_planes(seen_.problem);
  for (const PlaneData& g : seen_.got) {
    const auto plane = std::find_if(planes.begin(), planes.end(), [&](const Plane& p) { return p.name == g.plane.name; });
    if (plane == planes.end()) return Error{"plane " + g.plane.name + " is none of this line's output planes", 0, ""};
    if (g.bytes.size() != plane->bytes()) return Error{fmt::format("plane {}: expected {} bytes, found {}", plane->name, plane->bytes(), g.bytes.size()), 0, ""};
  }
  for (const Plane& plane : input_planes(seen_.problem)) {
    const PlaneData* in = find_plane(seen_.inputs, plane.name);
    if (!in || in->bytes.size() != plane.bytes()) return Error{fmt::format("input plane {}: expected {} bytes, found {}", plane.name, plane.bytes(), in ? in->bytes.size() : 0), 0, ""};
  }
  auto lanes = lanes_of(seen_.problem, seen_.inputs, seen_.got, reference_);
  if (!lanes) return lanes.error();
  for (Lane& lane : *lanes) {
    LaneState& state = lanes_.emplace_back();
    state.replay = std::make_unique<Replay>(std::move(lane), reference_);
  }
  std::atomic<bool> failed = false;
  const bool split = seen_.problem.as<Split>() != nullptr;
  parallel(jobs_, lanes_.size(), [&](size_t n) {
    LaneState& state = lanes_[n];
    auto want = state.replay->run({}, {});
    if (!want) {
      failed = true;
      return;
    }
    state.want = std::move(*want);
    const std::vector<PlaneData> got = split ? planes_of_member(seen_.got, *state.lane().member) : seen_.got;
    for (size_t i = 0; i < state.want.size(); ++i) {
      const PlaneData* g = find_plane(got, state.want[i].plane.name);
      if (!g) continue;
      Judged j{i, {state.want[i].plane, g->bytes}, state.want[i], 0, 0};
      count(j);
      if (j.want.plane.name.ends_with(".amax") && j.want.plane.padded == Shape{1, 1}) state.replay->observe_amax(value_of(Encoding::f32, code_at(Encoding::f32, j.got.bytes, 0)));
      state.judged.push_back(std::move(j));
    }
    const std::optional<Direction> d = state.lane().direction;
    for (Hypothesis& h : d ? hypotheses(state.lane().problem, *d) : line_hypotheses(state.lane().problem)) {
      if (!h.keys.empty() && !h.element) {
        const auto changed = with_keys(state.lane().problem, h.keys);
        if (!changed || *changed == state.lane().problem) continue;
      }
      const Hypothesis& row = state.library.emplace_back(std::move(h));
      state.by_id.emplace(row.id, &row);
    }
    if (d == Direction::row && state.lane().other && state.lane().other->rht)
      for (const char* how : {"", ",own_amax", ",unrounded", ",unrounded,own_amax"}) {
        const string id = fmt::format("input.rotated:0x{:04X}{}", state.lane().other->sign_mask, how);
        if (auto row = hypothesis_named(id, state.lane().problem, *d)) state.by_id.emplace(id, &state.library.emplace_back(std::move(*row)));
      }
    if (const Judged* amax = state.find(".amax"); d && amax && amax->want.plane.padded == Shape{1, 1}) {
      const uint32_t got = code_at(Encoding::f32, amax->got.bytes, 0), want = code_at(Encoding::f32, amax->want.bytes, 0);
      if (got > want && got < info(Encoding::f32).infinity) {              // codes of amaxes order as they do
        const string id = fmt::format("tensor_amax.at_least={:08X}", got);
        state.by_id.emplace(id, &state.library.emplace_back(*hypothesis_named(id, state.lane().problem, *d)));
      }
    }
  });
  if (failed) return Error{"the reference does not run this line", 0, ""};
  if (split) {                                                             // offsets: planes that are the case's, not a member's
    std::vector<PlaneData> want;
    std::vector<Buffer> out;
    for (const Plane& plane : planes) want.push_back({plane, std::vector<std::byte>(plane.bytes())});
    for (PlaneData& w : want) out.push_back({&w.plane, w.bytes});
    const std::vector<ConstBuffer> in = views(seen_.inputs);
    try {
      reference_.run(seen_.problem, in, out, Environment{});
    } catch (const std::exception& e) {
      return Error{e.what(), 0, ""};
    }
    for (const PlaneData& w : want) {
      const PlaneData* g = find_plane(seen_.got, w.plane.name);
      if (!g || !w.plane.members.empty()) continue;
      int64_t differ = 0;
      for (int64_t i = 0; i < w.plane.logical.count(); ++i) differ += code_at(w.plane, g->bytes, i) != code_at(w.plane, w.bytes, i);
      beside_of_ += w.plane.logical.count();
      beside_differ_ += differ;
      if (differ) beside_.push_back({*g, w});
    }
  }
  return {};
}

std::optional<std::vector<const Hypothesis*>> Search::resolve(const LaneState& lane, const Ids& ids) const {
  std::vector<const Hypothesis*> out;
  for (const string& id : ids) {
    const auto found = lane.by_id.find(id);
    if (found == lane.by_id.end()) return {};
    out.push_back(found->second);
  }
  return out;
}

Fit Search::fit_sample(const Sample& sample, const Ids& ids) {
  Fit fit;
  const auto rows = resolve(*sample.lane, ids);
  const auto planes = rows ? sample.lane->replay->run(sample.selection, *rows) : std::nullopt;
  if (!planes) return fit;
  fit.applies = true;
  for (const Sample::Part& part : sample.parts) {
    Fit of_plane;
    const PlaneData& made = (*planes)[part.plane];
    for (size_t k = 0; k < part.at.size(); ++k) add(of_plane, code_at(made.plane, made.bytes, part.at[k]), part.got[k], part.want[k]);
    of_plane.loss = part.at.empty() ? 0 : static_cast<double>(of_plane.of - of_plane.agree) / static_cast<double>(of_plane.of);
    of_plane.scales_agree = part.data || of_plane.agree == of_plane.of;
    fit += of_plane;
  }
  return fit;
}

Fit Search::fit_samples(const std::vector<Sample>& samples, const Ids& ids) {
  Fit fit;
  for (const Sample& s : samples) {
    const Fit one = fit_sample(s, ids);
    if (!one.applies) return Fit{};
    fit += one;
  }
  return fit;
}

Fit Search::fit_whole(const LaneState& lane, const Ids& ids) {
  Fit fit;
  const auto rows = resolve(lane, ids);
  auto planes = rows ? lane.replay->run({}, *rows) : std::nullopt;
  if (!planes) return fit;
  for (const Hypothesis* h : *rows)
    if (!h->layout.empty()) lay_out(*h, *planes);
  fit.applies = true;
  for (const Judged& j : lane.judged) {
    Fit of_plane;
    const PlaneData& made = (*planes)[j.index];
    for_logical(j.want.plane, [&](int64_t i) { add(of_plane, code_at(made.plane, made.bytes, i), code_at(j.want.plane, j.got.bytes, i), code_at(j.want.plane, j.want.bytes, i)); });
    of_plane.loss = of_plane.of ? static_cast<double>(of_plane.of - of_plane.agree) / static_cast<double>(of_plane.of) : 0;
    of_plane.scales_agree = j.want.plane.name.ends_with(".data") || of_plane.agree == of_plane.of;
    fit += of_plane;
  }
  return fit;
}

// Over everything in lanes of a direction that differ.
void Search::confirm(std::vector<Candidate>& candidates, std::optional<Direction> d) {
  const std::vector<LaneState*> lanes = this->lanes(d, true);
  std::vector<Fit> fits(candidates.size() * lanes.size());
  parallel(jobs_, fits.size(), [&](size_t n) { fits[n] = fit_whole(*lanes[n % lanes.size()], candidates[n / lanes.size()].ids); });
  for (size_t c = 0; c < candidates.size(); ++c) {
    Fit whole;
    bool applies = true;
    for (size_t l = 0; l < lanes.size(); ++l) {
      applies &= fits[c * lanes.size() + l].applies;
      whole += fits[c * lanes.size() + l];
    }
    whole.applies = applies;
    candidates[c].whole = whole;
  }
}

// Layouts that make got of want. Where codes are so few that none can be searched for, those known by name that make every byte.
std::vector<LayoutFit> layouts_between(const Plane& plane, std::span<const std::byte> got, std::span<const std::byte> want) {
  std::vector<LayoutFit> fits = fit_layouts(plane, got, want);
  if (!fits.empty()) return fits;
  static constexpr const char* kNames[] = {"column_major", "row_major", "tiles_128x4", "tiles_128x4_across", "tiles_128x4_down", "tiles_128x4_rows", "tiles_128x4_reshaped", "tiles_128x4_words", "swizzled_twice",
                                           "words_along", "words_down", "rows_reversed", "columns_reversed", "rows_swapped_1", "columns_swapped_1", "row_offset_1", "row_offset_-1", "column_offset_1", "column_offset_-1"};
  for (const string name : kNames)
    for (const char* form : {"", "_unpadded", "_inverse"}) {
      auto fit = layout_named(name + form, plane);
      if (!fit) continue;
      int64_t agree = 0, of = 0, moved = 0;
      for_logical(plane, [&](int64_t i) {
        const int64_t from = fit->source[static_cast<size_t>(i)];
        const uint32_t made = from >= 0 ? code_at(plane, want, from) : 0, came = code_at(plane, got, i);
        ++of;
        agree += made == came;
        moved += made == came && came != code_at(plane, want, i);
      });
      if (agree != of || moved < 4) continue;
      fit->exact = true;
      fit->share = 1;
      if (std::none_of(fits.begin(), fits.end(), [&](const LayoutFit& f) { return f.source == fit->source; })) fits.push_back(std::move(*fit));
    }
  return fits;
}

// Layouts of planes that differ, by plane stem; relabels what came so that values can be judged after it.
void Search::find_layouts(LaneState& lane, std::map<string, string>& found) {
  for (Judged& j : lane.judged) {
    if (j.differ == 0 || j.of < 8) continue;
    const auto fits = layouts_between(j.want.plane, j.got.bytes, j.want.bytes);
    if (fits.empty()) continue;
    // One that has a name says something of other tensors too.
    const auto known = std::find_if(fits.begin(), fits.end(), [&](const LayoutFit& f) { return layout_named(f.name, j.want.plane).has_value(); });
    const LayoutFit& best = known != fits.end() && (known->exact || !fits.front().exact) ? *known : fits.front();
    const double own = 1 - static_cast<double>(j.differ) / static_cast<double>(j.of);
    if (!best.exact && (best.share < 0.5 || best.share < own + 0.2)) continue;
    const auto undone = relayout(best, j.want.plane, j.got.bytes, j.want.bytes);
    if (!undone) continue;
    const string stem = j.want.plane.name.substr(j.want.plane.name.find('.') + 1), id = "layout." + stem + ":" + best.name;
    if (!lane.by_id.contains(id)) {
      Hypothesis& h = lane.library.emplace_back(*hypothesis_named(id, lane.lane().problem, *lane.lane().direction));
      h.title = fmt::format("{}: {}", stem, best.description);
      lane.by_id.emplace(id, &h);
    }
    found[stem] = id;
    for (const LayoutFit& f : fits) {
      const string other = "layout." + stem + ":" + f.name;
      if (!f.exact || other == id || !layout_named(f.name, j.want.plane)) continue;
      if (!lane.by_id.contains(other)) {
        Hypothesis& h = lane.library.emplace_back(*hypothesis_named(other, lane.lane().problem, *lane.lane().direction));
        h.title = fmt::format("{}: {}", stem, f.description);
        lane.by_id.emplace(other, &h);
      }
      alternatives_.push_back(other);
    }
    j.got.bytes = *undone;
    count(j);
  }
}

// Hypotheses that samples cannot show, where the planes that differ are those that they touch.
std::vector<Candidate> Search::wide_ones(std::optional<Direction> d) {
  const std::vector<LaneState*> bad = lanes(d, true);
  bool data = false, scales = false;
  for (const LaneState* l : bad)
    for (const Judged& j : l->judged) (j.want.plane.name.ends_with(".data") ? data : scales) |= j.differ > 0;
  std::vector<Candidate> out;
  for (const Hypothesis& h : bad.front()->library) {
    if (!h.wide) continue;
    const bool fits = !h.of_other.empty() ? (h.of_other == "data") == data && (h.of_other == "data") != scales : h.use == Hypothesis::Use::codes ? data && !scales : h.use == Hypothesis::Use::stored ? scales && !data : scales;
    if (fits) out.push_back({{h.id}, {}, {}});
  }
  confirm(out, d);
  return out;
}

// One part of the tensor that was not read or not written: where the codes that differ lie, and the tiles around them.
std::vector<Candidate> Search::regions(std::optional<Direction> d) {
  const std::vector<LaneState*> bad = lanes(d, true);
  LaneState& lane = *bad.front();
  const Judged* data = lane.find(".data");
  if (bad.size() != 1 || !data || data->differ == 0) return {};
  const Shape shape = lane.lane().problem.x.shape;
  const Plane& plane = data->want.plane;
  Region box{shape.rows, 0, shape.cols, 0};
  for (int64_t i = 0; i < plane.logical.rows; ++i)
    for (int64_t j = 0; j < plane.logical.cols; ++j) {
      const int64_t at = index_of(plane, i, j), r = plane.transposed ? j : i, c = plane.transposed ? i : j;
      if (code_at(plane, data->got.bytes, at) != code_at(plane, data->want.bytes, at)) box = {std::min(box.row0, r), std::max(box.row1, r + 1), std::min(box.col0, c), std::max(box.col1, c + 1)};
    }
  std::set<string> ids;
  for (const int64_t tall : {1, 8, 16, 32, 64, 128})
    for (const int64_t wide : {1, 8, 16, 32, 64, 128, 1 << 30}) {
      const Region r{box.row0 / tall * tall, std::min(round_up(box.row1, tall), shape.rows), box.col0 / wide * wide, std::min(round_up(box.col1, wide), shape.cols)};
      if ((r.row1 - r.row0) * (r.col1 - r.col0) * 4 > shape.count()) continue;
      for (const char* kind : {"input.zero", "input.above", "input.left", "code.zero"}) ids.insert(fmt::format("{}:{}-{},{}-{}", kind, r.row0, r.row1, r.col0, r.col1));
    }
  constexpr size_t kMost = 48;
  std::vector<Candidate> out;
  Ids tried;                                                               // what explains the other direction comes first
  for (const auto& [other, list] : found_)
    for (const Candidate& c : list)
      if (c.whole.exact() && c.ids.size() == 1 && c.ids[0].find(':') != string::npos) tried.push_back(c.ids[0]);
  for (const string& id : ids)
    if (std::find(tried.begin(), tried.end(), id) == tried.end()) tried.push_back(id);
  for (const string& id : tried) {
    auto row = hypothesis_named(id, lane.lane().problem, *d);
    if (!row || out.size() == kMost) continue;
    if (!lane.by_id.contains(id)) lane.by_id.emplace(id, &lane.library.emplace_back(std::move(*row)));
    out.push_back({{id}, {}, {}});
  }
  if (shape.count() > int64_t{1} << 18 && out.size() > 16) out.resize(16);
  confirm(out, d);
  std::erase_if(out, [](const Candidate& c) { return !c.whole.exact(); });
  if (out.size() > 4) out.resize(4);
  return out;
}

// Codes of every n-th row or column that are their neighbours'; rows or columns that stand further on. Where scales are right.
std::vector<Candidate> Search::places(std::optional<Direction> d) {
  const std::vector<LaneState*> bad = lanes(d, true);
  int64_t common[2] = {0, 0}, first[2] = {-1, -1};                         // rows, columns: the greatest common divisor of the distances between those that differ
  for (const LaneState* l : bad)
    for (const Judged& j : l->judged) {
      if (j.differ == 0) continue;
      const Plane& plane = j.want.plane;
      if (!plane.name.ends_with(".data")) return {};
      for (int64_t i = 0; i < plane.logical.rows; ++i)
        for (int64_t k = 0; k < plane.logical.cols; ++k) {
          const int64_t at = index_of(plane, i, k);
          if (code_at(plane, j.got.bytes, at) == code_at(plane, j.want.bytes, at)) continue;
          const int64_t where[2] = {plane.transposed ? k : i, plane.transposed ? i : k};
          for (int axis = 0; axis < 2; ++axis) {
            if (first[axis] < 0) first[axis] = where[axis];
            common[axis] = std::gcd(common[axis], std::abs(where[axis] - first[axis]));
          }
        }
    }
  Ids ids;
  for (int axis = 0; axis < 2; ++axis) {
    const char* what = axis == 0 ? "row" : "column";
    for (const int64_t by : {1, -1}) ids.push_back(fmt::format("code.{}s_rotated:{}", what, by));
    if (common[axis] > 1)
      for (const char* kind : {"repeats", "ahead"}) ids.push_back(fmt::format("code.{}_{}:{}/{}", what, kind, first[axis] % common[axis], common[axis]));
  }
  std::vector<Candidate> out;
  for (const string& id : ids) {
    for (LaneState* l : bad)
      if (!l->by_id.contains(id))
        if (auto row = hypothesis_named(id, l->lane().problem, *d)) l->by_id.emplace(id, &l->library.emplace_back(std::move(*row)));
    out.push_back({{id}, {}, {}});
  }
  confirm(out, d);
  std::erase_if(out, [](const Candidate& c) { return !c.whole.exact(); });
  return out;
}

// A value and a place: what a single cause makes of one plane holds the same codes as what came, in another order.
std::vector<Candidate> Search::displaced(std::optional<Direction> d, const std::vector<Candidate>& singles) {
  const std::vector<LaneState*> bad = lanes(d, true);
  LaneState& lane = *bad.front();
  const size_t most = lane.want.empty() || lane.lane().problem.x.shape.count() <= int64_t{1} << 18 ? 64 : 12;
  std::vector<const Candidate*> few;
  for (const Candidate& c : singles)
    if (c.ids.size() == 1 && few.size() < most && !lane.by_id.at(c.ids[0])->named_set) few.push_back(&c);
  std::vector<std::vector<string>> names(few.size());
  std::vector<std::vector<LayoutFit>> fits(few.size());
  parallel(jobs_, few.size(), [&](size_t n) {
    const auto rows = resolve(lane, few[n]->ids);
    const auto planes = rows && in_time() ? lane.replay->run({}, *rows) : std::nullopt;
    if (!planes) return;
    for (const Judged& j : lane.judged) {
      const PlaneData& made = (*planes)[j.index];
      std::unordered_map<uint32_t, int64_t> codes;
      bool equal = true;
      for_logical(j.want.plane, [&](int64_t i) {
        const uint32_t got = code_at(j.want.plane, j.got.bytes, i), want = code_at(j.want.plane, made.bytes, i);
        equal &= got == want;
        ++codes[got];
        --codes[want];
      });
      if (equal) continue;
      const bool same = std::all_of(codes.begin(), codes.end(), [](const auto& c) { return c.second == 0; });
      const auto found = same ? layouts_between(j.want.plane, j.got.bytes, made.bytes) : std::vector<LayoutFit>{};
      const auto known = std::find_if(found.begin(), found.end(), [&](const LayoutFit& f) { return f.exact && layout_named(f.name, j.want.plane); });
      if (known == found.end()) {
        names[n].clear();
        return;
      }
      fits[n].push_back(*known);
      names[n].push_back(j.want.plane.name.substr(j.want.plane.name.find('.') + 1));
    }
  });
  std::vector<Candidate> out;
  for (size_t n = 0; n < few.size(); ++n) {
    if (names[n].size() != 1) continue;
    const string id = "layout." + names[n][0] + ":" + fits[n][0].name;
    for (LaneState* l : bad)
      if (!l->by_id.contains(id)) {
        Hypothesis& h = l->library.emplace_back(*hypothesis_named(id, l->lane().problem, *l->lane().direction));
        h.title = fmt::format("{}: {}", names[n][0], fits[n][0].description);
        l->by_id.emplace(id, &h);
      }
    out.push_back({{few[n]->ids[0], id}, {}, {}});
  }
  confirm(out, d);
  std::erase_if(out, [](const Candidate& c) { return !c.whole.exact(); });
  return out;
}

// Codes replaced by others, the same everywhere, each often enough not to be chance.
std::optional<Candidate> Search::fitted_map(std::optional<Direction> d) {
  constexpr int64_t kLeast = 3;
  const std::vector<LaneState*> bad = lanes(d, true);
  std::map<uint32_t, std::pair<uint32_t, int64_t>> map;
  for (const LaneState* l : bad)
    for (const Judged& j : l->judged) {
      if (!j.want.plane.name.ends_with(".data") || info(j.want.plane.encoding).bits > 8) {
        if (j.differ > 0) return {};
        continue;
      }
      bool one = true;
      for_logical(j.want.plane, [&](int64_t i) {
        const uint32_t want = code_at(j.want.plane, j.want.bytes, i), got = code_at(j.want.plane, j.got.bytes, i);
        const auto [at, fresh] = map.try_emplace(want, got, 0);
        one &= at->second.first == got;
        ++at->second.second;
      });
      if (!one) return {};
    }
  string pairs;
  for (const auto& [want, to] : map) {
    if (to.first == want) continue;
    if (to.second < kLeast) return {};
    pairs += fmt::format("{}{:02X}>{:02X}", pairs.empty() ? "" : ",", want, to.first);
  }
  if (pairs.empty()) return {};
  const string id = "code.map:" + pairs;
  for (LaneState* l : bad)
    if (!l->by_id.contains(id)) l->by_id.emplace(id, &l->library.emplace_back(*hypothesis_named(id, l->lane().problem, *l->lane().direction)));
  std::vector<Candidate> out = {{{id}, {}, {}}};
  confirm(out, d);
  return out[0].whole.exact() ? std::optional(out[0]) : std::nullopt;
}

std::vector<Candidate> Search::search(std::optional<Direction> d) {
  const std::vector<LaneState*> bad = lanes(d, true);
  LaneState& first = *bad.front();
  const string side = d ? string(name_of(*d)) : "";

  std::vector<Sample> samples;
  const auto sampled = [&](int64_t elements) {
    std::vector<Sample> samples;
    std::vector<const LaneState*> of;
    for (size_t n = 0; n < std::min<size_t>(bad.size(), 3); ++n) of.push_back(bad[n * (bad.size() - 1) / std::max<size_t>(std::min<size_t>(bad.size(), 3) - 1, 1)]);
    of.erase(std::unique(of.begin(), of.end()), of.end());
    for (const LaneState* lane : of) {
      auto sample = sample_of(*lane, select(*lane, elements / static_cast<int64_t>(of.size())));
      if (!sample) sample = sample_of(*lane, {});
      if (sample) samples.push_back(std::move(*sample));
    }
    return samples;
  };
  samples = sampled(kSampleElements);
  if (samples.empty()) return {};

  Ids rows;
  for (const Hypothesis& h : first.library)
    if (!h.named_set && !h.wide) rows.push_back(h.id);
  const auto screen_on = [&](const std::vector<Sample>& samples, const std::vector<Ids>& list) {
    std::vector<Candidate> out(list.size());
    std::atomic<size_t> done = 0;
    parallel(jobs_, list.size(), [&](size_t n) {
      out[n].ids = list[n];
      if (in_time()) out[n].sample = fit_samples(samples, list[n]);
      if (const size_t now = ++done; now % 16 == 0) progress(fmt::format("{} {} of {} hypotheses", side, now, list.size()));
    });
    std::erase_if(out, [](const Candidate& c) { return !c.sample.applies; });
    return out;
  };
  const auto screen = [&](const std::vector<Ids>& list) { return screen_on(samples, list); };
  const auto by_loss = [](const Candidate& a, const Candidate& b) { return a.sample.loss < b.sample.loss; };
  const auto exact_ones = [&](std::vector<Candidate> list, size_t most) {
    std::erase_if(list, [](const Candidate& c) { return !c.sample.exact(); });
    if (list.size() > most) list.resize(most);
    confirm(list, d);
    std::erase_if(list, [](const Candidate& c) { return !c.whole.exact(); });
    return list;
  };

  // Single causes.
  std::vector<Ids> list;
  for (const string& id : rows) list.push_back({id});
  std::vector<Candidate> singles = screen(list);
  std::vector<Candidate> exact = exact_ones(singles, 32);
  for (const Candidate& c : singles)
    if (c.sample.changed == 0) unseen_[d].push_back(c.ids.front());
  std::erase_if(singles, [](const Candidate& c) { return c.sample.changed == 0; });
  std::stable_sort(singles.begin(), singles.end(), by_loss);

  if (d && exact.empty()) {
    for (const Candidate& c : wide_ones(d)) {
      if (c.whole.exact()) exact.push_back(c);
      else if (c.whole.applies && c.whole.repaired > 0) {
        singles.push_back(c);
        singles.back().sample = c.whole;
      }
    }
    std::stable_sort(singles.begin(), singles.end(), by_loss);
  }

  // Layouts, which come before values: what is left after them is judged again.
  Ids placed;
  if (d) {
    const bool values_explain = !exact.empty();
    std::vector<std::vector<std::vector<std::byte>>> before;
    for (LaneState* lane : bad) {
      auto& kept = before.emplace_back();
      for (const Judged& j : lane->judged) kept.push_back(j.got.bytes);
    }
    std::map<string, string> found;
    alternatives_.clear();
    for (LaneState* lane : bad) find_layouts(*lane, found);
    for (const auto& [stem, id] : found) placed.push_back(id);
    if (!placed.empty()) {
      std::vector<Candidate> whole = {{placed, {}, {}}};
      if (std::none_of(bad.begin(), bad.end(), [](const LaneState* l) { return l->differs(); })) {
        for (size_t l = 0; l < bad.size(); ++l)
          for (size_t k = 0; k < bad[l]->judged.size(); ++k) bad[l]->judged[k].got.bytes = before[l][k], count(bad[l]->judged[k]);
        if (placed.size() == 1)
          for (const string& id : alternatives_) whole.push_back({{id}, {}, {}});
        confirm(whole, d);
        std::erase_if(whole, [](const Candidate& c) { return !c.whole.exact(); });
        exact.insert(exact.begin(), whole.begin(), whole.end());
      } else if (values_explain) {
        for (size_t l = 0; l < bad.size(); ++l)
          for (size_t k = 0; k < bad[l]->judged.size(); ++k) bad[l]->judged[k].got.bytes = before[l][k], count(bad[l]->judged[k]);
      } else {
        samples = sampled(kSampleElements);
        std::vector<Candidate> after = screen(list);
        std::erase_if(after, [](const Candidate& c) { return !c.sample.exact(); });
        for (size_t l = 0; l < bad.size(); ++l)
          for (size_t k = 0; k < bad[l]->judged.size(); ++k) bad[l]->judged[k].got.bytes = before[l][k], count(bad[l]->judged[k]);
        for (Candidate& c : after) c.ids.insert(c.ids.end(), placed.begin(), placed.end());
        if (after.size() > 16) after.resize(16);
        after.push_back(whole[0]);
        confirm(after, d);
        for (const Candidate& c : after)
          if (c.whole.exact()) exact.push_back(c);
        if (exact.empty() && after.back().whole.repaired > after.back().whole.differ / 2) singles.insert(singles.begin(), after.back());
        samples = sampled(kSampleElements);
      }
    }
  }

  if (d && exact.empty())
    if (const auto map = fitted_map(d)) exact.push_back(*map);

  if (d && exact.empty()) exact = places(d);
  if (d && exact.empty()) exact = regions(d);

  // Sets of choices that have a name.
  if (exact.empty()) {
    list.clear();
    for (const Hypothesis& h : first.library)
      if (h.named_set) list.push_back({h.id});
    std::vector<Candidate> sets = screen(list);
    exact = exact_ones(sets, 8);
    singles.insert(singles.end(), sets.begin(), sets.end());
    std::stable_sort(singles.begin(), singles.end(), by_loss);
  }

  // Pairs.
  if (exact.empty() && options_.pairs && d) exact = displaced(d, singles);
  if (exact.empty() && options_.pairs && d) {
    std::vector<Candidate> beam;
    const auto keep = [&](const Candidate& c) {
      if (c.ids.size() == 1 && first.by_id.contains(c.ids[0]) && !first.by_id.at(c.ids[0])->wide && std::none_of(beam.begin(), beam.end(), [&](const Candidate& b) { return b.ids == c.ids; })) beam.push_back(c);
    };
    for (size_t n = 0; n < std::min<size_t>(singles.size(), 8); ++n) keep(singles[n]);
    size_t scales = 0;
    for (const Candidate& c : singles)
      if (c.sample.scales_agree && scales++ < 6) keep(c);
    list.clear();
    std::vector<int64_t> rank;
    std::set<std::pair<string, string>> tried;
    Ids visible;
    for (const Candidate& c : singles)
      if (c.ids.size() == 1 && first.by_id.contains(c.ids[0]) && !first.by_id.at(c.ids[0])->wide) visible.push_back(c.ids[0]);
    for (const Candidate& b : beam)
      for (const string& id : visible) {
        const string& one = b.ids[0];
        if (one == id || !tried.insert({std::min(one, id), std::max(one, id)}).second) continue;
        const Hypothesis &x = *first.by_id.at(one), &y = *first.by_id.at(id);
        if (x.named_set || y.named_set) continue;
        list.push_back(x.stage <= y.stage ? Ids{one, id} : Ids{id, one});
        rank.push_back((&b - beam.data() + 1) * (&id - visible.data() + 1));
      }
    // The hopeless ones fall on fewer elements; where blocks are so large that these are many, not all are tried.
    const std::vector<Sample> small = sampled(kPairElements);
    size_t elements = 1;
    for (const Sample& s : small)
      for (const Sample::Part& part : s.parts) elements += part.at.size();
    if (const size_t most = std::max<size_t>(kPairWork / elements, 4 * kMostPairs); most < list.size()) {
      std::vector<size_t> order(list.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rank[a] < rank[b]; });
      std::vector<Ids> best;
      for (size_t n = 0; n < most; ++n) best.push_back(std::move(list[order[n]]));
      list = std::move(best);
    }
    std::vector<Candidate> few = screen_on(small, list);
    std::stable_sort(few.begin(), few.end(), by_loss);
    if (few.size() > kMostPairs) few.resize(kMostPairs);
    list.clear();
    for (const Candidate& c : few) list.push_back(c.ids);
    std::vector<Candidate> pairs = screen(list);
    exact = exact_ones(pairs, 24);
    if (exact.empty()) {
      std::stable_sort(pairs.begin(), pairs.end(), by_loss);
      if (pairs.size() > 2) pairs.resize(2);
      if (!pairs.empty() && !singles.empty() && pairs[0].sample.loss < 0.7 * singles[0].sample.loss) singles.insert(singles.begin(), pairs.begin(), pairs.end());
    }
  }

  // The runners-up, over everything.
  std::vector<Candidate> others;
  for (const Candidate& c : singles) {
    if (others.size() == 4) break;
    if (std::none_of(exact.begin(), exact.end(), [&](const Candidate& e) { return e.ids == c.ids; }) && (c.sample.repaired > 0 || c.whole.repaired > 0)) others.push_back(c);
  }
  if (in_time()) confirm(others, d);
  std::erase_if(others, [](const Candidate& c) { return c.whole.repaired == 0; });
  std::stable_sort(others.begin(), others.end(), [](const Candidate& a, const Candidate& b) { return a.whole.agree > b.whole.agree; });
  exact.insert(exact.end(), others.begin(), others.end());
  return exact;
}

// ---- the answer ------------------------------------------------------------------------------------------------------------

string scoped(const string& id, std::optional<Direction> d) { return d ? id + "@" + string(name_of(*d)) : id; }

// Each part acts on one direction, or on all.
Explanation Search::explanation(const std::vector<std::pair<Ids, std::optional<Direction>>>& parts) {
  Explanation e;
  std::vector<const Hypothesis*> rows;
  std::vector<std::pair<const Hypothesis*, std::optional<Direction>>> acting;
  bool first = true, lines_only = true;
  Problem line = seen_.problem;
  for (const auto& [ids, d] : parts)
    for (const string& id : ids) {
      const Hypothesis* h = nullptr;
      for (const LaneState& l : lanes_)
        if ((!d || l.lane().direction == d) && !h)
          if (const auto found = l.by_id.find(id); found != l.by_id.end()) h = found->second;
      if (!h) continue;
      e.ids.push_back(scoped(id, d));
      e.title += (e.title.empty() ? "" : "; ") + h->title + (d ? *d == Direction::row ? " (rows)" : " (columns)" : "");
      if (first || h->stage < e.stage) e.stage = h->stage;
      if (!h->clause.empty() && e.clause.find(h->clause) == string::npos) e.clause += (e.clause.empty() ? "" : ", ") + h->clause;
      first = false;
      if (h->keys.empty() || h->element) lines_only = false;
      if (lines_only) {
        const auto changed = with_keys(line, h->keys, d);
        if (changed) line = *changed;
        else lines_only = false;
      }
    }
  if (lines_only) e.line = to_line(line);
  return e;
}

void Search::combine(Diagnosis& out) {
  std::vector<std::optional<Direction>> bad;
  for (const auto& [d, list] : found_) bad.push_back(d);
  int64_t of = beside_of_, differ = beside_differ_, agree_elsewhere = beside_of_ - beside_differ_;
  for (const LaneState& l : lanes_)
    for (const Judged& j : l.judged) {
      of += j.of;
      differ += j.differ;
      if (!l.differs()) agree_elsewhere += j.of;
    }
  // Lanes of the directions that a part says nothing of keep what they have.
  const auto unchanged = [&](std::optional<Direction> d) {
    int64_t agree = 0;
    for (const LaneState* l : lanes(d, true))
      for (const Judged& j : l->judged) agree += j.of - j.differ;
    return agree;
  };
  const auto finish = [&](Explanation e, std::initializer_list<const Candidate*> parts, int64_t rest) {
    e.of = of;
    e.differ = differ;
    e.agree = agree_elsewhere + rest;
    for (const Candidate* c : parts) {
      e.agree += c->whole.agree;
      e.repaired += c->whole.repaired;
    }
    out.explanations.push_back(std::move(e));
  };
  const auto exact_in = [&](std::optional<Direction> d) {
    std::vector<const Candidate*> list;
    for (const Candidate& c : found_[d])
      if (c.whole.exact()) list.push_back(&c);
    return list;
  };

  if (bad.size() == 1) {
    const auto d = bad.front();
    // Lanes of any direction that do not differ must not differ under the explanation either, or it holds for this direction alone.
    for (const Candidate& c : found_[d]) {
      bool whole = true, visible = false, elsewhere = false;
      if (c.whole.exact()) {
        for (LaneState& l : lanes_) {
          if (l.differs()) continue;
          const Fit fit = fit_whole(l, c.ids);
          if (!fit.applies) continue;
          if (l.lane().direction == d && !fit.exact()) whole = false;        // a member that came out right
          if (l.lane().direction != d) {
            elsewhere = true;
            visible |= !fit.exact();
          }
        }
        if (!whole) continue;
      } else {
        elsewhere = lanes_.size() > lanes(d, false).size();
        visible = elsewhere;
      }
      if (!visible) finish(explanation({{c.ids, std::nullopt}}), {&c}, 0);
      if (visible || (elsewhere && c.whole.exact())) finish(explanation({{c.ids, d}}), {&c}, 0);
    }
  } else if (bad.size() == 2) {
    const auto rows = exact_in(bad[0]), cols = exact_in(bad[1]);
    // One cause of both: what each direction has of it is what that direction shows.
    const auto has = [&](Direction d, const string& id) {
      const LaneState& of = *lanes(d, true).front();
      return of.by_id.contains(id) || (id.find(':') != string::npos && hypothesis_named(id, of.lane().problem, d));   // fitted in one direction, it would act in the other too
    };
    for (const Candidate* r : rows)
      for (const Candidate* c : cols) {
        Ids all = c->ids;
        for (const string& id : r->ids)
          if (std::find(all.begin(), all.end(), id) == all.end()) all.push_back(id);
        size_t in_rows = 0, in_cols = 0;
        for (const string& id : all) {
          in_rows += has(Direction::row, id);
          in_cols += has(Direction::col, id);
        }
        if (in_rows == r->ids.size() && in_cols == c->ids.size()) finish(explanation({{all, std::nullopt}}), {r, c}, 0);
      }
    if (out.explanations.empty()) {
      for (size_t i = 0; i < std::min<size_t>(rows.size(), 4); ++i)
        for (size_t k = 0; k < std::min<size_t>(cols.size(), 4); ++k) finish(explanation({{rows[i]->ids, Direction::row}, {cols[k]->ids, Direction::col}}), {rows[i], cols[k]}, 0);
    }
    for (const Candidate& r : found_[bad[0]])
      for (const Candidate& c : found_[bad[1]])
        if (r.ids == c.ids && !(r.whole.exact() && c.whole.exact())) finish(explanation({{r.ids, std::nullopt}}), {&r, &c}, 0);
    for (const auto& d : bad)
      for (const Candidate& c : found_[d]) {
        const auto other = d == bad[0] ? bad[1] : bad[0];
        const bool both = std::any_of(found_[other].begin(), found_[other].end(), [&](const Candidate& o) { return o.ids == c.ids; });
        if (!both && out.explanations.size() < 12) finish(explanation({{c.ids, d}}), {&c}, unchanged(other));
      }
  }
  std::stable_sort(out.explanations.begin(), out.explanations.end(), [](const Explanation& a, const Explanation& b) {
    if (a.exact() != b.exact()) return a.exact();
    if (!a.exact()) return a.agree > b.agree;
    return a.ids.size() != b.ids.size() ? a.ids.size() < b.ids.size() : a.stage > b.stage;   // the nearest to what is seen
  });
  const auto exact = static_cast<size_t>(std::count_if(out.explanations.begin(), out.explanations.end(), [](const Explanation& e) { return e.exact(); }));
  if (exact > 0) {                                                          // causes that are more than is needed
    const size_t least = out.explanations.front().ids.size();
    std::erase_if(out.explanations, [&](const Explanation& e) { return e.exact() && e.ids.size() > least; });
  }
  const auto left = static_cast<size_t>(std::count_if(out.explanations.begin(), out.explanations.end(), [](const Explanation& e) { return e.exact(); }));
  if (out.explanations.size() > left + 3) out.explanations.resize(left + 3);
  if (left > 0) out.confidence = left == 1 ? Confidence::certain : Confidence::equivalent;
  else out.confidence = !out.explanations.empty() && out.explanations.front().repaired * 2 > out.explanations.front().differ ? Confidence::partial : Confidence::unexplained;
}

// Where a difference begins that nothing explains, as far as the planes tell.
Stage Search::stage_of_unexplained(const LaneState& lane) const {
  std::vector<PlaneData> got_all;
  for (const Judged& j : lane.judged) got_all.push_back(j.got);
  const auto prints = [&](const Judged& j) {
    std::set<string> out;
    for (const Fingerprint& f : fingerprints(lane.lane().problem, j.got, j.want, lane.lane().inputs, got_all)) out.insert(f.id);
    return out;
  };
  const auto any = [](const std::set<string>& have, std::initializer_list<const char*> of) { return std::any_of(of.begin(), of.end(), [&](const char* id) { return have.contains(id); }); };
  const Judged *amax = lane.find(".amax"), *scale = lane.find(".scale"), *inverse = lane.find(".scale_inv"), *data = lane.find(".data");
  if (!inverse) inverse = lane.find(".scale_gemm");
  if (amax && amax->differ > 0) return Stage::amax;
  if (!lane.lane().direction) return Stage::code;
  const Quantizer& q = *lane.lane().problem.quantizer(*lane.lane().direction);
  if (scale && scale->differ > 0) return Stage::tensor_scale;
  if (inverse && inverse->differ > 0) {
    if (!info(q.format).has_blocks()) return Stage::tensor_scale;
    const std::set<string> have = prints(*inverse);
    if (any(have, {"multiset", "multiset_rows", "multiset_columns"})) return Stage::layout;
    if (any(have, {"amax_index", "amax_tail", "amax_outside"})) return Stage::amax;
    return Stage::block_scale;
  }
  if (!data) return Stage::code;
  if (data->want.plane.packed) {                                           // bytes that differ hold the same two codes
    bool swapped = true;
    for (size_t i = 0; i < data->got.bytes.size() && swapped; ++i) {
      const std::byte g = data->got.bytes[i], w = data->want.bytes[i];
      swapped = g == w || g == (w << 4 | w >> 4);
    }
    if (swapped) return Stage::packing;
  }
  const std::set<string> have = prints(*data);
  if (any(have, {"multiset", "multiset_rows", "multiset_columns"})) return Stage::layout;
  return Stage::code;
}

void Search::stages(Diagnosis& out) {
  for (const Direction d : kDirections) {
    const std::vector<LaneState*> lanes = this->lanes(d, false);
    if (lanes.empty()) continue;
    const Quantizer& q = *lanes.front()->lane().problem.quantizer(d);
    const bool blocks = info(q.format).has_blocks();
    std::map<Stage, StageVerdict> verdicts;
    for (const Stage s : kStages) {
      if (s == Stage::rht && !q.rht && !(out.first == s && out.direction == d)) continue;
      if ((s == Stage::tensor_scale && blocks) || (s == Stage::block_scale && !blocks) || (s == Stage::amax && q.format == FormatId::identity)) continue;
      verdicts[s] = {s, d, StageOutcome::unseen, 0, 0, ""};
    }
    const auto see = [&](Stage s, int64_t differ, int64_t of) {
      StageVerdict& v = verdicts[s];
      v.stage = s;
      v.direction = d;
      v.differ += differ;
      v.of += of;
      v.outcome = v.differ > 0 ? StageOutcome::differs : StageOutcome::equal;
    };
    bool wrong_scales = false;
    int64_t good_blocks = 0;
    for (const LaneState* l : lanes) {
      const Judged* scales = nullptr;
      for (const Judged& j : l->judged) {
        const string& name = j.want.plane.name;
        if (name.ends_with(".amax")) see(Stage::amax, j.differ, j.of);
        else if (name.find(".scale") != string::npos) {
          see(blocks ? Stage::block_scale : Stage::tensor_scale, j.differ, j.of);
          scales = &j;
        }
      }
      const Judged* data = l->find(".data");
      if (!data) continue;
      if (!scales || scales->differ == 0) {
        bool tensor_wrong = false;
        for (const Judged& j : l->judged) tensor_wrong |= j.want.plane.padded == Shape{1, 1} && j.differ > 0;
        if (!tensor_wrong) {
          see(Stage::code, data->differ, data->of);
          continue;
        }
      }
      wrong_scales = true;
      if (!blocks || !scales) continue;
      // Codes count where their block's scale agrees.
      const Plane &p = data->want.plane, &sp = scales->want.plane;
      int64_t differ = 0, of = 0;
      std::vector<int8_t> equal(static_cast<size_t>(sp.padded.count()), -1);
      for (int64_t r = 0; r < p.logical.rows; ++r)
        for (int64_t c = 0; c < p.logical.cols; ++c) {
          const int64_t s = scale_index(q, sp, r, c);
          int8_t& known = equal[static_cast<size_t>(s)];
          if (known < 0) {
            known = code_at(sp, scales->got.bytes, s) == code_at(sp, scales->want.bytes, s);
            good_blocks += known;
          }
          if (!known) continue;
          const int64_t at = index_of(p, r, c);
          ++of;
          differ += code_at(p, data->got.bytes, at) != code_at(p, data->want.bytes, at);
        }
      see(Stage::code, differ, of);
    }
    if (wrong_scales) {
      StageVerdict& v = verdicts[Stage::code];
      v.note = blocks ? fmt::format("in {} blocks whose scale agrees", good_blocks) : "the scale of the tensor differs";
      if (v.differ == 0) v.outcome = StageOutcome::follows;
    }
    for (auto& [stage, v] : verdicts) {
      if (out.first == stage && (!out.direction || out.direction == d) && out.confidence != Confidence::unexplained) {
        if (v.outcome == StageOutcome::unseen) v.note = "no plane shows it: the explanation says so";
        v.outcome = StageOutcome::differs;
      } else if (out.first && *out.first < stage && v.outcome == StageOutcome::differs && out.confidence != Confidence::unexplained && out.confidence != Confidence::partial && out.explanations.front().ids.size() == 1 && !out.explanations.front().ids[0].starts_with("flavour.")) {
        v.outcome = StageOutcome::follows;
      }
    }
    for (const auto& [stage, v] : verdicts) out.stages.push_back(v);
  }
}

void Search::describe(Diagnosis& out) {
  const LaneState* first = nullptr;
  const Judged* plane = nullptr;
  for (const LaneState& l : lanes_) {
    const bool many = lanes_.size() > 8;
    std::vector<PlaneData> got_all;
    for (const Judged& j : l.judged) got_all.push_back(j.got);
    for (const Judged& j : l.judged) {
      if (many && j.differ == 0) continue;
      PlaneSummary s = j.differ > 0 ? summarize(l.lane().problem, j.got, j.want, l.lane().inputs, got_all) : PlaneSummary{};
      s.plane = name_in_case(l.lane(), j.want.plane.name);
      s.encoding = info(j.want.plane.encoding).name;
      s.differ = j.differ;
      s.of = j.of;
      out.planes.push_back(std::move(s));
      if (j.differ > 0 && !plane) {
        first = &l;
        plane = &j;
      }
    }
  }
  for (const auto& [got, want] : beside_) {
    PlaneSummary s;
    s.plane = want.plane.name;
    s.encoding = info(want.plane.encoding).name;
    s.of = want.plane.logical.count();
    for (int64_t i = 0; i < s.of; ++i) s.differ += code_at(want.plane, got.bytes, i) != code_at(want.plane, want.bytes, i);
    out.planes.insert(out.planes.begin(), std::move(s));
  }
  if (!plane) return;
  std::vector<PlaneData> got_all;
  for (const Judged& j : first->judged) got_all.push_back(j.got);
  const Problem& p = first->lane().problem;
  // Of the first plane of many elements: a tensor's one value lies nowhere.
  for (const Judged& j : first->judged)
    if (j.differ > 0 && j.of > 1) {
      plane = &j;
      break;
    }
  out.heat = heat_map(p, plane->got, plane->want);
  out.where = coordinates(p, plane->got, plane->want);
  for (const Fingerprint& f : fingerprints(p, plane->got, plane->want, first->lane().inputs, got_all)) out.fingerprints.push_back(f.text);
}

// Lines on which explanations that are equal here differ: other fills of the same line, of a small tensor.
void Search::separate(Diagnosis& out) {
  std::vector<const Explanation*> exact;
  for (const Explanation& e : out.explanations)
    if (e.exact() && exact.size() < 4) exact.push_back(&e);
  if (exact.size() < 2 || !seen_.problem.as<Quantize>()) return;
  static constexpr FillKind kFills[] = {FillKind::edges, FillKind::ties, FillKind::wide, FillKind::nonfinite, FillKind::denormal, FillKind::amax_edges, FillKind::negative_zeros, FillKind::outliers, FillKind::normal};
  std::set<std::pair<size_t, size_t>> together;
  for (size_t a = 0; a < exact.size(); ++a)
    for (size_t b = a + 1; b < exact.size(); ++b) together.insert({a, b});
  for (const FillKind kind : kFills) {
    if (together.empty() || !in_time()) return;
    Problem p = seen_.problem;
    p.x.fill = {};
    p.x.fill.kind = kind;
    p.x.shape = {std::min<int64_t>(p.x.shape.rows, 128), std::min<int64_t>(p.x.shape.cols, 256)};
    if (validate(p)) continue;
    const auto inputs = make_inputs(p, reference_);
    if (!inputs) continue;
    std::vector<Result<std::vector<PlaneData>>> made;
    for (const Explanation* e : exact) made.push_back(predict(*e, p, *inputs, reference_));
    const size_t before = together.size();
    std::erase_if(together, [&](const auto& pair) {
      const auto &x = made[pair.first], &y = made[pair.second];
      if (!x || !y) return false;
      for (size_t i = 0; i < x->size(); ++i)
        if ((*x)[i].bytes != (*y)[i].bytes) return true;
      return false;
    });
    if (together.size() < before) out.separating.push_back(to_line(p));
  }
}

void Search::find_invisible(Diagnosis& out) {
  std::optional<std::set<string>> common;
  for (const auto& [d, ids] : unseen_) {
    std::set<string> here(ids.begin(), ids.end());
    if (!common) {
      common = here;
      continue;
    }
    std::erase_if(*common, [&](const string& id) { return !here.contains(id); });
  }
  if (!common) return;
  for (const LaneState& l : lanes_) {                                       // in the library's order
    for (const Hypothesis& h : l.library)
      if (common->contains(h.id)) out.invisible.push_back(h.id);
    if (!out.invisible.empty()) return;
  }
}

Result<Diagnosis> Search::run() {
  Diagnosis out;
  out.line = to_line(seen_.problem);
  out.subject = seen_.subject;
  if (const auto error = prepare()) return *error;
  for (const LaneState& l : lanes_)
    for (const Judged& j : l.judged) out.elements += j.of;
  out.elements += beside_of_;
  if (out.elements == 0) return Error{"nothing was compared: no plane holds an element", 0, ""};
  const bool differs = beside_differ_ > 0 || std::any_of(lanes_.begin(), lanes_.end(), [](const LaneState& l) { return l.differs(); });
  if (differs) {
    for (const std::optional<Direction> d : {std::optional<Direction>{}, std::optional(Direction::row), std::optional(Direction::col)})
      if (!lanes(d, true).empty()) found_[d] = search(d);
    combine(out);
    const LaneState* bad = nullptr;
    for (const LaneState& l : lanes_)
      if (!bad && l.differs()) bad = &l;
    if (bad) out.direction = bad->lane().direction;
    if (out.confidence == Confidence::certain || out.confidence == Confidence::equivalent) out.first = out.explanations.front().stage;
    else out.first = bad ? stage_of_unexplained(*bad) : Stage::layout;
    if (out.first == Stage::rht && !lanes(Direction::col, true).empty()) out.direction = Direction::col;   // N11.2: what differs of rows has a cause of its own
    progress("describing");
    describe(out);
    stages(out);
    separate(out);
    find_invisible(out);
  }
  std::set<string> tried;
  for (const LaneState& l : lanes_) {
    out.evaluations += l.replay->runs();
    for (const Hypothesis& h : l.library) tried.insert(h.id);
  }
  out.hypotheses = static_cast<int>(tried.size());
  out.seconds = elapsed();
  return out;
}

}  // namespace

Result<Diagnosis> diagnose(const Observation& seen, Subject& reference, const DiagnoseOptions& options) { return Search(seen, reference, options).run(); }

// ---- predictions -----------------------------------------------------------------------------------------------------------

Result<std::vector<PlaneData>> predict(const Explanation& e, const Problem& problem, const std::vector<PlaneData>& inputs, Subject& reference) {
  std::vector<PlaneData> out;
  for (const Plane& plane : output_planes(problem)) out.push_back({plane, std::vector<std::byte>(plane.bytes())});
  std::vector<Buffer> buffers;
  for (PlaneData& data : out) buffers.push_back({&data.plane, data.bytes});
  try {
    reference.run(problem, views(inputs), buffers, Environment{});
  } catch (const std::exception& error) {
    return Error{string("the reference: ") + error.what(), 0, ""};
  }
  std::set<string> used;
  // Rows first: columns may be made of them.
  for (const std::optional<Direction> d : {std::optional<Direction>{}, std::optional(Direction::row), std::optional(Direction::col)}) {
    auto lanes = lanes_of(problem, inputs, out, reference);
    if (!lanes) return lanes.error();
    for (Lane& lane : *lanes) {
      if (lane.direction != d) continue;
      const Replay replay(std::move(lane), reference);
      std::vector<Hypothesis> rows;
      for (const string& id : e.ids) {
        const size_t at = id.find('@');
        if (at != string::npos && (!d || id.substr(at + 1) != name_of(*d))) continue;
        const string bare = id.substr(0, at);
        auto row = d ? hypothesis_named(bare, replay.lane().problem, *d) : std::nullopt;
        if (!d)
          for (Hypothesis& h : line_hypotheses(replay.lane().problem))
            if (h.id == bare) row = std::move(h);
        if (!row) continue;
        if (!row->keys.empty() && !with_keys(replay.lane().problem, row->keys)) continue;   // a key that this direction does not have
        used.insert(id);
        rows.push_back(std::move(*row));
      }
      std::vector<const Hypothesis*> acting;
      for (const Hypothesis& h : rows) acting.push_back(&h);
      auto planes = replay.run({}, acting);
      if (!planes) return Error{"this explanation does not apply to " + to_line(problem), 0, ""};
      for (const Hypothesis& h : rows)
        if (!h.layout.empty()) lay_out(h, *planes);
      for (const PlaneData& made : *planes)
        for (PlaneData& whole : out)
          if (whole.plane.name == made.plane.name) {
            const size_t from = replay.lane().member ? whole.plane.bytes_of(whole.plane.members[*replay.lane().member].offset) : 0;
            std::copy(made.bytes.begin(), made.bytes.end(), whole.bytes.begin() + static_cast<std::ptrdiff_t>(from));
          }
    }
  }
  for (const string& id : e.ids)
    if (!used.contains(id)) return Error{"no hypothesis '" + id + "' applies to " + to_line(problem), 0, ""};
  return out;
}

namespace {

class ExplainedSubject final : public Subject {
 public:
  ExplainedSubject(Explanation e, string name, Subject& reference) : explanation_(std::move(e)), name_(std::move(name)), reference_(reference) {}
  std::string_view name() const override { return name_; }
  Support supports(const Problem& p) const override { return reference_.supports(p); }
  Served run(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs, const Environment&) override {
    std::vector<PlaneData> in;
    for (const ConstBuffer& b : inputs) in.push_back({*b.plane, {b.bytes.begin(), b.bytes.end()}});
    const auto planes = predict(explanation_, p, in, reference_);
    if (!planes) throw Unsupported(planes.error().text());
    for (size_t i = 0; i < outputs.size(); ++i) std::copy((*planes)[i].bytes.begin(), (*planes)[i].bytes.end(), outputs[i].bytes.begin());
    return {"the reference, with " + explanation_.title, 0};
  }

 private:
  Explanation explanation_;
  string name_;
  Subject& reference_;
};

}  // namespace

std::unique_ptr<Subject> make_explained_subject(Explanation e, std::string name, Subject& reference) { return std::make_unique<ExplainedSubject>(std::move(e), std::move(name), reference); }

}  // namespace assay
