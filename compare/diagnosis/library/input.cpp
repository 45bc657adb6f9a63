// Elements of x that are read as something else, or from somewhere else.
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/diagnosis/library/rows.h"

namespace assay {

namespace {

using std::string;

void add_edit(Rows& rows, const string& id, string title, Matrix::Edit edit) {
  rows.add("input." + id, std::move(title), Stage::input, "N1.2").element = std::move(edit);
}

// ---- what an element is read as ----

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr unsigned kF32 = 1, kBf16 = 2, kF16 = 4, kAny = 7;

unsigned bit_of(Encoding e) { return e == Encoding::f32 ? kF32 : e == Encoding::bf16 ? kBf16 : kF16; }

double via_f16(double v) { return value_of(Encoding::f16, nearest_code(Encoding::f16, v)); }
double cut(Encoding e, double v) { return std::isfinite(v) ? value_of(e, truncated_code(e, v)) : v; }
double via_tf32(double v) {
  if (!std::isfinite(v) || v == 0) return v;
  const double step = std::ldexp(1.0, std::max(std::ilogb(v), -126) - 10);
  return std::nearbyint(v / step) * step;
}

// An element of encoding e is read as another value, or as another code.
struct ElementRow {
  const char* id;
  const char* title;
  unsigned sources;  // encodings of x
  double (*value)(double v, Encoding e);
  uint32_t (*code)(uint32_t code, double v, Encoding e) = nullptr;
};
constexpr ElementRow kElementRows[] = {
    {"ftz", "subnormal elements of x are read as zeros", kAny,
     [](double v, Encoding e) { return is_subnormal(e, v) ? std::copysign(0.0, v) : v; }},
    {"ftz_positive", "subnormal elements of x are read as +0", kAny,
     [](double v, Encoding e) { return is_subnormal(e, v) ? 0 : v; }},
    {"via_bf16", "x goes through bf16", kF32 | kF16, [](double v, Encoding) { return bf16_of(v); }},
    {"via_bf16_cut", "x is truncated to bf16", kF32,
     [](double v, Encoding) { return cut(Encoding::bf16, v); }},
    {"via_tf32", "x goes through TF32", kF32, [](double v, Encoding) { return via_tf32(v); }},
    {"via_f16", "x goes through f16", kF32 | kBf16, [](double v, Encoding) { return via_f16(v); }},
    {"via_f16_saturated", "x goes through f16, saturated", kF32 | kBf16,
     [](double v, Encoding) { return std::isfinite(v) ? std::clamp(via_f16(v), -65504.0, 65504.0) : v; }},
    {"via_f16_cut", "x goes through f16, cut", kF32 | kBf16,
     [](double v, Encoding) { return cut(Encoding::f16, v); }},
    {"nan_as_zero", "NaN is read as zero", kAny, [](double v, Encoding) { return std::isnan(v) ? 0 : v; }},
    {"nan_as_infinity", "NaN is read as infinity", kAny,
     [](double v, Encoding) { return std::isnan(v) ? kInfinity : v; }},
    {"infinity_as_largest", "infinity is read as the largest value", kAny,
     [](double v, Encoding e) {
       return std::isinf(v) ? std::copysign(value_of(e, info(e).max_finite), v) : v;
     }},
    {"infinity_as_nan", "infinity is read as NaN", kAny,
     [](double v, Encoding) { return std::isinf(v) ? std::nan("") : v; }},
    {"infinity_as_zero", "infinity is read as zero", kAny,
     [](double v, Encoding) { return std::isinf(v) ? 0 : v; }},
    {"nonfinite_as_zero", "NaN and infinity are read as zeros", kAny,
     [](double v, Encoding) { return std::isfinite(v) ? v : 0; }},
    {"negative_zero_lost", "-0 is read as +0", kAny, nullptr,
     [](uint32_t code, double v, Encoding) { return v == 0 ? 0 : code; }},
    {"absolute", "the sign of x is lost", kAny, [](double v, Encoding) { return std::fabs(v); }},
    {"negated", "the sign of x is turned", kAny, [](double v, Encoding) { return -v; }},
    {"relu", "negative elements of x are read as zeros", kAny,
     [](double v, Encoding) { return v < 0 ? 0 : v; }},
    {"doubled", "x is doubled", kAny, [](double v, Encoding) { return 2 * v; }},
    {"halved", "x is halved", kAny, [](double v, Encoding) { return v / 2; }},
    {"bytes_swapped", "the bytes of x are in the other order", kAny, nullptr,
     [](uint32_t code, double, Encoding e) {
       return e == Encoding::f32 ? __builtin_bswap32(code)
                                 : uint32_t{__builtin_bswap16(static_cast<uint16_t>(code))};
     }},
};

void add_elements(Rows& rows) {
  for (const ElementRow& row : kElementRows) {
    if ((row.sources & bit_of(rows.lane.x.source)) == 0) continue;
    if (row.code) {
      add_edit(rows, row.id, row.title, [f = row.code](const Matrix& x, int64_t i, int64_t j) {
        return f(x.code(i, j), x.value(i, j), x.encoding());
      });
      continue;
    }
    add_edit(rows, row.id, row.title, [f = row.value](const Matrix& x, int64_t i, int64_t j) {
      const double v = x.value(i, j), changed = f(v, x.encoding());
      return changed == v || (std::isnan(v) && std::isnan(changed)) ? x.code(i, j)
                                                                    : nearest_code(x.encoding(), changed);
    });
  }
}

// ---- where an element is read ----

// A place of x. Rows and columns are those of x in either direction.
struct At {
  int64_t row, col;
};
constexpr At kNowhere{-1, -1};  // outside x, where zeros are read

At at_flat(int64_t index, Shape of) {
  return index < 0 || index >= of.count() ? kNowhere : At{index / of.cols, index % of.cols};
}

// The element at `at` is the one that stands where `read` says.
void add_place(Rows& rows, const string& id, string title, std::function<At(At at, Shape of)> read) {
  const bool by_rows = rows.d == Direction::row;
  add_edit(rows, id, std::move(title),
           [by_rows, read = std::move(read)](const Matrix& x, int64_t i, int64_t j) {
             const Shape of = by_rows ? Shape{x.lines(), x.length()} : Shape{x.length(), x.lines()};
             const At at = read(by_rows ? At{i, j} : At{j, i}, of);
             if (at.row < 0 || at.row >= of.rows || at.col < 0 || at.col >= of.cols) return 0u;
             return by_rows ? x.code(at.row, at.col) : x.code(at.col, at.row);
           });
}

// The order in memory, and pitches.
void add_memory_orders(Rows& rows) {
  const Shape shape = rows.lane.x.shape;
  if (shape.rows == shape.cols)
    add_place(rows, "transposed", "x is read transposed", [](At at, Shape) { return At{at.col, at.row}; });
  else if (shape.count() > 0)
    add_place(rows, "column_major", "x is read in column-major order",
              [](At at, Shape of) { return at_flat(at.col * of.rows + at.row, of); });
  const auto flat = [&](const string& id, string title, int64_t by) {
    add_place(rows, id, std::move(title),
              [by](At at, Shape of) { return at_flat(at.row * of.cols + at.col + by, of); });
  };
  for (const int64_t by : {1, 2, 4, 8}) {
    const char* s = by == 1 ? "" : "s";
    flat(fmt::format("flat_early={}", by), fmt::format("x is read {} element{} early in memory", by, s), by);
    flat(fmt::format("flat_late={}", by), fmt::format("x is read {} element{} late in memory", by, s), -by);
  }
  for (const int64_t unit : {16, 32, 64, 128, 256})
    if (shape.cols % unit != 0)
      add_place(rows, fmt::format("pitch_rounded={}", unit),
                fmt::format("rows of x are read at a pitch rounded up to {}", unit),
                [unit](At at, Shape of) { return at_flat(at.row * round_up(of.cols, unit) + at.col, of); });
}

// Tiles, and rows or columns that are counted modulo something.
void add_tiles(Rows& rows) {
  const Shape shape = rows.lane.x.shape;
  for (const int64_t unit : {4, 8, 16})
    add_place(rows, fmt::format("reversed_in={}", unit),
              fmt::format("each {} elements of a row are read in reverse", unit), [unit](At at, Shape of) {
                const int64_t col = at.col ^ (unit - 1);
                return At{at.row, col < of.cols ? col : at.col};
              });
  for (const int64_t unit : {16, 32, 64, 128})
    add_place(rows, fmt::format("tiles_transposed={}", unit),
              fmt::format("each {}x{} tile of x is read transposed", unit, unit), [unit](At at, Shape) {
                return At{at.row / unit * unit + at.col % unit, at.col / unit * unit + at.row % unit};
              });
  for (const int64_t unit : {32, 64, 128}) {
    if (shape.rows > unit)
      add_place(rows, fmt::format("rows_modulo={}", unit),
                fmt::format("rows of x are counted modulo {}", unit), [unit](At at, Shape) {
                  return At{at.row % unit, at.col};
                });
    if (shape.cols > unit)
      add_place(rows, fmt::format("columns_modulo={}", unit),
                fmt::format("columns of x are counted modulo {}", unit), [unit](At at, Shape) {
                  return At{at.row, at.col % unit};
                });
  }
}

// Single columns of each 32.
void add_columns(Rows& rows) {
  for (int64_t k = 0; k < 32; ++k) {
    add_place(rows, fmt::format("column_zero={}/32", k),
              fmt::format("column {} of each 32 of x is read as zeros", k),
              [k](At at, Shape) { return at.col % 32 == k ? kNowhere : at; });
    add_place(rows, fmt::format("column_ahead={}/32", k),
              fmt::format("column {} of each 32 of x is read as the one after it", k), [k](At at, Shape of) {
                return at.col % 32 == k && at.col + 1 < of.cols ? At{at.row, at.col + 1} : at;
              });
    add_place(rows, fmt::format("column_repeats={}/32", k),
              fmt::format("column {} of each 32 of x is read as the one before it", k), [k](At at, Shape) {
                return at.col % 32 == k && at.col > 0 ? At{at.row, at.col - 1} : at;
              });
  }
  const int64_t cols = rows.lane.x.shape.cols;
  for (const int64_t unit : {8, 16, 32, 64, 128})
    if (cols % unit != 0 && cols > unit)
      add_place(rows, fmt::format("tail_columns_repeat={}", unit),
                fmt::format("columns of x beyond the last whole {} repeat the column before them", unit),
                [unit](At at, Shape of) {
                  return At{at.row, std::min(at.col, of.cols / unit * unit - 1)};
                });
}

struct PlaceRow {
  const char* id;
  const char* title;
  At (*read)(At at, Shape of);
};
constexpr PlaceRow kPlaceRows[] = {
    {"row_pairs_swapped", "rows of x are swapped in pairs",
     [](At at, Shape of) {
       return At{(at.row ^ 1) < of.rows ? at.row ^ 1 : at.row, at.col};
     }},
    {"column_pairs_swapped", "columns of x are swapped in pairs",
     [](At at, Shape of) {
       return At{at.row, (at.col ^ 1) < of.cols ? at.col ^ 1 : at.col};
     }},
    {"column_late", "x is read one column late",
     [](At at, Shape) {
       return At{at.row, at.col - 1};
     }},
    {"column_early", "x is read one column early",
     [](At at, Shape) {
       return At{at.row, at.col + 1};
     }},
    {"row_late", "x is read one row late",
     [](At at, Shape) {
       return At{at.row - 1, at.col};
     }},
    {"row_early", "x is read one row early",
     [](At at, Shape) {
       return At{at.row + 1, at.col};
     }},
    {"pitch_more", "x is read with a row pitch of one element too many",
     [](At at, Shape of) { return at_flat(at.row * (of.cols + 1) + at.col, of); }},
    {"last_row_zero", "the last row of x is read as zeros",
     [](At at, Shape of) { return at.row == of.rows - 1 ? kNowhere : at; }},
    {"last_column_zero", "the last column of x is read as zeros",
     [](At at, Shape of) { return at.col == of.cols - 1 ? kNowhere : at; }},
    {"last_row_repeated", "the last row of x is read as the one before it",
     [](At at, Shape of) {
       return at.row == of.rows - 1 && of.rows > 1 ? At{at.row - 1, at.col} : at;
     }},
    {"last_column_repeated", "the last column of x is read as the one before it",
     [](At at, Shape of) {
       return at.col == of.cols - 1 && of.cols > 1 ? At{at.row, at.col - 1} : at;
     }},
};

void add_tails(Rows& rows) {
  const Shape shape = rows.lane.x.shape;
  for (const int64_t unit : {8, 16, 32, 64, 128}) {
    if (shape.cols % unit != 0)
      add_place(rows, fmt::format("tail_columns_zero={}", unit),
                fmt::format("columns of x beyond the last whole {} are read as zeros", unit),
                [unit](At at, Shape of) { return at.col >= of.cols / unit * unit ? kNowhere : at; });
    if (shape.rows % unit != 0)
      add_place(rows, fmt::format("tail_rows_zero={}", unit),
                fmt::format("rows of x beyond the last whole {} are read as zeros", unit),
                [unit](At at, Shape of) { return at.row >= of.rows / unit * unit ? kNowhere : at; });
  }
}

}  // namespace

void add_input_rows(Rows& rows) {
  add_elements(rows);
  add_memory_orders(rows);
  add_tiles(rows);
  add_columns(rows);
  for (const PlaceRow& row : kPlaceRows) add_place(rows, row.id, row.title, row.read);
  add_tails(rows);
}

}  // namespace assay
