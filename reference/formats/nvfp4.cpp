// nvfp4: E2M1 elements in pairs, one E4M3 scale for every 16 along the contracted dimension or for a tile of 16x16, under one binary32 amax
// of the tensor or of each stored row. Columns are stored transposed, so everything below sees blocks along the rows of what is stored, and
// (i, j) is where an element is stored.
#include <array>

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

// ---- scales ------------------------------------------------------------------------------------------------------------

double largest_scale(const Quantizer& q) { return q.e4m3_max == E4m3Max::m256 ? 256 : 448; }   // F
double full_range(const Quantizer& q) { return largest_scale(q) * max_of(Encoding::e2m1); }    // F * 6, exact

// N10.3: the lesser of v and a finite limit; a NaN v gives the limit, or stays.
double at_most(double v, double limit, NanClamp nan_clamp) {
  if (std::isnan(v)) return nan_clamp == NanClamp::propagate ? v : limit;
  return v < limit ? v : limit;
}

// What follows from the amax of the tensor or of a stored row.
struct TensorScales {
  double amax;         // A
  double encode;       // S
  double decode;       // D
  double multiplier;   // m
};
double encode_scale(double amax, const Quantizer& q) {
  if (std::isnan(amax) && q.numerics.nan_tensor_amax == NanTensorAmax::unit) return 1;               // N10.2
  const double scale = at_most(narrowed(full_range(q) / amax), max_of(Encoding::f32), q.numerics.nan_clamp);   // N10.2
  if (std::isinf(amax) && q.numerics.inf_amax == InfAmax::zero) return scale;                        // N10.2: 0, and stays
  return amax == 0 || scale == 0 ? 1 : scale;                                                        // N10.2
}
TensorScales tensor_scales(double amax, const Quantizer& q) {
  TensorScales t;
  t.amax = amax;
  t.encode = encode_scale(amax, q);
  t.decode = decode_scale(t.encode);                                         // N10.7
  t.multiplier = narrowed(t.encode * narrowed(1.0 / 6));                     // N10.5: a product with fl(1 / 6)
  return t;
}

uint32_t e4m3_code(double v) {
  static const Encoder encoder(Encoding::e4m3, Round::rne, Overflow::sat);
  return encoder(v);
}
double e4m3_value(uint32_t code) {
  static const Decoder decoder(Encoding::e4m3);
  return decoder(code);
}
double e2m1_value(uint32_t code) {
  static const Decoder decoder(Encoding::e2m1);
  return decoder(code);
}

// N10.6: v, and the scale that is its code, from a block's amax.
double scaled_amax(double amax, const TensorScales& t, NanClamp nan_clamp) {
  return at_most(narrowed(amax * t.multiplier), max_of(Encoding::f32), nan_clamp);
}
uint32_t scale_code(double amax, const TensorScales& t, NanClamp nan_clamp) { return e4m3_code(scaled_amax(amax, t, nan_clamp)); }

// N10.8: what the elements under scale `sf` are multiplied by.
double element_multiplier(uint32_t sf, const TensorScales& t, const Numerics& n) {
  if (n.multiplier == Multiplier::bf16_quotient) {
    const double quotient = at_most(narrowed(t.encode / e4m3_value(sf)), max_of(Encoding::bf16), n.nan_clamp);
    return value_of(Encoding::bf16, Encoder(Encoding::bf16, Round::rne, Overflow::nosat)(quotient));
  }
  return at_most(narrowed(1.0 / narrowed(e4m3_value(sf) * t.decode)), max_of(Encoding::f32), n.nan_clamp);
}

// ---- one block ---------------------------------------------------------------------------------------------------------

// N10.9: the codes of one row of a block, stored from (i, j) on.
class Elements {
 public:
  Elements(const Problem& p, Direction d) : q_(*p.quantizer(d)), cast_(q_.element, Round::rne, Overflow::sat) {
    if (q_.round == Round::sr) draws_.emplace(p, d);
  }
  void operator()(const Values& x, int64_t i, int64_t j, int64_t n, double multiplier, uint8_t* codes) const {
    if (!draws_) return scaled_codes(&x(i, j), n, multiplier, q_.numerics.neg_zero, cast_, codes);   // N10.9
    Draws::Last last;
    for (int64_t k = 0; k < n; ++k)
      codes[k] = static_cast<uint8_t>(stochastic_code(scaled(x(i, j + k), multiplier, q_.numerics.neg_zero), draws_->byte_at(i, j + k, last),
                                                      q_.numerics.sr_rule));   // N10.9, N12.3
  }
  const std::optional<Draws>& draws() const { return draws_; }

