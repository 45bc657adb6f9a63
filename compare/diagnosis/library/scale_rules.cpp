// Other rules from the amax of a block to its scale.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/diagnosis/library/rows.h"

namespace assay {

namespace {

using std::string;

// ---- E8M0 ----

// The power of two near amax / MAX, or near amax * (1 / MAX): above the fraction `from` it is the next one,
// and `at` that fraction too where the row says so.
struct NearRow {
  const char* id;
  const char* title;
  double from;
  bool product, at;
};
constexpr NearRow kNearRows[] = {
    {"nearest_up", "the power of two nearest to amax / MAX, halfway up", 1.5, false, true},
    {"nearest_down", "the power of two nearest to amax / MAX, halfway down", 1.5, false, false},
    {"nearest_up_product", "the power of two nearest to amax * (1 / MAX), halfway up", 1.5, true, true},
    {"nearest_down_product", "the power of two nearest to amax * (1 / MAX), halfway down", 1.5, true, false},
    {"nearest_log", "the exponent is log2(amax / MAX) rounded to the nearest", std::numbers::sqrt2, false,
     true},
    {"up_product", "the power of two not below amax * (1 / MAX)", 1, true, false},
};

// One binade off where p (N5.2, N15.2, N18.2) is a power of two itself, and right everywhere else: the edge
// of a rule that rounds up.
struct AtPowerRow {
  const char* id;
  const char* title;
  int by;
};
constexpr AtPowerRow kAtPowerRows[] = {
    {"up_at_powers", "the scale is one binade too large where amax / MAX is a power of two itself", 1},
    {"down_at_powers", "the scale is one binade too small where amax / MAX is a power of two itself", -1},
};

void add_at_power(Rows& rows, const AtPowerRow& row) {
  add_scale(
      rows, row.id, row.title,
      [by = row.by, product = rows.q.format == FormatId::mxfp8, most = rows.largest_element()](
          const ScaleGrid& s, int64_t i, int64_t b) {
        const double a = s.amax(i, b), p = product ? f32_of(a * f32_of(1 / most)) : f32_of(a / most);
        const uint32_t c = s.at(i, b);
        if (!(p >= 0x1p-127) || !std::isfinite(p) || p != std::exp2(std::ilogb(p))) return c;
        return static_cast<uint32_t>(std::clamp(static_cast<int>(c) + by, 0, 254));
      },
      kBoth);
}

// ---- F32 ----

// What is stored of the scale, by the amax, the value that should be stored and MAX.
struct StoredRow {
  const char* id;
  const char* title;
  double (*of)(double value, double amax, double most);
};
bool ordinary(double amax) { return amax != 0 && std::isfinite(amax); }
constexpr StoredRow kStoredRows[] = {
    {"reciprocal", "the encode scale is stored, not its reciprocal",
     [](double v, double, double) { return f32_of(1 / v); }},
    {"of_amax", "scales are amax / MAX, not the reciprocal of the encode scale",
     [](double v, double a, double most) { return ordinary(a) ? f32_of(a / most) : v; }},
    {"of_amax_product", "scales are amax * (1 / MAX)",
     [](double v, double a, double most) { return ordinary(a) ? f32_of(a * f32_of(1 / most)) : v; }},
};

// fp8_block: the encode scale of an ordinary amax by another step, which the codes follow.
struct EncodeRow {
  const char* id;
  const char* title;
  float (*encode)(float amax, float most);
};
constexpr EncodeRow kEncodeRows[] = {
    {"product", "the scale is MAX * (1 / amax), not MAX / amax",
     [](float a, float most) { return most * (1 / a); }},
    {"inverse_of_product", "the scale is 1 / (amax * (1 / MAX)), not MAX / amax",
     [](float a, float most) { return 1 / (a * (1 / most)); }},
    {"inverse_of_quotient", "the scale is 1 / (amax / MAX), not MAX / amax",
     [](float a, float most) { return 1 / (a / most); }},
    {"one_place_less", "the encode scale is one place too small",
     [](float a, float most) { return std::nextafter(most / a, 0.0f); }},
};

void add_encode_row(Rows& rows, const EncodeRow& row) {
  Hypothesis& h = rows.add(string("scale.") + row.id, row.title, Stage::block_scale, "N9.1");
  const auto encode = [f = row.encode, most = static_cast<float>(rows.largest_element()),
                       least = static_cast<float>(rows.own_eps()),
                       power = rows.q.pow2](double amax) -> std::optional<float> {
    const float a = std::max(static_cast<float>(amax), least);
    if (!(a > 0) || !std::isfinite(a)) return {};
    const float s = f(a, most);
    if (!(s > 0) || !std::isfinite(s)) return {};
    return power ? std::exp2(static_cast<float>(std::ilogb(s))) : s;
  };
  h.scale = [=](const ScaleGrid& s, int64_t i, int64_t b) {
    const auto scale = encode(s.amax(i, b));
    return scale ? std::bit_cast<uint32_t>(1 / *scale) : s.at(i, b);
  };
  h.use = Hypothesis::Use::stored;
  h.code = [=](const CodeView& c) {
    const auto scale = encode(c.block_amax());
    return scale ? element_code(c.encoding, static_cast<double>(static_cast<float>(c.x) * *scale)) : c.code;
  };
}

void add_of_zero(Rows& rows, const char* id, const char* title, float scale) {
  Hypothesis& h = rows.add(string("scale.") + id, title, Stage::block_scale, "N9.2");
  h.scale = [=](const ScaleGrid& s, int64_t i, int64_t b) {
    return s.amax(i, b) == 0 ? std::bit_cast<uint32_t>(1 / scale) : s.at(i, b);
  };
  h.use = Hypothesis::Use::stored;
}

// ---- E4M3 (NVFP4) ----

// What is rounded to the scale (N10.6), in the line's own order of steps; `most`: the largest element.
double unrounded(const ScaleGrid& s, int64_t i, int64_t b, Nvfp4Scale order, float most) {
  const float a = static_cast<float>(s.amax(i, b)), e = static_cast<float>(s.encode_scale),
              sixth = 1.0f / most;
  switch (order) {
    case Nvfp4Scale::folded: return static_cast<double>(a * (e * sixth));
    case Nvfp4Scale::product_first: return static_cast<double>(e * (a * sixth));
    case Nvfp4Scale::unit: return static_cast<double>(a / most);
    case Nvfp4Scale::quotient_first:
    case Nvfp4Scale::decode:
    case Nvfp4Scale::decode_product:
    case Nvfp4Scale::given_product:
    case Nvfp4Scale::decode_first: break;
  }
  return static_cast<double>(a / most * e);
}

uint32_t nearest(double v) { return element_code(Encoding::e4m3, v); }
uint32_t cut(double v) {
  const uint32_t c = nearest(v);
  return value_of(Encoding::e4m3, c) > v ? c - 1 : c;
}
// The nearest code, but ties go up or down.
uint32_t with_ties(double v, bool up) {
  const uint32_t c = nearest(v);
  if (std::isnan(v) || c >= 0x7E) return c;
  const double near = value_of(Encoding::e4m3, c);
  const uint32_t beyond = near > v ? c - 1 : c + 1;
  const double other = value_of(Encoding::e4m3, beyond);
  return std::fabs(v - near) == std::fabs(v - other) && up == (other > near) ? beyond : c;
}

struct RoundedRow {
  const char* id;
  const char* title;
  uint32_t (*code)(double v);
  float most = 6;
};
constexpr RoundedRow kRoundedRows[] = {
    {"cut", "scales are cut to E4M3, not rounded", cut},
    {"ties_up", "scales halfway between two codes go up", [](double v) { return with_ties(v, true); }},
    {"ties_down", "scales halfway between two codes go down", [](double v) { return with_ties(v, false); }},
    {"via_bf16", "scales go through bf16", [](double v) { return nearest(bf16_of(v)); }},
    {"via_f16", "scales go through f16",
     [](double v) { return nearest(value_of(Encoding::f16, nearest_code(Encoding::f16, v))); }},
    {"max_240", "scales saturate at 240", [](double v) { return std::min(nearest(v), 0x77u); }},
    {"beyond_as_nan", "a scale beyond 448 becomes NaN: a cast without a clamp",
     [](double v) { return v > 464 ? 0x7Fu : nearest(v); }},
    {"for_4", "scales are made for a largest element of 4", nearest, 4},
    {"for_8", "scales are made for a largest element of 8", nearest, 8},
    {"for_1", "scales leave the 6 of E2M1 out", nearest, 1},
};

// What stands for a scale that came out as 0. Unlike the line's nvfp4_floor it acts on the code, so also
// after another rounding than the line's.
struct ZeroRow {
  const char* id;
  const char* title;
  uint32_t code;
};
constexpr ZeroRow kZeroRows[] = {
    {"zero_becomes_one", "a block scale that came out as 0 becomes 1", 0x38},
    {"zero_becomes_eighth", "a block scale that came out as 0 becomes 0.125", 0x20},
};

// Tensor scales that are 2688 over no amax, so that their steps are written out.
struct EncodeScaleRow {
  const char* id;
  const char* title;
  float (*encode)(float amax);
};
constexpr EncodeScaleRow kEncodeScaleRows[] = {
    {"max_240", "the tensor scale aims at block scales of 240", [](float a) { return 1440 / a; }},
    {"inverted", "the tensor scale is amax / 2688: the decode scale is taken for the encode scale",
     [](float a) { return a / 2688; }},
};
void add_encode_scale(Rows& rows, const EncodeScaleRow& row) {
  Hypothesis& h = rows.add(string("tensor_scale.") + row.id, row.title, Stage::tensor_scale, "N10.2");
  static constexpr float kMost = std::numeric_limits<float>::max();
  const auto encode = [f = row.encode](double amax) {
    return amax > 0 ? std::min(f(static_cast<float>(amax)), kMost) : 1.0f;
  };
  h.scale = [encode](const ScaleGrid& s, int64_t i, int64_t b) {
    const float a = static_cast<float>(s.amax(i, b));
    return nearest(static_cast<double>(a * (encode(s.tensor_amax) * (1.0f / 6))));
  };
  h.scaled = [encode](const CodeView& c) {
    const float decode = 1 / encode(c.tensor_amax);
    return c.x * static_cast<double>(std::min(1 / (static_cast<float>(c.scale) * decode), kMost));
  };
}

}  // namespace

void add_mx_rule_rows(Rows& rows) {
  for (const NearRow& row : kNearRows)
    add_scale(
        rows, row.id, row.title,
        [row, most = rows.largest_element()](const ScaleGrid& s, int64_t i, int64_t b) {
          const double a = s.amax(i, b), p = row.product ? f32_of(a * f32_of(1 / most)) : f32_of(a / most);
          if (!(a > 0) || !std::isfinite(a) || p < 0x1p-126) return s.at(i, b);
          const int e = std::ilogb(p);
          const double fraction = std::ldexp(p, -e);
          const bool next = fraction > row.from || (row.at && fraction == row.from);
          return static_cast<uint32_t>(std::clamp(e + 127 + (next ? 1 : 0), 0, 254));
        },
        kBoth);
  for (const AtPowerRow& row : kAtPowerRows) add_at_power(rows, row);
}

void add_f32_rule_rows(Rows& rows) {
  for (const StoredRow& row : kStoredRows)
    add_scale(
        rows, row.id, row.title,
        [f = row.of, most = rows.largest_element()](const ScaleGrid& s, int64_t i, int64_t b) {
          return nearest_code(Encoding::f32, f(value_of(Encoding::f32, s.at(i, b)), s.amax(i, b), most));
        },
        kStored);
}

void add_fp8_block_rule_rows(Rows& rows) {
  for (const EncodeRow& row : kEncodeRows) add_encode_row(rows, row);
  if (rows.own_eps() > 0) return;
  const Encoding source = rows.lane.x.source;
  add_of_zero(rows, "zero_amax_f32_max", "an amax of 0 gives the scale FLT_MAX",
              std::numeric_limits<float>::max());
  add_of_zero(rows, "zero_amax_2^127", "an amax of 0 gives the scale 2^127", 0x1p127f);
  if (source != Encoding::f32)
    add_of_zero(rows, "zero_amax_source_max", "an amax of 0 gives the source's largest value for a scale",
                static_cast<float>(value_of(source, info(source).max_finite)));
}

void add_nvfp4_rule_rows(Rows& rows) {
  const Quantizer& q = rows.q;
  if (q.row_scaled || q.four_over_six != FourOverSix::off) return;
  const Nvfp4Scale order = q.numerics.nvfp4_scale;
  if (q.round != Round::sr && q.numerics.multiplier == Multiplier::reciprocal &&
      order == Nvfp4Scale::folded && q.e4m3_max == E4m3Max::m448)
    for (const EncodeScaleRow& row : kEncodeScaleRows) add_encode_scale(rows, row);
  for (const RoundedRow& row : kRoundedRows)
    add_scale(
        rows, row.id, row.title,
        [row, order](const ScaleGrid& s, int64_t i, int64_t b) {
          return row.code(unrounded(s, i, b, order, row.most));
        },
        kBoth);
  for (const ZeroRow& row : kZeroRows)
    add_scale(
        rows, row.id, row.title,
        [code = row.code](const ScaleGrid& s, int64_t i, int64_t b) {
          return s.at(i, b) == 0 ? code : s.at(i, b);
        },
        kBoth);
}

}  // namespace assay
