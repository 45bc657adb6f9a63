#include "compare/diagnosis/library/group_reads.h"

#include <algorithm>
#include <utility>

#include "compare/arithmetic/codes.h"
#include "contract/planes.h"

namespace assay {

namespace {

using std::string;
using Planes = std::vector<PlaneData>;
using MaybePlanes = std::optional<Planes>;

// Every member takes the value that is given for the first.
MaybePlanes given_of_first(const Problem& p, const Planes& inputs, const RunLine& run) {
  Planes read = inputs;
  bool changed = false;
  for (PlaneData& plane : read) {
    if (plane.plane.name.find(".given.") == string::npos || plane.plane.members.empty()) continue;
    if (std::ranges::any_of(plane.plane.members, [](const Member& m) { return m.logical.count() != 1; }))
      continue;
    const std::vector<std::byte> before = plane.bytes;
    for (const Member& m : plane.plane.members)
      set_code(plane.plane, plane.bytes, m.offset,
               code_at(plane.plane, before, plane.plane.members[0].offset));
    changed |= plane.bytes != before;
  }
  return changed ? run(p, read) : std::nullopt;
}

// Members are columns of one matrix as wide as all of them; they lie one after the other.
MaybePlanes column_slices(const Problem& p, const Planes& inputs, const RunLine& run) {
  Planes read = inputs;
  PlaneData* x = find_plane(read, "x");
  if (!x) return {};
  const std::vector<std::byte> before = x->bytes;
  const std::vector<Shape>& members = p.as<Split>()->members;
  int64_t width = 0, first = 0, to = 0;
  for (const Shape m : members) width += m.cols;
  for (const Shape m : members) {
    for (int64_t r = 0; r < m.rows; ++r)
      for (int64_t c = 0; c < m.cols; ++c)
        set_code(x->plane, x->bytes, to++, code_at(x->plane, before, r * width + first + c));
    first += m.cols;
  }
  return x->bytes == before ? std::nullopt : run(p, read);
}

// A member whose last block of columns is not whole, as a longer tensor has it: with rows of those behind it.
MaybePlanes longer_member(const Problem& member, int64_t row, int64_t rows, const PlaneData& x,
                          const RunLine& run) {
  Problem longer = member;
  longer.row.reset();
  longer.x.shape.rows = rows;
  Planes in;
  for (Plane& plane : input_planes(longer)) {
    if (plane.name != "x") return {};
    const size_t size = plane.bytes_of(1), begin = static_cast<size_t>(row * member.x.shape.cols) * size;
    PlaneData part{std::move(plane), {}};
    part.bytes.assign(x.bytes.begin() + static_cast<std::ptrdiff_t>(begin),
                      x.bytes.begin() + static_cast<std::ptrdiff_t>(begin + part.plane.bytes()));
    in.push_back(std::move(part));
  }
  return run(longer, in);
}

// Puts what a longer tensor has at the places of a member into the planes of the case.
void put_member(Planes& made, const Planes& longer, size_t m) {
  for (const PlaneData& from : longer) {
    PlaneData* to = find_plane(made, from.plane.name);
    if (!to || to->plane.members.empty()) continue;
    const Plane own = member_plane(to->plane, m);
    const size_t begin = to->plane.bytes_of(to->plane.members[m].offset);
    std::vector<std::byte> bytes(own.bytes());
    std::copy_n(to->bytes.begin() + static_cast<std::ptrdiff_t>(begin), bytes.size(), bytes.begin());
    for (int64_t r = 0; r < own.logical.rows; ++r)
      for (int64_t c = 0; c < own.logical.cols; ++c)
        set_code(own, bytes, index_of(own, r, c),
                 code_at(from.plane, from.bytes, index_of(from.plane, r, c)));
    std::copy(bytes.begin(), bytes.end(), to->bytes.begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

MaybePlanes tail_reads_on(const Problem& p, const Planes& inputs, const RunLine& run) {
  MaybePlanes made = run(p, inputs);
  const PlaneData* x = find_plane(inputs, "x");
  if (!made || !x) return {};
  const std::vector<Problem> members = member_problems(p);
  int64_t total = 0, row = 0;
  for (const Problem& m : members) total += m.x.shape.rows;
  bool changed = false;
  for (size_t m = 0; m < members.size(); row += members[m++].x.shape.rows) {
    const int64_t rows = members[m].x.shape.rows,
                  whole = std::min(round_up(rows, length_of(members[m].col->block)), total - row);
    if (whole == rows) continue;
    const MaybePlanes longer = longer_member(members[m], row, whole, *x, run);
    if (!longer) return {};
    put_member(*made, *longer, m);
    changed = true;
  }
  return changed ? std::move(made) : std::nullopt;
}

}  // namespace

std::vector<ReadCause> read_causes(const Problem& split) {
  std::vector<ReadCause> out;
  const Split* op = split.as<Split>();
  if (!op || op->members.size() < 2) return out;
  const auto given = [](const std::optional<Quantizer>& q) {
    return q && (q->amax || q->format == FormatId::fp8_delayed);
  };
  if (given(split.row) || given(split.col))
    out.push_back({"split.given_of_first", "the value that is given for the first member serves all of them",
                   "N14.4", given_of_first});
  if (op->vary == Vary::last)
    out.push_back(
        {"split.column_slices",
         "members are read as slices of the columns of one matrix, though they lie one after the other",
         "N14.1", column_slices});
  const bool stacked = op->vary == Vary::none || op->vary == Vary::first;
  if (stacked && split.col && info(split.col->format).has_blocks() && !is_square(split.col->block) &&
      split.col_source == ColSource::original && split.col->format != FormatId::nvfp4)
    out.push_back({"split.tail_reads_on",
                   "the last block of a member's columns reads on into the rows of the next member", "N14.2",
                   tail_reads_on});
  return out;
}

}  // namespace assay
