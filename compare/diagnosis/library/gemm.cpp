// A gemm (N16): operands whose codes or scales are read otherwise, and steps of the epilogue that are left
// out.
#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/arithmetic/factors.h"
#include "compare/arithmetic/places.h"
#include "compare/diagnosis/library/rows.h"

namespace assay {

namespace {

using std::string;
using Planes = std::vector<PlaneData>;
using Sides = std::vector<Side>;

const Operand& operand(const Problem& p, Side side) { return p.as<Gemm>()->operand(side); }

// A plane of an operand as a grid: lines, along which products are summed, by blocks of K. Of data a block is
// one element; what a tensor has once is one line with one block.
class Grid {
 public:
  Grid(const Problem& gemm, Side side, const Plane& own, PlaneData& stored)
      : own_(own), bytes_(stored.bytes) {
    const bool rows = gemm.as<Gemm>()->direction(side) == Direction::row;
    if (own.name.ends_with(".data")) place_elements(rows || own.transposed);
    else place_blocks(operand_dequantize(gemm, side), rows);
  }

  const Plane& plane() const { return own_; }
  int64_t lines() const { return lines_; }
  int64_t blocks() const { return blocks_; }
  int64_t at(int64_t line, int64_t block) const { return at_[static_cast<size_t>(line * blocks_ + block)]; }
  uint32_t stored(int64_t place) const { return code_at(own_, bytes_, place); }
  uint32_t code(int64_t line, int64_t block) const { return stored(at(line, block)); }
  // What stands behind the last block is padding, where the plane has any.
  uint32_t next(int64_t line, int64_t block) const {
    if (block + 1 < blocks_) return code(line, block + 1);
    return own_.padded.count() > own_.logical.count() ? 0 : code(line, block);
  }
  // Puts f(line, block), which reads this grid as it was, in each place.
  template <class F> void fill(F f) {
    std::vector<uint32_t> codes;
    for (int64_t i = 0; i < lines_; ++i)
      for (int64_t j = 0; j < blocks_; ++j) codes.push_back(f(i, j));
    for (size_t n = 0; n < codes.size(); ++n) set_code(own_, bytes_, at_[n], codes[n]);
  }

 private:
  // Of data every place is its own block.
  void place_elements(bool along_columns) {
    const Shape shape = own_.logical;
    lines_ = along_columns ? shape.rows : shape.cols, blocks_ = along_columns ? shape.cols : shape.rows;
    at_.reserve(static_cast<size_t>(shape.count()));
    for (int64_t i = 0; i < lines_; ++i)
      for (int64_t j = 0; j < blocks_; ++j)
        at_.push_back(index_of(own_, along_columns ? i : j, along_columns ? j : i));
  }
  // Blocks by where the regions of all places begin.
  void place_blocks(const Problem& line, bool rows) {
    const Shape shape = own_.logical;
    std::vector<int64_t> line_of, block_of;
    for (int64_t n = 0; n < shape.count(); ++n) {
      const Region r = region_of(&line, own_, {false, n / shape.cols, n % shape.cols});
      line_of.push_back(rows ? r.row0 : r.col0);
      block_of.push_back(rows ? r.col0 : r.row0);
    }
    const std::vector<int64_t> lines = distinct(line_of), blocks = distinct(block_of);
    lines_ = std::ssize(lines), blocks_ = std::ssize(blocks);
    at_.resize(line_of.size());
    for (int64_t n = 0; n < shape.count(); ++n) {
      const auto i = std::ranges::lower_bound(lines, line_of[static_cast<size_t>(n)]) - lines.begin();
      const auto j = std::ranges::lower_bound(blocks, block_of[static_cast<size_t>(n)]) - blocks.begin();
      at_[static_cast<size_t>(i * blocks_ + j)] = index_of(own_, n / shape.cols, n % shape.cols);
    }
  }
  static std::vector<int64_t> distinct(std::vector<int64_t> all) {
    std::ranges::sort(all);
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }

