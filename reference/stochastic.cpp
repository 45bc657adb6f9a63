#include "reference/stochastic.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "reference/parallel.h"
#include "reference/rounding.h"
#include "reference/scaling.h"

namespace assay::reference {

namespace {

// The magnitudes of E2M1 in the order of their codes.
constexpr std::array kGrid = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
constexpr std::array kPerStep = {2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 0.5};  // 1 / the step to the next
constexpr uint32_t kSign = kGrid.size(), kLargest = kGrid.size() - 1;

// The code of the largest grid value not above a magnitude: how many there are beside 0.
uint32_t code_below(double magnitude) {
  uint32_t code = 0;
  for (size_t k = 1; k < kGrid.size(); ++k) code += kGrid[k] <= magnitude;
  return code;
}

uint32_t by_distance(double a, uint32_t byte) {
  const uint32_t code = code_below(a);
  if (code == kLargest) return code;  // N12.3: 6 and above
  // Exact: a difference on a's own grid, over a step that is a power of two.
  const double f = (a - kGrid[code]) * kPerStep[code];
  return code +
         (static_cast<uint32_t>(256 * f) + byte >= 256);  // N12.3: conversion floors what is not negative
}

double step_at(double a) { return a >= 4 ? 2 : a >= 2 ? 1 : 0.5; }

uint32_t by_fma(double a, uint32_t byte) {
  const double u = byte / 256.0;
  const double t = narrowed(u * step_at(a) + a);  // N12.3: one rounding; the product is exact
  const double step = step_at(t);
  return code_below(std::min(std::floor(t / step) * step, 6.0));  // a value of the grid
}

}  // namespace

uint32_t stochastic_code(double y, uint32_t byte, SrRule rule) {
  if (std::isnan(y)) return kLargest;  // N12.3
  const double a = std::abs(y);
  return kSign * static_cast<uint32_t>(std::signbit(y)) +
         (rule == SrRule::fma ? by_fma(a, byte) : by_distance(a, byte));
}

void stochastic_cast(const Run& run) {
  const ConstBuffer &x = run.input("x"), &bits = run.input("bits");
  const Buffer& y = run.output("y");
  const SrRule rule = run.problem.as<Cast>()->sr_rule;
  const Decoder decode(x.plane->encoding);
  parallel_for(run.threads, x.plane->logical.count(),
               [&](int64_t i) { store(y, i, stochastic_code(decode(load(x, i)), load(bits, i), rule)); });
}

std::vector<TraceStep> trace_stochastic_cast(const Run& run, int64_t i) {
  const ConstBuffer& x = run.input("x");
  const double value = value_of(x.plane->encoding, load(x, i));
  const uint32_t byte = load(run.input("bits"), i);
  return {value_step("N2.8", "its value", value), code_step("N12.3", "random byte", Encoding::u8, byte),
          code_step("N12.3", "code", Encoding::e2m1,
                    stochastic_code(value, byte, run.problem.as<Cast>()->sr_rule))};
}

}  // namespace assay::reference
