// Values that no rule makes: a constant in the place of every scale, and few flipped bits. A flipped bit
// describes what came and foretells nothing, so it is looked for after the rules that stand alone, and before
// pairs of them, which fit a single code by chance.
#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/places.h"
#include "compare/diagnosis/search/codes.h"
#include "compare/diagnosis/search/stages.h"

namespace assay::cause {

namespace {

using std::string;

constexpr size_t kMostFlips = 8;  // more are not few; the sidecar's --sdc has the same limit

// One code that differs.
struct Wrong {
  const JudgedPlane* plane;
  int64_t row, col;
  uint32_t got, want;
};

// The codes of a lane that differ; nothing where they are more than `most`.
std::optional<std::vector<Wrong>> wrong_codes(const JudgedLane& lane, size_t most) {
  std::vector<Wrong> out;
  for (const JudgedPlane& j : lane.judged) {
    if (j.differ > static_cast<int64_t>(most - out.size())) return {};
    if (j.differ == 0) continue;
    const Codes got(j.got), want(j.want);
    for_places(j.want.plane, [&](int64_t r, int64_t c, int64_t at) {
      if (got[at] != want[at]) out.push_back({&j, r, c, got[at], want[at]});
    });
  }
  return out;
}

// What else than a flip gives such a code; empty where nothing does.
string doubt_of(const Wrong& w) {
  const Encoding e = w.plane->want.plane.encoding;
  if (w.plane->is_data() && value_of(e, w.got) == 0) return "; a code that was lost is 0 too";
  if (is_saturated(e, w.got) || is_nan(e, w.got)) return "; saturation gives the same code";
  return codes_apart(e, w.got, w.want) == 1 ? "; another rounding of this one value gives the same code" : "";
}

// Each as a flipped bit of what is stored. False where one of them is more than that.
bool flips_of_stored(SearchState& s, JudgedLane& lane) {
  const auto wrong = wrong_codes(lane, kMostFlips);
  if (!wrong) return false;
  Ids ids;
  for (const Wrong& w : *wrong) {
    const uint32_t mask = w.got ^ w.want;
    const Encoding e = w.plane->want.plane.encoding;
    if (!std::has_single_bit(mask)) return false;
    const string id =
        fmt::format("flipped.{}={:X}:{}-{},{}-{}", w.plane->stem(), mask, w.row, w.row + 1, w.col, w.col + 1);
    const auto named = hypothesis_named(id, lane.lane().problem, *lane.lane().direction);
    if (!named) return false;
    lane.row(id, fmt::format("{}: {}, right {}{}", named->title, code_hex(e, w.got), code_hex(e, w.want),
                             doubt_of(w)));
    ids.push_back(id);
  }
  Candidate c{std::move(ids), {}, {}};
  c.whole = fit_whole(lane, c.ids);
  if (!c.whole.exact()) return false;
  s.exact.push_back(std::move(c));
  return true;
}

// The elements of x that a flip could lie in: those of the one block that differs, or nothing where more
// does.
std::optional<Region> block_that_differs(const JudgedLane& lane) {
  constexpr size_t kMostWrong = 512;
  constexpr int64_t kMostElements = 128;  // of a block of all whose elements each bit is tried
  const auto wrong = wrong_codes(lane, kMostWrong);
  if (!wrong || wrong->empty()) return {};
  const Problem& p = lane.lane().problem;
  std::optional<Region> block, codes;
  const auto around = [](std::optional<Region>& box, const Region& r) {
    if (!box) box = r;
    else
      box = Region{std::min(box->row0, r.row0), std::max(box->row1, r.row1), std::min(box->col0, r.col0),
                   std::max(box->col1, r.col1)};
  };
  for (const Wrong& w : *wrong)
    around(w.plane->is_data() ? codes : block, region_of(&p, w.plane->want.plane, {false, w.row, w.col}));
  if (!block)
    return wrong->size() == 1 ? codes : std::nullopt;  // under a right scale a flip shows in its own code
  if (codes) around(block, *codes);
  const int64_t elements = (block->row1 - block->row0) * (block->col1 - block->col0);
  return elements <= kMostElements ? block : std::nullopt;
}

void flips_of_input(SearchState& s, const JudgedLane& lane) {
  const auto block = block_that_differs(lane);
  if (!block) return;
  const int width = info(lane.lane().problem.x.source).bits;
  std::vector<string> ids;
  for (int64_t r = block->row0; r < block->row1; ++r)
    for (int64_t c = block->col0; c < block->col1; ++c)
      for (int bit = width - 1; bit >= 0; --bit)
        ids.push_back(fmt::format("input.flipped={:X}:{}-{},{}-{}", 1u << bit, r, r + 1, c, c + 1));
  s.exact = s.screening.exact_of_ids(ids, 4);
}

}  // namespace

void try_constant_scales(SearchState& s) {
  JudgedLane& lane = *s.bad().front();
  if (!info(lane.quantizer().format).has_blocks()) return;
  const JudgedPlane* scales = lane.find(scale_stem(lane.quantizer().scales));
  if (s.bad().size() != 1 || !scales || scales->differ == 0) return;
  const Codes got(scales->got);
  std::optional<uint32_t> constant;
  bool same = true;
  for_logical(scales->want.plane, [&](int64_t i) {
    same = same && got[i] == constant.value_or(got[i]);
    constant = got[i];
  });
  const auto known = [](const Candidate& c) {  // "scales are 1" says more than its code
    return c.ids.front().starts_with("scale.one") || c.ids.front().starts_with("scale.zero");
  };
  if (!same || scales->of < 2 || std::any_of(s.exact.begin(), s.exact.end(), known)) return;
  std::vector<Candidate> found =
      s.screening.exact_of_ids({fmt::format("scale.constant:h{:02X}", *constant),
                                fmt::format("scale.constant.stored:h{:02X}", *constant)},
                               2);
  s.exact.insert(s.exact.begin(), found.begin(),
                 found.end());  // before "the scale of the first", a coincidence
}

void try_flips(SearchState& s) {
  JudgedLane& lane = *s.bad().front();
  if (s.bad().size() != 1 || s.screening.of().seen.problem.as<Split>()) return;
  if (!flips_of_stored(s, lane)) flips_of_input(s, lane);
}

}  // namespace assay::cause
