// The amax of the tensor: of a part of it, or made by other arithmetic; as it is stored, or as the scale
// alone has it.
#include <algorithm>
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

// ---- of a part of the tensor ----

void add_part(Rows& rows, const string& id, string title,
              std::function<bool(int64_t r, int64_t c, Shape of)> in) {
  rows.add("tensor_amax." + id, std::move(title), Stage::amax, "N3.1").tensor_part = std::move(in);
}

// The elements of x whose row and column satisfy `in`.
struct PartRow {
  const char* id;
  const char* title;
  bool (*in)(int64_t r, int64_t c, Shape of);
};
constexpr PartRow kPartRows[] = {
    {"misses_last", "the tensor's amax misses the last element",
     [](int64_t r, int64_t c, Shape of) { return r != of.rows - 1 || c != of.cols - 1; }},
    {"misses_first", "the tensor's amax misses the first element",
     [](int64_t r, int64_t c, Shape) { return r != 0 || c != 0; }},
    {"misses_last_row", "the tensor's amax misses the last row",
     [](int64_t r, int64_t, Shape of) { return r != of.rows - 1; }},
    {"misses_last_column", "the tensor's amax misses the last column",
     [](int64_t, int64_t c, Shape of) { return c != of.cols - 1; }},
    {"misses_first_row", "the tensor's amax misses the first row",
     [](int64_t r, int64_t, Shape) { return r != 0; }},
    {"misses_first_column", "the tensor's amax misses the first column",
     [](int64_t, int64_t c, Shape) { return c != 0; }},
    {"first_row", "the tensor's amax covers only the first row",
     [](int64_t r, int64_t, Shape) { return r == 0; }},
    {"first_column", "the tensor's amax covers only the first column",
     [](int64_t, int64_t c, Shape) { return c == 0; }},
    {"first_half_rows", "the tensor's amax sees the first half of the rows",
     [](int64_t r, int64_t, Shape of) { return r < of.rows / 2; }},
    {"first_half_columns", "the tensor's amax sees the first half of the columns",
     [](int64_t, int64_t c, Shape of) { return c < of.cols / 2; }},
    {"second_half_rows", "the tensor's amax sees the second half of the rows",
     [](int64_t r, int64_t, Shape of) { return r >= of.rows / 2; }},
    {"second_half_columns", "the tensor's amax sees the second half of the columns",
     [](int64_t, int64_t c, Shape of) { return c >= of.cols / 2; }},
};

void add_parts(Rows& rows) {
  for (const PartRow& row : kPartRows) add_part(rows, row.id, row.title, row.in);
  for (const int64_t of : {2, 4, 8})
    for (int64_t k = 0; k < of; ++k) {
      add_part(rows, fmt::format("misses_column={}/{}", k, of),
               fmt::format("the tensor's amax misses column {} of each {}", k, of),
               [=](int64_t, int64_t c, Shape) { return c % of != k; });
      if (of == 2)
        add_part(rows, fmt::format("misses_row={}/{}", k, of),
                 fmt::format("the tensor's amax misses row {} of each {}", k, of),
                 [=](int64_t r, int64_t, Shape) { return r % of != k; });
    }
  const Shape shape = rows.lane.x.shape;
  for (const int64_t unit : {16, 32, 64, 128, 256}) {
    if (shape.rows > unit || shape.cols > unit) {
      add_part(rows, fmt::format("first_tile={}", unit),
               fmt::format("the tensor's amax is that of its first {}x{} tile", unit, unit),
               [=](int64_t r, int64_t c, Shape) { return r < unit && c < unit; });
      add_part(rows, fmt::format("last_tile={}", unit),
               fmt::format("the tensor's amax is that of its last {}x{} tile", unit, unit),
               [=](int64_t r, int64_t c, Shape of) {
                 return r >= (of.rows - 1) / unit * unit && c >= (of.cols - 1) / unit * unit;
               });
    }
    if (shape.rows > unit && shape.rows % unit != 0)
      add_part(rows, fmt::format("tail_rows_cut={}", unit),
               fmt::format("the tensor's amax misses rows beyond the last whole {}", unit),
               [=](int64_t r, int64_t, Shape of) { return r < of.rows / unit * unit; });
    if (shape.cols > unit && shape.cols % unit != 0)
      add_part(rows, fmt::format("tail_columns_cut={}", unit),
               fmt::format("the tensor's amax misses columns beyond the last whole {}", unit),
               [=](int64_t, int64_t c, Shape of) { return c < of.cols / unit * unit; });
  }
}

// ---- by other arithmetic ----

using OfTensor = std::function<double(const Matrix& x, const Matrix& unrotated)>;

