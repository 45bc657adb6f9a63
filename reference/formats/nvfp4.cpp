// nvfp4: E2M1 elements in pairs, one E4M3 scale for every 16 along the contracted dimension or for a tile of
// 16x16, under one binary32 amax of the tensor or of each stored row. Columns are stored transposed, so
// everything below sees blocks along the rows of what is stored, and (i, j) is where an element is stored.
#include <array>
#include <memory>

#include "reference/blocks.h"
#include "reference/draws.h"
#include "reference/formats/format.h"
#include "reference/hadamard.h"
#include "reference/scaling.h"
#include "reference/stochastic.h"
#include "reference/swizzle.h"

namespace assay::reference {

namespace {

constexpr int64_t kBlock = length_of(Block::b1x16);

// ---- scales -------------------------------------------------------------------------------------

double largest_scale(const Quantizer& q) { return q.e4m3_max == E4m3Max::m256 ? 256 : 448; }  // F
double full_range(const Quantizer& q) { return largest_scale(q) * max_of(Encoding::e2m1); }   // F * 6, exact
// What the amax is divided by for P, and what S is divided from: F * 6, or 1 where the amax is P (N17.8).
double range_of(const Quantizer& q) {
  return q.numerics.nvfp4_scale == Nvfp4Scale::given_product ? 1 : full_range(q);
}

// N10.3: the lesser of v and a finite limit; a NaN v gives the limit, or stays.
double at_most(double v, double limit, NanClamp nan_clamp) {
  if (std::isnan(v)) return nan_clamp == NanClamp::propagate ? v : limit;
  return v < limit ? v : limit;
}

// What follows from the amax of the tensor or of a stored row.
struct TensorScales {
  double amax;        // A
  double encode;      // S
  double decode;      // D
  double multiplier;  // m
  double quotient;    // P (N17.8)
  Divider division;   // N17.14
};
double encode_scale(double amax, const Quantizer& q, const Divider& division) {
  if (std::isnan(amax) && q.numerics.nan_tensor_amax == NanTensorAmax::unit) return 1;  // N10.2
  const double scale = at_most(division.encode(range_of(q), amax), max_of(Encoding::f32),
                               q.numerics.nan_clamp);                          // N10.2, N17.14
  if (std::isinf(amax) && q.numerics.inf_amax == InfAmax::zero) return scale;  // N10.2: 0, and stays
  return amax == 0 || scale == 0 ? 1 : scale;                                  // N10.2
}
TensorScales tensor_scales(double amax, const Quantizer& q, Encoding source) {
  const bool unit = q.numerics.nvfp4_scale == Nvfp4Scale::unit;  // N17.8: no tensor scale
  TensorScales t{
      .amax = amax, .encode = 1, .decode = 1, .multiplier = 1, .quotient = 1, .division = Divider(q, source)};
  if (!unit) {
    t.encode = encode_scale(amax, q, t.division);
    t.quotient = t.division.decode(amax, range_of(q));  // N17.8, N17.14
  }
  t.decode = decode_scale(t.encode);                      // N10.7
  t.multiplier = narrowed(t.encode * narrowed(1.0 / 6));  // N10.5: a product with fl(1 / 6)
  return t;
}

const Encoder e4m3_code(Encoding::e4m3, Round::rne, Overflow::sat);
const Decoder e4m3_value(Encoding::e4m3), e2m1_value(Encoding::e2m1);

// v from a block's amax, before its minimum.
double unlimited(double amax, const TensorScales& t, Nvfp4Scale order) {
  switch (order) {
    case Nvfp4Scale::folded: return narrowed(amax * t.multiplier);  // N10.6
    case Nvfp4Scale::quotient_first:
      return narrowed(t.division.quotient(amax, 6) * t.encode);  // N17.8, N17.14, as those below
    case Nvfp4Scale::product_first: return narrowed(t.encode * narrowed(amax * narrowed(1.0 / 6)));
    case Nvfp4Scale::decode: return narrowed(t.division.quotient(amax, 6) / t.quotient);
    case Nvfp4Scale::decode_product:
    case Nvfp4Scale::given_product: return narrowed(amax / narrowed(6 * t.quotient));
    case Nvfp4Scale::decode_first: return narrowed(narrowed(amax / t.quotient) / 6);  // N17.14: binary32
    default: return t.division.quotient(amax, 6);
  }
}
// N10.6: v as it is cast.
double scaled_amax(double amax, const TensorScales& t, const Numerics& n) {
  const double v = at_most(unlimited(amax, t, n.nvfp4_scale), max_of(Encoding::f32), n.nan_clamp);
  if (n.nvfp4_floor == Nvfp4Floor::least_normal && v < power_of_two(-6))
    return power_of_two(-6);  // N17.9: false for NaN, as below
  if (n.nvfp4_floor == Nvfp4Floor::one && v != 0 && v < power_of_two(-9)) return power_of_two(-9);
  return v;
}

// N17.11: the least code whose value is not below v, with v's sign.
uint32_t e4m3_code_above(double v) {
  constexpr uint32_t kSign = 0x80;
  const EncodingInfo& e4m3 = info(Encoding::e4m3);
  if (std::isnan(v)) return e4m3.nan;
  const bool negative = std::signbit(v);
  uint32_t code = 0;
  if (!negative)
    while (code < e4m3.max_finite && e4m3_value(code) < v) ++code;
  if (negative)
    while (code < e4m3.max_finite && -e4m3_value(code + 1) >= v) ++code;
  return code + (negative ? kSign : 0);
}

// N17.11, away_240: by the integers of v in units of its place, as a converter that knows no 256 counts them.
uint32_t e4m3_code_away(double v) {
  if (std::isnan(v)) return info(Encoding::e4m3).nan;
  const uint32_t sign = std::signbit(v) ? 0x80 : 0;
  const double a = std::abs(v);
  if (a < power_of_two(-6))
    return sign | static_cast<uint32_t>(std::min(std::floor(narrowed(a * 512 + 0.5)), 7.0));
  if (a >= 248) return sign | 0x7E;
  const double place = binade_of(a) / 8;  // 8 to 15 of them
  const uint32_t count = static_cast<uint32_t>(std::floor(a / place + 0.5));
  const double rounded = count * place;
  uint32_t code = 0x08;
  while (e4m3_value(code) < rounded) ++code;
  return sign | code;
}

// The scale that is the code of v.
uint32_t scale_code(double amax, const TensorScales& t, const Numerics& n) {
  const double v = scaled_amax(amax, t, n);
  const uint32_t code = n.scale_round == ScaleRound::rp    ? e4m3_code_above(v)  // N17.11
                        : n.scale_round == ScaleRound::rne ? e4m3_code(v)        // N10.6
                                                           : e4m3_code_away(v);
  if (code == 0 && n.nvfp4_floor == Nvfp4Floor::one) return e4m3_code(1);         // N17.9
  if (code == 0 && n.nvfp4_floor == Nvfp4Floor::eighth) return e4m3_code(0.125);  // N17.9
  return code;
}

// N10.8: what the elements under scale `sf` are multiplied by.
double element_multiplier(uint32_t sf, const TensorScales& t, const Numerics& n) {
  if (n.multiplier == Multiplier::quotient)
    return at_most(narrowed(t.encode / e4m3_value(sf)), max_of(Encoding::f32), n.nan_clamp);  // N17.10
  if (n.multiplier == Multiplier::decode_reciprocal)
    return at_most(narrowed(narrowed(1.0 / t.quotient) / e4m3_value(sf)), max_of(Encoding::f32),
                   n.nan_clamp);  // N17.10
  if (n.multiplier == Multiplier::product_reciprocal)
    return narrowed(1.0 / narrowed(e4m3_value(sf) * t.quotient));  // N17.10: no minimum
  if (n.multiplier == Multiplier::bf16_quotient) {
    const double quotient = at_most(narrowed(t.encode / e4m3_value(sf)), max_of(Encoding::bf16), n.nan_clamp);
    return value_of(Encoding::bf16, Encoder(Encoding::bf16, Round::rne, Overflow::nosat)(quotient));
  }
  return at_most(narrowed(1.0 / narrowed(e4m3_value(sf) * t.decode)), max_of(Encoding::f32), n.nan_clamp);
}

// N10.9: the elements' factor; N17.10: a multiplier of 0, or a divisor.
ElementFactor element_factor(uint32_t sf, const TensorScales& t, const Numerics& n) {
  const double s = e4m3_value(sf);
  if (s == 0 && n.zero_multiplier == ZeroMultiplier::zero) return {0};                      // N17.10
  if (s == 0 && n.zero_multiplier == ZeroMultiplier::tiny) return {narrowed(1 / 1e8)};      // N17.10
  if (n.multiplier == Multiplier::divide_twice) return {s, true, t.quotient};               // N17.10
  if (n.multiplier == Multiplier::divide_product) return {narrowed(s * t.quotient), true};  // N17.10
  if (n.multiplier == Multiplier::divide_quotient) return {narrowed(s / t.encode), true};   // N17.10
  return {element_multiplier(sf, t, n)};
}

// ---- one block ----------------------------------------------------------------------------------

// N10.9: the codes of one row of a block, stored from (i, j) on.
class Elements {
 public:
  Elements(const Problem& p, Direction d) : q_(*p.quantizer(d)), cast_(q_) {
    if (q_.round == Round::sr) draws_.emplace(p, d);
  }
  void operator()(const Values& x, int64_t i, int64_t j, int64_t n, const ElementFactor& factor,
                  uint8_t* codes) const {
    if (!draws_) return cast_.codes(&x(i, j), n, factor, codes);  // N10.9
    Draws::Last last;
    std::array<uint32_t, 4> bytes{};
    for (int64_t k = 0; k < n; ++k) {
      if (k % 4 == 0) bytes = draws_->bytes_at(i, j + k, last);  // a block begins at a multiple of 16
      codes[k] = static_cast<uint8_t>(drawn(x(i, j + k), factor, bytes[static_cast<size_t>(k % 4)]));
    }
  }
  uint32_t byte_at(int64_t i, int64_t j, Draws::Last& last) const { return draws_->byte_at(i, j, last); }
  // The code under a random byte.
  uint32_t drawn(double x, const ElementFactor& factor, uint32_t byte) const {
    return cast_.signed_zero(
        stochastic_code(cast_.scaled(x, factor), byte, q_.numerics.sr_rule));  // N10.9, N12.3, N17.4
  }

