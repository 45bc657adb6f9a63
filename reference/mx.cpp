#include "reference/mx.h"

#include <algorithm>
#include <optional>
#include <string>

#include "reference/blocks.h"
#include "reference/rounding.h"
#include "reference/scaling.h"
#include "reference/swizzle.h"

namespace assay::reference {

double decoded_scale(uint32_t k) {
  return k == 255 ? kNaN : power_of_two(static_cast<int>(k) - 127);
}  // N5.9
double multiplier(uint32_t k, const Quantizer& q) {
  if (k == 0 && q.numerics.zero_amax == ZeroAmax::divided) return kInfinity;  // N17.15
  return k == 255 ? kNaN : power_of_two(127 - static_cast<int>(k));           // N5.4
}

namespace {

// floor(log2 a) of a finite a above 0, however small.
int exponent_of(double a) {
  int exponent;
  std::frexp(a, &exponent);  // a in [2^(exponent-1), 2^exponent)
  return exponent - 1;
}

// N17.6: a with half a unit of a mantissa of so many bits added; a subnormal a has the least normal
// exponent's unit.
double half_unit_more(double a, int mantissa_bits) {
  return a + power_of_two(std::max(exponent_of(a), -126) - mantissa_bits - 1);
}

// N17.6: the exponent of p, plus one above the middle of its binade, or there; below 2^-126 only above the
// middle of 2^-126.
uint32_t nearest_code(double p) {
  if (p < power_of_two(-126)) return p > power_of_two(-127) ? 1 : 0;
  const int e = exponent_of(p);
  return static_cast<uint32_t>(e + 127 + (p >= 1.5 * power_of_two(e)));
}

uint32_t rounded_up(double p, uint32_t& last) {
  return e8m0_code(p, Round::rp, Overflow::sat, last);
}  // N5.3

// The scale of an amax. `last` is that of the amax before, where a search begins.
uint32_t scale_code(double amax, const Quantizer& q, const MxFormat& format, uint32_t& last) {
  const MxScale rule = q.numerics.mx_scale;
  if (std::isinf(amax) && (rule != MxScale::up || q.numerics.mx_inf == MxInf::nan))
    return q.numerics.mx_inf == MxInf::nan ? 255 : 254;  // N17.7
  const double p = format.scaled_amax(amax, q.element);  // N5.2, N15.2
  if (rule == MxScale::up) return rounded_up(p, last);
  if (std::isnan(amax)) return 255;  // N17.7
  const double a = std::abs(amax);   // N17.6
  if (a == 0) return 0;              // N17.6
  const auto less_emax = [&](int e) {
    return static_cast<uint32_t>(std::clamp(e - exponent_of(max_of(q.element)), -127, 127) + 127);
  };  // N17.6
  switch (rule) {
    case MxScale::floor: return less_emax(exponent_of(a));
    case MxScale::ceil: return less_emax(exponent_of(a) + (a > power_of_two(exponent_of(a))));
    case MxScale::even: return less_emax(exponent_of(half_unit_more(a, info(q.element).mantissa_bits)));
    case MxScale::even_e2m1:
      return less_emax(exponent_of(half_unit_more(a, info(Encoding::e2m1).mantissa_bits)));
    case MxScale::down: return e8m0_code(p, Round::rz, Overflow::sat);
    case MxScale::nearest: return nearest_code(std::abs(p));
    case MxScale::up: break;
  }
  return rounded_up(p, last);
}
uint32_t scale_code(double amax, const Quantizer& q, const MxFormat& format) {
  uint32_t any = 0;
  return scale_code(amax, q, format, any);
}

// The scale codes that a dequantize reads, in compact layout.
Bytes compact_scales(const Run& run, Direction d) {
  const ConstBuffer& plane = run.input(d, scale_stem(run.quantizer(d).scales));
  return plane.plane->layout == ScaleLayout::gemm ? from_gemm(bytes(plane), plane.plane->tiles_by_columns())
                                                  : bytes(plane);
}

// The one of the stored element (i, j): blocks lie down the columns where columns are stored as they are
// (N6.2, N15.4).
uint32_t scale_of(const Bytes& scales, bool down_columns, int64_t i, int64_t j) {
  constexpr int64_t kBlock = length_of(Block::b1x32);
  return down_columns ? scales(i / kBlock, j) : scales(i, j / kBlock);
}

// x holds amaxes, or scale codes.
uint32_t chain_code(const ConstBuffer& x, int64_t i, const MxFormat& format, const Quantizer& q,
                    uint32_t& last) {
  const uint32_t bits = load(x, i);
  return x.plane->encoding == Encoding::e8m0 ? bits
                                             : scale_code(value_of(Encoding::f32, bits), q, format, last);
}

void add_scale_steps(std::vector<TraceStep>& steps, double amax, const MxFormat& format, const Quantizer& q) {
  const MxScale rule = q.numerics.mx_scale;
  const bool even = rule == MxScale::even || rule == MxScale::even_e2m1,
             of_amax = even || rule == MxScale::floor || rule == MxScale::ceil;
  if (!of_amax)
    steps.push_back(
        value_step(std::string(format.scaled_clause), "scaled amax", format.scaled_amax(amax, q.element)));
  if (even && std::isfinite(amax) && amax != 0)
    steps.push_back(
        value_step("N17.6", "amax and half a unit",
                   half_unit_more(std::abs(amax),
                                  info(rule == MxScale::even ? q.element : Encoding::e2m1).mantissa_bits)));
  steps.push_back(code_step(rule != MxScale::up ? "N17.6"
                            : std::isinf(amax)  ? "N17.7"
                                                : "N5.3",
                            "scale", Encoding::e8m0, scale_code(amax, q, format)));
}

}  // namespace

void quantize_mx(const Run& run, Direction d, const MxFormat& format) {
  const Quantizer& q = run.quantizer(d);
  const Values x = seen(run, d);
  const ElementCast cast(q);
  const GivenBlocks given(run, d);
  const int64_t length = length_of(q.block);
  Bytes scales(x.rows(), ceil_div(x.cols(), length)), codes(x.rows(), x.cols());
  for_blocks(x, q.block, run.threads, [&](const Span& s) {
    const std::optional<uint32_t> scale = given.scale(s);
    const uint32_t k = scale ? *scale : scale_code(given.amax(x, s, q.numerics.nan_amax), q, format);
    const ElementFactor m{multiplier(k, q)};
    for (int64_t r = s.r; r < s.r_end; ++r) {
      scales(r, s.c / length) = static_cast<uint8_t>(k);  // N5.8: repeated for every row of a square block
      cast.codes(&x(r, s.c), s.c_end - s.c, m, &codes(r, s.c));  // N5.5, N15.3
    }
  });
  const Buffer &data = run.output(d, "data"), &stored = run.output(d, scale_stem(q.scales));
  store(data, as_stored(std::move(codes), *data.plane, run.threads));              // N6.1, N6.8
  store_scales(stored, as_stored(std::move(scales), *stored.plane, run.threads));  // N6.2, N15.4
}

void dequantize_mx(const Run& run, Direction d) {
  const Bytes scales = compact_scales(run, d);
  const bool down_columns = run.input(d, "data").plane->tiles_by_columns();
  dequantize_each(run, d, [&](int64_t i, int64_t j) {
    return decoded_scale(scale_of(scales, down_columns, i, j));
  });  // N5.9
}

void scale_chain_mx(const Run& run, const MxFormat& format) {
  const ConstBuffer& x = run.input("x");
  const Buffer* const scales = x.plane->encoding == Encoding::f32 ? &run.output("scale_inv") : nullptr;
  const Buffer &multipliers = run.output("multiplier"), &decoded = run.output("decoded");
  uint32_t last = 0;
  for (int64_t i = 0; i < x.plane->logical.count(); ++i) {
    const uint32_t k = chain_code(x, i, format, run.quantizer(Direction::row), last);
    if (scales) store(*scales, i, k);
    store(multipliers, i, f32_code(multiplier(k, run.quantizer(Direction::row))));
    store(decoded, i, f32_code(decoded_scale(k)));
  }
}

namespace {

std::vector<TraceStep> trace_chain(const Run& run, const MxFormat& format, int64_t i) {
  const Quantizer& q = run.quantizer(Direction::row);
  const ConstBuffer& x = run.input("x");
  const bool amaxes = x.plane->encoding == Encoding::f32;
  std::vector<TraceStep> steps = {
      code_step(std::string(format.amax_clause), amaxes ? "amax" : "scale", x.plane->encoding, load(x, i))};
  if (amaxes) add_scale_steps(steps, value_of(Encoding::f32, load(x, i)), format, q);
  uint32_t any = 0;
  const uint32_t k = chain_code(x, i, format, q, any);
  steps.push_back(value_step("N5.4", "multiplier", multiplier(k, q)));
  steps.push_back(value_step("N5.9", "decoded scale", decoded_scale(k)));
  return steps;
}

std::vector<TraceStep> trace_quantize(const Values& x, const GivenBlocks& given, const Quantizer& q,
                                      const MxFormat& format, int64_t r, int64_t c) {
  std::vector<TraceStep> steps;
  const Span s = block_at(x, r, c, q.block);
  std::optional<uint32_t> k = given.scale(s);
  if (k) {
    steps.push_back(code_step("N17.12", "scale (given)", Encoding::e8m0, *k));
  } else {
    const double amax = given.amax(x, s, q.numerics.nan_amax);
    steps.push_back(q.scale_from == ScaleFrom::amax
                        ? value_step("N17.12", "amax of the block (given)", amax)
                        : value_step(std::string(format.amax_clause),
                                     is_square(q.block) ? "amax of the 32x32 block" : "amax of the block",
                                     amax));
    add_scale_steps(steps, amax, format, q);
    k = scale_code(amax, q, format);
  }
  const ElementFactor m{multiplier(*k, q)};
  steps.push_back(value_step("N5.4", "multiplier", m.value));
  for (TraceStep& step : trace_element(x(r, c), m, q, std::string(format.element_clause)))
    steps.push_back(std::move(step));
  return steps;
}

}  // namespace

Tracer trace_mx(const Run& run, Direction d, const MxFormat& format) {
  if (run.problem.as<ScaleChain>()) {
    const int64_t cols = run.problem.x.shape.cols;
    return [=, &format](int64_t row, int64_t col) { return trace_chain(run, format, row * cols + col); };
  }
  if (run.problem.as<Dequantize>()) {
    return [=, scales = compact_scales(run, d)](int64_t row, int64_t col) {
      const Plane& data = *run.input(d, "data").plane;
      const auto [i, j] = stored_at(data, row, col);
      const uint32_t k = scale_of(scales, data.tiles_by_columns(), i, j);
      return trace_dequantize(run, d, row, col, {code_step("N6.2", "scale", Encoding::e8m0, k)},
                              decoded_scale(k), "N5.9");
    };
  }
  return [=, &format, x = seen(run, d), given = GivenBlocks(run, d)](int64_t row, int64_t col) {
    const auto [r, c] = seen_at(d, row, col);
    return trace_quantize(x, given, run.quantizer(d), format, r, c);
  };
}

}  // namespace assay::reference
