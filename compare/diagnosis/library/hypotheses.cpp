#include "compare/diagnosis/library/hypotheses.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/patterns/layouts.h"
#include "contract/f32_text.h"
#include "contract/flavours.h"
#include "contract/line.h"
#include "contract/words.h"

namespace assay {

// ---- x as a direction sees it ----------------------------------------------------------------------------------------------

Matrix::Matrix(const PlaneData& x, Direction d) : bytes_(x.bytes.data()), encoding_(x.plane.encoding) {
  const Shape s = x.plane.logical;
  const bool rows = d == Direction::row;
  lines_ = rows ? s.rows : s.cols;
  length_ = rows ? s.cols : s.rows;
  line_step_ = rows ? s.cols : 1;
  step_ = rows ? 1 : s.cols;
}

Matrix::Matrix(const Matrix& under, const Edit& edit, Encoding encoding) : under_(&under), edit_(&edit), encoding_(encoding), lines_(under.lines_), length_(under.length_) {}

uint32_t Matrix::stored(int64_t i, int64_t j) const {
  const std::byte* at = bytes_ + (i * line_step_ + j * step_) * (encoding_ == Encoding::f32 ? 4 : 2);
  if (encoding_ == Encoding::f32) {
    uint32_t code;
    std::memcpy(&code, at, sizeof code);
    return code;
  }
  uint16_t code;
  std::memcpy(&code, at, sizeof code);
  return code;
}

double Matrix::value(int64_t i, int64_t j) const {
  const uint32_t c = code(i, j);
  if (encoding_ == Encoding::f32) return std::bit_cast<float>(c);
  if (encoding_ == Encoding::bf16) return std::bit_cast<float>(c << 16);
  return value_of(encoding_, c);
}

double Matrix::amax(int64_t i0, int64_t i1, int64_t j0, int64_t j1) const {
  double out = 0;
  for (int64_t i = std::max<int64_t>(i0, 0); i < std::min(i1, lines_); ++i)
    for (int64_t j = std::max<int64_t>(j0, 0); j < std::min(j1, length_); ++j)
      if (const double v = std::fabs(value(i, j)); v > out) out = v;   // false for NaN
  return out;
}

namespace {

// v as a code of `e`, its magnitude made a whole number of the grid's steps by `whole`.
template <class Whole>
uint32_t code_of(Encoding e, double v, Whole whole) {
  const EncodingInfo& f = info(e);
  const uint32_t sign = std::signbit(v) ? 1u << (f.bits - 1) : 0;
  if (std::isnan(v)) return f.nan;
  const double magnitude = std::fabs(v), largest = value_of(e, f.max_finite);
  if (std::isinf(v)) return sign | f.infinity;
  const double step = step_at(e, magnitude), rounded = whole(magnitude / step) * step;
  if (rounded > largest) return sign | f.infinity;
  const double unit = step_at(e, rounded);
  const int binade = rounded < std::ldexp(1.0, 1 - f.bias) ? 0 : std::ilogb(rounded) + f.bias;
  const auto steps = static_cast<uint32_t>(rounded / unit);               // of a normal value with its hidden bit
  return sign | (binade == 0 ? steps : (static_cast<uint32_t>(binade) << f.mantissa_bits) + (steps - (1u << f.mantissa_bits)));
}

}  // namespace

uint32_t nearest_code(Encoding e, double v) {
  if (e == Encoding::bf16) {   // a rotation asks this 64 times an element: where neither end of the exponents is near, the carry of an integer sum rounds to even
    const auto bits = std::bit_cast<uint64_t>(v), field = bits >> 52 & 0x7FF, rounded = (bits + (uint64_t{1} << 44) - 1 + (bits >> 45 & 1)) >> 45;
    if (field > 1023 - 126 && field < 1023 + 127) return static_cast<uint32_t>((bits >> 63 << 15) | ((rounded & 0x3FFFF) - (uint64_t{1023 - 127} << 7)));
  }
  return code_of(e, v, [](double n) { return std::nearbyint(n); });
}
uint32_t truncated_code(Encoding e, double v) {
  const uint32_t code = code_of(e, v, [](double n) { return std::floor(n); });
  return std::isfinite(v) && !std::isfinite(value_of(e, code)) ? code - 1 : code;   // toward zero, nothing finite overflows
}

uint32_t element_code(Encoding e, double v) {
  const EncodingInfo& f = info(e);
  const uint32_t sign = std::signbit(v) ? 1u << (f.bits - 1) : 0;
  if (std::isnan(v)) return f.nan;
  if (std::fabs(v) >= value_of(e, f.max_finite)) return sign | f.max_finite;
  const uint32_t code = nearest_code(e, v);
  return (code & ((1u << (f.bits - 1)) - 1)) > f.max_finite ? sign | f.max_finite : code;
}

PhiloxWords philox4x32(uint64_t key, uint64_t low, uint64_t high, int rounds) {
  uint32_t c[4] = {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int r = 0; r < rounds; ++r) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b), static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
    std::copy(next, next + 4, c);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

// ---- changed lines ---------------------------------------------------------------------------------------------------------

std::optional<Problem> with_keys(const Problem& problem, const std::string& keys, std::optional<Direction> only) {
  Problem bare = problem;
  bare.x.fill = {};
  const bool stops_drawing = keys.find("round=rne") != std::string::npos;
  if (stops_drawing) bare.rng = {};                                         // its key applies no more
  const auto key_of = [](const std::string& word) { return word.substr(0, word.find('=')); };
  const std::string before = to_line(bare);
  const Words words = words_of(before, ' ');
  std::vector<std::string> line(words.begin(), words.end());
  for (const std::string_view view : words_of(keys, ' ')) {
    const std::string word(view);
    const std::string key = key_of(word);
    const auto known = std::find_if(line_keys().begin(), line_keys().end(), [&](const KeyInfo& k) { return k.name == key; });
    if (known == line_keys().end()) return {};
    for (const Direction d : kDirections)
      if (!only || *only == d || !known->directional) std::erase_if(line, [&](const std::string& w) { return key_of(w) == std::string(name_of(d)) + "." + key; });
    if (!only || !known->directional) {
      std::erase_if(line, [&](const std::string& w) { return key_of(w) == key; });
      line.push_back(word);
    } else {
      line.push_back(std::string(name_of(*only)) + "." + word);
    }
  }
  auto changed = parse_line(fmt::format("{}", fmt::join(line, " ")));
  if (!changed) return {};
  if (!draws(problem) && draws(*changed) && keys.find("rng=") == std::string::npos) changed->rng = problem.rng == Rng{} ? Rng{problem.x.fill.seed, 0, 0} : problem.rng;   // the other direction's, or the default of the line with its fill
  changed->x.fill = problem.x.fill;
  return std::move(*changed);
}

// ---- the library -----------------------------------------------------------------------------------------------------------

namespace {

using std::string;
using enum Stage;

// What a value of a key means, where another is asked for. `block_scale` of a per-tensor format is its tensor's.
struct KeyRow {
  std::string_view key, value;
  Stage stage;
  std::string_view title;
};
constexpr KeyRow kKeyRows[] = {
    {"mx_scale", "floor", block_scale, "E8M0 scale from the floored exponent of the amax (OCP)"},
    {"mx_scale", "up", block_scale, "E8M0 scale from amax / MAX rounded up"},
    {"mx_scale", "down", block_scale, "E8M0 scale from amax / MAX rounded down"},
    {"mx_scale", "nearest", block_scale, "E8M0 scale from amax / MAX rounded to the nearest power of two"},
    {"mx_scale", "ceil", block_scale, "E8M0 scale from the raised exponent of the amax"},
    {"mx_scale", "even", block_scale, "E8M0 scale from the exponent of the amax rounded at the element's precision"},
    {"mx_scale", "even_e2m1", block_scale, "E8M0 scale from the exponent of the amax rounded at E2M1's precision"},
    {"mx_inf", "nan", block_scale, "an infinite amax gives a NaN scale"},
    {"mx_inf", "max", block_scale, "an infinite amax gives the largest scale"},
    {"nvfp4_scale", "folded", block_scale, "block scale from amax * (S * 1/6)"},
    {"nvfp4_scale", "quotient_first", block_scale, "block scale from (amax / 6) * S"},
    {"nvfp4_scale", "product_first", block_scale, "block scale from S * (amax * 1/6)"},
    {"nvfp4_scale", "decode", block_scale, "block scale from (amax / 6) / P"},
    {"nvfp4_scale", "decode_product", block_scale, "block scale from amax / (6 * P)"},
    {"nvfp4_scale", "unit", block_scale, "no tensor scale"},
    {"nvfp4_floor", "least_normal", block_scale, "block scales are at least 2^-6"},
    {"nvfp4_floor", "one", block_scale, "a block scale of 0 becomes 1"},
    {"nvfp4_floor", "eighth", block_scale, "a block scale of 0 becomes 0.125"},
    {"nvfp4_floor", "none", block_scale, "block scales underflow to 0"},
    {"scale_round", "rp", block_scale, "block scales are rounded up to E4M3"},
    {"scale_round", "rne", block_scale, "block scales are rounded to the nearest E4M3"},
    {"scale_order", "decode_first", block_scale, "the decode scale amax / MAX comes first, and elements are multiplied by its reciprocal"},
    {"scale_order", "decode_divide", block_scale, "the decode scale amax / MAX comes first, and elements are divided by it"},
    {"scale_order", "encode_first", block_scale, "the encode scale MAX / amax comes first"},
    {"pow2", "0", block_scale, "the scale is not made a power of two"},
    {"pow2", "1", block_scale, "the scale is made a power of two"},
    {"scale_division", "divide", block_scale, "scales are made by divisions, one rounding each"},
    {"scale_division", "reciprocal", block_scale, "scales are made by products with reciprocals, not by divisions"},
    {"scale_division", "in_source", block_scale, "every step to a scale is rounded to x's encoding too"},
    {"scale_limit", "source_max", block_scale, "an infinite scale becomes the source's largest value"},
    {"scale_limit", "f32_max", block_scale, "an infinite scale becomes FLT_MAX"},
    {"four_over_six", "off", block_scale, "every block is scaled for 6"},
    {"four_over_six", "mae", block_scale, "blocks are scaled for 4 or 6 by the mean absolute error"},
    {"four_over_six", "mse", block_scale, "blocks are scaled for 4 or 6 by the mean squared error"},
    {"four_over_six_error", "fast", block_scale, "errors of 4 and 6 are compared in the scaled domain"},
    {"four_over_six_error", "exact", block_scale, "errors of 4 and 6 are compared in the domain of x"},
    {"e4m3_max", "256", tensor_scale, "the tensor scale aims at block scales of 256"},
    {"e4m3_max", "448", tensor_scale, "the tensor scale aims at block scales of 448"},
    {"inf_amax", "zero", tensor_scale, "an infinite amax gives the scale 0"},
    {"inf_amax", "unit", tensor_scale, "an infinite amax gives the scale 1"},
    {"nan_tensor_amax", "unit", tensor_scale, "a NaN tensor amax gives the scale 1"},
    {"nan_tensor_amax", "clamp", tensor_scale, "a NaN tensor amax gives the scale FLT_MAX"},
    {"nan_clamp", "propagate", tensor_scale, "the minimum with FLT_MAX keeps a NaN"},
    {"nan_clamp", "drop", tensor_scale, "the minimum with FLT_MAX drops a NaN"},
    {"nan_amax", "propagate", amax, "a NaN makes its block's amax NaN"},
    {"nan_amax", "ignore", amax, "a NaN takes no part in its block's amax"},
    {"multiplier", "reciprocal", scaled_value, "elements are multiplied by 1 / (scale * 1/S)"},
    {"multiplier", "bf16_quotient", scaled_value, "elements are multiplied by S / scale rounded to bf16 (fast math)"},
    {"multiplier", "quotient", scaled_value, "elements are multiplied by S / scale"},
    {"multiplier", "decode_reciprocal", scaled_value, "elements are multiplied by (1/P) / scale"},
    {"multiplier", "divide_product", scaled_value, "elements are divided by scale * P"},
    {"multiplier", "divide_quotient", scaled_value, "elements are divided by scale / S"},
    {"zero_multiplier", "zero", scaled_value, "elements under a scale of 0 become 0"},
    {"zero_multiplier", "limit", scaled_value, "elements under a scale of 0 become the largest"},
    {"pre_round", "bf16", scaled_value, "scaled elements are rounded to bf16 before they are cast"},
    {"pre_round", "f16_rz", scaled_value, "scaled elements are cut to f16 before they are cast"},
    {"pre_round", "none", scaled_value, "scaled elements are rounded once"},
    {"element_ties", "zero", code, "ties go toward zero"},
    {"element_ties", "away", code, "ties go away from zero"},
    {"element_ties", "even", code, "ties go to the even code"},
    {"element_overflow", "nan", code, "elements beyond the largest become NaN or infinity"},
    {"element_overflow", "saturate", code, "elements beyond the largest saturate"},
    {"neg_zero", "plus", code, "an exact -0 becomes +0"},
    {"neg_zero", "drop", code, "no element is coded as -0"},
    {"neg_zero", "minus", code, "an exact zero is coded as -0"},
    {"neg_zero", "keep", code, "zeros keep their sign"},
    {"round", "rne", code, "codes are rounded to the nearest, not stochastically"},
    {"round", "sr", code, "codes are rounded stochastically"},
    {"sr_rule", "fma", code, "stochastic rounding by a fused multiply-add"},
    {"sr_rule", "integer", code, "stochastic rounding by the carry of an integer sum"},
    {"sr_bytes", "interleaved", code, "the bytes of a random word serve elements 0 2 1 3"},
    {"sr_bytes", "ascending", code, "the bytes of a random word serve elements 0 1 2 3"},
    {"draw", "logical", code, "draws by the logical mapping"},
    {"draw", "te_t1d", code, "draws as TransformerEngine's 1-D kernel"},
    {"draw", "te_q2d", code, "draws as TransformerEngine's 2-D kernel"},
    {"draw", "te_fb", code, "draws as TransformerEngine's fallback kernel"},
    {"draw", "te_rhtrc", code, "draws as TransformerEngine's rotating kernel"},
    {"rht", "0", rht, "the rotation is missing"},
    {"rht", "1", rht, "the tensor is rotated"},
    {"rht_sum", "butterfly", rht, "the rotation sums by butterflies"},
    {"rht_sum", "tc16", rht, "the rotation sums as a tensor core does"},
    {"rht_sum", "exact", rht, "the rotation sums exactly"},
    {"element", "e4m3", code, "elements are coded as E4M3"},
    {"element", "e5m2", code, "elements are coded as E5M2"},
    {"block", "16x16", amax, "blocks are 16x16"},
    {"block", "1x16", amax, "blocks are 1x16"},
    {"block", "32x32", amax, "blocks are 32x32"},
    {"block", "1x32", amax, "blocks are 1x32"},
    {"block", "1x128", amax, "blocks are 1x128"},
    {"block", "128x128", amax, "blocks are 128x128"},
};

double bf16_of(double v) { return std::bit_cast<float>(nearest_code(Encoding::bf16, v) << 16); }
double f32_of(double v) { return static_cast<double>(static_cast<float>(v)); }

uint32_t sign_bit(Encoding e) { return 1u << (info(e).bits - 1); }
bool is_subnormal(Encoding e, double v) { return v != 0 && std::fabs(v) < std::ldexp(1.0, 1 - info(e).bias); }

// N11.1 on 16 values: element k of the rotated ones, summed by butterflies in binary32 and scaled by 1/4. `stages`: those that are done; `rounded`: each to bf16.
double rotated16(const float (&x)[16], uint16_t sign_mask, int64_t k, unsigned stages = 15, bool rounded = false) {
  float v[16];
  for (unsigned i = 0; i < 16; ++i) v[i] = (sign_mask >> i & 1) != 0 ? -x[i] : x[i];
  for (unsigned h = 1; h < 16; h *= 2) {
    for (unsigned i = 0; i < 16 && (stages & h) != 0; ++i)
      if ((i & h) == 0) {
        const float a = v[i], b = v[i | h];
        v[i] = a + b;
        v[i | h] = a - b;
      }
    for (float& f : v)
      if (rounded) f = static_cast<float>(bf16_of(f));
  }
  return v[k] * 0.25f;
}

uint16_t reversed(uint16_t mask) {
  uint16_t out = 0;
  for (int i = 0; i < 16; ++i) out = static_cast<uint16_t>(out | (mask >> i & 1) << (15 - i));
  return out;
}

// Collects the rows that apply to one direction of one line.
class Library {
 public:
  Library(const Problem& lane, Direction d) : lane_(lane), q_(*lane.quantizer(d)), d_(d), format_(info(q_.format)), of_rows_(q_.row_scaled && !format_.has_blocks()),
        length_(of_rows_ ? d == Direction::row ? lane.x.shape.cols : lane.x.shape.rows : length_of(q_.block)), square_(is_square(q_.block)) {
    keys();
    if (q_.rht) rotation();
    if (q_.format == FormatId::nvfp4 && !q_.rht)
      element("rotated", "the tensor is rotated, though it should not be", [](const Matrix& x, int64_t i, int64_t j) {
        float v[16];
        for (int64_t k = 0; k < 16; ++k) v[k] = j / 16 * 16 + k < x.length() ? static_cast<float>(x.value(i, j / 16 * 16 + k)) : 0.0f;
        return nearest_code(x.encoding(), bf16_of(rotated16(v, kRhtSignMask, j % 16)));
      }, rht);
    if (format_.has_blocks() || of_rows_) block_amaxes();                   // N3.12: a row is a block of its own
    if (computes_tensor_amax()) tensor_amaxes();
    if (q_.amax) tensor("own", "the given amax is not used, but the tensor's own", [](const Matrix& x, const Matrix&) { return x.amax(); });
    if (format_.per_tensor_fp8()) tensor_scalars();
    if (q_.format == FormatId::nvfp4 && !q_.row_scaled) tensor_amax_planes();
    if (format_.has_blocks()) scales();
    if (q_.format == FormatId::fp8_block) fp8_block_rules();
    if (square_) own_lines();
    others();
    elements();
    if (q_.format != FormatId::identity) codes();
    if (q_.round == Round::sr) {
      draws_of();
      draw_rows();
    }
    flavour_rows();
  }
  std::vector<Hypothesis> rows;