 private:
  const Quantizer& q_;
  ElementCast cast_;
  std::optional<Draws> draws_;  // of round=sr
};

// A scale for a block with the codes that follow from it, row after row of 16; places outside the tensor stay
// 0.
struct Candidate {
  uint32_t scale;
  ElementFactor factor;
  std::array<uint8_t, kBlock * kBlock> codes{};
};
Candidate candidate(uint32_t scale, const Values& x, const Span& s, const TensorScales& t, const Quantizer& q,
                    const Elements& elements) {
  Candidate c;
  c.scale = scale;
  c.factor = element_factor(scale, t, q.numerics);
  for (int64_t i = s.r; i < s.r_end; ++i)
    elements(x, i, s.c, s.c_end - s.c, c.factor, &c.codes[static_cast<size_t>((i - s.r) * kBlock)]);
  return c;
}

// ---- four over six ------------------------------------------------------------------------------

// N10.10: the scales that put a block's amax at 6 and at 4.
struct Choices {
  uint32_t six, four;
};
Choices choices(double amax, const TensorScales& t) {
  const double base = narrowed(narrowed(amax / 6) * t.encode);  // N10.10: a division, unlike N10.6
  const auto code = [](double v) {
    return e4m3_code(at_most(v, max_of(Encoding::e4m3), NanClamp::drop));
  };  // N10.10: 448 also where F is 256
  return {code(base), code(narrowed(base * 1.5))};
}

// The difference between an element and what its code under scale `sf` stands for.
double difference(uint32_t code, uint32_t sf, double x, const TensorScales& t, const Quantizer& q) {
  const double unscaled = narrowed(e2m1_value(code) * e4m3_value(sf));
  if (q.numerics.four_over_six_error == CandidateError::fast)
    return narrowed(unscaled - narrowed(x * t.encode));                        // N10.12
  return narrowed(narrowed(narrowed(unscaled * t.amax) / full_range(q)) - x);  // N10.11
}

double error_of(const Candidate& c, const Values& x, const Span& s, const TensorScales& t,
                const Quantizer& q) {
  std::array<double, kBlock> of_row{};  // N10.13: 0 for rows outside
  for (int64_t i = s.r; i < s.r_end; ++i) {
    double& error = of_row[static_cast<size_t>(i - s.r)];
    for (int64_t j = s.c; j < s.c_end; ++j) {  // N10.11: in stored order
      const double diff =
          difference(c.codes[static_cast<size_t>((i - s.r) * kBlock + j - s.c)], c.scale, x(i, j), t, q);
      error = narrowed(
          error + (q.four_over_six == FourOverSix::mse ? narrowed(diff * diff) : std::abs(diff)));  // N10.11
    }
  }
  if (!is_square(q.block)) return of_row[0];
  for (size_t half = kBlock / 2; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i) of_row[i] = narrowed(of_row[i] + of_row[i + half]);  // N10.13
  return of_row[0];
}

struct Chosen {
  Candidate six, four;
  double error6, error4;
  const Candidate& best() const { return error4 < error6 ? four : six; }  // N10.11: false for NaN
};
Chosen choose(double amax, const Values& x, const Span& s, const TensorScales& t, const Quantizer& q,
              const Elements& elements) {
  const Choices scales = choices(amax, t);
  Chosen c{candidate(scales.six, x, s, t, q, elements), candidate(scales.four, x, s, t, q, elements), 0, 0};
  c.error6 = error_of(c.six, x, s, t, q);
  c.error4 = error_of(c.four, x, s, t, q);
  return c;
}

// ---- the ops ------------------------------------------------------------------------------------

// x as it will be stored, rotated where the quantizer says so.
Values stored_x(const Run& run, Direction d) {
  const Quantizer& q = run.quantizer(d);
  const Values x = seen(run, d);
  return q.rht ? rotated(x, q.sign_mask, q.numerics.rht_sum, run.threads) : x;  // N11.2, N11.4
}

void quantize(const Run& run, Direction d) {
  const Quantizer& q = run.quantizer(d);
  const Values x = stored_x(run, d), amax = amaxes(run, d, x);
  std::vector<TensorScales> of_rows;
  for (int64_t i = 0; i < amax.rows(); ++i)
    of_rows.push_back(tensor_scales(amax(i, 0), q, run.problem.x.source));  // N10.9
  const Elements elements(run.problem, d);
  const GivenBlocks given(run, d);
  Bytes scales(x.rows(), ceil_div(x.cols(), kBlock)), codes(x.rows(), x.cols());
  for_blocks(x, q.block, run.threads, [&](const Span& s) {
    const TensorScales& t = of_rows[static_cast<size_t>(scale_row(q, s.r))];
    const std::optional<uint32_t> scale = given.scale(s);
    const double b = scale ? 0 : given.amax(x, s, q.numerics.nan_amax);  // N10.4
    const Candidate c = q.four_over_six == FourOverSix::off
                            ? candidate(scale ? *scale : scale_code(b, t, q.numerics), x, s, t, q, elements)
                            : choose(b, x, s, t, q, elements).best();
    for (int64_t i = s.r; i < s.r_end; ++i) {
      scales(i, s.c / kBlock) = static_cast<uint8_t>(c.scale);  // N10.14: repeated for every row of a tile
      std::copy_n(&c.codes[static_cast<size_t>((i - s.r) * kBlock)], s.c_end - s.c, &codes(i, s.c));
    }
  });
  if (!q.amax) store(run.output(d, "amax"), amax);            // N10.1, N10.9
  store_scales(run.output(d, scale_stem(q.scales)), scales);  // N10.14
  store(run.output(d, "data"), codes);                        // N10.14
}

// N10.15: what a reader multiplies the values of the elements stored from (i, j) on by.
class DecodeScales {
 public:
  DecodeScales(const Run& run, Direction d)
      : q_(run.quantizer(d)),
        amax_(values(run.input(d, "amax"), run.threads)),
        inverse_(narrowed(1.0 / full_range(q_))) {
    const ConstBuffer& plane = run.input(d, scale_stem(q_.scales));
    codes_ = plane.plane->layout == ScaleLayout::gemm
                 ? from_gemm(bytes(plane), plane.plane->tiles_by_columns())
                 : bytes(plane);
  }
  uint32_t code(int64_t i, int64_t j) const { return codes_(i, j / kBlock); }
  double amax(int64_t i) const { return amax_(scale_row(q_, i), 0); }
  double operator()(int64_t i, int64_t j) const {
    return narrowed(narrowed(e4m3_value(code(i, j)) * amax(i)) * inverse_);
  }  // N10.15

