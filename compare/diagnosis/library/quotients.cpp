// What compilers and other orders of steps make of MAX / amax and of its reciprocal: the scale that is
// stored, and what elements are multiplied with or divided by.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "compare/arithmetic/encode.h"
#include "compare/diagnosis/library/rows.h"

namespace assay {

namespace {

using std::string;

struct Quotient {
  float inverse;  // as it is stored
  float factor;   // of elements
  bool divides = false;
};

float above(float v) { return std::nextafter(v, std::numeric_limits<float>::infinity()); }
float below(float v) { return std::nextafter(v, 0.0f); }
float power(float v) { return std::exp2(static_cast<float>(std::ilogb(v))); }

// Of an ordinary amax; `most`: the largest element.
struct QuotientRow {
  const char* id;
  const char* title;
  Quotient (*of)(float a, float most);
  bool pow2 = false;  // of lines whose scales are powers of two; the others are of lines whose are not
};
// clang-format off
constexpr QuotientRow kRows[] = {
    {"product_divided", "scale_inv is amax * (1 / MAX), which compilers make of amax / MAX (Triton), and elements are divided by it",
     [](float a, float m) { const float i = a * (1 / m); return Quotient{i, i, true}; }},
    {"product_inverted", "scale_inv is amax * (1 / MAX), which compilers make of amax / MAX (Triton), and elements are multiplied by its reciprocal",
     [](float a, float m) { const float i = a * (1 / m); return Quotient{i, 1 / i}; }},
    {"product_below_divided", "scale_inv is amax times a reciprocal of MAX that is one place too small, and elements are divided by it",
     [](float a, float m) { const float i = a * below(1 / m); return Quotient{i, i, true}; }},
    {"product_above_divided", "scale_inv is amax times a reciprocal of MAX that is one place too large, and elements are divided by it",
     [](float a, float m) { const float i = a * above(1 / m); return Quotient{i, i, true}; }},
    {"product_below_inverted", "scale_inv is amax times a reciprocal of MAX that is one place too small, and elements are multiplied by its reciprocal",
     [](float a, float m) { const float i = a * below(1 / m); return Quotient{i, 1 / i}; }},
    {"product_above_inverted", "scale_inv is amax times a reciprocal of MAX that is one place too large, and elements are multiplied by its reciprocal",
     [](float a, float m) { const float i = a * above(1 / m); return Quotient{i, 1 / i}; }},
    {"quotient_below", "scale_inv is amax / MAX, and elements are multiplied by an approximate reciprocal of it, one place too small (div.full)",
     [](float a, float m) { const float i = a / m; return Quotient{i, below(1 / i)}; }},
    {"quotient_above", "scale_inv is amax / MAX, and elements are multiplied by an approximate reciprocal of it, one place too large (div.full)",
     [](float a, float m) { const float i = a / m; return Quotient{i, above(1 / i)}; }},
    {"inverse_below", "elements are multiplied by an approximate reciprocal of scale_inv, one place too small (rcp.approx)",
     [](float a, float m) { const float i = 1 / (m / a); return Quotient{i, below(1 / i)}; }},
    {"inverse_above", "elements are multiplied by an approximate reciprocal of scale_inv, one place too large (rcp.approx)",
     [](float a, float m) { const float i = 1 / (m / a); return Quotient{i, above(1 / i)}; }},
    {"max_240", "MAX is 240, as of E4M3 without infinities and -0 (E4M3FNUZ)",
     [](float a, float m) { const float s = (m == 448 ? 240 : m) / a; return Quotient{1 / s, s}; }},
    {"before_power", "elements are scaled by MAX / amax, and only then the scale was made a power of two",
     [](float a, float m) { return Quotient{1 / power(m / a), m / a}; }, true},
    {"before_power_divided", "elements are divided by amax / MAX, and only then the scale was made a power of two",
     [](float a, float m) { return Quotient{1 / power(m / a), a / m, true}; }, true},
    {"power_not_stored", "elements are scaled by the power of two, and the scale before that is stored",
     [](float a, float m) { return Quotient{1 / (m / a), power(m / a)}; }, true},
    {"power_not_stored_quotient", "elements are scaled by the power of two, and amax / MAX is stored",
     [](float a, float m) { return Quotient{a / m, power(m / a)}; }, true},
};
// clang-format on

void add_quotient(Rows& rows, const QuotientRow& row) {
  const bool blocks = rows.format.has_blocks();
  Hypothesis& h = rows.add(string("quotient.") + row.id, row.title, rows.scale_stage(), "N17.14");
  const auto of = [f = row.of, most = static_cast<float>(rows.largest_element()),
                   least = static_cast<float>(rows.own_eps())](double amax) -> std::optional<Quotient> {
    const float a = std::max(static_cast<float>(amax), least);
    if (!(a > 0) || !std::isfinite(a)) return {};
    const Quotient q = f(a, most);
    return std::isfinite(q.inverse) && std::isfinite(q.factor) ? std::optional(q) : std::nullopt;
  };
  if (blocks) {
    h.scale = [of](const ScaleGrid& s, int64_t i, int64_t b) {
      const auto q = of(s.amax(i, b));
      return q ? std::bit_cast<uint32_t>(q->inverse) : s.at(i, b);
    };
    h.use = Hypothesis::Use::stored;
  } else {
    h.scalars = [of](TensorScalars& s) {
      if (const auto q = of(static_cast<double>(s.amax))) s.scale_inv = q->inverse;
    };
  }
  h.scaled = [of, blocks](const CodeView& c) {
    const auto q = of(blocks ? c.block_amax() : c.tensor_amax);
    if (!q) return c.scaled();
    const auto x = static_cast<float>(c.x);
    return static_cast<double>(q->divides ? x / q->factor : x * q->factor);
  };
}

// MAX / amax of a tiny amax is beyond binary32 and stays infinite: the decode scale is 0, a zero becomes NaN,
// and every other element an infinity.
void add_unclamped(Rows& rows) {
  const bool blocks = rows.format.has_blocks();
  Hypothesis& h = rows.add("quotient.infinite", "an infinite MAX / amax is not replaced, and scale_inv is 0",
                           rows.scale_stage(), "N3.5");
  const auto infinite = [most = static_cast<float>(rows.largest_element()),
                         least = static_cast<float>(rows.own_eps())](double amax) {
    const float a = std::max(static_cast<float>(amax), least);
    return a > 0 && std::isfinite(a) && std::isinf(most / a);
  };
  if (blocks) {
    h.scale = [infinite](const ScaleGrid& s, int64_t i, int64_t b) {
      return infinite(s.amax(i, b)) ? 0u : s.at(i, b);
    };
    h.use = Hypothesis::Use::stored;
  } else {
    h.scalars = [infinite](TensorScalars& s) {
      if (infinite(static_cast<double>(s.amax)))
        s.scale = std::numeric_limits<float>::infinity(), s.scale_inv = 0;
    };
  }
  h.scaled = [infinite, blocks](const CodeView& c) {
    return infinite(blocks ? c.block_amax() : c.tensor_amax) ? c.x * std::numeric_limits<double>::infinity()
                                                             : c.scaled();
  };
}

// A NaN that is kept makes the scale NaN, and every code that is scaled by it: torch.amax, 448 / amax, x *
// scale.
void add_nan(Rows& rows) {
  static constexpr uint32_t kNan = 0x7FFFFFFF;  // as CUDA writes it
  const bool blocks = rows.format.has_blocks();
  Hypothesis& h =
      rows.add("quotient.nan", "a NaN makes the amax and the scale NaN, and every code that is scaled by it",
               rows.scale_stage(), "N3.4");
  const auto has_nan = [](const Matrix& x, int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
    for (int64_t i = i0; i < i1; ++i)
      for (int64_t j = j0; j < j1; ++j)
        if (std::isnan(x.value(i, j))) return true;
    return false;
  };
  if (blocks || rows.of_rows)
    h.amax = [has_nan](const BlockView& b) {
      return has_nan(b.x, b.i0, b.i1, b.j0, b.j1) ? std::nan("") : b.amax();
    };
  else
    h.tensor_amax = [has_nan](const Matrix& x, const Matrix&) {
      return has_nan(x, 0, x.lines(), 0, x.length()) ? std::nan("") : x.amax();
    };
  if (blocks) {
    h.scale = [](const ScaleGrid& s, int64_t i, int64_t b) {
      return std::isnan(s.amax(i, b)) ? kNan : s.at(i, b);
    };
    h.use = Hypothesis::Use::stored;
  } else {
    h.scalars = [](TensorScalars& s) {
      if (std::isnan(s.amax)) s.scale = s.scale_inv = std::bit_cast<float>(kNan);
    };
  }
  h.scaled = [blocks](const CodeView& c) {
    const double amax = blocks ? c.block_amax() : c.tensor_amax;
    return std::isnan(amax) ? amax : c.scaled();
  };
}

// A NaN that is stored as a block's scale with other bits than the canonical ones. It shows only under what
// makes the NaN.
void add_nan_bits(Rows& rows, const char* id, const char* title, uint32_t bits) {
  Hypothesis& h = rows.add(string("nan_bits.scale_inv.") + id, title, rows.scale_stage(), "N1.3");
  h.use = Hypothesis::Use::stored;
  h.scale = [bits](const ScaleGrid& s, int64_t i, int64_t b) {
    return std::isnan(std::bit_cast<float>(s.at(i, b))) ? bits : s.at(i, b);
  };
}

}  // namespace

void add_quotient_rows(Rows& rows) {
  if (rows.q.format != FormatId::fp8_block && rows.q.format != FormatId::fp8_current) return;
  if (!rows.q.amax) add_nan(rows);
  add_unclamped(rows);
  if (rows.q.format == FormatId::fp8_block && rows.q.scales != ScaleLayout::gemm) {
    add_nan_bits(
        rows, "quiet",
        "a NaN in scale_inv is stored as 7FC00000, the quiet NaN that compilers and PyTorch on a CPU write",
        0x7FC00000);
    add_nan_bits(rows, "negative",
                 "a NaN in scale_inv is stored as FFC00000, the NaN that an invalid operation gives on x86",
                 0xFFC00000);
  }
  for (const QuotientRow& row : kRows)
    if (row.pow2 == rows.q.pow2) add_quotient(rows, row);
}

}  // namespace assay
