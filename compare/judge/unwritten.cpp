#include "compare/judge/unwritten.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/places.h"

namespace assay {

namespace {

// The code of an element all of whose bytes are `poison`.
uint32_t poison_code(const Plane& plane, int64_t index, uint8_t poison) {
  if (plane.packed) {
    const std::byte group[] = {std::byte{poison}, std::byte{poison}, std::byte{poison}};
    return packed_code(group, plane.bits(), index % info(plane.encoding).packed_codes());
  }
  uint32_t code = 0;
  for (int i = 0; i < info(plane.encoding).bytes(); ++i) code = code << 8 | poison;
  return code;
}

std::string range(const char* one, const char* many, int64_t from, int64_t to) {
  return to - from <= 1 ? fmt::format("{} {}", one, from) : fmt::format("{} {}..{}", many, from, to - 1);
}

// The least rectangle of x that holds all of them.
std::string where_of(const Problem* problem, const Plane& plane, const std::vector<int64_t>& elements,
                     Shape x) {
  if (plane.padded == Shape{1, 1}) return "the tensor's only value";
  Region all{x.rows, 0, x.cols, 0};
  for (const int64_t i : elements) {
    const Region g = region_of(problem, plane, place_of(plane, i));
    all = {std::min(all.row0, g.row0), std::max(all.row1, g.row1), std::min(all.col0, g.col0),
           std::max(all.col1, g.col1)};
  }
  const std::string rows = range("row", "rows", all.row0, all.row1),
                    cols = range("column", "columns", all.col0, all.col1);
  const bool every_row = all.row0 == 0 && all.row1 == x.rows, every_col = all.col0 == 0 && all.col1 == x.cols;
  if (every_row && every_col) return "all over the tensor";
  if (elements.size() == 1) return "at " + rows + ", " + cols;
  if (every_row || all.col1 - all.col0 == 1) return "all in " + cols;
  if (every_col || all.row1 - all.row0 == 1) return "all in " + rows;
  return "all in " + rows + ", " + cols;
}

}  // namespace

std::vector<Unwritten> unwritten(const Problem& problem, const std::vector<PlaneData>& first, uint8_t poison,
                                 const std::vector<PlaneData>& again, uint8_t other_poison) {
  std::vector<Unwritten> out;
  const std::vector<Problem> members =
      problem.as<Split>() ? member_problems(problem) : std::vector<Problem>{};
  for (const PlaneData& whole : first) {
    const PlaneData* second = find_plane(again, whole.plane.name);
    if (!second || second->bytes.size() != whole.bytes.size()) continue;
    const std::vector<PlaneData> ours = members_of(whole), theirs = members_of(*second);
    for (size_t m = 0; m < ours.size(); ++m) {
      const Plane& plane = ours[m].plane;
      Unwritten u{plane.name, {}, plane.logical.count(), {}};
      for (int64_t i = 0; i < plane.padded.count(); ++i) {
        const uint32_t p = poison_code(plane, i, poison), q = poison_code(plane, i, other_poison);
        if (p != q && code_at(plane, ours[m].bytes, i) == p && code_at(plane, theirs[m].bytes, i) == q &&
            !place_of(plane, i).padding)
          u.elements.push_back(i);
      }
      if (u.elements.empty()) continue;
      const Problem& own = whole.plane.members.empty() ? problem : members[m];
      u.where = where_of(members.empty() || !whole.plane.members.empty() ? &own : nullptr, plane, u.elements,
                         members.empty() || !whole.plane.members.empty() ? own.x.shape : plane.logical);
      out.push_back(std::move(u));
    }
  }
  return out;
}

std::string unwritten_text(const Unwritten& u) {
  const bool one = u.elements.size() == 1;
  return fmt::format("{} element{} of {} still hold{} the poison: never written, {}", u.elements.size(),
                     one ? "" : "s", u.plane, one ? "s" : "", u.where);
}

}  // namespace assay