 private:
  const Quantizer& q_;
  Values amax_;
  double inverse_;
  Bytes codes_;
};

void dequantize(const Run& run, Direction d) {
  const DecodeScales scale_of(run, d);
  dequantize_each(run, d, [&](int64_t i, int64_t j) { return scale_of(i, j); });  // N10.15
}

// N10.16: rows of x are pairs of a tensor amax and a block amax.
void chain_of_pairs(const Run& run) {
  const Quantizer& q = run.quantizer(Direction::row);
  const Values x = values(run.input("x"), run.threads);
  const Buffer &encode = run.output("encode_scale"), &scale = run.output("scale_inv"),
               &multiplier = run.output("multiplier");
  parallel_for(run.threads, x.rows(), [&](int64_t i) {
    const TensorScales t = tensor_scales(x(i, 0), q, run.problem.x.source);
    const uint32_t sf = scale_code(x(i, 1), t, q.numerics);
    store(encode, i, f32_code(t.encode));
    store(scale, i, sf);
    store(multiplier, i, f32_code(element_factor(sf, t, q.numerics).value));
  });
}

// ---- traces -------------------------------------------------------------------------------------

using Steps = std::vector<TraceStep>;

void append(Steps& steps, Steps more) {
  for (TraceStep& step : more) steps.push_back(std::move(step));
}

Steps trace_tensor(const TensorScales& t, const char* amax_clause, const std::string& whose,
                   const Quantizer& q) {
  const Numerics& n = q.numerics;
  const bool unit = n.nvfp4_scale == Nvfp4Scale::unit;  // N17.8: nothing is divided
  Steps steps = {value_step(amax_clause, "amax" + whose, t.amax)};
  if (!unit) append(steps, t.division.trace_encode(t.amax));
  append(steps, {value_step(unit ? "N10.2" : t.division.cites("N10.2"), "encode scale", t.encode),
                 value_step("N10.7", "decode scale", t.decode)});
  const bool given = n.nvfp4_scale == Nvfp4Scale::given_product;
  if (given || n.nvfp4_scale == Nvfp4Scale::decode || n.nvfp4_scale == Nvfp4Scale::decode_product ||
      n.multiplier == Multiplier::decode_reciprocal || n.multiplier == Multiplier::divide_product ||
      n.multiplier == Multiplier::product_reciprocal || n.multiplier == Multiplier::divide_twice ||
      n.nvfp4_scale == Nvfp4Scale::decode_first) {
    if (!unit && !given) append(steps, t.division.trace_decode("1 / (F * 6)", full_range(q)));
    steps.push_back(value_step(unit ? "N17.8" : t.division.cites("N17.8"),
                               given ? "P, the amax itself" : "amax / (F * 6)", t.quotient));
  }
  return steps;
}
Steps trace_scale(double b, const TensorScales& t, const Quantizer& q) {
  const bool folded = q.numerics.nvfp4_scale == Nvfp4Scale::folded;
  Steps steps;
  if (folded) steps.push_back(value_step("N10.5", "scale multiplier", t.multiplier));
  steps.push_back(
      value_step(folded ? "N10.6" : "N17.8", "scaled amax of the block", scaled_amax(b, t, q.numerics)));
  steps.push_back(code_step(q.numerics.scale_round != ScaleRound::rne    ? "N17.11"
                            : q.numerics.nvfp4_floor == Nvfp4Floor::none ? "N10.6"
                                                                         : "N17.9",
                            "scale", Encoding::e4m3, scale_code(b, t, q.numerics)));
  return steps;
}
TraceStep factor_step(const ElementFactor& factor, const Numerics& n) {
  const bool plain = n.multiplier == Multiplier::reciprocal || n.multiplier == Multiplier::bf16_quotient;
  return value_step(plain && factor.value != 0 ? "N10.8" : "N17.10",
                    factor.divides ? "element divisor" : "element multiplier", factor.value);
}

Steps trace_pair(double amax, double block_amax, const Quantizer& q, Encoding source) {
  const TensorScales t = tensor_scales(amax, q, source);
  Steps steps = trace_tensor(t, "N10.16", " of the tensor", q);
  steps.push_back(value_step("N10.16", "amax of the block", block_amax));
  append(steps, trace_scale(block_amax, t, q));
  steps.push_back(
      factor_step(element_factor(scale_code(block_amax, t, q.numerics), t, q.numerics), q.numerics));
  return steps;
}

Steps trace_dequantize_element(const Run& run, Direction d, const DecodeScales& scale_of, int64_t row,
                               int64_t col) {
  const auto [i, j] = stored_at(*run.input(d, "data").plane, row, col);
  return trace_dequantize(run, d, row, col,
                          {value_step("N10.15", "amax", scale_of.amax(i)),
                           code_step("N10.14", "scale", Encoding::e4m3, scale_of.code(i, j))},
                          scale_of(i, j), "N10.15");
}

// The steps of the elements of a quantize.
class TraceQuantize {
 public:
  TraceQuantize(const Run& run, Direction d)
      : run_(run),
        d_(d),
        q_(run.quantizer(d)),
        seen_(seen(run, d)),
        x_(q_.rht ? rotated(seen_, q_.sign_mask, q_.numerics.rht_sum, run.threads) : seen_),
        amax_(amaxes(run, d, x_)),
        given_(run, d),
        elements_(run.problem, d) {}

