// The scale of a block: another code, or the scale of another block, for the codes, as it is stored, or both.
#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/diagnosis/library/rows.h"
#include "contract/planes.h"

namespace assay {

namespace {

using std::string;

string clause_of(const Rows& rows) {
  return rows.q.format == FormatId::nvfp4 ? "N10.6" : rows.q.format == FormatId::fp8_block ? "N9.2" : "N5.3";
}

// ---- the same block's scale, changed ----

struct StepRow {
  const char* id;
  const char* title;  // {}: "code" or "binade"
  int by;
};
constexpr StepRow kStepRows[] = {
    {"up", "scales are one {} too large", 1},
    {"down", "scales are one {} too small", -1},
    {"up=2", "scales are two {}s too large", 2},
    {"down=2", "scales are two {}s too small", -2},
};
constexpr StepRow kE4m3StepRows[] = {
    {"binade_up", "scales are one binade too large", 8},
    {"binade_down", "scales are one binade too small", -8},
};

// Steps of a code, kept among the finite ones; of an F32 scale factors of two.
void add_step(Rows& rows, const StepRow& row) {
  const char* unit = rows.format.scale == Encoding::e4m3 ? "code" : "binade";
  add_scale(
      rows, row.id, fmt::format(fmt::runtime(row.title), unit),
      [by = row.by](const ScaleGrid& s, int64_t i, int64_t b) {
        const uint32_t c = s.at(i, b);
        if (is_nan(s.encoding, c)) return c;
        if (s.encoding == Encoding::f32)
          return nearest_code(Encoding::f32, std::ldexp(value_of(Encoding::f32, c), by));
        return static_cast<uint32_t>(
            std::clamp<int64_t>(static_cast<int64_t>(c) + by, 0, info(s.encoding).max_finite));
      },
      kUsedOrStored);
}

struct ScaleRow {
  const char* id;
  const char* title;
  ScaleUses uses;
  uint32_t (*scale)(const ScaleGrid& s, int64_t i, int64_t b);
};
template <size_t n> void add_table(Rows& rows, const ScaleRow (&table)[n], bool wide = false) {
  for (const ScaleRow& row : table) add_scale(rows, row.id, row.title, row.scale, row.uses, wide);
}

constexpr ScaleRow kE4m3Rows[] = {
    {"ftz", "subnormal scales become 0", kUsedOrStored,
     [](const ScaleGrid& s, int64_t i, int64_t b) {
       return is_subnormal(s.encoding, value_of(s.encoding, s.at(i, b))) ? 0 : s.at(i, b);
     }},
    {"power_of_two", "scales are cut to a power of two", kUsedOrStored,
     [](const ScaleGrid& s, int64_t i, int64_t b) { return s.at(i, b) & 0x78; }},
    {"at_least_one_code", "a scale of 0 becomes the least one", kUsedOrStored,
     [](const ScaleGrid& s, int64_t i, int64_t b) { return std::max(s.at(i, b), 1u); }},
};

constexpr ScaleRow kE8m0Rows[] = {
    {"negated", "the exponent of the scale is turned", kUsedOrStored,
     [](const ScaleGrid& s, int64_t i, int64_t b) {
       return s.at(i, b) == 255 ? 255 : std::min(254 - s.at(i, b), 254u);
     }},
    {"unbiased", "scales are stored without their bias", kStored,
     [](const ScaleGrid& s, int64_t i, int64_t b) { return (s.at(i, b) - 127) & 255; }},
    {"at_least_one_code", "a scale of 2^-127 becomes 2^-126", kUsedOrStored,
     [](const ScaleGrid& s, int64_t i, int64_t b) { return std::max(s.at(i, b), 1u); }},
    {"one_for_zeros", "blocks of zeros have the scale 1", kUsedOrStored,
     [](const ScaleGrid& s, int64_t i, int64_t b) { return s.at(i, b) == 0 ? 127u : s.at(i, b); }},
    {"one_for_zero_amax", "blocks whose amax is 0 have the scale 1", kUsedOrStored,
     [](const ScaleGrid& s, int64_t i, int64_t b) { return s.amax(i, b) == 0 ? 127u : s.at(i, b); }},
    {"at_least_one", "scales are at least 1", kUsedOrStored,
     [](const ScaleGrid& s, int64_t i, int64_t b) { return std::max(s.at(i, b), 127u); }},
};

constexpr ScaleRow kF32Rows[] = {
    {"last_place_up", "scales are one place too large", kStored,
     [](const ScaleGrid& s, int64_t i, int64_t b) { return s.at(i, b) + 1; }},
    {"last_place_down", "scales are one place too small", kStored,
     [](const ScaleGrid& s, int64_t i, int64_t b) { return s.at(i, b) - 1; }},
};

// ---- other blocks' scales ----

void add_moved(Rows& rows, const char* id, const char* title, int64_t lines, int64_t blocks) {
  add_scale(
      rows, id, title,
      [=](const ScaleGrid& s, int64_t i, int64_t b) {
        return s.at(std::clamp<int64_t>(i + lines, 0, s.lines - 1),
                    std::clamp<int64_t>(b + blocks, 0, s.blocks - 1));
      },
      kUsedApart, true);
}

uint32_t largest_of_line(const ScaleGrid& s, int64_t i, int64_t) {
  uint32_t out = 0;
  for (int64_t b = 0; b < s.blocks; ++b) out = std::max(out, s.at(i, b));
  return out;
}

uint32_t one(const ScaleGrid& s, int64_t, int64_t) {
  return s.encoding == Encoding::e8m0 ? 127u : s.encoding == Encoding::e4m3 ? 0x38u : 0x3F800000u;
}

constexpr ScaleRow kConstantRows[] = {
    {"zero", "scales are 0", kStored, [](const ScaleGrid&, int64_t, int64_t) { return 0u; }},
    {"one", "scales are 1", kUsedOrStored, one},
};

constexpr ScaleRow kOtherRows[] = {
    {"first_of_line", "every block of a line has the scale of the first", kUsedOrStored,
     [](const ScaleGrid& s, int64_t i, int64_t) { return s.at(i, 0); }},
    {"first", "every block has the scale of the first", kUsedOrStored,
     [](const ScaleGrid& s, int64_t, int64_t) { return s.at(0, 0); }},
    {"largest_of_line", "every block of a line has its largest scale", kUsedOrStored, largest_of_line},
    {"pairs_swapped", "the scales of two blocks are swapped", kUsedApart,
     [](const ScaleGrid& s, int64_t i, int64_t b) { return s.at(i, (b ^ 1) < s.blocks ? b ^ 1 : b); }},
    {"line_pairs_swapped", "the scales of two lines are swapped", kUsedApart,
     [](const ScaleGrid& s, int64_t i, int64_t b) { return s.at((i ^ 1) < s.lines ? i ^ 1 : i, b); }},
    {"pair_shares", "two blocks share the larger scale", kUsedOrStored,
     [](const ScaleGrid& s, int64_t i, int64_t b) {
       return std::max(s.at(i, b & ~int64_t{1}), s.at(i, std::min(b | 1, s.blocks - 1)));
     }},
};

// Lanes of a tile that lie past the end of a row of scales store there too, where the next row begins.
void add_overruns(Rows& rows) {
  if (rows.square || rows.q.scales != ScaleLayout::compact) return;
  const Geometry g = geometry(rows.q, rows.lane.x.shape, rows.d);
  // Rows of the plane are blocks, not lines, where it is not turned with its columns.
  const bool of_blocks = rows.q.format == FormatId::fp8_block || (rows.d == Direction::col && !g.transposed);
  const int64_t end = g.scale.cols, pitch = g.scale_padded.cols;
  for (const int64_t tile : {8, 16, 32, 64, 128})
    for (const bool ones : {false, true}) {
      const int64_t lanes = round_up(end, tile);
      if (lanes <= pitch) continue;
      add_scale(
          rows, fmt::format("overrun={}{}", tile, ones ? ",one" : ""),
          fmt::format("tiles of {} scales store {} past the end of a row, where the next row begins", tile,
                      ones ? 1 : 0),
          [=](const ScaleGrid& s, int64_t i, int64_t b) {
            const int64_t row = of_blocks ? b : i, place = of_blocks ? i : b;
            return row == 0 || pitch + place >= lanes ? s.at(i, b) : ones ? one(s, i, b) : 0;
          },
          kStored, true);
    }
}

void add_other_blocks(Rows& rows) {
  const int64_t n = rows.length, line = rows.square ? n : 1;
  if (rows.square)
    add_scale(
        rows, "first_copy_only", "only the first of a square block's repeated scales is stored",
        [n](const ScaleGrid& s, int64_t i, int64_t b) { return i % n == 0 ? s.at(i, b) : 0; }, kStored, true);
  add_scale(
      rows, "corner_zero", "the first scale of the tensor is 0",
      [](const ScaleGrid& s, int64_t i, int64_t b) { return i == 0 && b == 0 ? 0 : s.at(i, b); }, kStored,
      true);
  add_scale(
      rows, "last_zero", "the scale of the last block of a line is 0",
      [](const ScaleGrid& s, int64_t i, int64_t b) { return b == s.blocks - 1 ? 0 : s.at(i, b); }, kStored,
      true);
  for (const int64_t unit : {16, 32, 64, 128})
    add_scale(
        rows, fmt::format("lines_of={}", unit),
        fmt::format("{} lines have the scales of the first of them", unit),
        [unit](const ScaleGrid& s, int64_t i, int64_t b) { return s.at(i / unit * unit, b); }, kUsedOrStored,
        true);
  add_table(rows, kConstantRows);
  add_moved(rows, "next_block", "the scale is that of the next block", 0, 1);
  add_moved(rows, "previous_block", "the scale is that of the block before", 0, -1);
  add_moved(rows, "next_line", "the scale is that of the next line of blocks", line, 0);
  add_moved(rows, "previous_line", "the scale is that of the line of blocks before", -line, 0);
  add_table(rows, kOtherRows, true);
  add_overruns(rows);
}

}  // namespace

void add_scale(Rows& rows, const string& id, const string& title, const ScaleOf& f, ScaleUses uses,
               bool wide) {
  using enum Hypothesis::Use;
  for (const Hypothesis::Use use : {both, codes, stored}) {
    if ((uses >> static_cast<unsigned>(use) & 1) == 0) continue;
    const char* suffix = use == codes ? ".codes" : use == stored ? ".stored" : "";
    const char* where = use == codes    ? " (for the elements only)"
                        : use == stored ? " (the stored scale only)"
                                        : "";
    Hypothesis& h = rows.add("scale." + id + suffix, title + where, Stage::block_scale, clause_of(rows));
    h.scale = f;
    h.use = use;
    h.wide = wide;
  }
}

void add_block_scale_rows(Rows& rows) {
  for (const StepRow& row : kStepRows) add_step(rows, row);
  if (rows.format.scale == Encoding::e4m3) {
    for (const StepRow& row : kE4m3StepRows) add_step(rows, row);
    add_table(rows, kE4m3Rows);
  }
  if (rows.format.scale == Encoding::e8m0) {
    add_table(rows, kE8m0Rows);
    add_mx_rule_rows(rows);
  }
  if (rows.format.scale == Encoding::f32) {
    add_f32_rule_rows(rows);
    add_table(rows, kF32Rows);
  }
  if (rows.q.format == FormatId::nvfp4) add_nvfp4_rule_rows(rows);
  add_other_blocks(rows);
  if (rows.q.format == FormatId::fp8_block) add_fp8_block_rule_rows(rows);
}

}  // namespace assay
