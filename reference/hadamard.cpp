#include "reference/hadamard.h"

#include <array>
#include <bit>

#include "reference/exact_sum.h"
#include "reference/parallel.h"
#include "reference/rounding.h"
#include "reference/scaling.h"
#include "reference/tensor_core.h"

namespace assay::reference {

namespace {

constexpr int kSize = 16;
using Group = std::array<double, kSize>;

// All outputs of a butterfly, each as the tree that leads to it: on every level the nodes of all 16 trees
// stand side by side. The level that joins what stands h leaves apart takes a + b for an output j whose bit h
// is clear, a - b where it is set. These are sums of binary32 values, each rounded once.
Group trees(const Group& leaves) {
  std::array<std::array<float, kSize>, kSize> node;  // [node of the level][output]
  for (size_t k = 0; k < kSize; ++k) node[k].fill(static_cast<float>(leaves[k]));
  for (size_t h = 1; h < kSize; h *= 2) {
    std::array<float, kSize> sign;
    for (size_t j = 0; j < kSize; ++j) sign[j] = j / h % 2 == 0 ? 1 : -1;
    for (size_t k = 0; k < kSize / (2 * h); ++k)
      for (size_t j = 0; j < kSize; ++j) node[k][j] = node[2 * k][j] + sign[j] * node[2 * k + 1][j];  // N11.3
  }
  Group sums;
  for (size_t j = 0; j < kSize; ++j) sums[j] = node[0][j] * 0.25f;  // N11.3: the scale comes last
  return sums;
}

// N11.3: the sum of NaN and infinite terms, which decides the result; 0 where all are finite.
double special_of(const Group& terms) {
  double special = 0;
  for (double t : terms)
    if (!std::isfinite(t)) special += t;
  return special;
}

double exactly(const Group& signed_values, int j) {
  Group terms;
  for (int i = 0; i < kSize; ++i)
    terms[static_cast<size_t>(i)] = signed_values[static_cast<size_t>(i)] * hadamard_sign(i, j) / 4;
  if (const double special = special_of(terms); !std::isfinite(special)) return special;
  ExactSum sum;
  for (double t : terms) sum.add(t);
  return sum.rounded();  // N11.3: to binary32
}

constexpr int kLeastBf16 = -126;  // exponent of its subnormals

double on_tensor_core(const Group& values, uint16_t sign_mask, int j) {
  Group column;
  for (int i = 0; i < kSize; ++i)
    column[static_cast<size_t>(i)] = input_sign(sign_mask, i) * hadamard_sign(i, j) / 4;  // exact in BF16
  return tensor_core_step(kHopperF16, factors_of(values, kLeastBf16), factors_of(column, kLeastBf16),
                          0.0);  // N11.3
}

struct Groups {
  Group values, leaves;
};
Groups group_at(const float* v, uint16_t sign_mask) {
  Groups g;
  for (int i = 0; i < kSize; ++i) {
    const size_t k = static_cast<size_t>(i);
    g.values[k] = v[i];
    g.leaves[k] = input_sign(sign_mask, i) * v[i];  // N11.1: signs belong to the input index
  }
  return g;
}

// The 16 outputs of one group, binary32 values.
Group sums_of(const Groups& g, uint16_t sign_mask, RhtSum sum) {
  if (sum == RhtSum::butterfly) return trees(g.leaves);
  Group sums;
  for (int j = 0; j < kSize; ++j)
    sums[static_cast<size_t>(j)] =
        sum == RhtSum::exact ? exactly(g.leaves, j) : on_tensor_core(g.values, sign_mask, j);
  return sums;
}

// N11.2: the rows of the transpose.
Values transposed_x(const Run& run) { return transposed(values(run.input("x"), run.threads), run.threads); }

}  // namespace

double hadamard_sign(int i, int j) {
  return std::popcount(static_cast<unsigned>(i & j)) % 2 == 0 ? 1 : -1;
}  // N11.1
double input_sign(uint16_t sign_mask, int i) { return (sign_mask >> i) % 2 == 1 ? -1 : 1; }  // N11.1

Values rotated(const Values& v, uint16_t sign_mask, RhtSum sum, int threads) {
  const Grid bf16(Encoding::bf16);
  Values out(v.rows(), v.cols());
  parallel_for(threads, v.rows(), [&](int64_t r) {
    for (int64_t c = 0; c < v.cols(); c += kSize) {  // N11.2: 16 consecutive elements of a row
      const Groups g = group_at(&v(r, c), sign_mask);
      const Group sums = sums_of(g, sign_mask, sum);
      for (size_t j = 0; j < kSize; ++j)
        out(r, c + static_cast<int64_t>(j)) = static_cast<float>(bf16(sums[j]));  // N11.3
    }
  });
  return out;
}

void hadamard(const Run& run) {
  const Quantizer& q = run.quantizer(Direction::col);
  const Values out = rotated(transposed_x(run), q.sign_mask, q.numerics.rht_sum, run.threads);
  const Buffer& y = run.output("y");
  const Encoder code(Encoding::bf16, Round::rne, Overflow::nosat);
  parallel_for(run.threads, out.size(), [&](int64_t i) { store(y, i, code(out.data()[i])); });  // exact
  store_scalar(run.output("amax"), tensor_amax(out, 0.0, run.threads));                         // N11.4
}

std::vector<TraceStep> trace_rotated(const Values& v, uint16_t sign_mask, RhtSum sum, int64_t i, int64_t j) {
  const int place = static_cast<int>(j % kSize);
  const Groups g = group_at(&v(i, j - place), sign_mask);
  std::vector<TraceStep> steps;
  for (int k = 0; k < kSize; ++k)
    steps.push_back(value_step("N11.1", "element " + std::to_string(k) + " of 16, with its sign",
                               g.leaves[static_cast<size_t>(k)]));
  const double y = sums_of(g, sign_mask, sum)[static_cast<size_t>(place)];
  steps.push_back(value_step("N11.3", "sum / 4", y));
  steps.push_back(code_step("N11.3", "rotated element", Encoding::bf16,
                            Encoder(Encoding::bf16, Round::rne, Overflow::nosat)(y)));
  return steps;
}

Tracer trace_hadamard(const Run& run) {
  return [=, x = transposed_x(run)](int64_t row, int64_t col) {
    const Quantizer& q = run.quantizer(Direction::col);
    return trace_rotated(x, q.sign_mask, q.numerics.rht_sum, col, row);
  };
}

}  // namespace assay::reference
