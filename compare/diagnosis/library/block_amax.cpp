// The amax of a block: of other elements than the block's, of other places in it, or made by other
// arithmetic. Under row scales (N3.12) a row is the block.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/diagnosis/library/rows.h"

namespace assay {

namespace {

using std::string;

string clause_of(const Rows& rows) {
  if (rows.of_rows) return "N3.12";
  return rows.q.format == FormatId::nvfp4 ? "N10.4" : rows.q.format == FormatId::fp8_block ? "N9.1" : "N5.1";
}

Hypothesis& add_amax(Rows& rows, const string& id, string title, std::function<double(const BlockView&)> f) {
  for (size_t at = 0; rows.of_rows && (at = title.find("block", at)) != string::npos;)
    title.replace(at, 5, "row");
  Hypothesis& h = rows.add("amax." + id, std::move(title), Stage::amax, clause_of(rows));
  h.amax = std::move(f);
  return h;
}

// Of the places of a block for which `in` holds; k counts from the block's beginning.
void add_places(Rows& rows, const string& id, string title, std::function<bool(int64_t k, int64_t of)> in) {
  add_amax(rows, id, std::move(title), [in = std::move(in)](const BlockView& b) {
    double out = 0;
    for (int64_t j = b.j0; j < b.j1; ++j)
      if (in(j - b.j0, b.j1 - b.j0)) out = std::max(out, b.x.amax(b.i0, b.i1, j, j + 1));
    return out;
  });
}

struct AmaxRow {
  const char* id;
  const char* title;
  double (*amax)(const BlockView& b);
};
template <size_t n> void add_table(Rows& rows, const AmaxRow (&table)[n]) {
  for (const AmaxRow& row : table) add_amax(rows, row.id, row.title, row.amax);
}

// ---- other lines ----

constexpr AmaxRow kSquareRows[] = {
    {"misses_last", "the amax of a block misses its last element",
     [](const BlockView& b) {
       return std::max(b.x.amax(b.i0, b.i1 - 1, b.j0, b.j1), b.x.amax(b.i1 - 1, b.i1, b.j0, b.j1 - 1));
     }},
    {"misses_first", "the amax of a block misses its first element",
     [](const BlockView& b) {
       return std::max(b.x.amax(b.i0 + 1, b.i1, b.j0, b.j1), b.x.amax(b.i0, b.i0 + 1, b.j0 + 1, b.j1));
     }},
    {"misses_last_line", "the amax of a square block misses its last line",
     [](const BlockView& b) { return b.x.amax(b.i0, b.i1 - 1, b.j0, b.j1); }},
    {"misses_first_line", "the amax of a square block misses its first line",
     [](const BlockView& b) { return b.x.amax(b.i0 + 1, b.i1, b.j0, b.j1); }},
    {"first_line", "the amax of a square block covers only its first line",
     [](const BlockView& b) { return b.x.amax(b.i0, b.i0 + 1, b.j0, b.j1); }},
    {"last_line", "the amax of a square block covers only its last line",
     [](const BlockView& b) { return b.x.amax(b.i1 - 1, b.i1, b.j0, b.j1); }},
    {"first_half_lines", "the amax of a square block sees the first half of its lines",
     [](const BlockView& b) { return b.x.amax(b.i0, b.i0 + b.height / 2, b.j0, b.j1); }},
    {"second_half_lines", "the amax of a square block sees the second half of its lines",
     [](const BlockView& b) { return b.x.amax(b.i0 + b.height / 2, b.i1, b.j0, b.j1); }},
    {"next_lines", "the amax is that of the next block down",
     [](const BlockView& b) { return b.x.amax(b.i0 + b.height, b.i0 + 2 * b.height, b.j0, b.j1); }},
    {"previous_lines", "the amax is that of the block above",
     [](const BlockView& b) { return b.x.amax(b.i0 - b.height, b.i0, b.j0, b.j1); }},
};

constexpr AmaxRow kLineRows[] = {
    {"next_line", "the amax is that of the next line",
     [](const BlockView& b) { return b.x.amax(b.i0 + 1, b.i0 + 2, b.j0, b.j1); }},
    {"previous_line", "the amax is that of the line before",
     [](const BlockView& b) { return b.x.amax(b.i0 - 1, b.i0, b.j0, b.j1); }},
};

void add_lines(Rows& rows) {
  if (rows.square) return add_table(rows, kSquareRows);
  add_places(rows, "misses_last", "the amax of a block misses its last element",
             [](int64_t k, int64_t of) { return k != of - 1; });
  for (const int64_t h : {2, 4, 8, 16})
    if (h < rows.length)
      add_amax(rows, fmt::format("lines_of_{}", h), fmt::format("the amax is that of {} lines", h),
               [h](const BlockView& b) { return b.x.amax(b.i0 / h * h, b.i0 / h * h + h, b.j0, b.j1); });
  if (!rows.of_rows)
    add_amax(rows, "square", "the amax is that of a square block", [](const BlockView& b) {
      const int64_t first = b.i0 / b.length * b.length;
      return b.x.amax(first, first + b.length, b.j0, b.j1);
    });
  add_table(rows, kLineRows);
}

// Groups of lines whose amaxes stand in each other's place.
void add_line_groups(Rows& rows) {
  for (const int64_t bit : {1, 2, 4, 8, 16, 32, 64}) {
    const int64_t lines = bit * (rows.square ? rows.length : 1);
    add_amax(rows, fmt::format("lines_swapped={}", bit),
             fmt::format("groups of {} lines exchange their amaxes", lines), [bit](const BlockView& b) {
               const int64_t i = ((b.i0 / b.height) ^ bit) * b.height;
               return i < b.x.lines() ? b.x.amax(i, i + b.height, b.j0, b.j1) : b.amax();
             });
    add_amax(rows, fmt::format("lines_second={}", bit),
             fmt::format("the second group of {} lines has the amaxes of the first", lines),
             [bit](const BlockView& b) {
               const int64_t i = b.i0 / b.height / bit == 1 ? b.i0 - bit * b.height : b.i0;
               return b.x.amax(i, i + b.height, b.j0, b.j1);
             });
    add_amax(rows, fmt::format("lines_alias={}", bit),
             fmt::format("every second group of {} lines has the amaxes of the one before", lines),
             [bit](const BlockView& b) {
               const int64_t i = ((b.i0 / b.height) & ~bit) * b.height;
               return b.x.amax(i, i + b.height, b.j0, b.j1);
             });
  }
}

// ---- other places ----

struct PlacesRow {
  const char* id;
  const char* title;
  bool (*in)(int64_t k, int64_t of);
};
constexpr PlacesRow kPlacesRows[] = {
    {"first_only", "the amax of a block is its first element's", [](int64_t k, int64_t) { return k == 0; }},
    {"last_only", "the amax of a block is its last element's",
     [](int64_t k, int64_t of) { return k == of - 1; }},
    {"even_only", "the amax of a block sees every second element",
     [](int64_t k, int64_t) { return k % 2 == 0; }},
    {"odd_only", "the amax of a block sees every second element, the odd ones",
     [](int64_t k, int64_t) { return k % 2 == 1; }},
};

void add_parts(Rows& rows) {
  const int64_t n = rows.length, quarters = std::max<int64_t>(n / 4, 1);
  add_places(rows, "first_half", "the amax of a block sees its first half",
             [n](int64_t k, int64_t) { return k < n / 2; });
  add_places(rows, "second_half", "the amax of a block sees its second half",
             [n](int64_t k, int64_t) { return k >= n / 2; });
  for (int64_t quarter = 0; quarter < 4; ++quarter) {
    add_places(rows, fmt::format("misses_quarter={}", quarter),
               fmt::format("the amax of a block misses its quarter {}", quarter + 1),
               [=](int64_t k, int64_t) { return k / quarters != quarter; });
    add_places(rows, fmt::format("quarter={}", quarter),
               fmt::format("the amax of a block covers only its quarter {}", quarter + 1),
               [=](int64_t k, int64_t) { return k / quarters == quarter; });
  }
  for (const PlacesRow& row : kPlacesRows) add_places(rows, row.id, row.title, row.in);
  for (const int64_t lanes : {4, 8})
    for (int64_t lane = 0; lane < lanes; ++lane)
      add_places(rows, fmt::format("misses_lane={}/{}", lane, lanes),
                 fmt::format("the amax of a block misses element {} of each {}", lane, lanes),
                 [=](int64_t k, int64_t) { return k % lanes != lane; });
  for (int64_t at = 0; at < std::min<int64_t>(n, 32); ++at)
    if (at != n - 1 || rows.square)
      add_places(rows, fmt::format("misses_index={}", at),
                 fmt::format("the amax of a block misses its element {}", at),
                 [=](int64_t k, int64_t) { return k != at; });
  for (const int64_t unit : {2, 4, 8, 16})
    if (unit < n)
      add_places(rows, fmt::format("tail_cut={}", unit),
                 fmt::format("the amax of the last block misses the elements that do not fill {}", unit),
                 [=](int64_t k, int64_t of) { return k < of / unit * unit; });
}

// A kernel that gives a row to one block of threads, which takes so many elements.
void add_first_elements(Rows& rows) {
  for (const int64_t taken : {1024, 2048, 4096, 8192, 16384})
    if (taken < rows.length)
      add_places(rows, fmt::format("first_elements={}", taken),
                 fmt::format("the amax of a row covers only its first {} elements", taken),
                 [=](int64_t k, int64_t) { return k < taken; });
}

// ---- other blocks ----

constexpr AmaxRow kBlockRows[] = {
    {"tail_lost", "the amax of a partial block is 0",
     [](const BlockView& b) { return b.j1 - b.j0 < b.length ? 0 : b.amax(); }},
    {"next_block", "the amax is that of the next block",
     [](const BlockView& b) { return b.x.amax(b.i0, b.i1, b.j0 + b.length, b.j0 + 2 * b.length); }},
    {"previous_block", "the amax is that of the block before",
     [](const BlockView& b) { return b.x.amax(b.i0, b.i1, b.j0 - b.length, b.j0); }},
    {"next_block_kept", "the amax is that of the next block, but for the last",
     [](const BlockView& b) {
       return b.j0 + b.length < b.x.length() ? b.x.amax(b.i0, b.i1, b.j0 + b.length, b.j0 + 2 * b.length)
                                             : b.amax();
     }},
    {"previous_block_kept", "the amax is that of the block before, but for the first",
     [](const BlockView& b) { return b.j0 > 0 ? b.x.amax(b.i0, b.i1, b.j0 - b.length, b.j0) : b.amax(); }},
    {"last_block_previous", "the last block of a line has the amax of the one before",
     [](const BlockView& b) {
       return b.j0 > 0 && b.j0 + b.length >= b.x.length() ? b.x.amax(b.i0, b.i1, b.j0 - b.length, b.j0)
                                                          : b.amax();
     }},
    {"running", "the amax is not reset along a line of blocks",
     [](const BlockView& b) { return b.x.amax(b.i0, b.i1, 0, b.j1); }},
};

constexpr AmaxRow kEdgeRows[] = {
    {"reads_on", "a partial last block reads on into the next line",
     [](const BlockView& b) {
       const int64_t more = b.length - (b.j1 - b.j0);
       return more > 0 ? std::max(b.amax(), b.x.amax(b.i1, b.i1 + b.height, 0, more)) : b.amax();
     }},
    {"leaks_next", "the amax of a block sees the first element of the next one",
     [](const BlockView& b) { return b.x.amax(b.i0, b.i1, b.j0, b.j1 + 1); }},
    {"leaks_previous", "the amax of a block sees the last element of the one before",
     [](const BlockView& b) { return b.x.amax(b.i0, b.i1, b.j0 - 1, b.j1); }},
    {"shifted", "the amax is that of the block one element on",
     [](const BlockView& b) { return b.x.amax(b.i0, b.i1, b.j0 + 1, b.j1 + 1); }},
};

// The last block of a line, where it is partial.
constexpr AmaxRow kTailRows[] = {
    {"stale_tail", "a partial last block also sees what stood in its missing places of the block before",
     [](const BlockView& b) {
       const int64_t there = b.j1 - b.j0;
       return there < b.length && b.j0 > 0
                  ? std::max(b.amax(), b.x.amax(b.i0, b.i1, b.j0 - b.length + there, b.j0))
                  : b.amax();
     }},
    {"tail_of_ones", "places that a partial last block lacks count as 1 (a masked load with other=1)",
     [](const BlockView& b) { return b.j1 - b.j0 < b.length ? std::max(b.amax(), 1.0) : b.amax(); }},
};

void add_wider(Rows& rows) {
  for (const int64_t times : {2, 4, 8})
    add_amax(rows, fmt::format("blocks_of_{}", times), fmt::format("the amax is that of {} blocks", times),
             [times](const BlockView& b) {
               const int64_t wide = times * b.length, first = b.j0 / wide * wide;
               return b.x.amax(b.i0, b.i1, first, first + wide);
             });
}

constexpr AmaxRow kScopeRows[] = {
    {"line", "the amax is that of the whole line",
     [](const BlockView& b) { return b.x.amax(b.i0, b.i1, 0, b.x.length()); }},
    {"other_axis", "the amax runs along the other axis",
     [](const BlockView& b) {
       return b.x.amax(b.i0 / b.length * b.length, b.i0 / b.length * b.length + b.length,
                       b.j0 + (b.i0 % b.length), b.j0 + (b.i0 % b.length) + 1);
     }},
};

// Row scales: elements that are scaled by another row's scale than the one that is stored.
struct OtherRow {
  const char* id;
  const char* title;
  int64_t (*from)(int64_t i, int64_t lines);
};
constexpr OtherRow kOtherRows[] = {
    {"next_line", "the scale of the next row",
     [](int64_t i, int64_t lines) { return std::min(i + 1, lines - 1); }},
    {"previous_line", "the scale of the row before",
     [](int64_t i, int64_t) { return std::max<int64_t>(i - 1, 0); }},
    {"lines_swapped", "the scale of the other row of a pair",
     [](int64_t i, int64_t lines) { return (i ^ 1) < lines ? i ^ 1 : i; }},
    {"first", "the scale of the first row", [](int64_t, int64_t) { return int64_t{0}; }},
};

void add_row_scales(Rows& rows) {
  Hypothesis& one = rows.add("tensor_amax.of_rows", "one scale for the tensor: every row has its amax",
                             Stage::amax, "N3.12");
  one.tensor_amax = [](const Matrix& x, const Matrix&) { return x.amax(); };
  add_amax(rows, "first", "every row has the amax of the first",
           [](const BlockView& b) { return b.x.amax(0, 1, b.j0, b.j1); });
  const auto add_other = [&](const string& id, const string& title,
                             std::function<int64_t(int64_t i, int64_t lines)> from) {
    Hypothesis& h = add_amax(rows, id + ".codes", "elements are scaled by " + title,
                             [from = std::move(from)](const BlockView& b) {
                               const int64_t i = from(b.i0, b.x.lines());
                               return b.x.amax(i, i + 1, b.j0, b.j1);
                             });
    h.stage = Stage::scaled_value;
    h.use = Hypothesis::Use::codes;
  };
  for (const OtherRow& row : kOtherRows) add_other(row.id, row.title, row.from);
  for (const int64_t group : {2, 4, 8, 16, 32}) {
    add_other(fmt::format("first_of_rows={}", group),
              fmt::format("the scale of the first of each {} rows", group),
              [group](int64_t i, int64_t) { return i / group * group; });
    add_other(fmt::format("last_of_rows={}", group),
              fmt::format("the scale of the last of each {} rows", group),
              [group](int64_t i, int64_t lines) { return std::min(i / group * group + group, lines) - 1; });
  }
}

// ---- other arithmetic ----

// The largest of f(element), from `least` on.
template <class F> double largest(const BlockView& b, double least, F f) {
  double out = least;
  for (int64_t i = b.i0; i < b.i1; ++i)
    for (int64_t j = b.j0; j < b.j1; ++j)
      if (const double v = f(b.x.value(i, j)); v > out) out = v;  // false for NaN
  return out;
}

double signed_largest(const BlockView& b) {
  const double out = largest(b, -std::numeric_limits<double>::infinity(), [](double v) { return v; });
  return std::isinf(out) && out < 0 ? 0 : std::fabs(out);
}

double mean(const BlockView& b) {
  float sum = 0;
  for (int64_t i = b.i0; i < b.i1; ++i)
    for (int64_t j = b.j0; j < b.j1; ++j) sum += static_cast<float>(std::fabs(b.x.value(i, j)));
  return static_cast<double>(sum / static_cast<float>((b.i1 - b.i0) * (b.j1 - b.j0)));
}

double second_largest(const BlockView& b) {
  double first = 0, second = 0;
  for (int64_t i = b.i0; i < b.i1; ++i)
    for (int64_t j = b.j0; j < b.j1; ++j) {
      const double v = std::fabs(b.x.value(i, j));
      if (v > first) second = std::exchange(first, v);
      else if (v > second) second = v;
    }
  return second;
}

double finite_or_zero(double v) { return std::isinf(v) ? 0 : std::fabs(v); }

constexpr AmaxRow kArithmeticRows[] = {
    {"without_abs", "the amax is the largest element, without abs",
     [](const BlockView& b) { return largest(b, 0, [](double v) { return v; }); }},
    {"negative_only", "the amax covers only negative elements",
     [](const BlockView& b) { return largest(b, 0, [](double v) { return -v; }); }},
    {"signed", "the amax is the magnitude of the largest element", signed_largest},
    {"nan_restarts",
     "a NaN makes the amax begin anew behind it, as where (a < m) ? m : a is taken for the larger",
     [](const BlockView& b) {
       double m = 0;
       for (int64_t i = b.i0; i < b.i1; ++i)
         for (int64_t j = b.j0; j < b.j1; ++j) {
           const double a = std::fabs(b.x.value(i, j));
           m = a < m ? m : a;
         }
       return m;
     }},
    {"mean", "the amax is the mean magnitude", mean},
    {"second", "the amax is the second largest magnitude", second_largest},
    {"infinity_ignored", "the amax ignores an infinite element",
     [](const BlockView& b) { return largest(b, 0, finite_or_zero); }},
    {"via_bf16", "the amax goes through bf16", [](const BlockView& b) { return bf16_of(b.amax()); }},
    {"via_bf16_cut", "the amax is truncated to bf16",
     [](const BlockView& b) {
       const double a = b.amax();
       return std::isfinite(a) ? value_of(Encoding::bf16, truncated_code(Encoding::bf16, a)) : a;
     }},
    {"via_f16", "the amax goes through f16",
     [](const BlockView& b) { return value_of(Encoding::f16, nearest_code(Encoding::f16, b.amax())); }},
    {"ftz", "a subnormal amax becomes 0",
     [](const BlockView& b) { return is_subnormal(Encoding::f32, b.amax()) ? 0 : b.amax(); }},
    {"least_normal", "the amax is at least 2^-126",
     [](const BlockView& b) { return std::max(b.amax(), 0x1p-126); }},
};

void add_epsilons(Rows& rows) {
  for (const char* eps : kEpsilons) {
    const double e = epsilon(eps);
    add_amax(rows, fmt::format("plus={}", eps), fmt::format("{} is added to the amax", eps),
             [e](const BlockView& b) { return f32_of(b.amax() + e); });
    if (rows.q.format != FormatId::fp8_block)
      add_amax(rows, fmt::format("least={}", eps), fmt::format("the amax is at least {}", eps),
               [e](const BlockView& b) { return std::max(b.amax(), e); });
  }
  if (const double own = rows.own_eps(); own > 0 && rows.q.format == FormatId::fp8_block)
    add_amax(rows, "plus_eps", "eps is added to the amax instead of being its least value",
             [own](const BlockView& b) { return f32_of(b.amax() + own); });
}

// ---- another MAX, or another power of two: seen by the scale alone ----

void add_for_scale(Rows& rows, const char* id, const char* title, std::function<double(const BlockView&)> f) {
  Hypothesis& h = add_amax(rows, id, title, std::move(f));
  h.stage = rows.scale_stage();
  h.amax_shown = false;
}

struct MaxRow {
  Encoding element;
  const char* id;
  const char* title;
  double mine, other;
};
constexpr MaxRow kMaxRows[] = {
    {Encoding::e4m3, "max_of_e5m2", "MAX is that of E5M2, 57344", 448, 57344},
    {Encoding::e4m3, "max_240", "MAX is 240", 448, 240},
    {Encoding::e4m3, "max_256", "MAX is 256", 448, 256},
    {Encoding::e4m3, "max_480", "MAX is 480", 448, 480},
    {Encoding::e4m3, "max_512", "MAX is 512", 448, 512},
    {Encoding::e4m3, "max_1", "MAX is 1", 448, 1},
    {Encoding::e5m2, "max_of_e4m3", "MAX is that of E4M3, 448", 57344, 448},
    {Encoding::e5m2, "max_65536", "MAX is 65536", 57344, 65536},
    {Encoding::e5m2, "max_49152", "MAX is 49152", 57344, 49152},
    {Encoding::e5m2, "max_1", "MAX is 1", 57344, 1},
    {Encoding::e2m3, "max_of_e3m2", "MAX is that of E3M2, 28", 7.5, 28},
    {Encoding::e2m3, "max_7", "MAX is 7", 7.5, 7},
    {Encoding::e2m3, "max_8", "MAX is 8", 7.5, 8},
    {Encoding::e2m3, "max_4", "MAX is 4", 7.5, 4},
    {Encoding::e2m3, "max_1", "MAX is 1", 7.5, 1},
    {Encoding::e3m2, "max_of_e2m3", "MAX is that of E2M3, 7.5", 28, 7.5},
    {Encoding::e3m2, "max_24", "MAX is 24", 28, 24},
    {Encoding::e3m2, "max_32", "MAX is 32", 28, 32},
    {Encoding::e3m2, "max_16", "MAX is 16", 28, 16},
    {Encoding::e3m2, "max_1", "MAX is 1", 28, 1},
    {Encoding::e2m1, "max_4", "MAX is 4", 6, 4},
    {Encoding::e2m1, "max_8", "MAX is 8", 6, 8},
    {Encoding::e2m1, "max_7", "MAX is 7", 6, 7},
    {Encoding::e2m1, "max_1", "MAX is 1", 6, 1},
};

// `from`: the encode scale's fraction from which on it is raised to the next power of two.
void add_power(Rows& rows, const char* id, const char* title, double from) {
  add_for_scale(rows, id, title, [from, most = rows.largest_element()](const BlockView& b) {
    const double a = b.amax(), s = f32_of(most / a);
    return a > 0 && std::isfinite(s) && s / std::exp2(std::ilogb(s)) >= from ? a / 2 : a;
  });
}

void add_maxima(Rows& rows) {
  if (rows.q.format == FormatId::fp8_block && rows.q.pow2) {
    add_power(rows, "power_above", "the encode scale is raised to a power of two, not cut", 1 + 0x1p-23);
    add_power(rows, "power_nearest", "the encode scale is rounded to the nearest power of two", 1.5);
  }
  for (const MaxRow& row : kMaxRows)
    if (row.element == rows.q.element)
      add_for_scale(rows, row.id, row.title, [mine = row.mine, other = row.other](const BlockView& b) {
        return f32_of(b.amax() * mine / other);
      });
}

}  // namespace

void add_block_amax_rows(Rows& rows) {
  if (rows.of_rows) add_first_elements(rows);
  add_lines(rows);
  add_parts(rows);
  add_table(rows, kBlockRows);
  add_line_groups(rows);
  add_table(rows, kEdgeRows);
  if (!rows.of_rows) add_table(rows, kTailRows);
  add_wider(rows);
  if (rows.of_rows) add_row_scales(rows);
  add_table(rows, kScopeRows);
  add_table(rows, kArithmeticRows);
  add_epsilons(rows);
  if (rows.q.rht)
    add_amax(rows, "unrotated", "block amaxes are those of the tensor before its rotation",
             [](const BlockView& b) { return b.unrotated.amax(b.i0, b.i1, b.j0, b.j1); });
  add_maxima(rows);
}

// A square block whose lines are scaled each by its own amax; which one is stored.
void add_own_line_rows(Rows& rows) {
  const auto add = [&](const char* id, const char* title, std::function<double(const BlockView&)> shown) {
    Hypothesis& h = rows.add(string("amax.own_lines") + id, title, Stage::amax, clause_of(rows));
    h.code_keys = fmt::format("block=1x{}", rows.length);
    h.amax = std::move(shown);
  };
  add("", "elements are scaled by their own line of a square block", {});
  add(".first_stored",
      "elements are scaled by their own line of a square block; the first line's scale is stored",
      [](const BlockView& b) { return b.x.amax(b.i0, b.i0 + 1, b.j0, b.j1); });
  add(".last_stored",
      "elements are scaled by their own line of a square block; the last line's scale is stored",
      [](const BlockView& b) { return b.x.amax(b.i1 - 1, b.i1, b.j0, b.j1); });
}

}  // namespace assay
