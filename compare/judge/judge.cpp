#include "compare/judge/judge.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <list>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/equal_bytes.h"
#include "compare/arithmetic/places.h"
#include "compare/judge/hints.h"

namespace assay {

namespace {

void note(PlaneDifference& d, const Compared& c, int64_t index, Place place) {
  if (d.differ++ > 0) return;
  const Plane& plane = c.want->plane;
  d.index = index;
  d.place = place;
  d.got = code_at(plane, c.got->bytes, index);
  d.want = code_at(plane, c.want->bytes, index);
  d.apart = codes_apart(plane.encoding, d.got, d.want);
}

// The flat indices at which two row-major planes without padding differ, over codes of type T, one in each
// place. They are counted first: where all of them differ, a growing list costs more than the second pass.
template <class T>
void differing_codes(const PlaneData& got, const PlaneData& want, std::vector<int64_t>& out) {
  const auto count = static_cast<size_t>(want.plane.logical.count());
  const auto at = [](const PlaneData& p, size_t i) {
    T code;
    std::memcpy(&code, p.bytes.data() + i * sizeof code, sizeof code);
    return code;
  };
  size_t differ = 0;
  for (size_t i = 0; i < count; ++i) differ += at(got, i) != at(want, i);
  out.reserve(differ);
  for (size_t i = 0; i < count; ++i)
    if (at(got, i) != at(want, i)) out.push_back(static_cast<int64_t>(i));
}

// The same where a byte holds several codes: only bytes that differ are taken apart.
void differing_packed(const PlaneData& got, const PlaneData& want, std::vector<int64_t>& out) {
  const Plane& plane = want.plane;
  const int64_t count = plane.logical.count(), codes = info(plane.encoding).packed_codes();
  const auto group = static_cast<size_t>(info(plane.encoding).bits * codes / 8);  // bytes of whole codes
  for (size_t b = 0; b < want.bytes.size(); b += group) {
    const size_t bytes = std::min(group, want.bytes.size() - b);
    if (std::memcmp(got.bytes.data() + b, want.bytes.data() + b, bytes) == 0) continue;
    const int64_t first = static_cast<int64_t>(b / group) * codes;
    for (int64_t i = first; i < std::min(first + codes, count); ++i)
      if (code_at(plane, got.bytes, i) != code_at(plane, want.bytes, i)) out.push_back(i);
  }
}

// Whether a plane is that simple: its flat index is that of its rows and columns.
bool is_plain(const Plane& p) {
  return p.logical == p.padded && p.layout == ScaleLayout::compact && p.members.empty();
}

// Every element where it stands, padding among them.
void compare_places(Compared& c) {
  const Plane& plane = c.want->plane;
  for (int64_t i = 0; i < plane.padded.count(); ++i) {
    if (code_at(plane, c.got->bytes, i) == code_at(plane, c.want->bytes, i)) continue;
    const Place place = place_of(plane, i);
    if (!place.padding) c.differing.push_back(i);
    note(place.padding ? c.padding : c.logical, c, i, place);
  }
}

Compared compare_plane(const Problem* problem, const PlaneData& got, const PlaneData& want) {
  const Plane& plane = want.plane;
  Compared c{problem, &got, &want, {}, {}, {}};
  c.logical.plane = c.padding.plane = plane;
  c.logical.of = plane.logical.count();
  c.padding.of = plane.padded.count() - plane.logical.count();
  c.padding.in_padding = true;
  if (equal_bytes(got.bytes, want.bytes)) return c;
  if (!is_plain(plane)) {
    compare_places(c);
  } else {
    const int bytes = info(plane.encoding).bytes();
    plane.packed ? differing_packed(got, want, c.differing)
    : bytes == 1 ? differing_codes<uint8_t>(got, want, c.differing)
    : bytes == 2 ? differing_codes<uint16_t>(got, want, c.differing)
                 : differing_codes<uint32_t>(got, want, c.differing);
    if (!c.differing.empty()) note(c.logical, c, c.differing.front(), place_of(plane, c.differing.front()));
    c.logical.differ = static_cast<int64_t>(c.differing.size());
  }
  if (plane.layout == ScaleLayout::gemm && !c.differing.empty()) {
    // The tile order is no order for a reader: the first is the first in rows and columns.
    const int64_t first =
        *std::min_element(c.differing.begin(), c.differing.end(), [&](int64_t a, int64_t b) {
          const Place x = place_of(plane, a), y = place_of(plane, b);
          return std::pair(x.row, x.col) < std::pair(y.row, y.col);
        });
    const int64_t differ = c.logical.differ;
    c.logical.differ = 0;
    note(c.logical, c, first, place_of(plane, first));
    c.logical.differ = differ;
  }
  return c;
}

// The elements of x that the differing elements of the cause stand for.
class Affected {
 public:
  explicit Affected(const Compared& cause) : problem_(cause.problem) {
    const Problem* problem = problem_;
    if (!problem) return;
    cols_ = problem->x.shape.cols;
    const int64_t count = problem->x.shape.count();
    if (cause.want->plane.padded == Shape{1, 1}) {
      everything_ = true;
      return;
    }
    marked_.assign(static_cast<size_t>(count), false);
    for (int64_t i : cause.differing) {
      const Region g = region_of(problem, cause.want->plane, place_of(cause.want->plane, i));
      if (g.row0 == 0 && g.col0 == 0 && g.row1 == problem->x.shape.rows && g.col1 == cols_) {
        // All of x, as of every entry of a split's offsets: once is enough.
        marked_.assign(static_cast<size_t>(count), true);
        break;
      }
      for (int64_t r = g.row0; r < g.row1; ++r)
        for (int64_t c = g.col0; c < g.col1; ++c)
          if (r * cols_ + c < count) marked_[static_cast<size_t>(r * cols_ + c)] = true;
    }
  }
  int64_t count(const Compared& later) const {
    if (!problem_) return 0;
    if (everything_) return static_cast<int64_t>(later.differing.size());
    int64_t n = 0;
    const Plane& plane = later.want->plane;
    if (is_plain(plane) && plane.name.ends_with(".data") && plane.direction) {  // an element of x each
      for (const int64_t i : later.differing) n += is_marked(place_in_x(plane, i));
      return n;
    }
    for (int64_t i : later.differing)
      n += touches(region_of(problem_, later.want->plane, place_of(later.want->plane, i)));
    return n;
  }

