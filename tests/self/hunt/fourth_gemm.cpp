// The fourth set: gemm.
#include <algorithm>
#include <functional>
#include <string>

#include "reference/rounding.h"
#include "reference/tensor.h"
#include "tests/self/hunt/fourth_bugs.h"

namespace assay::fourth {

namespace {

using reference::Encoder;
using reference::load;
using reference::narrowed;
using reference::value_of;
using reference::Values;

constexpr F32Bits kOne = 0x3F800000;

Values values_of(const Buffer& b) { return reference::values(reading(b), 1); }

// Element (i, k) of one operand, dequantized: its rows are those of d, or its columns.
Values dequantized(const Call& call, Side side) {
  const Problem line = operand_dequantize(call.problem, side);
  Rerun rerun(line, call);
  for (const Plane& plane : input_planes(line)) {
    const std::string own = std::string(name_of(side)) + plane.name.substr(plane.name.find('.'));
    const ConstBuffer& from = call.input(own);
    std::copy(from.bytes.begin(), from.bytes.end(), rerun.input(plane.name).bytes.begin());
  }
  rerun.run();
  const Values y = values_of(rerun.output("y"));
  const bool rows = call.problem.as<Gemm>()->direction(side) == Direction::row;
  return rows ? y : reference::transposed(y, 1);
}

// The sums [N, M] before the epilogue, as binary32 values.
Values right_sums(const Call& call) {
  Problem plain = call.problem;
  Gemm& op = *plain.as<Gemm>();
  op.alpha = kOne;
  op.beta = 0;
  op.bias.reset();
  plain.x.source = Encoding::f32;
  Rerun rerun(plain, call);
  rerun.run();
  return values_of(rerun.output("d"));
}

double number(F32Bits bits) { return value_of(Encoding::f32, bits); }

// The epilogue over sums, with the bias that `bias_index(n, m)` chooses.
void finish(const Call& call, const Values& sums,
            const std::function<int64_t(int64_t, int64_t)>& bias_index) {
  const Gemm& op = *call.problem.as<Gemm>();
  const Buffer& d = call.output("d");
  const Encoding out = d.plane->encoding;
  const Encoder encode(out, Round::rne, info(out).bits == 8 ? Overflow::sat : Overflow::nosat);
  const auto value = [&](const char* plane, int64_t i) {
    const ConstBuffer& b = call.input(plane);
    return value_of(b.plane->encoding, load(b, i));
  };
  for (int64_t n = 0; n < sums.rows(); ++n)
    for (int64_t m = 0; m < sums.cols(); ++m) {
      const int64_t i = n * sums.cols() + m;
      double v = sums(n, m);
      if (op.multiplies()) v = narrowed(v * number(op.alpha));
      if (op.reads_c()) v = narrowed(v + narrowed(number(op.beta) * value("c", i)));
      if (op.bias) v = narrowed(v + value("bias", bias_index(n, m)));
      reference::store(d, i, out == Encoding::f32 ? reference::f32_code(v) : encode(v));
    }
}
void finish(const Call& call, const Values& sums) {
  finish(call, sums, [](int64_t, int64_t m) { return m; });
}

// Sums [N, M] where `sum(a, b, n, m)` makes each.
Values made(const Call& call, double (*sum)(const Values& a, const Values& b, int64_t n, int64_t m)) {
  const Values a = dequantized(call, Side::a), b = dequantized(call, Side::b);
  Values sums(b.rows(), a.rows());
  for (int64_t n = 0; n < b.rows(); ++n)
    for (int64_t m = 0; m < a.rows(); ++m) sums(n, m) = static_cast<float>(sum(a, b, n, m));
  return sums;
}

// acc and the products from k up to end, one after the other in binary32.
double sum_from(double acc, const Values& a, const Values& b, int64_t n, int64_t m, int64_t k, int64_t end) {
  for (; k < end; ++k) acc = narrowed(acc + narrowed(static_cast<double>(a(m, k)) * b(n, k)));
  return acc;
}

// Lines whose sum is that of dequantized operands and nothing else.
bool sums_in_sequence(const Problem& p) {
  const Gemm& op = *p.as<Gemm>();
  return op.sum == GemmSum::f32_sequential && !op.a.quantizer.row_scaled && !op.b.quantizer.row_scaled;
}

// ml-explore/mlx#2578: the call that has an epilogue with a bias is made without alpha.
void alpha_lost(const Call& call) {
  Problem unscaled = call.problem;
  Gemm& op = *unscaled.as<Gemm>();
  if (op.bias) op.alpha = kOne;
  call.right_for(unscaled);
}

// modular/modular#7165, NVIDIA/TransformerEngine#3440: two halves of K are summed apart, and their partial
// sums pass through a workspace of bf16 before they are added. A short K is not split.
double bf16_halves(const Values& a, const Values& b, int64_t n, int64_t m) {
  const int64_t k = a.cols(), half = round_up(ceil_div(k, 2), 32);
  if (half >= k) return sum_from(0, a, b, n, m, 0, k);
  static const Encoder bf16(Encoding::bf16, Round::rne, Overflow::nosat);
  return narrowed(bf16.rounded(sum_from(0, a, b, n, m, 0, half)) +
                  bf16.rounded(sum_from(0, a, b, n, m, half, k)));
}
void bf16_partials(const Call& call) { finish(call, made(call, bf16_halves)); }

// NVIDIA/cutlass#1188, microsoft/onnxruntime#29599: the accumulator is of f16, to which each step of the
// tensor core over 16 of k rounds its result.
double f16_steps(const Values& a, const Values& b, int64_t n, int64_t m) {
  static const Encoder f16(Encoding::f16, Round::rne, Overflow::nosat);
  double acc = 0;
  for (int64_t k = 0; k < a.cols(); k += 16)
    acc = f16.rounded(sum_from(acc, a, b, n, m, k, std::min<int64_t>(k + 16, a.cols())));
  return acc;
}
void f16_accumulator(const Call& call) { finish(call, made(call, f16_steps)); }

// openxla/xla#46897, NVIDIA/cutlass#3540: the bias is spread along the other axis: row n of d gets number n
// of it. A row that lies beyond the bias gets its last number.
void bias_by_row(const Call& call) {
  const Gemm& op = *call.problem.as<Gemm>();
  const int64_t last = call.problem.x.shape.cols - 1;
  if (!op.bias || last < 0) return call.right();
  finish(call, right_sums(call), [&](int64_t n, int64_t) { return std::min(n, last); });
}

constexpr Bug kBugs[] = {
    {"gemm_alpha_lost", "gemm", any_line, alpha_lost},
    {"gemm_bf16_partials", "gemm", sums_in_sequence, bf16_partials},
    {"gemm_f16_accumulator", "gemm", sums_in_sequence, f16_accumulator},
    {"gemm_bias_by_row", "gemm", any_line, bias_by_row},
};

}  // namespace

std::span<const Bug> bugs_of_gemm() { return kBugs; }

}  // namespace assay::fourth