 private:
  Hypothesis& add(string id, string title, Stage stage, string clause) {
    Hypothesis h;
    h.id = std::move(id);
    h.title = std::move(title);
    h.stage = stage;
    h.clause = std::move(clause);
    rows.push_back(std::move(h));
    return rows.back();
  }

  int64_t b_height() const { return square_ ? length_ : 1; }
  bool computes_tensor_amax() const { return (q_.format == FormatId::fp8_current || q_.format == FormatId::fp8_delayed || q_.format == FormatId::nvfp4) && !q_.amax && !q_.row_scaled; }
  Stage scale_stage() const { return format_.has_blocks() ? block_scale : tensor_scale; }

  // ---- the line ----

  void key(const string& keys, string title, Stage stage, string clause) { add("line." + keys, std::move(title), stage, std::move(clause)).keys = keys; }

  void keys() {
    for (const KeyRow& r : kKeyRows) {
      if (r.key == "mx_scale" && r.value == "even_e2m1" && q_.element == Encoding::e2m1) continue;   // N17.6: even, there
      const auto numeric = std::find_if(kNumerics.begin(), kNumerics.end(), [&](const NumericInfo& n) { return n.name == r.key; });
      const string keys = string(r.key) + "=" + string(r.value);
      key(keys, string(r.title), r.stage == block_scale ? scale_stage() : r.stage, numeric == kNumerics.end() ? "" : string(numeric->clause));
      rows.back().wide = keys == "round=sr";                                // draws count from the first element
    }
    if (q_.format == FormatId::fp8_current || q_.format == FormatId::fp8_block)
      for (const char* eps : {"0", "1e-12", "1e-10", "1e-8", "1e-7", "1e-6", "1e-5", "1e-4", "1e-3", "0.001953125", "1.17549435e-38"})
        key(fmt::format("eps={}", eps), fmt::format("the amax is at least {}", eps), amax, "N3.2");
  }

  void flavour_rows() {
    for (const FlavourInfo& f : flavours())
      if (f.is_of(q_.format)) {
        Hypothesis& h = add("flavour." + string(f.name), fmt::format("as {} does ({})", f.name, f.keys), scale_stage(), "N17");
        h.keys = f.keys;
        h.named_set = true;
      }
  }

  // ---- x ----

  void element(string id, string title, Matrix::Edit edit, Stage stage = input) { add("input." + id, std::move(title), stage, "N1.2").element = std::move(edit); }
  // An element by its own value alone.
  void value(string id, string title, std::function<double(double)> f) {
    element(std::move(id), std::move(title), [f](const Matrix& x, int64_t i, int64_t j) {
      const double v = x.value(i, j), changed = f(v);
      return changed == v || (std::isnan(v) && std::isnan(changed)) ? x.code(i, j) : nearest_code(x.encoding(), changed);
    });
  }
  // The element that stands somewhere else instead; outside, zero.
  void place(string id, string title, std::function<std::pair<int64_t, int64_t>(const Matrix&, int64_t, int64_t)> f, Stage stage = input) {
    element(std::move(id), std::move(title), [f](const Matrix& x, int64_t i, int64_t j) {
      const auto [a, b] = f(x, i, j);
      return a < 0 || a >= x.lines() || b < 0 || b >= x.length() ? 0u : x.code(a, b);
    }, stage);
  }

  void elements() {
    const Encoding e = lane_.x.source;
    const double infinity = std::numeric_limits<double>::infinity(), largest = value_of(e, info(e).max_finite);
    element("ftz", "subnormal elements of x are read as zeros", [](const Matrix& x, int64_t i, int64_t j) { return is_subnormal(x.encoding(), x.value(i, j)) ? x.code(i, j) & sign_bit(x.encoding()) : x.code(i, j); });
    element("ftz_positive", "subnormal elements of x are read as +0", [](const Matrix& x, int64_t i, int64_t j) { return is_subnormal(x.encoding(), x.value(i, j)) ? 0 : x.code(i, j); });
    if (e == Encoding::f32) {
      value("via_bf16", "x goes through bf16", bf16_of);
      value("via_bf16_cut", "x goes through bf16, cut", [](double v) { return std::isfinite(v) ? value_of(Encoding::bf16, truncated_code(Encoding::bf16, v)) : v; });
      value("via_tf32", "x goes through TF32", [](double v) {
        if (!std::isfinite(v) || v == 0) return v;
        const double step = std::ldexp(1.0, std::max(std::ilogb(v), -126) - 10);
        return std::nearbyint(v / step) * step;
      });
    }
    if (e != Encoding::f16) {
      value("via_f16", "x goes through f16", [](double v) { return value_of(Encoding::f16, nearest_code(Encoding::f16, v)); });
      value("via_f16_saturated", "x goes through f16, saturated", [](double v) { return std::isfinite(v) ? std::clamp(value_of(Encoding::f16, nearest_code(Encoding::f16, v)), -65504.0, 65504.0) : v; });
      value("via_f16_cut", "x goes through f16, cut", [](double v) { return std::isfinite(v) ? value_of(Encoding::f16, truncated_code(Encoding::f16, v)) : v; });
    } else {
      value("via_bf16", "x goes through bf16", bf16_of);
    }
    value("nan_as_zero", "NaN is read as zero", [](double v) { return std::isnan(v) ? 0 : v; });
    value("nan_as_infinity", "NaN is read as infinity", [=](double v) { return std::isnan(v) ? infinity : v; });
    value("infinity_as_largest", "infinity is read as the largest value", [=](double v) { return std::isinf(v) ? std::copysign(largest, v) : v; });
    value("infinity_as_nan", "infinity is read as NaN", [](double v) { return std::isinf(v) ? std::nan("") : v; });
    value("infinity_as_zero", "infinity is read as zero", [](double v) { return std::isinf(v) ? 0 : v; });
    value("nonfinite_as_zero", "NaN and infinity are read as zeros", [](double v) { return std::isfinite(v) ? v : 0; });
    element("negative_zero_lost", "-0 is read as +0", [](const Matrix& x, int64_t i, int64_t j) { return x.value(i, j) == 0 ? 0 : x.code(i, j); });
    value("absolute", "the sign of x is lost", [](double v) { return std::fabs(v); });
    value("negated", "the sign of x is turned", [](double v) { return -v; });
    value("relu", "negative elements of x are read as zeros", [](double v) { return v < 0 ? 0 : v; });
    value("doubled", "x is doubled", [](double v) { return 2 * v; });
    value("halved", "x is halved", [](double v) { return v / 2; });
    element("bytes_swapped", "the bytes of x are in the other order", [](const Matrix& x, int64_t i, int64_t j) {
      const uint32_t c = x.code(i, j);
      return x.encoding() == Encoding::f32 ? __builtin_bswap32(c) : static_cast<uint32_t>(__builtin_bswap16(static_cast<uint16_t>(c)));
    });

    // Where rows and columns are meant, they are those of x.
    const bool rows = d_ == Direction::row;
    using P = std::pair<int64_t, int64_t>;
    const auto of_x = [rows](auto f) {   // f(row, col, rows, cols) gives a row and a column
      return [rows, f](const Matrix& x, int64_t i, int64_t j) {
        const auto [r, c] = rows ? f(i, j, x.lines(), x.length()) : f(j, i, x.length(), x.lines());
        return rows ? P{r, c} : P{c, r};
      };
    };
    if (lane_.x.shape.rows == lane_.x.shape.cols) place("transposed", "x is read transposed", [](const Matrix&, int64_t i, int64_t j) { return P{j, i}; });
    else if (lane_.x.shape.count() > 0)
      place("column_major", "x is read in column-major order", of_x([](int64_t r, int64_t c, int64_t m, int64_t n) {
        const int64_t at = c * m + r;
        return P{at / n, at % n};
      }));
    const auto flat = [&](string id, string title, int64_t by) {
      place(std::move(id), std::move(title), of_x([by](int64_t r, int64_t c, int64_t m, int64_t n) {
        const int64_t at = r * n + c + by;
        return at < 0 || at >= m * n ? P{-1, -1} : P{at / n, at % n};
      }));
    };
    for (const int64_t by : {1, 2, 4, 8}) {
      flat(fmt::format("flat_early={}", by), fmt::format("x is read {} element{} early in memory", by, by == 1 ? "" : "s"), by);
      flat(fmt::format("flat_late={}", by), fmt::format("x is read {} element{} late in memory", by, by == 1 ? "" : "s"), -by);
    }
    for (const int64_t unit : {16, 32, 64, 128, 256})
      if (lane_.x.shape.cols % unit != 0)
        place(fmt::format("pitch_rounded={}", unit), fmt::format("rows of x are read at a pitch rounded up to {}", unit), of_x([unit](int64_t r, int64_t c, int64_t m, int64_t n) {
          const int64_t at = r * round_up(n, unit) + c;
          return at >= m * n ? P{-1, -1} : P{at / n, at % n};
        }));
    for (const int64_t unit : {4, 8, 16}) place(fmt::format("reversed_in={}", unit), fmt::format("each {} elements of a row are read in reverse", unit), of_x([unit](int64_t r, int64_t c, int64_t, int64_t n) { return P{r, (c ^ (unit - 1)) < n ? c ^ (unit - 1) : c}; }));
    for (const int64_t unit : {16, 32, 64, 128})
      place(fmt::format("tiles_transposed={}", unit), fmt::format("each {}x{} tile of x is read transposed", unit, unit), of_x([unit](int64_t r, int64_t c, int64_t m, int64_t n) {
        const P to{r / unit * unit + c % unit, c / unit * unit + r % unit};
        return to.first < m && to.second < n ? to : P{-1, -1};
      }));
    for (const int64_t unit : {32, 64, 128}) {
      if (lane_.x.shape.rows > unit) place(fmt::format("rows_modulo={}", unit), fmt::format("rows of x are counted modulo {}", unit), of_x([unit](int64_t r, int64_t c, int64_t, int64_t) { return P{r % unit, c}; }));
      if (lane_.x.shape.cols > unit) place(fmt::format("columns_modulo={}", unit), fmt::format("columns of x are counted modulo {}", unit), of_x([unit](int64_t r, int64_t c, int64_t, int64_t) { return P{r, c % unit}; }));
    }
    for (int64_t k = 0; k < 32; ++k) {
      place(fmt::format("column_zero={}/32", k), fmt::format("column {} of each 32 of x is read as zeros", k), of_x([k](int64_t r, int64_t c, int64_t, int64_t) { return c % 32 == k ? P{-1, -1} : P{r, c}; }));
      place(fmt::format("column_ahead={}/32", k), fmt::format("column {} of each 32 of x is read as the one after it", k), of_x([k](int64_t r, int64_t c, int64_t, int64_t n) { return c % 32 == k && c + 1 < n ? P{r, c + 1} : P{r, c}; }));
      place(fmt::format("column_repeats={}/32", k), fmt::format("column {} of each 32 of x is read as the one before it", k), of_x([k](int64_t r, int64_t c, int64_t, int64_t) { return c % 32 == k && c > 0 ? P{r, c - 1} : P{r, c}; }));
    }
    for (const int64_t unit : {8, 16, 32, 64, 128})
      if (lane_.x.shape.cols % unit != 0 && lane_.x.shape.cols > unit)
        place(fmt::format("tail_columns_repeat={}", unit), fmt::format("columns of x beyond the last {} that are whole repeat the column before them", unit), of_x([unit](int64_t r, int64_t c, int64_t, int64_t n) { return P{r, std::min(c, n / unit * unit - 1)}; }));
    place("row_pairs_swapped", "rows of x are swapped in pairs", of_x([](int64_t r, int64_t c, int64_t m, int64_t) { return P{(r ^ 1) < m ? r ^ 1 : r, c}; }));
    place("column_pairs_swapped", "columns of x are swapped in pairs", of_x([](int64_t r, int64_t c, int64_t, int64_t n) { return P{r, (c ^ 1) < n ? c ^ 1 : c}; }));
    place("column_late", "x is read one column late", of_x([](int64_t r, int64_t c, int64_t, int64_t) { return P{r, c - 1}; }));
    place("column_early", "x is read one column early", of_x([](int64_t r, int64_t c, int64_t, int64_t) { return P{r, c + 1}; }));
    place("row_late", "x is read one row late", of_x([](int64_t r, int64_t c, int64_t, int64_t) { return P{r - 1, c}; }));
    place("row_early", "x is read one row early", of_x([](int64_t r, int64_t c, int64_t, int64_t) { return P{r + 1, c}; }));
    place("pitch_more", "x is read with a row pitch of one element too many", of_x([](int64_t r, int64_t c, int64_t, int64_t n) {
      const int64_t at = r * (n + 1) + c;
      return P{at / n, at % n};
    }));
    place("last_row_zero", "the last row of x is read as zeros", of_x([](int64_t r, int64_t c, int64_t m, int64_t) { return r == m - 1 ? P{-1, -1} : P{r, c}; }));
    place("last_column_zero", "the last column of x is read as zeros", of_x([](int64_t r, int64_t c, int64_t, int64_t n) { return c == n - 1 ? P{-1, -1} : P{r, c}; }));
    place("last_row_repeated", "the last row of x is read as the one before it", of_x([](int64_t r, int64_t c, int64_t m, int64_t) { return r == m - 1 && m > 1 ? P{r - 1, c} : P{r, c}; }));
    place("last_column_repeated", "the last column of x is read as the one before it", of_x([](int64_t r, int64_t c, int64_t, int64_t n) { return c == n - 1 && n > 1 ? P{r, c - 1} : P{r, c}; }));
    for (const int64_t unit : {8, 16, 32, 64, 128}) {
      if (lane_.x.shape.cols % unit != 0)
        place(fmt::format("tail_columns_zero={}", unit), fmt::format("columns of x beyond the last {} that are whole are read as zeros", unit), of_x([unit](int64_t r, int64_t c, int64_t, int64_t n) { return c >= n / unit * unit ? P{-1, -1} : P{r, c}; }));
      if (lane_.x.shape.rows % unit != 0)
        place(fmt::format("tail_rows_zero={}", unit), fmt::format("rows of x beyond the last {} that are whole are read as zeros", unit), of_x([unit](int64_t r, int64_t c, int64_t m, int64_t) { return r >= m / unit * unit ? P{-1, -1} : P{r, c}; }));
    }
  }