  Steps operator()(int64_t row, int64_t col) const {
    const auto [i, j] = seen_at(d_, row, col);
    Steps steps;
    if (q_.rht) append(steps, trace_rotated(seen_, q_.sign_mask, q_.numerics.rht_sum, i, j));
    const TensorScales t = tensor_scales(amax_(scale_row(q_, i), 0), q_, run_.problem.x.source);
    append(steps, trace_tensor(t, q_.row_scaled ? "N10.9" : "N10.1", whose_amax(q_), q_));
    const ElementFactor factor = trace_block(steps, t, block_at(x_, i, j, q_.block));
    steps.push_back(factor_step(factor, q_.numerics));
    append(steps, trace_element(x_(i, j), factor, q_, "N10.9"));
    if (q_.round != Round::sr) return steps;
    Draws::Last last;
    const uint32_t byte = elements_.byte_at(i, j, last);
    steps.back() =
        code_step(q_.numerics.draw == Draw::logical ? "N12.2" : "N12.4", "random byte", Encoding::u8, byte);
    steps.push_back(code_step("N12.3", "code", q_.element, elements_.drawn(x_(i, j), factor, byte)));
    return steps;
  }

 private:
  // Appends the steps of a block's scale, and gives what follows from it.
  ElementFactor trace_block(Steps& steps, const TensorScales& t, const Span& s) const {
    if (const std::optional<uint32_t> scale = given_.scale(s)) {
      steps.push_back(code_step("N17.12", "scale (given)", Encoding::e4m3, *scale));
      return element_factor(*scale, t, q_.numerics);
    }
    const double b = given_.amax(x_, s, q_.numerics.nan_amax);
    steps.push_back(
        q_.scale_from == ScaleFrom::amax
            ? value_step("N17.12", "amax of the block (given)", b)
            : value_step("N10.4", is_square(q_.block) ? "amax of the 16x16 block" : "amax of the block", b));
    if (q_.four_over_six == FourOverSix::off) {
      append(steps, trace_scale(b, t, q_));
      return element_factor(scale_code(b, t, q_.numerics), t, q_.numerics);
    }
    const Chosen c = choose(b, x_, s, t, q_, elements_);
    append(steps, {code_step("N10.10", "scale for 6", Encoding::e4m3, c.six.scale),
                   code_step("N10.10", "scale for 4", Encoding::e4m3, c.four.scale),
                   value_step("N10.11", "error of the scale for 6", c.error6),
                   value_step("N10.11", "error of the scale for 4", c.error4),
                   code_step("N10.11", "scale", Encoding::e4m3, c.best().scale)});
    return c.best().factor;
  }

  const Run run_;
  const Direction d_;
  const Quantizer& q_;
  const Values seen_, x_;
  const Values amax_;
  const GivenBlocks given_;
  const Elements elements_;
};

Tracer trace(const Run& run, Direction d) {
  if (run.problem.as<Hadamard>()) return trace_hadamard(run);
  if (run.problem.as<ScaleChain>())
    return [=, x = values(run.input("x"), run.threads)](int64_t row, int64_t) {
      return trace_pair(x(row, 0), x(row, 1), run.quantizer(d), run.problem.x.source);
    };
  if (run.problem.as<Dequantize>())
    return [=, scale_of = std::make_shared<DecodeScales>(run, d)](int64_t row, int64_t col) {
      return trace_dequantize_element(run, d, *scale_of, row, col);
    };
  return [of = std::make_shared<TraceQuantize>(run, d)](int64_t row, int64_t col) { return (*of)(row, col); };
}

}  // namespace

const Format formats::nvfp4 = {
    .quantize = quantize, .dequantize = dequantize, .scale_chain = chain_of_pairs, .trace = trace};

}  // namespace assay::reference
