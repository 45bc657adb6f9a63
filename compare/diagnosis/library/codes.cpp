// Codes of the data: rounded to another side, or replaced.
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/diagnosis/library/rows.h"

namespace assay {

namespace {

using std::string;

// ---- rounding ----

// Whether the nearest code lies on the wrong side of the scaled value, and its neighbour is taken.
struct RoundingRow {
  const char* id;
  const char* title;
  bool (*wrong)(double scaled, double nearest);
};
constexpr RoundingRow kRoundingRows[] = {
    {"toward_zero", "codes are rounded toward zero",
     [](double s, double v) { return std::fabs(v) > std::fabs(s); }},
    {"away", "codes are rounded away from zero",
     [](double s, double v) { return std::fabs(v) < std::fabs(s); }},
    {"up", "codes are rounded up", [](double s, double v) { return v < s; }},
    {"down", "codes are rounded down", [](double s, double v) { return v > s; }},
};

uint32_t magnitude(const CodeView& c) { return c.code & (sign_bit(c.encoding) - 1); }
uint32_t sign(const CodeView& c) { return c.code & sign_bit(c.encoding); }

// Whether s lies between two codes, of which v is the nearest.
bool between_codes(const CodeView& c, double s, double v) {
  return !std::isnan(s) && !std::isnan(v) && s != v &&
         std::fabs(s) <= value_of(c.encoding, info(c.encoding).max_finite);
}

uint32_t rounded_otherwise(const CodeView& c, bool (*wrong)(double scaled, double nearest)) {
  const double s = c.scaled(), v = value_of(c.encoding, c.code);
  if (!between_codes(c, s, v) || !wrong(s, v)) return c.code;
  const uint32_t sign = std::signbit(s) ? sign_bit(c.encoding) : 0, m = magnitude(c);
  if (std::fabs(v) > std::fabs(s)) return sign | (m - 1);
  return m == info(c.encoding).max_finite ? c.code : sign | (m + 1);
}

uint32_t ties_to_odd(const CodeView& c, uint32_t) {
  const double s = c.scaled(), v = value_of(c.encoding, c.code);
  if (!between_codes(c, s, v)) return c.code;
  const uint32_t other = std::fabs(v) > std::fabs(s) ? c.code - 1 : c.code + 1;
  return std::fabs(value_of(c.encoding, other) - s) == std::fabs(v - s) ? other : c.code;
}

// ---- replacement ----

// `largest`: the largest finite code of the line's elements.
struct CodeRow {
  const char* id;
  const char* title;
  uint32_t (*code)(const CodeView& c, uint32_t largest);
  const char* clause = "N2.1";
};

bool beyond(const CodeView& c, uint32_t largest) {
  return std::fabs(c.scaled()) > value_of(c.encoding, largest);
}
bool subnormal(const CodeView& c) { return magnitude(c) < 1u << info(c.encoding).mantissa_bits; }
uint32_t nan_of(const CodeView& c) { return sign(c) | info(c.encoding).nan; }

// The code of half of a subnormal value, with the sign that the code has.
uint32_t half_of(const CodeView& c, double v) {
  return sign(c) | (element_code(c.encoding, v / 2) & ~sign_bit(c.encoding));
}

constexpr CodeRow kPackedRows[] = {
    {"odd_zero", "the second of the two codes in a byte is 0",
     [](const CodeView& c, uint32_t) { return c.j % 2 == 1 ? 0 : c.code; }, "N6.8"},
    {"even_zero", "the first of the two codes in a byte is 0",
     [](const CodeView& c, uint32_t) { return c.j % 2 == 0 ? 0 : c.code; }, "N6.8"},
};

constexpr CodeRow kCodeRows[] = {
    {"sign_lost", "codes lose their sign", [](const CodeView& c, uint32_t) { return magnitude(c); }},
    {"sign_turned", "codes have the other sign",
     [](const CodeView& c, uint32_t) { return c.code ^ sign_bit(c.encoding); }},
    {"ftz", "subnormal codes become zeros",
     [](const CodeView& c, uint32_t) { return subnormal(c) ? sign(c) : c.code; }},
    {"ftz_positive", "subnormal codes become +0",
     [](const CodeView& c, uint32_t) { return subnormal(c) ? 0 : c.code; }},
    {"subnormals_halved", "values that subnormal codes hold are rounded one binade too small",
     [](const CodeView& c, uint32_t) { return subnormal(c) ? half_of(c, c.scaled()) : c.code; }, "N2.8"},
    {"subnormals_halved_late", "subnormal codes are halved after they were rounded, and rounded again",
     [](const CodeView& c, uint32_t) {
       return subnormal(c) ? half_of(c, value_of(c.encoding, c.code)) : c.code;
     },
     "N2.8"},
    {"subnormals_doubled", "values that subnormal codes hold are rounded one binade too large",
     [](const CodeView& c, uint32_t) {
       return subnormal(c) ? sign(c) | (element_code(c.encoding, 2 * c.scaled()) & ~sign_bit(c.encoding))
                           : c.code;
     },
     "N2.8"},
    {"saturates_low", "codes saturate one below the largest",
     [](const CodeView& c, uint32_t largest) {
       return magnitude(c) == largest ? sign(c) | (largest - 1) : c.code;
     },
     "N2.2"},
    {"largest_as_nan", "the largest code becomes NaN",
     [](const CodeView& c, uint32_t largest) {
       return magnitude(c) == largest && info(c.encoding).nan != largest ? nan_of(c) : c.code;
     },
     "N2.2"},
    {"beyond_as_nan", "values beyond the largest become NaN",
     [](const CodeView& c, uint32_t largest) { return beyond(c, largest) ? nan_of(c) : c.code; }, "N2.2"},
    {"beyond_as_zero", "values beyond the largest become 0",
     [](const CodeView& c, uint32_t largest) { return beyond(c, largest) ? sign(c) : c.code; }, "N2.2"},
    {"nan_as_zero", "NaN is coded as 0",
     [](const CodeView& c, uint32_t) { return std::isnan(c.x) ? 0 : c.code; }, "N2.4"},
    {"nan_as_largest", "NaN is coded as the largest value",
     [](const CodeView& c, uint32_t largest) { return std::isnan(c.x) ? largest : c.code; }, "N2.4"},
    {"nan_as_negative_largest", "NaN is coded as the least value",
     [](const CodeView& c, uint32_t largest) {
       return std::isnan(c.x) ? sign_bit(c.encoding) | largest : c.code;
     },
     "N2.4"},
    {"nan_signed", "NaN keeps its sign",
     [](const CodeView& c, uint32_t) {
       return std::isnan(c.x) && std::signbit(c.x) ? c.code | sign_bit(c.encoding) : c.code;
     },
     "N2.4"},
    {"infinity_as_nan", "infinity is coded as NaN",
     [](const CodeView& c, uint32_t) { return std::isinf(c.x) ? nan_of(c) : c.code; }, "N2.2"},
    {"one_more", "the magnitude of every code is one more",
     [](const CodeView& c, uint32_t largest) { return magnitude(c) < largest ? c.code + 1 : c.code; }},
    {"one_less", "the magnitude of every code is one less",
     [](const CodeView& c, uint32_t largest) {
       return magnitude(c) > 0 && magnitude(c) <= largest ? c.code - 1 : c.code;
     }},
    {"low_bit_cleared", "the last bit of every code is 0",
     [](const CodeView& c, uint32_t) { return c.code & ~1u; }},
    {"low_bit_set", "the last bit of every code is 1",
     [](const CodeView& c, uint32_t) { return c.code | 1u; }},
    {"negative_zero", "every zero is coded as -0",
     [](const CodeView& c, uint32_t) { return magnitude(c) == 0 ? sign_bit(c.encoding) : c.code; }, "N5.6"},
    {"last_line_zero", "the last line of codes is 0",
     [](const CodeView& c, uint32_t) { return c.i == c.lines - 1 ? 0 : c.code; }},
    {"last_place_zero", "the last code of every line is 0",
     [](const CodeView& c, uint32_t) { return c.j == c.length - 1 ? 0 : c.code; }},
    {"zero", "all codes are 0", [](const CodeView&, uint32_t) { return 0u; }},
};

// Rows about codes that are rounded to the nearest.
constexpr CodeRow kTiesRows[] = {{"ties_to_odd", "ties go to the odd code", ties_to_odd}};
constexpr CodeRow kNearestRows[] = {
    {"infinity_as_plain_nan", "infinity is coded as NaN without a sign",
     [](const CodeView& c, uint32_t) { return std::isinf(c.x) ? info(c.encoding).nan : c.code; }, "N2.2"},
    {"max_240", "codes saturate at 240",
     [](const CodeView& c, uint32_t) {
       return c.encoding == Encoding::e4m3 && (c.code & 0x7F) > 0x77 && (c.code & 0x7F) < 0x7F
                  ? (c.code & 0x80) | 0x77
                  : c.code;
     },
     "N2.2"},
};

constexpr CodeRow kE5m2Rows[] = {
    {"max_448", "codes of E5M2 saturate at 448, the largest value of E4M3",
     [](const CodeView& c, uint32_t largest) {
       constexpr uint32_t kCodeOf448 = 0x5F;
       const bool beyond = magnitude(c) > kCodeOf448 && magnitude(c) <= largest;
       return beyond ? sign(c) | kCodeOf448 : c.code;
     },
     "N2.2"},
};

Hypothesis& add_code(Rows& rows, const string& id, string title, std::function<uint32_t(const CodeView&)> f,
                     const char* clause = "N2.1") {
  Hypothesis& h = rows.add("code." + id, std::move(title), Stage::code, clause);
  h.code = std::move(f);
  return h;
}

template <size_t n> void add_table(Rows& rows, const CodeRow (&table)[n], Stage stage = Stage::code) {
  for (const CodeRow& row : table)
    add_code(
        rows, row.id, row.title,
        [f = row.code, largest = info(rows.q.element).max_finite](const CodeView& c) {
          return f(c, largest);
        },
        row.clause)
        .stage = stage;
}

// One comparison with a midpoint of E2M1 that is < in place of <=, or the other way round.
void add_ties(Rows& rows) {
  if (rows.q.element != Encoding::e2m1) return;
  for (uint32_t low = 0; low < info(Encoding::e2m1).max_finite; ++low) {
    const double tie = (value_of(Encoding::e2m1, low) + value_of(Encoding::e2m1, low + 1)) / 2;
    add_code(rows, fmt::format("tie_turned={}", tie),
             fmt::format("exactly {} goes to the other neighbour", tie), [=](const CodeView& c) {
               const bool tied = std::fabs(c.scaled()) == tie && magnitude(c) - low < 2;
               return tied ? sign(c) | (2 * low + 1 - magnitude(c)) : c.code;
             });
  }
}

// The other elements of the format's row.
void add_other_encoding(Rows& rows) {
  for (size_t i = 0; i < kFloatEncodings; ++i) {
    const Encoding other = static_cast<Encoding>(i);
    if (!has_word(rows.format.elements, info(other).name) || other == rows.q.element) continue;
    add_code(rows, "as_" + string(info(other).name),
             fmt::format("codes are those of {}, of values scaled for {}", info(other).name,
                         info(rows.q.element).name),
             [other](const CodeView& c) { return element_code(other, c.scaled()); });
  }
}

void add_tails(Rows& rows) {
  if (info(rows.q.element).bits >= 8) return;
  const Shape shape = rows.lane.x.shape;
  const int64_t length = rows.d == Direction::row ? shape.cols : shape.rows;
  for (const int64_t unit : {2, 4, 8})
    if (length % unit != 0)
      add_code(rows, fmt::format("tail_zero={}", unit),
               fmt::format("codes of a line beyond the last whole {} are 0", unit),
               [=](const CodeView& c) { return c.j >= c.length / unit * unit ? 0 : c.code; });
}

}  // namespace

void add_code_rows(Rows& rows) {
  for (const RoundingRow& row : kRoundingRows)
    add_code(rows, row.id, row.title,
             [wrong = row.wrong](const CodeView& c) { return rounded_otherwise(c, wrong); });
  if (rows.q.round != Round::sr) {
    add_ties(rows);
    add_scaled_value_rows(rows);
    add_table(rows, kTiesRows);
    add_other_encoding(rows);
    add_table(rows, kNearestRows);
    if (rows.q.element == Encoding::e5m2) add_table(rows, kE5m2Rows);
  }
  if (is_packed(rows.q) && info(rows.q.element).bits == 4) add_table(rows, kPackedRows, Stage::packing);
  add_table(rows, kCodeRows);
  add_tails(rows);
}

}  // namespace assay