 private:
  const Quantizer& q_;
  Encoder cast_;
  std::optional<Draws> draws_;   // of round=sr
};

// A scale for a block with the codes that follow from it, row after row of 16; places outside the tensor stay 0.
struct Candidate {
  uint32_t scale;
  double multiplier;
  std::array<uint8_t, kBlock * kBlock> codes{};
};
Candidate candidate(uint32_t scale, const Values& x, const Span& s, const TensorScales& t, const Quantizer& q, const Elements& elements) {
  Candidate c;
  c.scale = scale;
  c.multiplier = element_multiplier(scale, t, q.numerics);
  for (int64_t i = s.r; i < s.r_end; ++i) elements(x, i, s.c, s.c_end - s.c, c.multiplier, &c.codes[static_cast<size_t>((i - s.r) * kBlock)]);
  return c;
}

// ---- four over six -----------------------------------------------------------------------------------------------------

// N10.10: the scales that put a block's amax at 6 and at 4.
struct Choices {
  uint32_t six, four;
};
Choices choices(double amax, const TensorScales& t) {
  const double base = narrowed(narrowed(amax / 6) * t.encode);               // N10.10: a division, unlike N10.6
  const auto code = [](double v) { return e4m3_code(at_most(v, max_of(Encoding::e4m3), NanClamp::drop)); };   // N10.10: 448 also where F is 256
  return {code(base), code(narrowed(base * 1.5))};
}

// The difference between an element and what its code under scale `sf` stands for.
double difference(uint32_t code, uint32_t sf, double x, const TensorScales& t, const Quantizer& q) {
  const double unscaled = narrowed(e2m1_value(code) * e4m3_value(sf));
  if (q.numerics.four_over_six_error == CandidateError::fast) return narrowed(unscaled - narrowed(x * t.encode));   // N10.12
  return narrowed(narrowed(narrowed(unscaled * t.amax) / full_range(q)) - x);   // N10.11
}

double error_of(const Candidate& c, const Values& x, const Span& s, const TensorScales& t, const Quantizer& q) {
  std::array<double, kBlock> of_row{};                                       // N10.13: 0 for rows outside
  for (int64_t i = s.r; i < s.r_end; ++i) {
    double& error = of_row[static_cast<size_t>(i - s.r)];
    for (int64_t j = s.c; j < s.c_end; ++j) {                                // N10.11: in stored order
      const double diff = difference(c.codes[static_cast<size_t>((i - s.r) * kBlock + j - s.c)], c.scale, x(i, j), t, q);
      error = narrowed(error + (q.four_over_six == FourOverSix::mse ? narrowed(diff * diff) : std::abs(diff)));   // N10.11
    }
  }
  if (!is_square(q.block)) return of_row[0];
  for (size_t half = kBlock / 2; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i) of_row[i] = narrowed(of_row[i] + of_row[i + half]);   // N10.13
  return of_row[0];
}

struct Chosen {
  Candidate six, four;
  double error6, error4;
  const Candidate& best() const { return error4 < error6 ? four : six; }     // N10.11: false for NaN
};
Chosen choose(double amax, const Values& x, const Span& s, const TensorScales& t, const Quantizer& q, const Elements& elements) {
  const Choices scales = choices(amax, t);
  Chosen c{candidate(scales.six, x, s, t, q, elements), candidate(scales.four, x, s, t, q, elements), 0, 0};
  c.error6 = error_of(c.six, x, s, t, q);
  c.error4 = error_of(c.four, x, s, t, q);
  return c;
}

// ---- the ops -----------------------------------------------------------------------------------------------------------

// x as it will be stored, rotated where the quantizer says so.
Values stored_x(const Run& run, Direction d) {
  const Quantizer& q = run.quantizer(d);
  const Values x = seen(run, d);
  return q.rht ? rotated(x, q.sign_mask, q.numerics.rht_sum, run.threads) : x;   // N11.2, N11.4
}

// One amax, or one for each stored row.
std::vector<double> amaxes(const Run& run, Direction d, const Values& x) {
  const Quantizer& q = run.quantizer(d);
  if (q.amax) return {scalar(run.input(d, "given.amax"))};                   // N10.1
  if (!q.row_scaled) return {tensor_amax(x, 0.0, run.threads)};              // N10.1, N11.4
  std::vector<double> of_row(static_cast<size_t>(x.rows()));
  for (int64_t i = 0; i < x.rows(); ++i) of_row[static_cast<size_t>(i)] = tensor_amax(x.row(i), 0.0, 1);   // N10.9
  return of_row;
}