  // ---- the rotation ----

  // y(i, j) of x, made by a rotation that is not the one that is asked for.
  void rotation_row(string id, string title, Matrix::Edit edit, bool widened = false) {
    Hypothesis& h = add("rht." + id, std::move(title), rht, "N11.1");
    h.keys = "rht=0";
    h.element = std::move(edit);
    h.widened = widened;
  }

  void rotation() {
    const uint16_t mask = q_.sign_mask;
    const auto signs = [&](uint16_t other, string id, string title) {
      if (other != mask) add("rht." + id, std::move(title), rht, "N11.1").keys = fmt::format("sign_mask=0x{:04X}", other);
    };
    signs(0, "unsigned", "the rotation flips no signs");
    signs(reversed(mask), "signs_reversed", "the signs of the rotation are taken in the other order");
    signs(static_cast<uint16_t>(~mask), "signs_turned", "the signs of the rotation are turned");
    signs(static_cast<uint16_t>(mask << 8 | mask >> 8), "sign_bytes_swapped", "the bytes of the sign mask are swapped");
    signs(static_cast<uint16_t>(mask << 1 | mask >> 15), "signs_rotated_up", "the sign mask is rotated by one bit upward");
    signs(static_cast<uint16_t>(mask >> 1 | mask << 15), "signs_rotated_down", "the sign mask is rotated by one bit downward");
    signs(kRhtSignMask, "signs_default", "the rotation takes the default signs");
    const auto part = [](const Matrix& x, int64_t i, int64_t j, bool along, float (&v)[16]) {
      for (int64_t k = 0; k < 16; ++k) {
        const int64_t a = along ? i : i / 16 * 16 + k, b = along ? j / 16 * 16 + k : j;
        v[k] = a < x.lines() && b < x.length() ? static_cast<float>(x.value(a, b)) : 0.0f;
      }
    };
    rotation_row("wrong_axis", "the rotation runs along the other axis", [=](const Matrix& x, int64_t i, int64_t j) {
      float v[16];
      part(x, i, j, false, v);
      return nearest_code(x.encoding(), rotated16(v, mask, i % 16));
    });
    rotation_row("signs_after", "the signs are flipped after the rotation, not before it", [=](const Matrix& x, int64_t i, int64_t j) {
      float v[16];
      part(x, i, j, true, v);
      const double y = rotated16(v, 0, j % 16);
      return nearest_code(x.encoding(), (mask >> (j % 16) & 1) != 0 ? -y : y);
    });
    rotation_row("unrounded", "the rotated elements are not rounded to bf16", [=](const Matrix& x, int64_t i, int64_t j) {
      float v[16];
      part(x, i, j, true, v);
      return nearest_code(Encoding::f32, rotated16(v, mask, j % 16));
    }, true);
    rotation_row("cut", "the rotated elements are cut to bf16, not rounded", [=](const Matrix& x, int64_t i, int64_t j) {
      float v[16];
      part(x, i, j, true, v);
      const double y = rotated16(v, mask, j % 16);
      return std::isfinite(y) ? truncated_code(x.encoding(), y) : nearest_code(x.encoding(), y);
    });
    rotation_row("bit_reversed", "the rotated elements stand in bit-reversed order", [=](const Matrix& x, int64_t i, int64_t j) {
      float v[16];
      part(x, i, j, true, v);
      const int64_t k = j % 16;
      return nearest_code(x.encoding(), rotated16(v, mask, (k & 1) << 3 | (k & 2) << 1 | (k & 4) >> 1 | (k & 8) >> 3));
    });
    for (unsigned lost = 0; lost < 4; ++lost)
      rotation_row(fmt::format("stage_missing={}", lost), fmt::format("stage {} of the rotation's butterflies is missing", lost + 1), [=](const Matrix& x, int64_t i, int64_t j) {
        float v[16];
        part(x, i, j, true, v);
        return nearest_code(x.encoding(), rotated16(v, mask, j % 16, 15u & ~(1u << lost)));
      });
    rotation_row("stages_rounded", "every stage of the rotation is rounded to bf16", [=](const Matrix& x, int64_t i, int64_t j) {
      float v[16];
      part(x, i, j, true, v);
      return nearest_code(x.encoding(), rotated16(v, mask, j % 16, 15, true));
    });
    rotation_row("signs_only", "the signs are flipped, but nothing is rotated", [=](const Matrix& x, int64_t i, int64_t j) { return (mask >> (j % 16) & 1) != 0 ? x.code(i, j) ^ sign_bit(x.encoding()) : x.code(i, j); });
    rotation_row("twice", "the rotation is applied twice", [=](const Matrix& x, int64_t i, int64_t j) {
      float v[16], y[16];
      part(x, i, j, true, v);
      for (int64_t k = 0; k < 16; ++k) y[k] = static_cast<float>(bf16_of(rotated16(v, mask, k)));
      return nearest_code(x.encoding(), rotated16(y, mask, j % 16));
    });
    for (const auto& [id, title, factor] : {std::tuple{"unnormalised", "the rotation is not scaled by 1/4", 4.0}, {"normalised_twice", "the rotation is scaled by 1/16", 0.25}, {"normalised_by_16", "the rotation is scaled by 1/16 instead of 1/4, squared", 0.0625}})
      rotation_row(id, title, [=, f = factor](const Matrix& x, int64_t i, int64_t j) {
        float v[16];
        part(x, i, j, true, v);
        return nearest_code(x.encoding(), rotated16(v, mask, j % 16) * f);
      });
    // Of half the group: two rotations of 8, scaled by 1/sqrt(8), are none of these: the library knows powers of two alone.
    rotation_row("groups_of_32", "the rotation pairs elements 16 apart", [=](const Matrix& x, int64_t i, int64_t j) {
      float v[16];
      for (int64_t k = 0; k < 16; ++k) {
        const int64_t b = j / 32 * 32 + j % 2 + 2 * k;
        v[k] = b < x.length() ? static_cast<float>(x.value(i, b)) : 0.0f;
      }
      return nearest_code(x.encoding(), rotated16(v, mask, j % 32 / 2));
    });
  }

  // ---- amaxes ----

  double own_eps() const { return value_of(Encoding::f32, q_.eps); }

  void block(string id, string title, std::function<double(const BlockView&)> f, Stage stage = amax) {
    for (size_t at = 0; of_rows_ && (at = title.find("block", at)) != string::npos;) title.replace(at, 5, "row");
    Hypothesis& h = add("amax." + id, std::move(title), stage == block_scale ? scale_stage() : stage, of_rows_ ? "N3.12" : format_.id == FormatId::nvfp4 ? "N10.4" : format_.id == FormatId::fp8_block ? "N9.1" : "N5.1");
    h.amax = std::move(f);
    h.amax_shown = stage == amax;
  }
  // Of the places of a block for which `in` holds; k counts from the block's beginning.
  void places(string id, string title, std::function<bool(int64_t k, int64_t of)> in) {
    block(std::move(id), std::move(title), [in](const BlockView& b) {
      double out = 0;
      for (int64_t j = b.j0; j < b.j1; ++j)
        if (in(j - b.j0, b.j1 - b.j0)) out = std::max(out, b.x.amax(b.i0, b.i1, j, j + 1));
      return out;
    });
  }
  // Of other elements than the block's.
  void scope(string id, string title, std::function<double(const BlockView&)> f) { block(std::move(id), std::move(title), std::move(f)); }

