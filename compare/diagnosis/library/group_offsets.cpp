#include "compare/diagnosis/library/group_offsets.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "contract/planes.h"

namespace assay {

namespace {

using std::string;

// What a member takes of the room for scales, in elements of its plane. `rows` is how many rows of x it has.
struct OffsetRow {
  const char *id, *title;
  int64_t (*room)(const Member& m, int64_t rows, Direction d, const std::vector<Member>& all);
};
constexpr OffsetRow kRows[] = {
    {"tiles_floored", "the offsets of members' scales count tiles of 128 rows rounded down, not up",
     [](const Member& m, int64_t rows, Direction d, const std::vector<Member>&) {
       return rows / 128 * (d == Direction::row ? 128 : 4) * m.padded.cols;
     }},
    {"without_padding", "the offsets of members' scales do not count their padding",
     [](const Member& m, int64_t, Direction, const std::vector<Member>&) { return m.logical.count(); }},
    {"as_the_first", "the offsets of members' scales take every member to be as large as the first",
     [](const Member&, int64_t, Direction, const std::vector<Member>& all) {
       return all.front().padded.count();
     }},
    {"none", "the scales of every member stand at the beginning",
     [](const Member&, int64_t, Direction, const std::vector<Member>&) { return int64_t{0}; }},
};

// Where each member's scales begin, and where they end.
std::vector<int64_t> offsets(const OffsetRow& row, const Problem& split, Direction d, const Plane& scales) {
  const std::vector<Problem> lines = member_problems(split);
  std::vector<int64_t> out = {0};
  for (size_t m = 0; m < scales.members.size(); ++m)
    out.push_back(out.back() + row.room(scales.members[m], lines[m].x.shape.rows, d, scales.members));
  return out;
}

// Puts the members' bytes at these offsets, in their order. What lies beyond the plane is not written.
std::vector<bool> put(PlaneData& to, const PlaneData& right, const std::vector<int64_t>& at) {
  const Plane& plane = right.plane;
  std::vector<bool> written(to.bytes.size());
  for (size_t m = 0; m < plane.members.size(); ++m) {
    const size_t from = plane.bytes_of(plane.members[m].offset), begin = plane.bytes_of(at[m]),
                 room = begin < to.bytes.size() ? to.bytes.size() - begin : 0,
                 count = std::min(plane.bytes_of(plane.members[m].padded.count()), room);
    for (size_t i = 0; i < count; ++i) to.bytes[begin + i] = right.bytes[from + i], written[begin + i] = true;
  }
  return written;
}

}  // namespace

std::vector<OffsetCause> offset_causes(const Problem& split) {
  std::vector<OffsetCause> out;
  const Split* op = split.as<Split>();
  if (!op || op->members.empty()) return out;
  for (size_t row = 0; row < std::size(kRows); ++row)
    for (const bool shown : {true, false})
      out.push_back({fmt::format("split.scale_offsets={}{}", kRows[row].id, shown ? "" : ",hidden"),
                     fmt::format("{}{}", kRows[row].title, shown ? "" : "; the plane of offsets is right"),
                     shown, row});
  return out;
}

std::optional<MovedScales> moved_scales(const OffsetCause& cause, const Problem& split,
                                        const std::vector<PlaneData>& right) {
  MovedScales out{right, {}};
  for (const Direction d : kDirections) {
    if (!split.quantizer(d) || !info(split.quantizer(d)->format).has_blocks()) continue;
    const string name = plane_name(d, scale_stem(split.quantizer(d)->scales));
    PlaneData* scales = find_plane(out.planes, name);
    PlaneData* shown = find_plane(out.planes, plane_name(d, "scale_offsets"));
    const PlaneData* own = find_plane(right, name);
    if (!scales || !shown || scales->plane.members.empty()) return {};
    const std::vector<int64_t> at = offsets(kRows[cause.row], split, d, scales->plane);
    bool same = !cause.shown || at.back() == code_at(Encoding::u32, shown->bytes, std::ssize(at) - 1);
    for (size_t m = 0; m < scales->plane.members.size(); ++m)
      same &= at[m] == scales->plane.members[m].offset || scales->plane.members[m].padded.count() == 0;
    if (same) continue;
    out.written.emplace_back(static_cast<size_t>(scales - out.planes.data()), put(*scales, *own, at));
    for (size_t i = 0; cause.shown && i < at.size(); ++i)
      set_code(Encoding::u32, shown->bytes, static_cast<int64_t>(i), static_cast<uint32_t>(at[i]));
  }
  return out.written.empty() ? std::nullopt : std::optional(std::move(out));
}

}  // namespace assay
