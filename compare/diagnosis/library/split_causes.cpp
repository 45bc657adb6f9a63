#include "compare/diagnosis/library/whole_causes.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "contract/planes.h"

namespace assay {

namespace {

using std::string;
using Planes = std::vector<PlaneData>;
using MaybePlanes = std::optional<Planes>;
using Sizes = std::vector<Shape>;  // of the members

// Whose given value a member takes in place of its own.
struct GivenRow {
  const char *id, *title;
  size_t (*of)(size_t m, const Sizes& members);
};
constexpr GivenRow kGivens[] = {
    {"first", "the value that is given for the first member is used for all of them",
     [](size_t, const Sizes&) { return size_t{0}; }},
    {"previous", "a member takes the value that is given for the one before it",
     [](size_t m, const Sizes&) { return m - (m > 0); }},
    {"next", "a member takes the value that is given for the next one",
     [](size_t m, const Sizes& members) { return std::min(m + 1, members.size() - 1); }},
    {"last", "the value that is given for the last member is used for all of them",
     [](size_t, const Sizes& members) { return members.size() - 1; }},
    {"empty",
     "a member after an empty one takes the value that is given for the empty one, which begins at the same "
     "place",
     [](size_t m, const Sizes& members) {
       while (m > 0 && members[m - 1].count() == 0) --m;
       return m;
     }},
};

// With the values that a row says. `elements`: for the elements alone; what is stored of scales is right.
MaybePlanes given_of(const GivenRow& row, bool elements, const Problem& p, const Planes& inputs,
                     const Planes& right, const RunLine& run) {
  Planes read = inputs;
  bool changed = false;
  for (PlaneData& plane : read) {
    if (plane.plane.name.find(".given.") == string::npos || plane.plane.members.empty()) continue;
    if (std::ranges::any_of(plane.plane.members, [](const Member& m) { return m.logical.count() != 1; }))
      continue;
    const std::vector<std::byte> before = plane.bytes;
    const std::vector<Member>& members = plane.plane.members;
    for (size_t m = 0; m < members.size(); ++m)
      set_code(plane.plane, plane.bytes, members[m].offset,
               code_at(plane.plane, before, members[row.of(m, p.as<Split>()->members)].offset));
    changed |= plane.bytes != before;
  }
  MaybePlanes made = changed ? run(p, read) : std::nullopt;
  if (!made || !elements) return made;
  for (PlaneData& plane : *made)
    if (!plane.plane.name.ends_with(".data")) plane = *find_plane(right, plane.plane.name);
  return made;
}

// How the sums of members' sizes are wrong, which say where each member begins: entry i of n + 1.
struct SumRow {
  string id, title;
  std::function<uint32_t(const std::vector<uint32_t>& right, size_t i)> entry;
};
std::vector<SumRow> sum_rows() {
  std::vector<SumRow> out = {
      {"inclusive", "the offset of a member counts the member itself",
       [](const auto& right, size_t i) { return right[std::min(i + 1, right.size() - 1)]; }},
      {"sizes", "sizes of members stand for their offsets",
       [](const auto& right, size_t i) { return i + 1 < right.size() ? right[i + 1] - right[i] : right[i]; }},
      {"total_missing", "the last entry of the offsets, which is the sum of all, is not written or 0",
       [](const auto& right, size_t i) { return i + 1 < right.size() ? right[i] : 0; }},
      {"zero", "offsets of members are 0", [](const auto&, size_t) { return 0; }},
  };
  for (const size_t of : {16, 32, 64, 128, 256, 512, 1024})
    for (const bool total : {true, false})
      out.push_back(
          {fmt::format("carry_lost={}{}", of, total ? "" : ",total"),
           fmt::format("sums of members' sizes begin again with every {} members: nothing is carried "
                       "to the next ones{}",
                       of, total ? "" : ", nor to the sum of all"),
           [of, total](const auto& right, size_t i) {
             const bool last = i + 1 == right.size();
             const size_t first = last ? (i - 1) / of * of : i / of * of;
             return last && total ? right[i] : right[i] - right[first];
           }});
  return out;
}

// The planes of offsets that a row spoils: all, those of scales, or that of the elements.
enum class Sums : uint8_t { all, scales, elements };
struct SpoiledSums {
  Sums which;
  std::string_view id, words;
};
constexpr SpoiledSums kSums[] = {{Sums::all, "", ""},
                                 {Sums::scales, ",scales", ", those of scales only"},
                                 {Sums::elements, ",elements", ", those of elements only"}};

MaybePlanes wrong_sums(const SumRow& row, Sums which, Planes made) {
  bool changed = false;
  for (PlaneData& plane : made) {
    const bool of_scales = plane.plane.name.ends_with("scale_offsets");
    if (!plane.plane.name.ends_with("offsets") ||
        (which != Sums::all && of_scales != (which == Sums::scales)))
      continue;
    std::vector<uint32_t> right;
    for (int64_t i = 0; i < plane.plane.logical.count(); ++i)
      right.push_back(code_at(plane.plane, plane.bytes, i));
    for (size_t i = 0; i < right.size(); ++i) {
      const uint32_t entry = row.entry(right, i);
      set_code(plane.plane, plane.bytes, static_cast<int64_t>(i), entry);
      changed |= entry != right[i];
    }
  }
  return changed ? MaybePlanes(std::move(made)) : std::nullopt;
}

// Members are columns of one matrix as wide as all of them; they lie one after the other.
MaybePlanes column_slices(const Problem& p, const Planes& inputs, const Planes&, const RunLine& run) {
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

// Elements of the members stand as in one matrix of all of them, transposed where the plane is; what lies
// beyond the members stays.
MaybePlanes as_one_matrix(Direction d, const Problem&, const Planes&, const Planes& right, const RunLine&) {
  Planes made = right;
  bool changed = false;
  for (PlaneData& data : made) {
    if (data.plane.direction != d || !data.plane.name.ends_with(".data")) continue;
    const std::vector<std::byte> before = data.bytes;
    int64_t width = 0, first = 0;
    for (const Member& m : data.plane.members) width += m.logical.cols;
    for (const Member& m : data.plane.members) {
      for (int64_t r = 0; r < m.logical.rows; ++r)
        for (int64_t c = 0; c < m.logical.cols; ++c)
          set_code(data.plane, data.bytes, r * width + first + c,
                   code_at(data.plane, before, m.offset + r * m.padded.cols + c));
      first += m.logical.cols;
    }
    changed |= data.bytes != before;
  }
  return changed ? MaybePlanes(std::move(made)) : std::nullopt;
}

// Whether the elements of that direction lie beside each other in one matrix of all members, and each takes
// a whole number of bytes.
bool are_beside(const Split& op, const Problem& split, Direction d) {
  const auto& q = split.quantizer(d);
  if (!q || is_packed(*q)) return false;
  const bool transposed = d == Direction::col && info(q->format).column_data == ColumnData::transposed;
  return transposed ? op.vary == Vary::none || op.vary == Vary::first : op.vary == Vary::last;
}

MaybePlanes tail_reads_on(const Problem& p, const Planes& inputs, const Planes& right, const RunLine& run) {
  Planes made = right;
  const PlaneData* x = find_plane(inputs, "x");
  if (!x) return {};
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
    put_member(made, *longer, m);
    changed = true;
  }
  return changed ? MaybePlanes(std::move(made)) : std::nullopt;
}

}  // namespace

std::vector<WholeCause> split_causes(const Problem& split) {
  std::vector<WholeCause> out;
  const Split* op = split.as<Split>();
  if (!op || op->members.size() < 2) return out;
  const auto given = [](const std::optional<Quantizer>& q) {
    return q && (q->amax || q->format == FormatId::fp8_delayed);
  };
  if (given(split.row) || given(split.col))
    for (const GivenRow& row : kGivens)
      for (const bool elements : {false, true})
        out.push_back({fmt::format("split.given_of={}{}", row.id, elements ? ",elements" : ""),
                       fmt::format("{}{}", row.title, elements ? "; the scale that is stored is right" : ""),
                       "N14.4", Stage::input, std::bind_front(given_of, row, elements)});
  const bool of_scales = std::ranges::any_of(
      output_planes(split), [](const Plane& plane) { return plane.name.ends_with("scale_offsets"); });
  for (const SumRow& row : sum_rows())
    for (const SpoiledSums& of : kSums) {
      if (of.which != Sums::all && !of_scales) continue;  // only the elements have offsets
      out.push_back({fmt::format("split.offsets={}{}", row.id, of.id),
                     fmt::format("{}{}", row.title, of.words), "N14.3", Stage::input,
                     [row, which = of.which](const Problem&, const Planes&, const Planes& right,
                                             const RunLine&) { return wrong_sums(row, which, right); }});
    }
  if (op->vary == Vary::last)
    out.push_back(
        {"split.column_slices",
         "members are read as slices of the columns of one matrix, though they lie one after the other",
         "N14.1", Stage::input, column_slices});
  for (const Direction d : kDirections)
    if (are_beside(*op, split, d))
      out.push_back(
          {fmt::format("split.as_one_matrix={}", name_of(d)),
           fmt::format("elements of {} stand as in one matrix of all members, not member after member",
                       d == Direction::row ? "rows" : "columns"),
           "N14.2", Stage::layout, std::bind_front(as_one_matrix, d)});
  const bool stacked = op->vary == Vary::none || op->vary == Vary::first;
  if (stacked && split.col && info(split.col->format).has_blocks() && !is_square(split.col->block) &&
      split.col_source == ColSource::original && split.col->format != FormatId::nvfp4)
    out.push_back({"split.tail_reads_on",
                   "the last block of a member's columns reads on into the rows of the next member", "N14.2",
                   Stage::input, tail_reads_on});
  return out;
}

}  // namespace assay