  void block_amaxes() {
    const int64_t n = length_;
    if (square_) {
      scope("misses_last", "the amax of a block misses its last element", [](const BlockView& b) { return std::max(b.x.amax(b.i0, b.i1 - 1, b.j0, b.j1), b.x.amax(b.i1 - 1, b.i1, b.j0, b.j1 - 1)); });
      scope("misses_first", "the amax of a block misses its first element", [](const BlockView& b) { return std::max(b.x.amax(b.i0 + 1, b.i1, b.j0, b.j1), b.x.amax(b.i0, b.i0 + 1, b.j0 + 1, b.j1)); });
      scope("misses_last_line", "the amax of a square block misses its last line", [](const BlockView& b) { return b.x.amax(b.i0, b.i1 - 1, b.j0, b.j1); });
      scope("misses_first_line", "the amax of a square block misses its first line", [](const BlockView& b) { return b.x.amax(b.i0 + 1, b.i1, b.j0, b.j1); });
      scope("first_line", "the amax of a square block sees its first line alone", [](const BlockView& b) { return b.x.amax(b.i0, b.i0 + 1, b.j0, b.j1); });
      scope("last_line", "the amax of a square block sees its last line alone", [](const BlockView& b) { return b.x.amax(b.i1 - 1, b.i1, b.j0, b.j1); });
      scope("first_half_lines", "the amax of a square block sees the first half of its lines", [](const BlockView& b) { return b.x.amax(b.i0, b.i0 + b.height / 2, b.j0, b.j1); });
      scope("second_half_lines", "the amax of a square block sees the second half of its lines", [](const BlockView& b) { return b.x.amax(b.i0 + b.height / 2, b.i1, b.j0, b.j1); });
      scope("next_lines", "the amax is that of the next block down", [](const BlockView& b) { return b.x.amax(b.i0 + b.height, b.i0 + 2 * b.height, b.j0, b.j1); });
      scope("previous_lines", "the amax is that of the block above", [](const BlockView& b) { return b.x.amax(b.i0 - b.height, b.i0, b.j0, b.j1); });
    } else {
      places("misses_last", "the amax of a block misses its last element", [](int64_t k, int64_t of) { return k != of - 1; });
      for (int64_t h : {2, 4, 8, 16})
        if (h < n) {
          scope(fmt::format("lines_of_{}", h), fmt::format("the amax is that of {} lines", h), [h](const BlockView& b) { return b.x.amax(b.i0 / h * h, b.i0 / h * h + h, b.j0, b.j1); });
        }
      if (!of_rows_) scope("square", "the amax is that of a square block", [](const BlockView& b) { return b.x.amax(b.i0 / b.length * b.length, b.i0 / b.length * b.length + b.length, b.j0, b.j1); });
      scope("next_line", "the amax is that of the next line", [](const BlockView& b) { return b.x.amax(b.i0 + 1, b.i0 + 2, b.j0, b.j1); });
      scope("previous_line", "the amax is that of the line before", [](const BlockView& b) { return b.x.amax(b.i0 - 1, b.i0, b.j0, b.j1); });
    }
    places("first_half", "the amax of a block sees its first half", [n](int64_t k, int64_t) { return k < n / 2; });
    places("second_half", "the amax of a block sees its second half", [n](int64_t k, int64_t) { return k >= n / 2; });
    for (int64_t quarter = 0; quarter < 4; ++quarter) {
      places(fmt::format("misses_quarter={}", quarter), fmt::format("the amax of a block misses its quarter {}", quarter + 1), [=](int64_t k, int64_t) { return k / std::max<int64_t>(n / 4, 1) != quarter; });
      places(fmt::format("quarter={}", quarter), fmt::format("the amax of a block sees its quarter {} alone", quarter + 1), [=](int64_t k, int64_t) { return k / std::max<int64_t>(n / 4, 1) == quarter; });
    }
    places("first_only", "the amax of a block is its first element's", [](int64_t k, int64_t) { return k == 0; });
    places("last_only", "the amax of a block is its last element's", [](int64_t k, int64_t of) { return k == of - 1; });
    places("even_only", "the amax of a block sees every second element", [](int64_t k, int64_t) { return k % 2 == 0; });
    places("odd_only", "the amax of a block sees every second element, the odd ones", [](int64_t k, int64_t) { return k % 2 == 1; });
    for (const int64_t lanes : {4, 8})
      for (int64_t lane = 0; lane < lanes; ++lane)
        places(fmt::format("misses_lane={}/{}", lane, lanes), fmt::format("the amax of a block misses element {} of each {}", lane, lanes), [=](int64_t k, int64_t) { return k % lanes != lane; });
    for (int64_t at = 0; at < std::min<int64_t>(n, 32); ++at)
      if (at != n - 1 || square_) places(fmt::format("misses_index={}", at), fmt::format("the amax of a block misses its element {}", at), [=](int64_t k, int64_t) { return k != at; });
    for (const int64_t unit : {2, 4, 8, 16})
      if (unit < n) places(fmt::format("tail_cut={}", unit), fmt::format("the amax of the last block misses what does not fill {}", unit), [=](int64_t k, int64_t of) { return k < of / unit * unit; });
    scope("tail_lost", "the amax of a partial block is 0", [](const BlockView& b) { return b.j1 - b.j0 < b.length ? 0 : b.amax(); });
    scope("next_block", "the amax is that of the next block", [](const BlockView& b) { return b.x.amax(b.i0, b.i1, b.j0 + b.length, b.j0 + 2 * b.length); });
    scope("previous_block", "the amax is that of the block before", [](const BlockView& b) { return b.x.amax(b.i0, b.i1, b.j0 - b.length, b.j0); });
    scope("next_block_kept", "the amax is that of the next block, but for the last", [](const BlockView& b) { return b.j0 + b.length < b.x.length() ? b.x.amax(b.i0, b.i1, b.j0 + b.length, b.j0 + 2 * b.length) : b.amax(); });
    scope("previous_block_kept", "the amax is that of the block before, but for the first", [](const BlockView& b) { return b.j0 > 0 ? b.x.amax(b.i0, b.i1, b.j0 - b.length, b.j0) : b.amax(); });
    scope("last_block_previous", "the last block of a line has the amax of the one before", [](const BlockView& b) { return b.j0 > 0 && b.j0 + b.length >= b.x.length() ? b.x.amax(b.i0, b.i1, b.j0 - b.length, b.j0) : b.amax(); });
    scope("running", "the amax is not reset along a line of blocks", [](const BlockView& b) { return b.x.amax(b.i0, b.i1, 0, b.j1); });
    for (const int64_t bit : {1, 2, 4, 8, 16, 32, 64}) {
      scope(fmt::format("lines_swapped={}", bit), fmt::format("groups of {} lines exchange their amaxes", bit * b_height()), [bit](const BlockView& b) {
        const int64_t i = ((b.i0 / b.height) ^ bit) * b.height;
        return i < b.x.lines() ? b.x.amax(i, i + b.height, b.j0, b.j1) : b.amax();
      });
      scope(fmt::format("lines_second={}", bit), fmt::format("the second group of {} lines has the amaxes of the first", bit * b_height()), [bit](const BlockView& b) {
        const int64_t i = b.i0 / b.height / bit == 1 ? b.i0 - bit * b.height : b.i0;
        return b.x.amax(i, i + b.height, b.j0, b.j1);
      });
      scope(fmt::format("lines_alias={}", bit), fmt::format("every second group of {} lines has the amaxes of the one before", bit * b_height()), [bit](const BlockView& b) {
        const int64_t i = ((b.i0 / b.height) & ~bit) * b.height;
        return b.x.amax(i, i + b.height, b.j0, b.j1);
      });
    }
    scope("reads_on", "a partial last block reads on into the next line", [](const BlockView& b) {
      const int64_t more = b.length - (b.j1 - b.j0);
      return more > 0 ? std::max(b.amax(), b.x.amax(b.i1, b.i1 + b.height, 0, more)) : b.amax();
    });
    scope("leaks_next", "the amax of a block sees the first element of the next one", [](const BlockView& b) { return b.x.amax(b.i0, b.i1, b.j0, b.j1 + 1); });
    scope("leaks_previous", "the amax of a block sees the last element of the one before", [](const BlockView& b) { return b.x.amax(b.i0, b.i1, b.j0 - 1, b.j1); });
    scope("shifted", "the amax is that of the block one element on", [](const BlockView& b) { return b.x.amax(b.i0, b.i1, b.j0 + 1, b.j1 + 1); });
    for (const int64_t times : {2, 4, 8})
      scope(fmt::format("blocks_of_{}", times), fmt::format("the amax is that of {} blocks", times), [times](const BlockView& b) { return b.x.amax(b.i0, b.i1, b.j0 / (times * b.length) * times * b.length, (b.j0 / (times * b.length) + 1) * times * b.length); });
    if (of_rows_) {
      tensor("of_rows", "one scale for the tensor: every row has its amax", [](const Matrix& x, const Matrix&) { return x.amax(); });
      rows.back().clause = "N3.12";
      scope("first", "every row has the amax of the first", [](const BlockView& b) { return b.x.amax(0, 1, b.j0, b.j1); });
      const auto for_elements = [&](const char* id, const char* title, std::function<int64_t(int64_t i, int64_t lines)> from) {
        block(string(id) + ".codes", string("elements are scaled by ") + title, [from](const BlockView& b) {
          const int64_t i = from(b.i0, b.x.lines());
          return b.x.amax(i, i + 1, b.j0, b.j1);
        });
        rows.back().stage = scaled_value;
        rows.back().use = Hypothesis::Use::codes;
      };
      for_elements("next_line", "the scale of the next row", [](int64_t i, int64_t lines) { return std::min(i + 1, lines - 1); });
      for_elements("previous_line", "the scale of the row before", [](int64_t i, int64_t) { return std::max<int64_t>(i - 1, 0); });
      for_elements("lines_swapped", "the scale of the other row of a pair", [](int64_t i, int64_t lines) { return (i ^ 1) < lines ? i ^ 1 : i; });
      for_elements("first", "the scale of the first row", [](int64_t, int64_t) { return int64_t{0}; });
    }
    scope("line", "the amax is that of the whole line", [](const BlockView& b) { return b.x.amax(b.i0, b.i1, 0, b.x.length()); });
    scope("other_axis", "the amax runs along the other axis", [](const BlockView& b) { return b.x.amax(b.i0 / b.length * b.length, b.i0 / b.length * b.length + b.length, b.j0 + (b.i0 % b.length), b.j0 + (b.i0 % b.length) + 1); });

    const auto signed_max = [](const BlockView& b, double sign) {
      double out = 0;
      for (int64_t i = b.i0; i < b.i1; ++i)
        for (int64_t j = b.j0; j < b.j1; ++j)
          if (const double v = sign * b.x.value(i, j); v > out) out = v;
      return out;
    };
    block("without_abs", "the amax is the largest element, without abs", [=](const BlockView& b) { return signed_max(b, 1); });
    block("negative_only", "the amax sees negative elements alone", [=](const BlockView& b) { return signed_max(b, -1); });
    block("signed", "the amax is the magnitude of the largest element", [](const BlockView& b) {
      double out = -std::numeric_limits<double>::infinity();
      for (int64_t i = b.i0; i < b.i1; ++i)
        for (int64_t j = b.j0; j < b.j1; ++j)
          if (const double v = b.x.value(i, j); v > out) out = v;
      return std::isinf(out) && out < 0 ? 0 : std::fabs(out);
    });
    block("mean", "the amax is the mean magnitude", [](const BlockView& b) {
      float sum = 0;
      for (int64_t i = b.i0; i < b.i1; ++i)
        for (int64_t j = b.j0; j < b.j1; ++j) sum += static_cast<float>(std::fabs(b.x.value(i, j)));
      return static_cast<double>(sum / static_cast<float>((b.i1 - b.i0) * (b.j1 - b.j0)));
    });
    block("second", "the amax is the second largest magnitude", [](const BlockView& b) {
      double first = 0, second = 0;
      for (int64_t i = b.i0; i < b.i1; ++i)
        for (int64_t j = b.j0; j < b.j1; ++j) {
          const double v = std::fabs(b.x.value(i, j));
          if (v > first) second = std::exchange(first, v);
          else if (v > second) second = v;
        }
      return second;
    });
    block("infinity_ignored", "an infinite element takes no part in the amax", [](const BlockView& b) {
      double out = 0;
      for (int64_t i = b.i0; i < b.i1; ++i)
        for (int64_t j = b.j0; j < b.j1; ++j)
          if (const double v = std::fabs(b.x.value(i, j)); v > out && !std::isinf(v)) out = v;
      return out;
    });
    block("via_bf16", "the amax goes through bf16", [](const BlockView& b) { return bf16_of(b.amax()); });
    block("via_bf16_cut", "the amax goes through bf16, cut", [](const BlockView& b) { return std::isfinite(b.amax()) ? value_of(Encoding::bf16, truncated_code(Encoding::bf16, b.amax())) : b.amax(); });
    block("via_f16", "the amax goes through f16", [](const BlockView& b) { return value_of(Encoding::f16, nearest_code(Encoding::f16, b.amax())); });
    block("ftz", "a subnormal amax becomes 0", [](const BlockView& b) { return is_subnormal(Encoding::f32, b.amax()) ? 0 : b.amax(); });
    block("least_normal", "the amax is at least 2^-126", [](const BlockView& b) { return std::max(b.amax(), 0x1p-126); });
    for (const char* eps : {"1e-12", "1e-10", "1e-8", "1e-6", "1e-5", "1e-4", "1e-3"}) {
      const double e = static_cast<double>(std::strtof(eps, nullptr));
      block(fmt::format("plus={}", eps), fmt::format("{} is added to the amax", eps), [e](const BlockView& b) { return f32_of(b.amax() + e); });
      if (q_.format != FormatId::fp8_block) block(fmt::format("least={}", eps), fmt::format("the amax is at least {}", eps), [e](const BlockView& b) { return std::max(b.amax(), e); });
    }
    if (const double own = own_eps(); own > 0 && q_.format == FormatId::fp8_block) block("plus_eps", "eps is added to the amax, not its least value", [own](const BlockView& b) { return f32_of(b.amax() + own); });
    if (q_.rht) block("unrotated", "block amaxes are those of the tensor before its rotation", [](const BlockView& b) { return b.unrotated.amax(b.i0, b.i1, b.j0, b.j1); });

    if (q_.format == FormatId::fp8_block && q_.pow2) {
      const double most = value_of(q_.element, info(q_.element).max_finite);
      const auto power = [&](const char* id, const char* title, double from) {                // the encode scale's fraction from which on it is raised
        block(id, title, [=](const BlockView& b) {
          const double a = b.amax(), s = f32_of(most / a);
          return a > 0 && std::isfinite(s) && s / std::exp2(std::ilogb(s)) >= from ? a / 2 : a;
        }, block_scale);
      };
      power("power_above", "the encode scale is raised to a power of two, not cut", 1 + 0x1p-23);
      power("power_nearest", "the encode scale is rounded to the nearest power of two", 1.5);
    }
    // Another MAX: seen by the scale alone.
    const auto largest = [&](const char* id, const string& title, double mine, double other) {
      block(id, title, [=](const BlockView& b) { return f32_of(b.amax() * mine / other); }, block_scale);
    };
    if (q_.element == Encoding::e4m3) {
      largest("max_of_e5m2", "MAX is that of E5M2, 57344", 448, 57344);
      largest("max_240", "MAX is 240", 448, 240);
      largest("max_256", "MAX is 256", 448, 256);
      largest("max_480", "MAX is 480", 448, 480);
      largest("max_512", "MAX is 512", 448, 512);
    } else if (q_.element == Encoding::e5m2) {
      largest("max_of_e4m3", "MAX is that of E4M3, 448", 57344, 448);
      largest("max_65536", "MAX is 65536", 57344, 65536);
      largest("max_49152", "MAX is 49152", 57344, 49152);
    } else {
      largest("max_4", "MAX is 4", 6, 4);
      largest("max_8", "MAX is 8", 6, 8);
      largest("max_7", "MAX is 7", 6, 7);
    }
    largest("max_1", "MAX is 1", value_of(q_.element, info(q_.element).max_finite), 1);
  }

  void tensor(string id, string title, std::function<double(const Matrix&, const Matrix&)> f, Stage stage = amax, bool shown = true) {
    Hypothesis& h = add((shown ? "tensor_amax." : "tensor_scale.") + id, std::move(title), stage, shown ? "N3.1" : format_.id == FormatId::nvfp4 ? "N10.2" : "N3.3");
    h.tensor_amax = std::move(f);
    h.amax_shown = shown;
  }

