// mxfp8: FP8 elements, one E8M0 scale for every 32 along the contracted dimension.
//
// Everything below is written for row data, whose blocks lie along a row. Column data are the same on the transposed tensor,
// and what comes out is transposed back (N5.1, N6.1, N6.2).
#include <algorithm>

#include "reference/formats/format.h"
#include "reference/parallel.h"
#include "reference/scaling.h"
#include "reference/swizzle.h"

namespace assay::reference {

namespace {

constexpr int64_t kBlock = 32;

// From a block's amax to what its elements are multiplied by, and to what a reader multiplies them by.
double scaled_amax(double amax, Encoding element) {
  return narrowed(amax * narrowed(1.0 / max_of(element)));                   // N5.2: a product with fl(1 / MAX), not a division
}
uint32_t scale_code(double p) { return e8m0_code(p, Round::rp, Overflow::sat); }                         // N5.3
double multiplier(uint32_t k) { return k == 255 ? kNaN : power_of_two(127 - static_cast<int>(k)); }      // N5.4
double decoded_scale(uint32_t k) { return k == 255 ? kNaN : power_of_two(static_cast<int>(k) - 127); }   // N5.9

// The elements that share the scale of (r, c): 1x32 of them, or 32x32 (N5.8); fewer at the edge (N5.1).
struct Span {
  int64_t r, c, r_end, c_end;
};
int64_t height_of(Block block) { return block == Block::b32x32 ? kBlock : 1; }
Span block_at(const Values& x, int64_t r, int64_t c, Block block) {
  const int64_t height = height_of(block);
  const int64_t top = r / height * height, left = c / kBlock * kBlock;
  return {top, left, std::min<int64_t>(top + height, x.rows()), std::min<int64_t>(left + kBlock, x.cols())};
}

double block_amax(const Values& x, const Span& s, NanAmax nan_amax) {
  double amax = 0;
  for (int64_t r = s.r; r < s.r_end; ++r)
    for (int64_t c = s.c; c < s.c_end; ++c) {
      const double element = x.coeff(r, c);
      if (nan_amax == NanAmax::propagate && std::isnan(element)) return kNaN;   // N5.7
      amax = larger(amax, element);                                          // N5.1
    }
  return amax;
}

struct Quantized {
  Bytes scales;   // [rows, cdiv(cols, 32)]
  Bytes data;     // [rows, cols]
};

Quantized quantized(const Values& x, const Quantizer& q, int threads) {
  const Encoder cast(q.element, Round::rne, Overflow::sat);
  Quantized out{Bytes(x.rows(), ceil_div(x.cols(), kBlock)), Bytes(x.rows(), x.cols())};
  const int64_t height = height_of(q.block);
  parallel_for(threads, ceil_div(x.rows(), height), [&](int64_t band) {
    for (int64_t b = 0; b < out.scales.cols(); ++b) {
      const Span s = block_at(x, band * height, b * kBlock, q.block);
      const uint32_t k = scale_code(scaled_amax(block_amax(x, s, q.numerics.nan_amax), q.element));
      const double m = multiplier(k);
      for (int64_t r = s.r; r < s.r_end; ++r) {
        out.scales(r, b) = static_cast<uint8_t>(k);                          // N5.8: repeated for every row of a square block
        scaled_codes(&x(r, s.c), s.c_end - s.c, m, q.numerics.neg_zero, cast, &out.data(r, s.c));   // N5.5
      }
    }
  });
  return out;
}

// x as this direction sees it: contracted along its rows.
Values seen(const Run& run, Direction d) {
  Values x = values(run.input("x"), run.threads);                            // N1.2
  return d == Direction::col ? transposed(x, run.threads) : x;
}

void quantize(const Run& run, Direction d) {
  const Quantizer& q = run.quantizer(d);
  Quantized out = quantized(seen(run, d), q, run.threads);
  if (d == Direction::col) out = {transposed(out.scales, run.threads), transposed(out.data, run.threads)};
  store(run.output(d, "data"), out.data);                                    // N6.1

  const bool gemm = q.scales == ScaleLayout::gemm;
  const Buffer& plane = run.output(d, scale_stem(q.scales));
  Bytes padded = Bytes::Zero(plane.plane->padded.rows, plane.plane->padded.cols);   // N6.4
  padded.topLeftCorner(out.scales.rows(), out.scales.cols()) = out.scales;   // N6.2
  store(plane, gemm ? to_gemm(padded, d) : padded);                          // N6.3
}

// The scale codes that a dequantize reads, in compact layout.
Bytes compact_scales(const Run& run, Direction d) {
  const bool gemm = run.quantizer(d).scales == ScaleLayout::gemm;
  const Bytes stored = bytes(run.input(d, scale_stem(run.quantizer(d).scales)));
  return gemm ? from_gemm(stored, d) : stored;
}
// The one that belongs to element (r, c) (N6.2).
uint32_t scale_of(const Bytes& scales, Direction d, int64_t r, int64_t c) {
  return d == Direction::row ? scales(r, c / kBlock) : scales(r / kBlock, c);
}

void dequantize(const Run& run, Direction d) {
  const Values q = values(run.input(d, "data"), run.threads);                // N2.8
  const Bytes scales = compact_scales(run, d);
  const Buffer& y = run.output("y");
  const Encoder round(y.plane->encoding, Round::rne, Overflow::nosat);       // N2.3
  parallel_for(run.threads, q.rows(), [&](int64_t r) {
    for (int64_t c = 0; c < q.cols(); ++c)
      store(y, r * q.cols() + c, dequantized(q(r, c), decoded_scale(scale_of(scales, d, r, c)), round));   // N5.9
  });
}

// x holds amaxes, or scale codes.
uint32_t chain_code(const ConstBuffer& x, int64_t i, Encoding element) {
  const uint32_t bits = load(x, i);
  return x.plane->encoding == Encoding::e8m0 ? bits : scale_code(scaled_amax(value_of(Encoding::f32, bits), element));
}

void scale_chain(const Run& run) {
  const ConstBuffer& x = run.input("x");
  const Buffer* const scales = x.plane->encoding == Encoding::f32 ? &run.output("scale_inv") : nullptr;
  const Buffer &multipliers = run.output("multiplier"), &decoded = run.output("decoded");
  for (int64_t i = 0; i < x.plane->logical.count(); ++i) {
    const uint32_t k = chain_code(x, i, run.quantizer(Direction::row).element);
    if (scales) store(*scales, i, k);
    store(multipliers, i, f32_code(multiplier(k)));
    store(decoded, i, f32_code(decoded_scale(k)));
  }
}

void add_scale_steps(std::vector<TraceStep>& steps, double amax, Encoding element) {
  const double p = scaled_amax(amax, element);
  steps.push_back(value_step("N5.2", "scaled amax", p));
  steps.push_back(code_step("N5.3", "scale", Encoding::e8m0, scale_code(p)));
}

std::vector<TraceStep> trace(const Run& run, Direction d, int64_t row, int64_t col) {
  std::vector<TraceStep> steps;
  const Quantizer& q = run.quantizer(d);
  if (run.problem.as<ScaleChain>()) {
    const ConstBuffer& x = run.input("x");
    const int64_t i = row * x.plane->logical.cols + col;
    steps.push_back(code_step("N5.1", x.plane->encoding == Encoding::f32 ? "amax" : "scale", x.plane->encoding, load(x, i)));
    if (x.plane->encoding == Encoding::f32) add_scale_steps(steps, value_of(Encoding::f32, load(x, i)), q.element);
    const uint32_t k = chain_code(x, i, q.element);
    steps.push_back(value_step("N5.4", "multiplier", multiplier(k)));
    steps.push_back(value_step("N5.9", "decoded scale", decoded_scale(k)));
  } else if (const Dequantize* op = run.problem.as<Dequantize>()) {
    const ConstBuffer& data = run.input(d, "data");
    const uint32_t code = load(data, row * data.plane->logical.cols + col), k = scale_of(compact_scales(run, d), d, row, col);
    const double value = value_of(q.element, code), s = decoded_scale(k);
    const Encoder round(op->out, Round::rne, Overflow::nosat);
    steps = {code_step("N6.1", "element code", q.element, code), value_step("N2.8", "element value", value),
             code_step("N6.2", "scale", Encoding::e8m0, k), value_step("N5.9", "decoded scale", s),
             value_step("N5.9", "value * scale", narrowed(value * s)),
             code_step("N5.9", "rounded to the output", op->out, dequantized(value, s, round))};
  } else {
    const Values x = seen(run, d);
    const int64_t r = d == Direction::row ? row : col, c = d == Direction::row ? col : row;
    const double amax = block_amax(x, block_at(x, r, c, q.block), q.numerics.nan_amax);
    steps.push_back(value_step("N5.1", q.block == Block::b32x32 ? "amax of the 32x32 block" : "amax of the block", amax));
    add_scale_steps(steps, amax, q.element);
    const double m = multiplier(scale_code(scaled_amax(amax, q.element)));
    steps.push_back(value_step("N5.4", "multiplier", m));
    for (TraceStep& step : trace_element(x(r, c), m, q, "N5.5")) steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace

const Format formats::mxfp8 = {.quantize = quantize, .dequantize = dequantize, .scale_chain = scale_chain, .trace = trace};

}  // namespace assay::reference