// The scales that hold for stored row i.
class RowScales {
 public:
  RowScales(const std::vector<double>& amax, const Quantizer& q) : row_scaled_(q.row_scaled) {
    for (double a : amax) of_.push_back(tensor_scales(a, q));
  }
  const TensorScales& operator()(int64_t i) const { return of_[row_scaled_ ? static_cast<size_t>(i) : 0]; }   // N10.9

 private:
  bool row_scaled_;
  std::vector<TensorScales> of_;
};

void quantize(const Run& run, Direction d) {
  const Quantizer& q = run.quantizer(d);
  const Values x = stored_x(run, d);
  const std::vector<double> amax = amaxes(run, d, x);
  const RowScales scales_of(amax, q);
  const Elements elements(run.problem, d);
  Bytes scales(x.rows(), ceil_div(x.cols(), kBlock)), codes(x.rows(), x.cols());
  for_blocks(x, q.block, run.threads, [&](const Span& s) {
    const TensorScales& t = scales_of(s.r);
    const double b = block_amax(x, s, q.numerics.nan_amax);                  // N10.4
    const Candidate c = q.four_over_six == FourOverSix::off ? candidate(scale_code(b, t, q.numerics.nan_clamp), x, s, t, q, elements)
                                                            : choose(b, x, s, t, q, elements).best();
    for (int64_t i = s.r; i < s.r_end; ++i) {
      scales(i, s.c / kBlock) = static_cast<uint8_t>(c.scale);               // N10.14: repeated for every row of a tile
      std::copy_n(&c.codes[static_cast<size_t>((i - s.r) * kBlock)], s.c_end - s.c, &codes(i, s.c));
    }
  });
  if (!q.amax) {
    const Buffer& plane = run.output(d, "amax");
    for (size_t i = 0; i < amax.size(); ++i) store(plane, static_cast<int64_t>(i), f32_code(amax[i]));   // N10.1, N10.9
  }
  store_scales(run.output(d, scale_stem(q.scales)), scales);                 // N10.14
  store(run.output(d, "data"), codes);                                       // N10.14
}

// N10.15: what a reader multiplies the values of the elements stored from (i, j) on by.
class DecodeScales {
 public:
  DecodeScales(const Run& run, Direction d)
      : q_(run.quantizer(d)), amax_(values(run.input(d, "amax"), run.threads)), inverse_(narrowed(1.0 / full_range(q_))) {
    const ConstBuffer& plane = run.input(d, scale_stem(q_.scales));
    codes_ = plane.plane->layout == ScaleLayout::gemm ? from_gemm(bytes(plane), plane.plane->tiles_by_columns()) : bytes(plane);
  }
  uint32_t code(int64_t i, int64_t j) const { return codes_(i, j / kBlock); }
  double amax(int64_t i) const { return amax_(q_.row_scaled ? i : 0, 0); }
  double operator()(int64_t i, int64_t j) const { return narrowed(narrowed(e4m3_value(code(i, j)) * amax(i)) * inverse_); }   // N10.15

 private:
  const Quantizer& q_;
  Values amax_;
  double inverse_;
  Bytes codes_;
};

void dequantize(const Run& run, Direction d) {
  const DecodeScales scale_of(run, d);
  dequantize_each(run, d, [&](int64_t i, int64_t j) { return scale_of(i, j); });   // N10.15
}

// N10.16: rows of x are pairs of a tensor amax and a block amax.
void chain_of_pairs(const Run& run) {
  const Quantizer& q = run.quantizer(Direction::row);
  const Values x = values(run.input("x"), run.threads);
  const Buffer &encode = run.output("encode_scale"), &scale = run.output("scale_inv"), &multiplier = run.output("multiplier");
  parallel_for(run.threads, x.rows(), [&](int64_t i) {
    const TensorScales t = tensor_scales(x(i, 0), q);
    const uint32_t sf = scale_code(x(i, 1), t, q.numerics.nan_clamp);
    store(encode, i, f32_code(t.encode));
    store(scale, i, sf);
    store(multiplier, i, f32_code(element_multiplier(sf, t, q.numerics)));
  });
}

// ---- traces ------------------------------------------------------------------------------------------------------------

using Steps = std::vector<TraceStep>;

void append(Steps& steps, Steps more) {
  for (TraceStep& step : more) steps.push_back(std::move(step));
}