  void tensor_amaxes() {
    // Of the elements of x whose row and column satisfy `in`.
    const auto part = [&](string id, string title, std::function<bool(int64_t r, int64_t c, int64_t m, int64_t n)> in) {
      add("tensor_amax." + id, std::move(title), amax, "N3.1").tensor_part = [in](int64_t r, int64_t c, Shape of) { return in(r, c, of.rows, of.cols); };
    };
    part("misses_last", "the tensor's amax misses the last element", [](int64_t r, int64_t c, int64_t m, int64_t n) { return r != m - 1 || c != n - 1; });
    part("misses_first", "the tensor's amax misses the first element", [](int64_t r, int64_t c, int64_t, int64_t) { return r != 0 || c != 0; });
    part("misses_last_row", "the tensor's amax misses the last row", [](int64_t r, int64_t, int64_t m, int64_t) { return r != m - 1; });
    part("misses_last_column", "the tensor's amax misses the last column", [](int64_t, int64_t c, int64_t, int64_t n) { return c != n - 1; });
    part("misses_first_row", "the tensor's amax misses the first row", [](int64_t r, int64_t, int64_t, int64_t) { return r != 0; });
    part("misses_first_column", "the tensor's amax misses the first column", [](int64_t, int64_t c, int64_t, int64_t) { return c != 0; });
    part("first_row", "the tensor's amax sees the first row alone", [](int64_t r, int64_t, int64_t, int64_t) { return r == 0; });
    part("first_column", "the tensor's amax sees the first column alone", [](int64_t, int64_t c, int64_t, int64_t) { return c == 0; });
    part("first_half_rows", "the tensor's amax sees the first half of the rows", [](int64_t r, int64_t, int64_t m, int64_t) { return r < m / 2; });
    part("first_half_columns", "the tensor's amax sees the first half of the columns", [](int64_t, int64_t c, int64_t, int64_t n) { return c < n / 2; });
    part("second_half_rows", "the tensor's amax sees the second half of the rows", [](int64_t r, int64_t, int64_t m, int64_t) { return r >= m / 2; });
    part("second_half_columns", "the tensor's amax sees the second half of the columns", [](int64_t, int64_t c, int64_t, int64_t n) { return c >= n / 2; });
    for (int64_t of : {2, 4, 8})
      for (int64_t k = 0; k < of; ++k) {
        part(fmt::format("misses_column={}/{}", k, of), fmt::format("the tensor's amax misses column {} of each {}", k, of), [=](int64_t, int64_t c, int64_t, int64_t) { return c % of != k; });
        if (of == 2) part(fmt::format("misses_row={}/{}", k, of), fmt::format("the tensor's amax misses row {} of each {}", k, of), [=](int64_t r, int64_t, int64_t, int64_t) { return r % of != k; });
      }
    for (int64_t unit : {16, 32, 64, 128, 256}) {
      if (lane_.x.shape.rows > unit || lane_.x.shape.cols > unit)
        part(fmt::format("first_tile={}", unit), fmt::format("the tensor's amax is that of its first {}x{} tile", unit, unit), [=](int64_t r, int64_t c, int64_t, int64_t) { return r < unit && c < unit; });
      if (lane_.x.shape.rows > unit || lane_.x.shape.cols > unit)
        part(fmt::format("last_tile={}", unit), fmt::format("the tensor's amax is that of its last {}x{} tile", unit, unit), [=](int64_t r, int64_t c, int64_t m, int64_t n) { return r >= (m - 1) / unit * unit && c >= (n - 1) / unit * unit; });
      if (lane_.x.shape.rows % unit != 0) part(fmt::format("tail_rows_cut={}", unit), fmt::format("the tensor's amax misses rows beyond the last whole {}", unit), [=](int64_t r, int64_t, int64_t m, int64_t) { return r < m / unit * unit; });
      if (lane_.x.shape.cols % unit != 0) part(fmt::format("tail_columns_cut={}", unit), fmt::format("the tensor's amax misses columns beyond the last whole {}", unit), [=](int64_t, int64_t c, int64_t, int64_t n) { return c < n / unit * unit; });
    }
    const auto signed_max = [](const Matrix& x, double sign) {
      double out = 0;
      for (int64_t i = 0; i < x.lines(); ++i)
        for (int64_t j = 0; j < x.length(); ++j)
          if (const double v = sign * x.value(i, j); v > out) out = v;
      return out;
    };
    tensor("without_abs", "the tensor's amax is the largest element, without abs", [=](const Matrix& x, const Matrix&) { return signed_max(x, 1); });
    tensor("negative_only", "the tensor's amax sees negative elements alone", [=](const Matrix& x, const Matrix&) { return signed_max(x, -1); });
    tensor("via_bf16", "the tensor's amax goes through bf16", [](const Matrix& x, const Matrix&) { return bf16_of(x.amax()); });
    tensor("via_f16", "the tensor's amax goes through f16", [](const Matrix& x, const Matrix&) { return value_of(Encoding::f16, nearest_code(Encoding::f16, x.amax())); });
    tensor("doubled", "the tensor's amax is doubled", [](const Matrix& x, const Matrix&) { return 2 * x.amax(); });
    tensor("halved", "the tensor's amax is halved", [](const Matrix& x, const Matrix&) { return x.amax() / 2; });
    tensor("quarter", "the tensor's amax is a quarter of it", [](const Matrix& x, const Matrix&) { return x.amax() / 4; });
    tensor("fourfold", "the tensor's amax is four times it", [](const Matrix& x, const Matrix&) { return x.amax() * 4; });
    tensor("power_of_two", "the tensor's amax is raised to a power of two", [](const Matrix& x, const Matrix&) { return x.amax() == 0 || std::isinf(x.amax()) ? x.amax() : std::exp2(std::ceil(std::log2(x.amax()))); });
    tensor("zero", "the tensor's amax is 0", [](const Matrix&, const Matrix&) { return 0.0; });
    tensor("one", "the tensor's amax is 1", [](const Matrix&, const Matrix&) { return 1.0; });
    tensor("finite_only", "infinite elements take no part in the tensor's amax", [](const Matrix& x, const Matrix&) {
      double out = 0;
      for (int64_t i = 0; i < x.lines(); ++i)
        for (int64_t j = 0; j < x.length(); ++j)
          if (const double v = std::fabs(x.value(i, j)); v > out && !std::isinf(v)) out = v;
      return out;
    });
    tensor("nan", "a NaN makes the tensor's amax NaN", [](const Matrix& x, const Matrix&) {
      for (int64_t i = 0; i < x.lines(); ++i)
        for (int64_t j = 0; j < x.length(); ++j)
          if (std::isnan(x.value(i, j))) return std::nan("");
      return x.amax();
    });
    if (q_.rht) tensor("unrotated", "the tensor's amax is that before the rotation", [](const Matrix&, const Matrix& x) { return x.amax(); });
    if (q_.format == FormatId::fp8_delayed) return;                        // the scale is given
    const auto scaled = [&](const char* id, const char* title, double factor) { tensor(id, title, [=](const Matrix& x, const Matrix&) { return f32_of(x.amax() * factor); }, tensor_scale, false); };
    scaled("doubled", "the tensor's encode scale is doubled", 0.5);
    scaled("halved", "the tensor's encode scale is halved", 2);
    scaled("quadrupled", "the tensor's encode scale is four times what it should be", 0.25);
    scaled("quartered", "the tensor's encode scale is a quarter of what it should be", 4);
    for (const char* eps : {"1e-12", "1e-10", "1e-8", "1e-6", "1e-5", "1e-4", "1e-3"}) {
      const double e = static_cast<double>(std::strtof(eps, nullptr));
      tensor(fmt::format("plus={}", eps), fmt::format("{} is added to the tensor's amax", eps), [e](const Matrix& x, const Matrix&) { return f32_of(x.amax() + e); }, tensor_scale, false);
    }
    for (const char* eps : {"1e-12", "1e-10", "1e-8", "1e-6", "1e-5", "1e-4", "1e-3"}) {
      const double e = static_cast<double>(std::strtof(eps, nullptr));
      tensor(fmt::format("plus={}", eps), fmt::format("{} is added to the tensor's amax, as it is stored too", eps), [e](const Matrix& x, const Matrix&) { return f32_of(x.amax() + e); });
    }
    if (const double own = own_eps(); own > 0 && q_.format == FormatId::fp8_current)
      for (const bool shown : {false, true})
        tensor("plus_eps", shown ? "eps is added to the tensor's amax, as it is stored too" : "eps is added to the tensor's amax, not its least value", [own](const Matrix& x, const Matrix&) { return f32_of(x.amax() + own); },
               shown ? amax : tensor_scale, shown);
    if (q_.format == FormatId::nvfp4) {
      tensor("power_of_two", "the tensor scale is cut to a power of two", [](const Matrix& x, const Matrix&) {
        const double a = x.amax(), s = f32_of(2688 / a);
        return a > 0 && std::isfinite(s) && s > 0 ? f32_of(2688 / std::exp2(std::ilogb(s))) : a;
      }, tensor_scale, false);
      if (q_.rht) tensor("unrotated", "the tensor scale is made of the amax before the rotation", [](const Matrix&, const Matrix& x) { return x.amax(); }, tensor_scale, false);
      scaled("max_256", "the tensor scale aims at block scales of 256", 448.0 / 256);
      scaled("max_1", "the tensor scale aims at block scales of 1", 448);
      scaled("max_without_6", "the tensor scale leaves the 6 of E2M1 out", 6);
      scaled("max_without_448", "the tensor scale leaves the 448 of E4M3 out", 448);
      scaled("max_4", "the tensor scale takes 4 for the largest element", 1.5);
    } else if (q_.element == Encoding::e4m3) {
      scaled("max_of_e5m2", "MAX is that of E5M2, 57344", 448.0 / 57344);
      scaled("max_240", "MAX is 240", 448.0 / 240);
      scaled("max_256", "MAX is 256", 448.0 / 256);
      scaled("max_1", "MAX is 1", 448);
    } else {
      scaled("max_of_e4m3", "MAX is that of E4M3, 448", 57344.0 / 448);
      scaled("max_1", "MAX is 1", 57344);
    }
  }

  // NVFP4: other libraries store what they make of the tensor's amax, not the amax.
  void tensor_amax_planes() {
    const float range = q_.e4m3_max == E4m3Max::m256 ? 1536 : 2688;
    const auto row = [&](const char* id, const char* title, std::function<float(float)> of) {
      add(string("tensor_amax.stored_") + id, title, amax, "N10.1").scalars = [of](TensorScalars& s) { s.amax = of(s.amax); };
    };
    row("encode_scale", "the amax plane holds the tensor's encode scale S, as vLLM keeps it", [=](float a) { return range / a; });
    row("decode_scale", "the amax plane holds the tensor's decode scale, amax / (448 * 6), as torchao and ModelOpt keep it", [=](float a) { return a / range; });
    row("decode_reciprocal", "the amax plane holds the tensor's decode scale, 1 / S", [=](float a) { return 1 / (range / a); });
  }

  void tensor_scalars() {
    const auto row = [&](const char* id, const char* title, void (*f)(TensorScalars&)) { add(string("tensor_scale.") + id, title, tensor_scale, "N3.7").scalars = f; };
    row("stored_scale", "scale_inv holds the scale, not its reciprocal", [](TensorScalars& s) { s.scale_inv = s.scale; });
    row("stored_inverse", "scale holds the reciprocal", [](TensorScalars& s) { s.scale = s.scale_inv; });
    row("swapped", "scale and scale_inv are swapped", [](TensorScalars& s) { std::swap(s.scale, s.scale_inv); });
    row("scale_inv_one", "scale_inv is 1", [](TensorScalars& s) { s.scale_inv = 1; });
    row("scale_inv_zero", "scale_inv is 0", [](TensorScalars& s) { s.scale_inv = 0; });
    row("scale_inv_doubled", "scale_inv is doubled", [](TensorScalars& s) { s.scale_inv *= 2; });
    row("scale_inv_halved", "scale_inv is halved", [](TensorScalars& s) { s.scale_inv /= 2; });
    row("scale_inv_above", "scale_inv is one code too large", [](TensorScalars& s) { s.scale_inv = std::nextafter(s.scale_inv, std::numeric_limits<float>::infinity()); });
    row("scale_inv_below", "scale_inv is one code too small", [](TensorScalars& s) { s.scale_inv = std::nextafter(s.scale_inv, 0.0f); });
    row("amax_of_scale", "the amax plane holds the scale", [](TensorScalars& s) { s.amax = s.scale; });
    row("scale_inv_via_bf16", "scale_inv goes through bf16", [](TensorScalars& s) { s.scale_inv = static_cast<float>(bf16_of(static_cast<double>(s.scale_inv))); });
    row("scale_inv_of_amax", "scale_inv is amax / MAX, not the reciprocal of the scale", [](TensorScalars& s) { s.scale_inv = s.amax / 448; });
    row("scale_inv_of_amax_e5m2", "scale_inv is amax / 57344", [](TensorScalars& s) { s.scale_inv = s.amax / 57344; });
    row("scale_inv_of_amax_product", "scale_inv is amax * (1 / MAX)", [](TensorScalars& s) { s.scale_inv = s.amax * (1.0f / 448); });
    row("amax_zero", "the amax plane is not written (0)", [](TensorScalars& s) { s.amax = 0; });
    add("tensor_amax.stored_of_scaled", "the stored amax is that of scaled elements", amax, "N3.1").scalars = [](TensorScalars& s) { s.amax *= s.scale; };
    const auto stored_least = [&](const string& id, const string& title, double least) {
      add("tensor_amax.stored_" + id, title, amax, "N3.1").scalars = [least](TensorScalars& s) { s.amax = std::max(s.amax, static_cast<float>(least)); };
    };
    if (own_eps() > 0) stored_least("eps", "the stored amax is at least eps, which the scale alone is made of", own_eps());
    for (const char* eps : {"1e-12", "1e-10", "1e-8", "1e-6", "1e-5", "1e-4", "1e-3"}) stored_least(fmt::format("least={}", eps), fmt::format("the stored amax is at least {}, the scale's is not", eps), static_cast<double>(std::strtof(eps, nullptr)));
    if (q_.format != FormatId::fp8_current || q_.amax) return;
    add("tensor_scale.zero_amax_f32_max", "an amax of 0 gives the scale FLT_MAX", tensor_scale, "N3.3").scalars = [](TensorScalars& s) {
      if (s.amax != 0) return;
      s.scale = std::numeric_limits<float>::max();
      s.scale_inv = 1 / s.scale;
    };
    const float most = static_cast<float>(value_of(q_.element, info(q_.element).max_finite));
    tensor_rule("product", "the scale is MAX * (1 / amax), not MAX / amax", [=](float a) { return most * (1 / a); });
    tensor_rule("via_bf16", "the scale goes through bf16", [=](float a) { return static_cast<float>(bf16_of(static_cast<double>(most / a))); });
    tensor_rule("of_240", "MAX is 240, in a division of its own", [](float a) { return 240 / a; });
    tensor_rule("of_256", "MAX is 256, in a division of its own", [](float a) { return 256 / a; });
    tensor_rule("one_place_less", "the scale is one place too small", [=](float a) { return std::nextafter(most / a, 0.0f); });
    tensor_rule("power_above", "the scale is raised to a power of two", [=](float a) { return std::exp2(std::ceil(std::log2(most / a))); });
  }

  // Another step from the tensor's amax to its scale: what is stored, and elements cast anew.
  void tensor_rule(const char* id, const char* title, std::function<float(float amax)> scale) {
    Hypothesis& h = add(string("tensor_scale.") + id, title, tensor_scale, "N3.3");
    const auto ordinary = [](float a) { return a > 0 && std::isfinite(a); };
    h.scalars = [=](TensorScalars& s) {
      if (!ordinary(s.amax)) return;
      s.scale = scale(s.amax);
      s.scale_inv = 1 / s.scale;
    };
    h.code = [=](const CodeView& c) {
      const float a = static_cast<float>(c.tensor_amax);
      return ordinary(a) ? element_code(c.encoding, static_cast<double>(static_cast<float>(c.x) * scale(a))) : c.code;
    };
  }