 private:
  // Planes of an attention may be larger than its x, which is Q.
  bool is_marked(size_t at) const { return at < marked_.size() && marked_[at]; }
  bool touches(const Region& g) const {
    for (int64_t r = g.row0; r < g.row1; ++r)
      for (int64_t c = g.col0; c < g.col1; ++c)
        if (is_marked(static_cast<size_t>(r * cols_ + c))) return true;
    return false;
  }
  size_t place_in_x(const Plane& data, int64_t i) const {
    return static_cast<size_t>(data.transposed ? i % data.logical.cols * cols_ + i / data.logical.cols : i);
  }

  const Problem* problem_;
  int64_t cols_ = 0;
  bool everything_ = false;
  std::vector<bool> marked_;
};

// Why a plane cannot be compared, or an empty string.
std::string mismatch(const PlaneData* got, const PlaneData& want) {
  const Plane& w = want.plane;
  if (!got) return fmt::format("plane {} is missing", w.name);
  if (got->plane.encoding != w.encoding)
    return fmt::format("plane {} is {}, expected {}", w.name, info(got->plane.encoding).name,
                       info(w.encoding).name);
  if (!(got->plane.padded == w.padded))
    return fmt::format("plane {} is {}, expected {}", w.name, shape_text(got->plane.padded),
                       shape_text(w.padded));
  if (got->plane.layout != w.layout) return fmt::format("plane {} has a different scale layout", w.name);
  if (got->plane.packed != w.packed || got->plane.members != w.members)
    return fmt::format("plane {} is stored in a different way", w.name);
  for (const PlaneData* p : {got, &want})
    if (p->bytes.size() != w.bytes())
      return fmt::format("plane {} has {} bytes, expected {}", w.name, p->bytes.size(), w.bytes());
  return {};
}

}  // namespace

Judgement judge(const Problem* problem, const std::vector<PlaneData>& got, const std::vector<PlaneData>& want,
                bool part) {
  Judgement j;
  for (const PlaneData& g : got)
    if (!find_plane(want, g.plane.name)) j.error = fmt::format("plane {} is on one side only", g.plane.name);
  // N14.2: of a grouped plane every member is one plane, under its own Problem.
  const std::vector<Problem> members =
      problem && problem->as<Split>() ? member_problems(*problem) : std::vector<Problem>{};
  std::list<std::pair<PlaneData, PlaneData>> split;  // a list: Compared points into it
  std::vector<Compared> compared;
  for (const PlaneData& w : want) {
    const PlaneData* g = find_plane(got, w.plane.name);
    if (std::string why = mismatch(g, w); !why.empty()) {
      j.error = why;
      continue;
    }
    j.compared += w.plane.logical.count();
    if (w.plane.members.empty()) {
      compared.push_back(compare_plane(problem, *g, w));
      continue;
    }
    std::vector<PlaneData> ours = members_of(*g), theirs = members_of(w);
    for (size_t m = 0; m < theirs.size(); ++m) {
      const auto& [a, b] = split.emplace_back(std::move(ours[m]), std::move(theirs[m]));
      compared.push_back(compare_plane(m < members.size() ? &members[m] : nullptr, a, b));
    }
  }
  const bool may_be_empty = problem && problem->x.shape.count() == 0 && !want.empty();
  if (j.error.empty() && j.compared == 0 && !may_be_empty)
    j.error = "nothing was compared: no plane holds an element";

  const auto first =
      std::find_if(compared.begin(), compared.end(), [](const Compared& c) { return c.logical.differ > 0; });
  if (first != compared.end()) {
    j.cause = first->logical;
    j.hint = hint_of(*first, part);
    std::optional<Affected> affected;  // made where it is asked: it costs more than the comparison
    const std::optional<Direction> chain = first->want->plane.direction;
    for (auto later = first + 1; later != compared.end(); ++later) {
      if (later->logical.differ == 0) continue;
      const std::optional<Direction> d = later->want->plane.direction;
      if ((chain && d && *chain != *d) || later->problem != first->problem) {
        j.beside.push_back(later->logical);
      } else {
        if (!affected) affected.emplace(*first);
        later->logical.explained = affected->count(*later);
        j.after.push_back(later->logical);
      }
    }
  }
  for (const Compared& c : compared)
    if (c.padding.differ > 0) j.padding.push_back(c.padding);
  return j;
}

}  // namespace assay