  Plane own_;  // as the operand's own line has it, with its direction
  std::vector<std::byte>& bytes_;
  std::vector<int64_t> at_;
  int64_t lines_ = 0, blocks_ = 0;
};

enum class Part : uint8_t { data, scales, amax };
bool is_of(Part part, const string& name) {
  if (part == Part::data) return name.ends_with(".data");
  if (part == Part::amax) return name.ends_with(".amax");
  return name.ends_with(".scale_inv") || name.ends_with(".scale_gemm");
}

// The operand's own plane of that part, or nothing.
std::optional<Plane> own_plane(const Problem& gemm, Side side, Part part) {
  for (Plane& plane : input_planes(operand_dequantize(gemm, side)))
    if (is_of(part, plane.name)) return std::move(plane);
  return {};
}
PlaneData* stored_plane(Planes& inputs, Side side, Part part) {
  for (PlaneData& plane : inputs)
    if (plane.plane.name.starts_with(string(name_of(side)) + ".") && is_of(part, plane.plane.name))
      return &plane;
  return nullptr;
}

// What is read of one operand's plane; `other` is the other operand's plane of that part, if it has one.
struct Seen {
  Grid& grid;
  const Grid* other;
  double range;  // F * 6, of NVFP4 (N10.13)
};
struct Row {
  const char *id, *title, *clause;  // title: {} is "operand a", "operand b" or "both operands"
  Stage stage;
  Part part;
  bool (*applies)(const Problem& gemm, Side side, const Plane& plane);
  void (*read)(const Seen&);
};

bool has_blocks(const Problem& p, Side side, const Plane&) {
  return info(operand(p, side).quantizer.format).has_blocks();
}
bool of_tensor(const Problem&, Side, const Plane& plane) { return plane.logical.count() == 1; }
bool always(const Problem&, Side, const Plane&) { return true; }
bool invertible(const Problem&, Side, const Plane& plane) { return plane.encoding != Encoding::e4m3; }

void shift_from(Grid& g, int64_t first) {
  g.fill([&](int64_t i, int64_t j) { return j < first ? g.code(i, j) : g.next(i, j); });
}
uint32_t inverse(Encoding e, uint32_t code) {
  if (e == Encoding::e8m0) return code == 0xFF ? code : 254 - code;
  return nearest_code(e, 1 / value_of(e, code));
}
void invert(const Seen& s) {
  s.grid.fill([&](int64_t i, int64_t j) { return inverse(s.grid.plane().encoding, s.grid.code(i, j)); });
}
uint32_t code_of_one(Encoding e) { return e == Encoding::e8m0 ? 127 : nearest_code(e, 1); }
void leave_out(const Seen& s) {
  s.grid.fill([&](int64_t, int64_t) { return code_of_one(s.grid.plane().encoding); });
}
void take_from_other(const Seen& s) {
  if (!s.other || s.other->plane().encoding != s.grid.plane().encoding ||
      s.other->lines() * s.other->blocks() == 0)
    return;
  const Grid& o = *s.other;
  s.grid.fill(
      [&](int64_t i, int64_t j) { return o.code(std::min(i, o.lines() - 1), std::min(j, o.blocks() - 1)); });
}

bool of_f32(const Problem&, Side, const Plane& plane) { return plane.encoding == Encoding::f32; }
// The F32 elements of an operand without their last bits: cut, or rounded to nearest with ties to even or
// away from zero. A NaN stays as it is.
template <int dropped, bool cut, bool away> void narrow(const Seen& s) {
  s.grid.fill([&](int64_t i, int64_t j) {
    const uint32_t bits = s.grid.code(i, j), half = 1u << (dropped - 1);
    const uint32_t up = cut ? 0 : half - (away || (bits >> dropped & 1) != 0 ? 0 : 1);
    return is_nan(Encoding::f32, bits) ? bits : (bits + up) >> dropped << dropped;
  });
}

constexpr Row kRows[] = {
    {"tf32_cut", "{}: elements of F32 are read as TF32: their fractions are cut to 10 bits", "N16.1",
     Stage::code, Part::data, of_f32, narrow<13, true, false>},
    {"tf32_rounded", "{}: elements of F32 are read as TF32, rounded to nearest, ties to even", "N16.1",
     Stage::code, Part::data, of_f32, narrow<13, false, false>},
    {"tf32_rounded_away", "{}: elements of F32 are read as TF32, rounded to nearest, ties away from zero",
     "N16.1", Stage::code, Part::data, of_f32, narrow<13, false, true>},
    {"bf16_cut", "{}: elements of F32 are cut to BF16", "N16.1", Stage::code, Part::data, of_f32,
     narrow<16, true, false>},
    {"bf16_rounded", "{}: elements of F32 are rounded to BF16", "N16.1", Stage::code, Part::data, of_f32,
     narrow<16, false, false>},
    {"scales_next", "{}: a block takes the next block's scale", "N16.1", Stage::block_scale, Part::scales,
     has_blocks, [](const Seen& s) { shift_from(s.grid, 0); }},
    {"scales_next_half", "{}: in the second half of K a block takes the next block's scale", "N16.1",
     Stage::block_scale, Part::scales, has_blocks,
     [](const Seen& s) { shift_from(s.grid, s.grid.blocks() / 2); }},
    {"scales_previous", "{}: a block takes the scale of the block before it", "N16.1", Stage::block_scale,
     Part::scales, has_blocks,
     [](const Seen& s) {
       s.grid.fill([&](int64_t i, int64_t j) { return s.grid.code(i, std::max<int64_t>(j - 1, 0)); });
     }},
    {"scales_first_block", "{}: the scale of a line's first block serves all of K", "N16.1",
     Stage::block_scale, Part::scales, has_blocks,
     [](const Seen& s) { s.grid.fill([&](int64_t i, int64_t) { return s.grid.code(i, 0); }); }},
    {"scales_first_line", "{}: the scales of the first line serve all lines", "N16.1", Stage::block_scale,
     Part::scales, always,
     [](const Seen& s) { s.grid.fill([&](int64_t, int64_t j) { return s.grid.code(0, j); }); }},
    {"scales_crossed", "{}: lines and blocks of the scales are exchanged as they are read", "N6.1",
     Stage::layout, Part::scales, has_blocks,
     [](const Seen& s) {
       const int64_t lines = s.grid.lines(), blocks = s.grid.blocks();
       s.grid.fill([&](int64_t i, int64_t j) {
         const int64_t n = j * lines + i;
         return s.grid.code(n / blocks, n % blocks);
       });
     }},
    {"scales_unpadded", "{}: scales are read as if their rows had no padding", "N6.2", Stage::layout,
     Part::scales,
     [](const Problem& p, Side side, const Plane& plane) {
       return has_blocks(p, side, plane) && plane.layout == ScaleLayout::compact &&
              plane.padded.cols != plane.logical.cols;
     },
     [](const Seen& s) {
       const Plane& plane = s.grid.plane();
       s.grid.fill([&](int64_t i, int64_t j) {
         const int64_t at = s.grid.at(i, j), pitch = plane.padded.cols;
         return s.grid.stored(at / pitch * plane.logical.cols + at % pitch);
       });
     }},
    {"scales_left_out", "{}: codes are not scaled", "N16.1", Stage::block_scale, Part::scales, always,
     leave_out},
    {"scales_left_out_at_end", "{}: codes of the last block of K, which is not whole, are not scaled",
     "N16.1", Stage::block_scale, Part::scales,
     [](const Problem& p, Side side, const Plane& plane) {
       return has_blocks(p, side, plane) &&
              p.as<Gemm>()->k % length_of(operand(p, side).quantizer.block) != 0;
     },
     [](const Seen& s) {
       const uint32_t one = code_of_one(s.grid.plane().encoding);
       s.grid.fill([&](int64_t i, int64_t j) { return j + 1 < s.grid.blocks() ? s.grid.code(i, j) : one; });
     }},
    {"scales_inverted", "{}: codes are divided by their scales", "N16.1", Stage::block_scale, Part::scales,
     invertible, invert},
    {"scales_of_other", "{}: the scales are those of the other operand", "N16.1", Stage::block_scale,
     Part::scales, always, take_from_other},
    {"amax_left_out", "{}: the tensor's amax takes no part", "N10.15", Stage::tensor_scale, Part::amax,
     of_tensor,
     [](const Seen& s) {
       s.grid.fill([&](int64_t, int64_t) { return nearest_code(Encoding::f32, s.range); });
     }},
    {"amax_of_other", "{}: the tensor's amax is that of the other operand", "N10.15", Stage::tensor_scale,
     Part::amax, of_tensor, take_from_other},
    {"pairs_transposed",
     "{}: the operand was transposed in units of two codes: of each 2x2 the two off the diagonal change "
     "places",
     "N6.1", Stage::layout, Part::data,
     [](const Problem& p, Side side, const Plane& plane) {
       return plane.bits() == 8 && p.as<Gemm>()->direction(side) == Direction::col;
     },
     [](const Seen& s) {
       const Grid& g = s.grid;
       s.grid.fill([&](int64_t i, int64_t j) {
         const bool whole = (i | 1) < g.lines() && (j | 1) < g.blocks();
         return whole && i % 2 != j % 2 ? g.code(i ^ 1, j ^ 1) : g.code(i, j);
       });
     }},
    {"nibbles_swapped", "{}: the two codes of a byte are read in the other order", "N6.8", Stage::packing,
     Part::data, [](const Problem&, Side, const Plane& plane) { return plane.packed && plane.bits() == 4; },
     [](const Seen& s) {
       s.grid.fill([&](int64_t i, int64_t j) { return s.grid.stored(s.grid.at(i, j) ^ 1); });
     }},
};

string words_for(const Sides& sides) {
  return sides.size() == 2 ? "both operands" : "operand " + string(name_of(sides.front()));
}

// Reads the operands' planes of a row's part in the row's way. The other operand's is the one before any
// change.
bool read(const Row& row, const Sides& sides, const Problem& p, Planes& inputs) {
  std::optional<PlaneData> as_they_were[2];
  if (row.part != Part::data)  // no row of data looks at the other operand
    for (const Side side : kSides)
      if (const PlaneData* plane = stored_plane(inputs, side, row.part))
        as_they_were[static_cast<size_t>(side)] = *plane;
  bool changed = false;
  for (const Side side : sides) {
    const Side other_side = side == Side::a ? Side::b : Side::a;
    PlaneData* stored = stored_plane(inputs, side, row.part);
    std::optional<PlaneData>& others = as_they_were[static_cast<size_t>(other_side)];
    const auto own = own_plane(p, side, row.part);
    if (!stored || !own) return false;
    const std::vector<std::byte> before = stored->bytes;
    Grid grid(p, side, *own, *stored);
    std::optional<Grid> of_other;
    if (others) of_other.emplace(p, other_side, *own_plane(p, other_side, row.part), *others);
    const Quantizer& q = operand(p, side).quantizer;
    row.read({grid, of_other ? &*of_other : nullptr, q.format == FormatId::nvfp4 ? full_range(q) : 1});
    changed |= stored->bytes != before;
  }
  return changed;
}

bool applies(const Row& row, const Sides& sides, const Problem& p) {
  return std::ranges::all_of(sides, [&](Side side) {
    const auto plane = own_plane(p, side, row.part);
    return plane && row.applies(p, side, *plane);
  });
}

// Products beyond the last whole `unit` of K are left out: both operands are 0 there.
bool cut(int64_t unit, const Problem& p, Planes& inputs) {
  const int64_t whole = p.as<Gemm>()->k / unit * unit;
  bool changed = false;
  for (const Side side : kSides) {
    const auto own = own_plane(p, side, Part::data);
    PlaneData* stored = stored_plane(inputs, side, Part::data);
    if (!own || !stored) return false;
    const std::vector<std::byte> before = stored->bytes;
    Grid grid(p, side, *own, *stored);
    grid.fill([&](int64_t i, int64_t j) { return j < whole ? grid.code(i, j) : 0; });
    changed |= stored->bytes != before;
  }
  return changed;
}

class GemmRows {
 public:
  explicit GemmRows(const Problem& p) : p_(p), op_(*p.as<Gemm>()) {}
  // Rows that look at every element of an operand come last.
  std::vector<Hypothesis> list() {
    add_epilogue();
    for (const Row& row : kRows)
      for (const Sides& sides : {Sides{Side::a}, Sides{Side::b}, Sides{Side::a, Side::b}}) {
        if (!applies(row, sides, p_)) continue;
        const string of = sides.size() == 2 ? "both" : string(name_of(sides.front()));
        add(fmt::format("{}.{}", of, row.id), fmt::format(fmt::runtime(row.title), words_for(sides)),
            row.stage, row.clause)
            .read = [row, sides](const Problem& p, Planes& in) { return read(row, sides, p, in); };
      }
    for (const int64_t unit : {8, 16, 32, 64, 128})
      if (op_.k % unit != 0)
        add(fmt::format("k_cut={}", unit),
            fmt::format("products beyond the last whole {} of K are left out", unit), Stage::code, "N16.1")
            .read = [unit](const Problem& p, Planes& in) { return cut(unit, p, in); };
    return std::move(out_);
  }

 private:
  Hypothesis& add(const string& id, string title, Stage stage, const char* clause) {
    Hypothesis h;
    h.id = "gemm." + id;
    h.title = std::move(title);
    h.stage = stage;
    h.clause = clause;
    out_.push_back(std::move(h));
    return out_.back();
  }
  void add_epilogue() {
    if (op_.multiplies()) add("alpha_left_out", "alpha is left out", Stage::code, "N16.8").keys = "alpha=1";
    if (op_.reads_c()) {
      add("c_left_out", "c is not added", Stage::code, "N16.8").keys = "beta=0";
      add("beta_left_out", "c is added without beta", Stage::code, "N16.8").keys = "beta=1";
    }
  }

  const Problem& p_;
  const Gemm& op_;
  std::vector<Hypothesis> out_;
};

}  // namespace

std::vector<Hypothesis> gemm_hypotheses(const Problem& problem) {
  return problem.as<Gemm>() ? GemmRows(problem).list() : std::vector<Hypothesis>{};
}

}  // namespace assay