  // fp8_block: another step from a block's amax to its scale. `ordinary` amaxes alone.
  void fp8_block_rules() {
    const float most = static_cast<float>(value_of(q_.element, info(q_.element).max_finite));
    const bool power = q_.pow2;
    const auto cut = [power](float s) { return power && s > 0 && std::isfinite(s) ? std::exp2(static_cast<float>(std::ilogb(s))) : s; };
    const auto rule = [&](const char* id, const char* title, std::function<float(float amax)> of) {
      Hypothesis& h = add(string("scale.") + id, title, block_scale, "N9.1");
      const float least = static_cast<float>(own_eps());
      const auto encode = [=](double amax) -> std::optional<float> {
        const float a = std::max(static_cast<float>(amax), least);
        if (!(a > 0) || !std::isfinite(a)) return {};
        const float s = of(a);
        return s > 0 && std::isfinite(s) ? std::optional(cut(s)) : std::nullopt;
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
    };
    rule("product", "the scale is MAX * (1 / amax), not MAX / amax", [=](float a) { return most * (1 / a); });
    rule("inverse_of_product", "the scale is 1 / (amax * (1 / MAX)), not MAX / amax", [=](float a) { return 1 / (a * (1 / most)); });
    rule("inverse_of_quotient", "the scale is 1 / (amax / MAX), not MAX / amax", [=](float a) { return 1 / (a / most); });
    rule("one_place_less", "the encode scale is one place too small", [=](float a) { return std::nextafter(most / a, 0.0f); });
    if (own_eps() > 0) return;
    const auto of_zero = [&](const char* id, const char* title, float scale) {
      Hypothesis& h = add(string("scale.") + id, title, block_scale, "N9.2");
      h.scale = [=](const ScaleGrid& s, int64_t i, int64_t b) { return s.amax(i, b) == 0 ? std::bit_cast<uint32_t>(1 / scale) : s.at(i, b); };
      h.use = Hypothesis::Use::stored;
    };
    of_zero("zero_amax_f32_max", "an amax of 0 gives the scale FLT_MAX", std::numeric_limits<float>::max());
    of_zero("zero_amax_2^127", "an amax of 0 gives the scale 2^127", 0x1p127f);
    const double source = value_of(lane_.x.source, info(lane_.x.source).max_finite);
    if (lane_.x.source != Encoding::f32) of_zero("zero_amax_source_max", "an amax of 0 gives the source's largest value for a scale", static_cast<float>(source));
  }

  // A square block whose lines are scaled each for itself.
  void own_lines() {
    const string keys = fmt::format("block=1x{}", length_);
    const auto row = [&](const char* id, const char* title, std::function<double(const BlockView&)> shown) {
      Hypothesis& h = add(string("amax.own_lines") + id, title, amax, format_.id == FormatId::nvfp4 ? "N10.4" : format_.id == FormatId::fp8_block ? "N9.1" : "N5.1");
      h.code_keys = keys;
      h.amax = std::move(shown);
    };
    row("", "elements are scaled by their own line of a square block", {});
    row(".first_stored", "elements are scaled by their own line of a square block; the first line's scale is stored", [](const BlockView& b) { return b.x.amax(b.i0, b.i0 + 1, b.j0, b.j1); });
    row(".last_stored", "elements are scaled by their own line of a square block; the last line's scale is stored", [](const BlockView& b) { return b.x.amax(b.i1 - 1, b.i1, b.j0, b.j1); });
  }

  // Planes that hold what the other direction makes.
  void others() {
    const auto row = [&](const char* id, const char* title, Stage stage, const char* what) {
      Hypothesis& h = add(string("plane.") + id, title, stage, "N6.1");
      h.of_other = what;
      h.wide = true;
    };
    row("data_of_other", "the data are those of the other direction", layout, "data");
    if (!format_.has_blocks()) return;
    row("scales_of_other", "the scales are the bytes of the other direction's", layout, "scales");
    row("scales_of_other_in_order", "the scales are the other direction's, in their order", layout, "scales:logical");
    row("scales_of_other_transposed", "the scales are the other direction's, transposed", layout, "scales:transposed");
    if (square_ || q_.round == Round::sr) return;
    row("blocks_across", "blocks run along the other axis; codes stand in their places, scales as the other direction's", amax, "blocks:logical");
    row("blocks_across_turned", "blocks run along the other axis; codes stand in their places, scales as the other direction's, transposed", amax, "blocks:transposed");
    row("codes_across", "elements are scaled by blocks along the other axis, but the scales of the right ones are stored", scaled_value, "blocks:codes");
  }

  // ---- scales of blocks ----

  void scale(const string& id, const string& title, std::function<uint32_t(const ScaleGrid&, int64_t, int64_t)> f, std::initializer_list<Hypothesis::Use> uses, bool wide = false) {
    using enum Hypothesis::Use;
    for (const Hypothesis::Use use : uses) {
      Hypothesis& h = add("scale." + id + (use == codes ? ".codes" : use == stored ? ".stored" : ""), title + (use == codes ? ", for the elements only" : use == stored ? ", as it is stored only" : ""),
                          block_scale, format_.id == FormatId::nvfp4 ? "N10.6" : format_.id == FormatId::fp8_block ? "N9.2" : "N5.3");
      h.scale = f;
      h.use = use;
      h.wide = wide;
    }
  }

  void scales() {
    using enum Hypothesis::Use;
    const auto all = {both, codes, stored}, apart = {codes, stored};
    // Steps of a code, kept among the finite ones; of an F32 one a factor of two.
    const auto step = [](int by) {
      return [by](const ScaleGrid& s, int64_t i, int64_t b) {
        const uint32_t c = s.at(i, b);
        if (is_nan(s.encoding, c)) return c;
        if (s.encoding == Encoding::f32) return nearest_code(Encoding::f32, std::ldexp(value_of(Encoding::f32, c), by));
        return static_cast<uint32_t>(std::clamp<int64_t>(static_cast<int64_t>(c) + by, 0, info(s.encoding).max_finite));
      };
    };
    const char* unit = format_.scale == Encoding::e4m3 ? "code" : "binade";
    scale("up", fmt::format("scales are one {} too large", unit), step(1), all);
    scale("down", fmt::format("scales are one {} too small", unit), step(-1), all);
    scale("up=2", fmt::format("scales are two {}s too large", unit), step(2), all);
    scale("down=2", fmt::format("scales are two {}s too small", unit), step(-2), all);
    if (format_.scale == Encoding::e4m3) {
      scale("binade_up", "scales are one binade too large", step(8), all);
      scale("binade_down", "scales are one binade too small", step(-8), all);
      scale("ftz", "subnormal scales become 0", [](const ScaleGrid& s, int64_t i, int64_t b) { return is_subnormal(s.encoding, value_of(s.encoding, s.at(i, b))) ? 0 : s.at(i, b); }, all);
      scale("power_of_two", "scales are cut to a power of two", [](const ScaleGrid& s, int64_t i, int64_t b) { return s.at(i, b) & 0x78; }, all);
      scale("at_least_one_code", "a scale of 0 becomes the least one", [](const ScaleGrid& s, int64_t i, int64_t b) { return std::max(s.at(i, b), 1u); }, all);
    }
    if (format_.scale == Encoding::e8m0) {
      scale("negated", "the exponent of the scale is turned", [](const ScaleGrid& s, int64_t i, int64_t b) { return s.at(i, b) == 255 ? 255 : std::min(254 - s.at(i, b), 254u); }, all);
      scale("unbiased", "scales are stored without their bias", [](const ScaleGrid& s, int64_t i, int64_t b) { return (s.at(i, b) - 127) & 255; }, {stored});
      scale("at_least_one_code", "a scale of 2^-127 becomes 2^-126", [](const ScaleGrid& s, int64_t i, int64_t b) { return std::max(s.at(i, b), 1u); }, all);
    }
    if (format_.scale == Encoding::e8m0) {
      scale("one_for_zeros", "blocks of zeros have the scale 1", [](const ScaleGrid& s, int64_t i, int64_t b) { return s.at(i, b) == 0 ? 127u : s.at(i, b); }, all);
      scale("one_for_zero_amax", "blocks whose amax is 0 have the scale 1", [](const ScaleGrid& s, int64_t i, int64_t b) { return s.amax(i, b) == 0 ? 127u : s.at(i, b); }, all);
      scale("at_least_one", "scales are at least 1", [](const ScaleGrid& s, int64_t i, int64_t b) { return std::max(s.at(i, b), 127u); }, all);
    }
    if (format_.scale == Encoding::e8m0) {
      // The power of two near amax / MAX, by the fraction from which on it is the next one.
      const double most = value_of(q_.element, info(q_.element).max_finite);
      const auto near = [&](const char* id, const char* title, double from, bool product, bool at) {
        scale(id, title, [=](const ScaleGrid& s, int64_t i, int64_t b) {
          const double a = s.amax(i, b), p = product ? f32_of(a * f32_of(1 / most)) : f32_of(a / most);
          if (!(a > 0) || !std::isfinite(a) || p < 0x1p-126) return s.at(i, b);
          const int e = std::ilogb(p);
          const double fraction = std::ldexp(p, -e);
          return static_cast<uint32_t>(std::clamp(e + 127 + (fraction > from || (at && fraction == from) ? 1 : 0), 0, 254));
        }, {both});
      };
      near("nearest_up", "the power of two nearest to amax / MAX, halfway up", 1.5, false, true);
      near("nearest_down", "the power of two nearest to amax / MAX, halfway down", 1.5, false, false);
      near("nearest_up_product", "the power of two nearest to amax * (1 / MAX), halfway up", 1.5, true, true);
      near("nearest_down_product", "the power of two nearest to amax * (1 / MAX), halfway down", 1.5, true, false);
      near("nearest_log", "the exponent is log2(amax / MAX) rounded to the nearest", std::sqrt(2.0), false, true);
      near("up_product", "the power of two not below amax * (1 / MAX)", 1, true, false);
    }
    if (format_.scale == Encoding::f32) {
      const auto of_value = [](auto f) {
        return [f](const ScaleGrid& s, int64_t i, int64_t b) { return nearest_code(Encoding::f32, f(value_of(Encoding::f32, s.at(i, b)), s.amax(i, b))); };
      };
      const double most = value_of(q_.element, info(q_.element).max_finite);
      scale("reciprocal", "the encode scale is stored, not its reciprocal", of_value([](double v, double) { return f32_of(1 / v); }), {stored});
      scale("of_amax", "scales are amax / MAX, not the reciprocal of the encode scale", of_value([=](double v, double a) { return a == 0 || !std::isfinite(a) ? v : f32_of(a / most); }), {stored});
      scale("of_amax_product", "scales are amax * (1 / MAX)", of_value([=](double v, double a) { return a == 0 || !std::isfinite(a) ? v : f32_of(a * f32_of(1 / most)); }), {stored});
      scale("last_place_up", "scales are one place too large", [](const ScaleGrid& s, int64_t i, int64_t b) { return s.at(i, b) + 1; }, {stored});
      scale("last_place_down", "scales are one place too small", [](const ScaleGrid& s, int64_t i, int64_t b) { return s.at(i, b) - 1; }, {stored});
    }
    if (format_.scale == Encoding::e4m3 && !q_.row_scaled && q_.four_over_six == FourOverSix::off) {
      // From what is rounded (N10.6), in the line's own order of steps.
      const Nvfp4Scale order = q_.numerics.nvfp4_scale;
      const auto unrounded = [order](const ScaleGrid& s, int64_t i, int64_t b, double most = 6) {
        const float a = static_cast<float>(s.amax(i, b)), e = static_cast<float>(s.encode_scale), m = static_cast<float>(most), sixth = 1.0f / m;
        return static_cast<double>(order == Nvfp4Scale::folded ? a * (e * sixth) : order == Nvfp4Scale::quotient_first ? a / m * e : order == Nvfp4Scale::product_first ? e * (a * sixth) : order == Nvfp4Scale::unit ? a / m : a / m * e);
      };
      const auto from = [&](const char* id, const char* title, std::function<uint32_t(double)> f, double most = 6) {
        scale(id, title, [=](const ScaleGrid& s, int64_t i, int64_t b) { return f(unrounded(s, i, b, most)); }, {both});
      };
      const auto half = [](double v, bool up) {                              // ties by `up`, else to the nearest
        const uint32_t c = element_code(Encoding::e4m3, v);
        if (std::isnan(v) || c >= 0x7E) return c;
        const double lower = value_of(Encoding::e4m3, c), other = value_of(Encoding::e4m3, lower > v ? c - 1 : c + 1);
        return std::fabs(v - lower) == std::fabs(v - other) ? (up == (other > lower) ? (lower > v ? c - 1 : c + 1) : c) : c;
      };
      // S = 1440 / amax, which is 2688 over no amax: by steps of its own.
      if (q_.round != Round::sr && q_.numerics.multiplier == Multiplier::reciprocal && order == Nvfp4Scale::folded && q_.e4m3_max == E4m3Max::m448) {
        Hypothesis& h = add("tensor_scale.max_240", "the tensor scale aims at block scales of 240", tensor_scale, "N10.2");
        static constexpr float kMost = std::numeric_limits<float>::max();
        const auto encode = [](double amax) { return amax > 0 ? std::min(1440 / static_cast<float>(amax), kMost) : 1.0f; };
        h.scale = [encode](const ScaleGrid& s, int64_t i, int64_t b) { return element_code(Encoding::e4m3, static_cast<double>(static_cast<float>(s.amax(i, b)) * (encode(s.tensor_amax) * (1.0f / 6)))); };
        h.scaled = [encode](const CodeView& c) { return c.x * static_cast<double>(std::min(1 / (static_cast<float>(c.scale) * (1 / encode(c.tensor_amax))), kMost)); };
      }
      from("cut", "scales are cut to E4M3, not rounded", [](double v) { const uint32_t c = element_code(Encoding::e4m3, v); return value_of(Encoding::e4m3, c) > v ? c - 1 : c; });
      from("ties_up", "scales halfway between two codes go up", [=](double v) { return half(v, true); });
      from("ties_down", "scales halfway between two codes go down", [=](double v) { return half(v, false); });
      from("via_bf16", "scales go through bf16", [](double v) { return element_code(Encoding::e4m3, bf16_of(v)); });
      from("via_f16", "scales go through f16", [](double v) { return element_code(Encoding::e4m3, value_of(Encoding::f16, nearest_code(Encoding::f16, v))); });
      from("max_240", "scales saturate at 240", [](double v) { return std::min(element_code(Encoding::e4m3, v), 0x77u); });
      from("for_4", "scales are made for a largest element of 4", [](double v) { return element_code(Encoding::e4m3, v); }, 4);
      from("for_8", "scales are made for a largest element of 8", [](double v) { return element_code(Encoding::e4m3, v); }, 8);
      from("for_1", "scales leave the 6 of E2M1 out", [](double v) { return element_code(Encoding::e4m3, v); }, 1);
    }
    if (square_) {
      const int64_t n = length_;
      scale("first_copy_only", "of a square block's repeated scales the first alone is stored", [n](const ScaleGrid& s, int64_t i, int64_t b) { return i % n == 0 ? s.at(i, b) : 0; }, {stored}, true);
    }
    scale("last_zero", "the scale of the last block of a line is 0", [](const ScaleGrid& s, int64_t i, int64_t b) { return b == s.blocks - 1 ? 0 : s.at(i, b); }, {stored}, true);
    for (const int64_t unit : {16, 32, 64, 128})
      scale(fmt::format("lines_of={}", unit), fmt::format("{} lines have the scales of the first of them", unit), [unit](const ScaleGrid& s, int64_t i, int64_t b) { return s.at(i / unit * unit, b); }, all, true);
    scale("zero", "scales are 0", [](const ScaleGrid&, int64_t, int64_t) { return 0u; }, {stored});
    scale("one", "scales are 1", [](const ScaleGrid& s, int64_t, int64_t) { return s.encoding == Encoding::e8m0 ? 127u : s.encoding == Encoding::e4m3 ? 0x38u : 0x3F800000u; }, all);
    const auto moved = [](int64_t di, int64_t db) {
      return [=](const ScaleGrid& s, int64_t i, int64_t b) { return s.at(std::clamp<int64_t>(i + di, 0, s.lines - 1), std::clamp<int64_t>(b + db, 0, s.blocks - 1)); };
    };
    const int64_t line = square_ ? length_ : 1;
    scale("next_block", "the scale is that of the next block", moved(0, 1), apart, true);
    scale("previous_block", "the scale is that of the block before", moved(0, -1), apart, true);
    scale("next_line", "the scale is that of the next line of blocks", moved(line, 0), apart, true);
    scale("previous_line", "the scale is that of the line of blocks before", moved(-line, 0), apart, true);
    scale("first_of_line", "every block of a line has the scale of the first", [](const ScaleGrid& s, int64_t i, int64_t) { return s.at(i, 0); }, all, true);
    scale("first", "every block has the scale of the first", [](const ScaleGrid& s, int64_t, int64_t) { return s.at(0, 0); }, all, true);
    scale("largest_of_line", "every block of a line has its largest scale", [](const ScaleGrid& s, int64_t i, int64_t) {
      uint32_t out = 0;
      for (int64_t b = 0; b < s.blocks; ++b) out = std::max(out, s.at(i, b));
      return out;
    }, all, true);
    scale("pairs_swapped", "the scales of two blocks are swapped", [](const ScaleGrid& s, int64_t i, int64_t b) { return s.at(i, (b ^ 1) < s.blocks ? b ^ 1 : b); }, apart, true);
    scale("line_pairs_swapped", "the scales of two lines are swapped", [](const ScaleGrid& s, int64_t i, int64_t b) { return s.at((i ^ 1) < s.lines ? i ^ 1 : i, b); }, apart, true);
    scale("pair_shares", "two blocks share the larger scale", [](const ScaleGrid& s, int64_t i, int64_t b) { return std::max(s.at(i, b & ~int64_t{1}), s.at(i, std::min(b | 1, s.blocks - 1))); }, all, true);
  }

  // ---- codes ----

  void coded(string id, string title, std::function<uint32_t(const CodeView&)> f, string clause = "N2.1") { add("code." + id, std::move(title), code, std::move(clause)).code = std::move(f); }
  // By the scaled value: whether the code that is nearest is replaced by its neighbour.
  void rounded(string id, string title, std::function<bool(double scaled, double code)> wrong_side) {
    coded(std::move(id), std::move(title), [wrong_side](const CodeView& c) {
      const double s = c.scaled(), v = value_of(c.encoding, c.code);
      if (std::isnan(s) || std::isnan(v) || s == v || std::fabs(s) > value_of(c.encoding, info(c.encoding).max_finite) || !wrong_side(s, v)) return c.code;
      const uint32_t sign = std::signbit(s) ? sign_bit(c.encoding) : 0, magnitude = c.code & (sign_bit(c.encoding) - 1);
      return std::fabs(v) > std::fabs(s) ? sign | (magnitude - 1) : magnitude == info(c.encoding).max_finite ? c.code : sign | (magnitude + 1);
    });
  }

  void codes() {
    rounded("toward_zero", "codes are rounded toward zero", [](double s, double v) { return std::fabs(v) > std::fabs(s); });
    rounded("away", "codes are rounded away from zero", [](double s, double v) { return std::fabs(v) < std::fabs(s); });
    rounded("up", "codes are rounded up", [](double s, double v) { return v < s; });
    rounded("down", "codes are rounded down", [](double s, double v) { return v > s; });
    if (q_.round != Round::sr) factors();
    if (format_.packed()) {
      coded("odd_zero", "of two codes in a byte the second is 0", [](const CodeView& c) { return c.j % 2 == 1 ? 0 : c.code; }, "N6.8");
      rows.back().stage = packing;
      coded("even_zero", "of two codes in a byte the first is 0", [](const CodeView& c) { return c.j % 2 == 0 ? 0 : c.code; }, "N6.8");
      rows.back().stage = packing;
    }
    const auto magnitude = [](const CodeView& c) { return c.code & (sign_bit(c.encoding) - 1); };
    const auto sign = [](const CodeView& c) { return c.code & sign_bit(c.encoding); };
    const uint32_t largest = info(q_.element).max_finite;
    coded("sign_lost", "codes lose their sign", magnitude);
    coded("sign_turned", "codes have the other sign", [](const CodeView& c) { return c.code ^ sign_bit(c.encoding); });
    coded("ftz", "subnormal codes become zeros", [=](const CodeView& c) { return magnitude(c) < 1u << info(c.encoding).mantissa_bits ? sign(c) : c.code; });
    coded("ftz_positive", "subnormal codes become +0", [=](const CodeView& c) { return magnitude(c) < 1u << info(c.encoding).mantissa_bits ? 0 : c.code; });
    coded("saturates_low", "codes saturate one below the largest", [=](const CodeView& c) { return magnitude(c) == largest ? sign(c) | (largest - 1) : c.code; }, "N2.2");
    coded("largest_as_nan", "the largest code becomes NaN", [=](const CodeView& c) { return magnitude(c) == largest && info(c.encoding).nan != largest ? sign(c) | info(c.encoding).nan : c.code; }, "N2.2");
    coded("beyond_as_nan", "values beyond the largest become NaN", [=](const CodeView& c) { return std::fabs(c.scaled()) > value_of(c.encoding, largest) ? sign(c) | info(c.encoding).nan : c.code; }, "N2.2");
    coded("beyond_as_zero", "values beyond the largest become 0", [=](const CodeView& c) { return std::fabs(c.scaled()) > value_of(c.encoding, largest) ? sign(c) : c.code; }, "N2.2");
    coded("nan_as_zero", "NaN is coded as 0", [](const CodeView& c) { return std::isnan(c.x) ? 0 : c.code; }, "N2.4");
    coded("nan_as_largest", "NaN is coded as the largest value", [=](const CodeView& c) { return std::isnan(c.x) ? largest : c.code; }, "N2.4");
    coded("nan_as_negative_largest", "NaN is coded as the least value", [=](const CodeView& c) { return std::isnan(c.x) ? sign_bit(c.encoding) | largest : c.code; }, "N2.4");
    coded("nan_signed", "NaN keeps its sign", [=](const CodeView& c) { return std::isnan(c.x) && std::signbit(c.x) ? c.code | sign_bit(c.encoding) : c.code; }, "N2.4");
    coded("infinity_as_nan", "infinity is coded as NaN", [=](const CodeView& c) { return std::isinf(c.x) ? sign(c) | info(c.encoding).nan : c.code; }, "N2.2");
    coded("one_more", "the magnitude of every code is one more", [=](const CodeView& c) { return magnitude(c) < largest ? c.code + 1 : c.code; });
    coded("one_less", "the magnitude of every code is one less", [=](const CodeView& c) { return magnitude(c) > 0 && magnitude(c) <= largest ? c.code - 1 : c.code; });
    coded("low_bit_cleared", "the last bit of every code is 0", [](const CodeView& c) { return c.code & ~1u; });
    coded("low_bit_set", "the last bit of every code is 1", [](const CodeView& c) { return c.code | 1u; });
    coded("negative_zero", "every zero is coded as -0", [=](const CodeView& c) { return magnitude(c) == 0 ? sign_bit(c.encoding) : c.code; }, "N5.6");
    coded("last_line_zero", "the last line of codes is 0", [](const CodeView& c) { return c.i == c.lines - 1 ? 0 : c.code; });
    coded("last_place_zero", "the last code of every line is 0", [](const CodeView& c) { return c.j == c.length - 1 ? 0 : c.code; });
    coded("zero", "all codes are 0", [](const CodeView&) { return 0u; });
    if (info(q_.element).bits == 4)
      for (const int64_t unit : {2, 4, 8})
        if ((d_ == Direction::row ? lane_.x.shape.cols : lane_.x.shape.rows) % unit != 0)
          coded(fmt::format("tail_zero={}", unit), fmt::format("codes of a line beyond the last whole {} are 0", unit), [=](const CodeView& c) { return c.j >= c.length / unit * unit ? 0 : c.code; });
  }

  // Elements that are scaled another way, cast anew.
  void factors() {
    const auto as = [&](const char* id, const char* title, std::function<double(const CodeView&)> scaled) {
      Hypothesis& h = add(string("scaled.") + id, title, scaled_value, "N5.4");
      h.scaled = std::move(scaled);
    };
    const double most = value_of(q_.element, info(q_.element).max_finite);
    as("once", "elements are not scaled", [](const CodeView& c) { return c.x; });
    as("by_decode_scale", "elements are multiplied by the decode scale", [](const CodeView& c) { return c.divides ? c.x * c.factor : c.x / c.factor; });
    as("twice", "elements are scaled twice", [](const CodeView& c) { return c.divides ? c.x / c.factor / c.factor : c.x * f32_of(c.factor * c.factor); });
    as("twice_in_turn", "elements are scaled twice, one after the other", [](const CodeView& c) { return c.divides ? f32_of(c.x / c.factor) / c.factor : f32_of(c.x * c.factor) * c.factor; });
    as("doubled", "elements are scaled by twice what they should be", [](const CodeView& c) { return c.divides ? c.x / c.factor * 2 : c.x * c.factor * 2; });
    as("halved", "elements are scaled by half of what they should be", [](const CodeView& c) { return c.divides ? c.x / c.factor / 2 : c.x * c.factor / 2; });
    as("via_f16", "scaled elements are rounded to f16 before they are cast", [](const CodeView& c) {
      const double v = c.scaled();
      return std::isfinite(v) ? value_of(Encoding::f16, nearest_code(Encoding::f16, v)) : v;
    });
    as("by_stored_scale", "elements are divided by the stored scale", [](const CodeView& c) { return c.x / c.scale; });
    as("by_its_reciprocal", "elements are multiplied by the reciprocal of the stored scale", [](const CodeView& c) { return c.x * f32_of(1 / c.scale); });
    as("by_stored_product", "elements are multiplied by the stored scale", [](const CodeView& c) { return c.x * c.scale; });
    if (format_.has_blocks()) {
      as("unrounded", "elements are scaled by MAX / amax, before the scale was rounded", [most](const CodeView& c) { return c.block_amax() == 0 ? 0 : c.x * f32_of(most / c.block_amax()); });
      as("unrounded_product", "elements are multiplied by 1 / (amax * (1 / MAX)), before the scale was rounded", [most](const CodeView& c) { return c.block_amax() == 0 ? 0 : c.x * f32_of(1 / f32_of(c.block_amax() * f32_of(1 / most))); });
      as("unrounded_reciprocal", "elements are multiplied by 1 / (amax / MAX), before the scale was rounded", [most](const CodeView& c) { return c.block_amax() == 0 ? 0 : c.x * f32_of(1 / f32_of(c.block_amax() / most)); });
      as("unrounded_divided", "elements are divided by amax / MAX, before the scale was rounded", [most](const CodeView& c) { return c.block_amax() == 0 ? 0 : c.x / f32_of(c.block_amax() / most); });
    }
    if (q_.format == FormatId::nvfp4 && !q_.row_scaled && q_.four_over_six == FourOverSix::off) {
      const auto before = [&](const char* id, const char* title, std::function<double(double p, double e)> multiplier) {
        for (const bool folded : {false, true})
          as(fmt::format("{}{}", id, folded ? ".folded" : "").c_str(), title, [=](const CodeView& c) {
            const double a = c.block_amax(), e = c.encode_scale, p = folded ? f32_of(a * f32_of(e * f32_of(1.0 / 6))) : f32_of(f32_of(a / 6) * e);
            return p == 0 ? 0 : c.x * f32_of(multiplier(p, e));
          });
      };
      before("scale_unrounded", "elements are multiplied by 1 / (p * (1/S)), p the scale before it was rounded", [](double p, double e) { return 1 / f32_of(p * f32_of(1 / e)); });
      before("scale_unrounded_quotient", "elements are multiplied by S / p, p the scale before it was rounded", [](double p, double e) { return e / p; });
      before("scale_unrounded_product", "elements are multiplied by S * (1/p), p the scale before it was rounded", [](double p, double e) { return e * f32_of(1 / p); });
    }
    coded("ties_to_odd", "ties go to the odd code", [](const CodeView& c) {
      const double s = c.scaled(), v = value_of(c.encoding, c.code);
      if (std::isnan(s) || std::isnan(v) || s == v || std::fabs(s) > value_of(c.encoding, info(c.encoding).max_finite)) return c.code;
      const uint32_t other = std::fabs(v) > std::fabs(s) ? c.code - 1 : c.code + 1;
      return std::fabs(value_of(c.encoding, other) - s) == std::fabs(v - s) ? other : c.code;
    });
    if (info(q_.element).bits == 8) {
      const Encoding other = q_.element == Encoding::e4m3 ? Encoding::e5m2 : Encoding::e4m3;
      coded(other == Encoding::e5m2 ? "as_e5m2" : "as_e4m3", fmt::format("codes are those of {}, of values scaled for {}", info(other).name, info(q_.element).name), [other](const CodeView& c) { return element_code(other, c.scaled()); });
    }
    coded("infinity_as_plain_nan", "infinity is coded as NaN without a sign", [](const CodeView& c) { return std::isinf(c.x) ? info(c.encoding).nan : c.code; }, "N2.2");
    coded("max_240", "codes saturate at 240", [](const CodeView& c) { return c.encoding == Encoding::e4m3 && (c.code & 0x7F) > 0x77 && (c.code & 0x7F) < 0x7F ? (c.code & 0x80) | 0x77 : c.code; }, "N2.2");
  }

  // ---- draws ----
  // A code drawn by another byte than its own.
  void draw_row(string id, string title, std::function<uint32_t(const CodeView&, const Rng&, uint64_t direction)> byte) {
    Hypothesis& h = add("draw." + id, std::move(title), code, "N12.2");
    const Rng r = lane_.rng;
    const uint64_t direction = d_ == Direction::col;
    h.code = [=](const CodeView& c) {
      const double s = c.scaled();
      const uint32_t sign = std::signbit(s) ? 8u : 0u;
      if (std::isnan(s)) return 7u;
      if (std::fabs(s) >= 6) return sign | 7u;
      uint32_t lower = element_code(Encoding::e2m1, std::fabs(s));
      if (value_of(Encoding::e2m1, lower) > std::fabs(s)) --lower;
      const double lo = value_of(Encoding::e2m1, lower), step = value_of(Encoding::e2m1, lower + 1) - lo;
      const auto f = static_cast<uint32_t>(std::floor(256 * ((std::fabs(s) - lo) / step)));
      return sign | (f + byte(c, r, direction) >= 256 ? lower + 1 : lower);   // N12.3
    };
  }
  void draw_rows() {
    if (q_.numerics.draw != Draw::logical || q_.numerics.sr_rule != SrRule::integer) return;
    struct Place {
      uint64_t block;
      int64_t e;
    };
    const auto place = [](const CodeView& c) { return Place{static_cast<uint64_t>(c.i * ceil_div(c.length, 16) + c.j / 16), c.j % 16}; };
    const auto words = [](const Rng& r, uint64_t block, uint64_t member, uint64_t direction, int rounds) {
      return philox4x32(r.seed, r.offset, (block & 0xFFFFFFFF) | ((block >> 32 & 0x3FFF) | member << 14 | direction << 31) << 32, rounds);
    };
    const auto byte_of = [](uint32_t word, int64_t b) { return word >> (8 * b) & 255; };
    draw_row("words_reversed", "the words of a draw serve in the other order", [=](const CodeView& c, const Rng& r, uint64_t d) { const Place p = place(c); return byte_of(words(r, p.block, r.member, d, 10).word[3 - p.e / 4], p.e % 4); });
    draw_row("bytes_reversed", "the bytes of a word serve in the other order", [=](const CodeView& c, const Rng& r, uint64_t d) { const Place p = place(c); return byte_of(words(r, p.block, r.member, d, 10).word[p.e / 4], 3 - p.e % 4); });
    draw_row("all_reversed", "the bytes of a draw serve in the other order", [=](const CodeView& c, const Rng& r, uint64_t d) { const Place p = place(c); return byte_of(words(r, p.block, r.member, d, 10).word[3 - p.e / 4], 3 - p.e % 4); });
    draw_row("word_by_byte", "word and byte of a draw have changed places", [=](const CodeView& c, const Rng& r, uint64_t d) { const Place p = place(c); return byte_of(words(r, p.block, r.member, d, 10).word[p.e % 4], p.e / 4); });
    for (int64_t b = 0; b < 4; ++b) draw_row(fmt::format("one_byte={}", b), fmt::format("byte {} of a word serves all its elements", b), [=](const CodeView& c, const Rng& r, uint64_t d) { const Place p = place(c); return byte_of(words(r, p.block, r.member, d, 10).word[p.e / 4], b); });
    for (int64_t w = 0; w < 4; ++w) draw_row(fmt::format("one_word={}", w), fmt::format("word {} of a draw serves all its elements", w), [=](const CodeView& c, const Rng& r, uint64_t d) { const Place p = place(c); return byte_of(words(r, p.block, r.member, d, 10).word[w], p.e % 4); });
    draw_row("complement", "the bytes of draws are turned", [=](const CodeView& c, const Rng& r, uint64_t d) { const Place p = place(c); return 255 - byte_of(words(r, p.block, r.member, d, 10).word[p.e / 4], p.e % 4); });
    draw_row("rounds=7", "Philox has 7 rounds", [=](const CodeView& c, const Rng& r, uint64_t d) { const Place p = place(c); return byte_of(words(r, p.block, r.member, d, 7).word[p.e / 4], p.e % 4); });
    draw_row("other_direction", "draws are those of the other direction", [=](const CodeView& c, const Rng& r, uint64_t d) { const Place p = place(c); return byte_of(words(r, p.block, r.member, 1 - d, 10).word[p.e / 4], p.e % 4); });
    for (const int64_t by : {1, -1}) draw_row(fmt::format("block={:+}", by), "draws are those of the neighbouring block", [=](const CodeView& c, const Rng& r, uint64_t d) { const Place p = place(c); return byte_of(words(r, p.block + static_cast<uint64_t>(by), r.member, d, 10).word[p.e / 4], p.e % 4); });
    draw_row("blocks_down", "blocks are counted down the columns", [=](const CodeView& c, const Rng& r, uint64_t d) { return byte_of(words(r, static_cast<uint64_t>(c.j / 16 * c.lines + c.i), r.member, d, 10).word[c.j % 16 / 4], c.j % 4); });
    draw_row("block_alone", "draws know the block of a line, not the line", [=](const CodeView& c, const Rng& r, uint64_t d) { return byte_of(words(r, static_cast<uint64_t>(c.j / 16), r.member, d, 10).word[c.j % 16 / 4], c.j % 4); });
    draw_row("line_alone", "draws know the line, not the block", [=](const CodeView& c, const Rng& r, uint64_t d) { return byte_of(words(r, static_cast<uint64_t>(c.i), r.member, d, 10).word[c.j % 16 / 4], c.j % 4); });
    draw_row("zero", "every draw is 0", [](const CodeView&, const Rng&, uint64_t) { return 0u; });
    draw_row("half", "every draw is 128", [](const CodeView&, const Rng&, uint64_t) { return 128u; });
  }

  void draws_of() {
    const Rng r = lane_.rng;
    const auto rng = [&](string id, string title, Rng with) {
      if (with.member < 1u << 17 && !(with == r)) add("draw." + id, std::move(title), code, "N12.2").keys = fmt::format("rng={},{},{}", with.seed, with.offset, with.member);
    };
    const uint64_t low = r.seed & 0xFFFFFFFF, high = r.seed >> 32;
    for (int by = 1; by <= 32; ++by)
      for (int sign : {1, -1}) {
        const uint64_t offset = r.offset + static_cast<uint64_t>(static_cast<int64_t>(sign * by));
        rng(fmt::format("offset={:+}", sign * by), fmt::format("draws are taken {} counter{} too {}", by, by == 1 ? "" : "s", sign > 0 ? "late" : "early"), {r.seed, offset, r.member});
      }
    for (int64_t by : {-4, -3, -2, -1, 1, 2, 3, 4})
      rng(fmt::format("seed={:+}", by), "the key is another seed", {r.seed + static_cast<uint64_t>(by), r.offset, r.member});
    rng("seed_zero", "the key is 0", {0, r.offset, r.member});
    rng("seed_low", "the key is the low half of the seed alone", {low, r.offset, r.member});
    rng("seed_high", "the key is the high half of the seed alone", {high << 32, r.offset, r.member});
    rng("seed_halves_swapped", "the halves of the seed are swapped", {low << 32 | high, r.offset, r.member});
    rng("seed_turned", "the key is the complement of the seed", {~r.seed, r.offset, r.member});
    rng("offset_zero", "the offset is left out", {r.seed, 0, r.member});
    rng("offset_low", "the offset is cut to 32 bits", {r.seed, r.offset & 0xFFFFFFFF, r.member});
    rng("offset_halves_swapped", "the halves of the offset are swapped", {r.seed, r.offset << 32 | r.offset >> 32, r.member});
    rng("seed_and_offset_swapped", "seed and offset are swapped", {r.offset, r.seed, r.member});
    for (int by = 1; by <= 4; ++by) {
      rng(fmt::format("member=+{}", by), "draws are those of another member", {r.seed, r.offset, r.member + static_cast<uint32_t>(by)});
      if (r.member >= static_cast<uint32_t>(by)) rng(fmt::format("member=-{}", by), "draws are those of another member", {r.seed, r.offset, r.member - static_cast<uint32_t>(by)});
    }
    rng("member_zero", "draws are those of the first member", {r.seed, r.offset, 0});
  }

  const Problem& lane_;
  const Quantizer& q_;
  Direction d_;
  const FormatInfo& format_;
  bool of_rows_;
  int64_t length_;
  bool square_;
};

// "input.rotated:0x1234[,unrounded][,own_amax]": rows that are rotated with these signs too; own_amax: their amax is still that of x.
std::optional<Hypothesis> also_rotated(const string& id, const Problem& lane, Direction d) {
  const string how = id.substr(id.find(':') + 1);
  const auto mask = static_cast<uint16_t>(std::strtoul(how.c_str(), nullptr, 16));
  if (lane.quantizer(d)->rht) return {};
  const bool unrounded = how.find(",unrounded") != string::npos;
  Hypothesis h;
  h.id = id;
  h.title = fmt::format("{} are rotated too, with the signs 0x{:04X}{}{}", d == Direction::row ? "rows" : "columns", mask, unrounded ? ", without rounding to bf16" : "", how.find(",own_amax") != string::npos ? "; the amax is that before it" : "");
  h.stage = rht;
  h.clause = "N11.2";
  h.widened = unrounded;
  h.element = [=](const Matrix& x, int64_t i, int64_t j) {
    float v[16];
    for (int64_t k = 0; k < 16; ++k) v[k] = j / 16 * 16 + k < x.length() ? static_cast<float>(x.value(i, j / 16 * 16 + k)) : 0.0f;
    const double y = rotated16(v, mask, j % 16);
    return unrounded ? nearest_code(Encoding::f32, y) : nearest_code(x.encoding(), bf16_of(y));
  };
  if (how.find(",own_amax") != string::npos) h.tensor_amax = [](const Matrix& x, const Matrix&) { return x.source().amax(); };
  return h;
}

// "code.column_repeats:31/32": the codes of this column of each 32 of x are those of the column before; _ahead: after; likewise row. "code.rows_rotated:1": each row of codes stands one
// further on, the last one first; likewise columns.
std::optional<Hypothesis> of_place(const string& id, Direction d) {
  const size_t colon = id.find(':');
  const string kind = id.substr(0, colon);
  long k = 0, of = 0;
  const bool rotated = kind.ends_with("s_rotated"), columns = kind.starts_with("code.column"), ahead = kind.ends_with("_ahead");
  if (colon == string::npos || std::sscanf(id.c_str() + colon, rotated ? ":%ld" : ":%ld/%ld", &k, &of) != (rotated ? 1 : 2) || (!rotated && of < 1)) return {};
  const bool along = columns == (d == Direction::row);                     // it is places that change, not lines
  Hypothesis h;
  h.id = id;
  h.clause = "N6.1";
  h.stage = rotated ? layout : code;
  const char* what = columns ? "column" : "row";
  h.title = rotated ? fmt::format("{}s of codes stand {} {}, around the end", what, std::abs(k), k > 0 ? "later" : "earlier") : fmt::format("the codes of {} {} of each {} are those of the {} {} it", what, k, of, what, ahead ? "after" : "before");
  h.wide = true;
  h.code_place = [=](int64_t i, int64_t j, int64_t lines, int64_t length) -> std::pair<int64_t, int64_t> {
    const int64_t at = along ? j : i, n = along ? length : lines;
    const int64_t other = rotated ? ((at - k) % n + n) % n : at % of == k ? std::clamp<int64_t>(at + (ahead ? 1 : -1), 0, n - 1) : at;
    return along ? std::pair{i, other} : std::pair{other, j};
  };
  return h;
}

// "code.map:7E>7D,FE>FD": these codes of the data are replaced by those.
Hypothesis mapped(const string& id, const string& pairs) {
  std::map<uint32_t, uint32_t> map;
  for (size_t at = 0; at < pairs.size();) {
    const size_t end = std::min(pairs.find(',', at), pairs.size()), arrow = pairs.find('>', at);
    if (arrow < end) map[static_cast<uint32_t>(std::stoul(pairs.substr(at, arrow - at), nullptr, 16))] = static_cast<uint32_t>(std::stoul(pairs.substr(arrow + 1, end - arrow - 1), nullptr, 16));
    at = end + 1;
  }
  Hypothesis h;
  h.id = id;
  h.title = "codes are replaced by others: " + pairs;
  h.stage = code;
  h.clause = "N2.1";
  h.code = [map](const CodeView& c) {
    const auto found = map.find(c.code);
    return found == map.end() ? c.code : found->second;
  };
  return h;
}

// "input.zero:32-64,0-32": these rows and columns of x are read as zeros; "input.above:" as the rows before them, as many; "input.left:" as the columns before them;
// "code.zero:": their codes are 0; "code.is=CD:": CD; "output.zero:": their codes and the scales of their blocks are.
std::optional<Hypothesis> of_region(const string& id, const Problem& lane, Direction d) {
  const size_t colon = id.find(':');
  const string kind = id.substr(0, colon);
  int64_t r0 = 0, r1 = 0, c0 = 0, c1 = 0;
  if (colon == string::npos || std::sscanf(id.c_str() + colon, ":%ld-%ld,%ld-%ld", &r0, &r1, &c0, &c1) != 4) return {};
  const auto inside = [=](int64_t i, int64_t j) {
    const int64_t r = d == Direction::row ? i : j, c = d == Direction::row ? j : i;
    return r >= r0 && r < r1 && c >= c0 && c < c1;
  };
  const int64_t up = kind == "input.above" ? r1 - r0 : 0, left = kind == "input.left" ? c1 - c0 : 0;
  if (up > r0 || left > c0) return {};
  Hypothesis h;
  h.id = id;
  const bool unwritten = kind == "output.zero", coded = kind == "code.zero" || kind.starts_with("code.is=");
  h.stage = unwritten ? block_scale : coded ? code : input;
  h.clause = unwritten || coded ? "N2.1" : "N1.2";
  const string where = fmt::format("rows {}..{}, columns {}..{}", r0, r1 - 1, c0, c1 - 1);
  if (unwritten) {
    const Quantizer& q = *lane.quantizer(d);
    if (!info(q.format).has_blocks()) return {};
    h.title = "codes and scales are 0, as where nothing is written, in " + where;
    h.wide = true;
    h.use = Hypothesis::Use::stored;
    h.scale = [inside, n = length_of(q.block)](const ScaleGrid& s, int64_t i, int64_t b) { return inside(i, b * n) ? 0 : s.at(i, b); };
    h.code = [=](const CodeView& c) { return inside(c.i, c.j) ? 0 : c.code; };
  } else if (coded) {
    const string constant = kind == "code.zero" ? "0" : kind.substr(8);
    h.title = fmt::format("codes are {} in {}{}", constant, where, constant == "0" ? "" : ", as in memory that was not written");
    h.code = [=, all = static_cast<uint32_t>(std::strtoul(constant.c_str(), nullptr, 16))](const CodeView& c) { return inside(c.i, c.j) ? all : c.code; };
  } else if (kind == "input.zero" || up || left) {
    h.title = fmt::format("x is read as {} in {}", up ? "the rows before" : left ? "the columns before" : "zeros", where);
    h.element = [=](const Matrix& x, int64_t i, int64_t j) {
      if (!inside(i, j)) return x.code(i, j);
      if (!up && !left) return 0u;
      return d == Direction::row ? x.code(i - up, j - left) : x.code(i - left, j - up);
    };
  } else {
    return {};
  }
  return h;
}

}  // namespace

std::vector<Hypothesis> hypotheses(const Problem& lane, Direction d) { return std::move(Library(lane, d).rows); }

std::vector<Hypothesis> line_hypotheses(const Problem& problem) {
  std::vector<Hypothesis> out;
  for (const KeyInfo& key : line_keys()) {
    if (std::find(key.ops.begin(), key.ops.end(), op_name(problem)) == key.ops.end() || key.name == "fill" || key.name == "dir" || key.name == "flavour" || key.name == "scale_from") continue;
    for (size_t at = 0; at < key.values.size();) {
      const size_t end = std::min(key.values.find('|', at), key.values.size());
      const string value(key.values.substr(at, end - at));
      at = end + 1;
      if (value.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != string::npos) continue;   // a form, not a word
      Hypothesis h;
      h.keys = string(key.name) + "=" + value;
      const auto changed = with_keys(problem, h.keys);
      if (!changed || *changed == problem) continue;
      h.id = "line." + h.keys;
      h.title = fmt::format("{} is {} ({})", key.name, value, key.summary);
      h.stage = code;
      out.push_back(std::move(h));
    }
  }
  return out;
}

std::optional<Hypothesis> hypothesis_named(const std::string& id, const Problem& lane, Direction d) {
  const auto after = [&](std::string_view prefix) { return id.starts_with(prefix) ? std::optional(id.substr(prefix.size())) : std::nullopt; };
  if (const auto pairs = after("code.map:")) return mapped(id, *pairs);
  if (id.starts_with("input.zero:") || id.starts_with("input.above:") || id.starts_with("input.left:") || id.starts_with("code.zero:") || id.starts_with("code.is=") || id.starts_with("output.zero:")) return of_region(id, lane, d);
  if (id.starts_with("input.rotated:")) return also_rotated(id, lane, d);
  for (const char* kind : {"code.column_repeats:", "code.column_ahead:", "code.row_repeats:", "code.row_ahead:", "code.rows_rotated:", "code.columns_rotated:"})
    if (id.starts_with(kind)) return of_place(id, d);
  // One number that was fitted to one: what made it is not told by it, so both rows are offered and neither is certain.
  for (const char* how : {"at_least", "at_most", "is"})
    if (const auto bits = after(fmt::format("tensor_amax.{}=", how))) {
      const double came = value_of(Encoding::f32, static_cast<uint32_t>(std::strtoul(bits->c_str(), nullptr, 16)));
      const char kind = how[3] == 'l' ? '>' : how[3] == 'm' ? '<' : '=';
      Hypothesis h;
      h.id = id;
      h.title = kind == '>'   ? fmt::format("the tensor's amax is at least {}, as where a slot is not reset", came)
                : kind == '<' ? fmt::format("the tensor's amax is at most {}, as where it saturates", came)
                              : fmt::format("the tensor's amax is {} and not its largest magnitude: another tensor's, a norm, a part's, or memory that was not written", came);
      h.stage = amax;
      h.clause = "N3.1";
      h.tensor_amax = [=](const Matrix& x, const Matrix&) { return kind == '>' ? std::max(x.amax(), came) : kind == '<' ? std::min(x.amax(), came) : came; };
      return h;
    }
  // "tensor_scale.is=<scale>,<scale_inv>", "tensor_scale.times=<factor of scale>,<factor of scale_inv>": codes follow what came (Search::try_tensor_values).
  for (const bool fixed : {true, false})
    if (const auto numbers = after(fixed ? "tensor_scale.is=" : "tensor_scale.times=")) {
      const size_t comma = numbers->find(',');
      if (comma == string::npos || !info(lane.quantizer(d)->format).per_tensor_fp8()) return {};
      const auto number = [&](const string& text) { return fixed ? value_of(Encoding::f32, static_cast<uint32_t>(std::strtoul(text.c_str(), nullptr, 16))) : std::bit_cast<double>(uint64_t{std::strtoull(text.c_str(), nullptr, 16)}); };
      const double scale = number(numbers->substr(0, comma)), inverse = number(numbers->substr(comma + 1));
      Hypothesis h;
      h.id = id;
      h.title = fixed ? fmt::format("the scale is {}, not this tensor's (stale, or the next step's), and every code follows it", scale)
                      : fmt::format("the scale is {} times what it should be (rounded, or made by another rule), and every code follows it", scale);
      h.stage = tensor_scale;
      h.clause = "N3.3";
      h.scalars = [=](TensorScalars& s) {
        s.scale = static_cast<float>(fixed ? scale : static_cast<double>(s.scale) * scale);
        s.scale_inv = static_cast<float>(fixed ? inverse : static_cast<double>(s.scale_inv) * inverse);
      };
      h.scaled = [=](const CodeView& c) { return c.divides ? c.x / (fixed ? inverse : f32_of(c.factor * inverse)) : c.x * (fixed ? scale : f32_of(c.factor * scale)); };
      return h;
    }
  if (const auto layout = after("layout.")) {
    Hypothesis h;
    h.id = id;
    h.title = "the place of codes: " + *layout;
    h.stage = layout->find(":nibbles") != string::npos ? packing : Stage::layout;
    h.clause = "N6.1";
    h.layout = *layout;
    return h;
  }
  for (Hypothesis& h : hypotheses(lane, d))
    if (h.id == id) return std::move(h);
  return {};
}

}  // namespace assay
