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

// Output j of a butterfly over n leaves, as the tree that leads to it. Stage h joins what stands h apart, so
// the last stage of n = 2h leaves joins the results of their halves: a + b where bit h of j is clear, a - b
// where it is set. The halves' results are those of the same place, which the lower bits of j name.
template <int n> double tree(const double* leaves, int j) {
  if constexpr (n == 1) {
    return leaves[0];
  } else {
    constexpr int h = n / 2;
    const double a = tree<h>(leaves, j), b = tree<h>(leaves + h, j);
    return narrowed(j / h % 2 == 0 ? a + b : a - b);  // N11.3
  }
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

// Output j of one group, a binary32 value. `values` are the elements, `leaves` the elements with their signs.
double sum_of(const Group& values, const Group& leaves, uint16_t sign_mask, RhtSum sum, int j) {
  switch (sum) {
    case RhtSum::butterfly:
      return narrowed(tree<kSize>(leaves.data(), j) * 0.25);  // N11.3: the scale comes last
    case RhtSum::exact: return exactly(leaves, j);
    case RhtSum::tc16: return on_tensor_core(values, sign_mask, j);
  }
  return kNaN;
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

// N11.2: the rows of the transpose.
Values transposed_x(const Run& run) { return transposed(values(run.input("x"), run.threads), run.threads); }

}  // namespace

double hadamard_sign(int i, int j) {
  return std::popcount(static_cast<unsigned>(i & j)) % 2 == 0 ? 1 : -1;
}  // N11.1
double input_sign(uint16_t sign_mask, int i) { return (sign_mask >> i) % 2 == 1 ? -1 : 1; }  // N11.1

Values rotated(const Values& v, uint16_t sign_mask, RhtSum sum, int threads) {
  const Encoder to_bf16(Encoding::bf16, Round::rne, Overflow::nosat);
  const Decoder from_bf16(Encoding::bf16);
  Values out(v.rows(), v.cols());
  parallel_for(threads, v.rows(), [&](int64_t r) {
    for (int64_t c = 0; c < v.cols(); c += kSize) {  // N11.2: 16 consecutive elements of a row
      const Groups g = group_at(&v(r, c), sign_mask);
      for (int j = 0; j < kSize; ++j)
        out(r, c + j) =
            static_cast<float>(from_bf16(to_bf16(sum_of(g.values, g.leaves, sign_mask, sum, j))));  // N11.3
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
  const double y = sum_of(g.values, g.leaves, sign_mask, sum, place);
  steps.push_back(value_step("N11.3", "sum / 4", y));
  steps.push_back(code_step("N11.3", "rotated element", Encoding::bf16,
                            Encoder(Encoding::bf16, Round::rne, Overflow::nosat)(y)));
  return steps;
}

std::vector<TraceStep> trace_hadamard(const Run& run, int64_t row, int64_t col) {
  const Quantizer& q = run.quantizer(Direction::col);
  return trace_rotated(transposed_x(run), q.sign_mask, q.numerics.rht_sum, col, row);
}

}  // namespace assay::reference