Steps trace_tensor(const TensorScales& t, const char* amax_clause, const std::string& whose) {
  return {value_step(amax_clause, "amax" + whose, t.amax), value_step("N10.2", "encode scale", t.encode),
          value_step("N10.7", "decode scale", t.decode)};
}
Steps trace_scale(double b, const TensorScales& t, const Quantizer& q) {
  const uint32_t sf = scale_code(b, t, q.numerics.nan_clamp);
  return {value_step("N10.5", "scale multiplier", t.multiplier), value_step("N10.6", "scaled amax of the block", scaled_amax(b, t, q.numerics.nan_clamp)),
          code_step("N10.6", "scale", Encoding::e4m3, sf)};
}

Steps trace_chain(const Run& run, int64_t row) {
  const Quantizer& q = run.quantizer(Direction::row);
  const Values x = values(run.input("x"), run.threads);
  const TensorScales t = tensor_scales(x(row, 0), q);
  Steps steps = trace_tensor(t, "N10.16", " of the tensor");
  steps.push_back(value_step("N10.16", "amax of the block", x(row, 1)));
  append(steps, trace_scale(x(row, 1), t, q));
  steps.push_back(value_step("N10.8", "element multiplier", element_multiplier(scale_code(x(row, 1), t, q.numerics.nan_clamp), t, q.numerics)));
  return steps;
}

Steps trace_dequantize_element(const Run& run, Direction d, int64_t row, int64_t col) {
  const auto [i, j] = stored_at(*run.input(d, "data").plane, row, col);
  const DecodeScales scale_of(run, d);
  return trace_dequantize(run, d, row, col, {value_step("N10.15", "amax", scale_of.amax(i)), code_step("N10.14", "scale", Encoding::e4m3, scale_of.code(i, j))},
                          scale_of(i, j), "N10.15");
}

Steps trace_quantize_element(const Run& run, Direction d, int64_t row, int64_t col) {
  const Quantizer& q = run.quantizer(d);
  const auto [i, j] = seen_at(d, row, col);
  Steps steps;
  if (q.rht) append(steps, trace_rotated(seen(run, d), q.sign_mask, q.numerics.rht_sum, i, j));
  const Values x = stored_x(run, d);
  const std::vector<double> amax = amaxes(run, d, x);
  const TensorScales t = tensor_scales(amax[q.row_scaled ? static_cast<size_t>(i) : 0], q);
  append(steps, trace_tensor(t, q.row_scaled ? "N10.9" : "N10.1", q.amax ? " (given)" : q.row_scaled ? " of the stored row" : " of the tensor"));
  const Span s = block_at(x, i, j, q.block);
  const double b = block_amax(x, s, q.numerics.nan_amax);
  steps.push_back(value_step("N10.4", is_square(q.block) ? "amax of the 16x16 block" : "amax of the block", b));
  const Elements elements(run.problem, d);
  double multiplier = 0;
  if (q.four_over_six == FourOverSix::off) {
    append(steps, trace_scale(b, t, q));
    multiplier = element_multiplier(scale_code(b, t, q.numerics.nan_clamp), t, q.numerics);
  } else {
    const Chosen c = choose(b, x, s, t, q, elements);
    append(steps, {code_step("N10.10", "scale for 6", Encoding::e4m3, c.six.scale), code_step("N10.10", "scale for 4", Encoding::e4m3, c.four.scale),
                   value_step("N10.11", "error of the scale for 6", c.error6), value_step("N10.11", "error of the scale for 4", c.error4),
                   code_step("N10.11", "scale", Encoding::e4m3, c.best().scale)});
    multiplier = c.best().multiplier;
  }
  steps.push_back(value_step("N10.8", "element multiplier", multiplier));
  append(steps, trace_element(x(i, j), multiplier, q, "N10.9"));
  if (q.round == Round::sr) {
    Draws::Last last;
    const uint32_t byte = elements.draws()->byte_at(i, j, last);
    steps.back() = code_step(q.numerics.draw == Draw::logical ? "N12.2" : "N12.4", "random byte", Encoding::u8, byte);
    steps.push_back(code_step("N12.3", "code", q.element, stochastic_code(scaled(x(i, j), multiplier, q.numerics.neg_zero), byte, q.numerics.sr_rule)));
  }
  return steps;
}

std::vector<TraceStep> trace(const Run& run, Direction d, int64_t row, int64_t col) {
  if (run.problem.as<Hadamard>()) return trace_hadamard(run, row, col);
  if (run.problem.as<ScaleChain>()) return trace_chain(run, row);
  if (run.problem.as<Dequantize>()) return trace_dequantize_element(run, d, row, col);
  return trace_quantize_element(run, d, row, col);
}

}  // namespace

const Format formats::nvfp4 = {.quantize = quantize, .dequantize = dequantize, .scale_chain = chain_of_pairs, .trace = trace};

}  // namespace assay::reference