// As it is stored and as the scale is made of it.
void add_amax(Rows& rows, const string& id, string title, OfTensor f) {
  rows.add("tensor_amax." + id, std::move(title), Stage::amax, "N3.1").tensor_amax = std::move(f);
}

// As the scale is made of it alone.
void add_for_scale(Rows& rows, const string& id, string title, OfTensor f) {
  const char* clause = rows.q.format == FormatId::nvfp4 ? "N10.2" : "N3.3";
  Hypothesis& h = rows.add("tensor_scale." + id, std::move(title), Stage::tensor_scale, clause);
  h.tensor_amax = std::move(f);
  h.amax_shown = false;
}

// The largest of f(element), from 0 on.
template <class F> double largest(const Matrix& x, F f) {
  double out = 0;
  for (int64_t i = 0; i < x.lines(); ++i)
    for (int64_t j = 0; j < x.length(); ++j)
      if (const double v = f(x.value(i, j)); v > out) out = v;  // false for NaN
  return out;
}

double amax_or_nan(const Matrix& x) {
  for (int64_t i = 0; i < x.lines(); ++i)
    for (int64_t j = 0; j < x.length(); ++j)
      if (std::isnan(x.value(i, j))) return std::nan("");
  return x.amax();
}

double raised_to_power(const Matrix& x) {
  const double a = x.amax();
  return a == 0 || std::isinf(a) ? a : std::exp2(std::ceil(std::log2(a)));
}

struct AmaxRow {
  const char* id;
  const char* title;
  double (*amax)(const Matrix& x);
};
constexpr AmaxRow kAmaxRows[] = {
    {"without_abs", "the tensor's amax is the largest element, without abs",
     [](const Matrix& x) { return largest(x, [](double v) { return v; }); }},
    {"negative_only", "the tensor's amax covers only negative elements",
     [](const Matrix& x) { return largest(x, [](double v) { return -v; }); }},
    {"via_bf16", "the tensor's amax goes through bf16", [](const Matrix& x) { return bf16_of(x.amax()); }},
    {"via_f16", "the tensor's amax goes through f16",
     [](const Matrix& x) { return value_of(Encoding::f16, nearest_code(Encoding::f16, x.amax())); }},
    {"doubled", "the tensor's amax is doubled", [](const Matrix& x) { return 2 * x.amax(); }},
    {"halved", "the tensor's amax is halved", [](const Matrix& x) { return x.amax() / 2; }},
    {"quarter", "the tensor's amax is a quarter of the right amax",
     [](const Matrix& x) { return x.amax() / 4; }},
    {"fourfold", "the tensor's amax is four times the right amax",
     [](const Matrix& x) { return x.amax() * 4; }},
    {"power_of_two", "the tensor's amax is raised to a power of two", raised_to_power},
    {"zero", "the tensor's amax is 0", [](const Matrix&) { return 0.0; }},
    {"one", "the tensor's amax is 1", [](const Matrix&) { return 1.0; }},
    {"finite_only", "the tensor's amax ignores infinite elements",
     [](const Matrix& x) { return largest(x, [](double v) { return std::isinf(v) ? 0 : std::fabs(v); }); }},
    {"nan", "a NaN makes the tensor's amax NaN", amax_or_nan},
};

// ---- for the scale alone ----

// The amax is multiplied by `factor`, so that the encode scale is divided by it.
struct FactorRow {
  const char* id;
  const char* title;
  double factor;
};
constexpr FactorRow kFactorRows[] = {
    {"doubled", "the tensor's encode scale is doubled", 0.5},
    {"halved", "the tensor's encode scale is halved", 2},
    {"quadrupled", "the tensor's encode scale is four times what it should be", 0.25},
    {"quartered", "the tensor's encode scale is a quarter of what it should be", 4},
};
constexpr FactorRow kNvfp4Rows[] = {
    {"max_256", "the tensor scale aims at block scales of 256", 448.0 / 256},
    {"max_1", "the tensor scale aims at block scales of 1", 448},
    {"max_without_6", "the tensor scale leaves the 6 of E2M1 out", 6},
    {"max_without_448", "the tensor scale leaves the 448 of E4M3 out", 448},
    {"max_4", "the tensor scale takes 4 for the largest element", 1.5},
};
constexpr FactorRow kE4m3Rows[] = {
    {"max_of_e5m2", "MAX is that of E5M2, 57344", 448.0 / 57344},
    {"max_240", "MAX is 240", 448.0 / 240},
    {"max_256", "MAX is 256", 448.0 / 256},
    {"max_1", "MAX is 1", 448},
};
constexpr FactorRow kE5m2Rows[] = {
    {"max_of_e4m3", "MAX is that of E4M3, 448", 57344.0 / 448},
    {"max_1", "MAX is 1", 57344},
};

template <size_t n> void add_factors(Rows& rows, const FactorRow (&table)[n]) {
  for (const FactorRow& row : table)
    add_for_scale(rows, row.id, row.title, [factor = row.factor](const Matrix& x, const Matrix&) {
      return f32_of(x.amax() * factor);
    });
}

void add_epsilons(Rows& rows) {
  const auto plus = [](double e) {
    return [e](const Matrix& x, const Matrix&) { return f32_of(x.amax() + e); };
  };
  for (const char* eps : kEpsilons)
    add_for_scale(rows, fmt::format("plus={}", eps), fmt::format("{} is added to the tensor's amax", eps),
                  plus(epsilon(eps)));
  for (const char* eps : kEpsilons)
    add_amax(rows, fmt::format("plus={}", eps),
             fmt::format("{} is added to the tensor's amax, as it is stored too", eps), plus(epsilon(eps)));
  if (rows.own_eps() == 0 || rows.q.format != FormatId::fp8_current) return;
  add_for_scale(rows, "plus_eps", "eps is added to the tensor's amax, not its least value",
                plus(rows.own_eps()));
  add_amax(rows, "plus_eps", "eps is added to the tensor's amax, as it is stored too", plus(rows.own_eps()));
}

void add_nvfp4(Rows& rows) {
  add_for_scale(rows, "power_of_two", "the tensor scale is cut to a power of two",
                [](const Matrix& x, const Matrix&) {
                  const double a = x.amax(), s = f32_of(2688 / a);
                  return a > 0 && std::isfinite(s) && s > 0 ? f32_of(2688 / std::exp2(std::ilogb(s))) : a;
                });
  if (rows.q.rht)
    add_for_scale(rows, "unrotated", "the tensor scale is made of the amax before the rotation",
                  [](const Matrix&, const Matrix& x) { return x.amax(); });
  add_factors(rows, kNvfp4Rows);
}

}  // namespace

void add_tensor_amax_rows(Rows& rows) {
  if (rows.q.amax && rows.q.format == FormatId::nvfp4)
    add_for_scale(rows, "own",
                  "the tensor scale is of the tensor's own amax (local, not reduced), not of the given one",
                  [](const Matrix& x, const Matrix&) { return x.amax(); });
  if (rows.q.amax)
    add_amax(rows, "own", "the tensor's own amax is used instead of the given amax",
             [](const Matrix& x, const Matrix&) { return x.amax(); });
  if (!rows.computes_tensor_amax()) return;
  rows.add("tensor_amax.of_group", "every member of the group takes the largest amax of any", Stage::amax,
           "N14.2")
      .group_amax = true;
  for (const AmaxRow& row : kAmaxRows)
    add_amax(rows, row.id, row.title, [f = row.amax](const Matrix& x, const Matrix&) { return f(x); });
  add_parts(rows);
  // An amax plane shows what NaN it was; tensor_amax.nan writes the one that the reference does.
  Hypothesis& largest_bits = rows.add("tensor_amax.nan_largest_bits",
                                      "a NaN makes the tensor's amax NaN with the NaN's own bits, as a "
                                      "maximum of bit patterns (atomicMax) does",
                                      Stage::amax, "N3.1");
  largest_bits.tensor_amax = [](const Matrix& x, const Matrix&) { return amax_or_nan(x); };
  largest_bits.scalars = [](TensorScalars& s) {
    if (std::isnan(s.amax) && s.nan_bits != 0) s.amax = std::bit_cast<float>(s.nan_bits);
  };
  // (a < m) ? m : a, as C++'s std::max has it, over the rows of x.
  add_amax(
      rows, "nan_restarts",
      "a NaN makes the tensor's amax begin anew behind it, as where (a < m) ? m : a is taken for the larger",
      [d = rows.d](const Matrix& x, const Matrix&) {
        const int64_t rows_of_x = d == Direction::row ? x.lines() : x.length(),
                      columns = d == Direction::row ? x.length() : x.lines();
        double m = 0;
        for (int64_t r = 0; r < rows_of_x; ++r)
          for (int64_t c = 0; c < columns; ++c) {
            const double a = std::fabs(d == Direction::row ? x.value(r, c) : x.value(c, r));
            m = a < m ? m : a;
          }
        return m;
      });
  if (rows.q.rht)
    add_amax(rows, "unrotated", "the tensor's amax is that before the rotation",
             [](const Matrix&, const Matrix& x) { return x.amax(); });
  if (rows.q.format == FormatId::fp8_delayed) return;  // the scale is given
  add_factors(rows, kFactorRows);
  add_epsilons(rows);
  if (rows.q.format == FormatId::nvfp4) add_nvfp4(rows);
  else if (rows.q.element == Encoding::e4m3) add_factors(rows, kE4m3Rows);
  else add_factors(rows, kE5m2Rows);
}

}  // namespace assay
