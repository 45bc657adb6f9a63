#include "reference/gemm.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "contract/dispatch.h"
#include "reference/exact_sum.h"
#include "reference/formats/format.h"
#include "reference/parallel.h"
#include "reference/rounding.h"
#include "reference/scaling.h"
#include "reference/tensor_core.h"

namespace assay::reference {

namespace {

using Sums = std::vector<double>;  // of one row of d: binary32 values, one for each m

constexpr int64_t kChain = 128;  // N16.5, N16.7: where a split chain is closed

std::string name_in(Side side, std::string_view stem) {
  return std::string(name_of(side)) + "." + std::string(stem);
}
const Gemm& op_of(const Run& run) { return *run.problem.as<Gemm>(); }
const Quantizer& quantizer_of(const Run& run, Side side) { return op_of(run).operand(side).quantizer; }
bool is_identity(const Run& run, Side side) { return quantizer_of(run, side).format == FormatId::identity; }

// N16.9: whether the amaxes of both operands, nvfp4 then, come after the sum.
bool amaxes_after(const Run& run) {
  const auto asks = [&](Side side) {
    return quantizer_of(run, side).format == FormatId::nvfp4 && quantizer_of(run, side).row_scaled;
  };
  return asks(Side::a) || asks(Side::b);
}

// N16.1: [K, outer] as it is stored, or [outer, K].
Values k_last(Values stored, bool k_first, int threads) {
  if (k_first) return transposed(stored, threads);
  return stored;
}

// The data as values of their codes, [outer, K]. Transposed columns are stored so already (N6.1).
Values codes_of(const Run& run, Side side) {
  const ConstBuffer& data = run.input(name_in(side, "data"));
  return k_last(values(data, run.threads),
                op_of(run).direction(side) == Direction::col && !data.plane->transposed, run.threads);
}

// The operand dequantized to binary32, or to bf16 (N16.12), [outer, K]; where the amaxes come after the sum,
// with amaxes of 1 (N16.9).
Values dequantized(const Run& run, Side side, const Dequantizer& dequantize) {
  if (is_identity(run, side)) return codes_of(run, side);  // N1.2
  const Direction d = op_of(run).direction(side);
  const Problem problem = operand_dequantize(run.problem, side);
  const std::vector<Plane> read = input_planes(problem), written = output_planes(problem);
  std::vector<std::byte> ones, y(written.at(0).bytes());
  std::vector<ConstBuffer> inputs;
  for (const Plane& plane : read) {
    const std::string stem = plane.name.substr(plane.name.find('.') + 1);
    inputs.push_back({&plane, run.input(name_in(side, stem)).bytes});
    if (stem != "amax" || !amaxes_after(run)) continue;
    ones.resize(plane.bytes());
    const Buffer amax{&plane, ones};
    for (int64_t i = 0; i < plane.padded.count(); ++i) store(amax, i, f32_code(1.0));
    inputs.back().bytes = ones;
  }
  const Buffer output{&written[0], y};
  dequantize({problem, inputs, std::span(&output, 1), run.threads}, d);
  return k_last(values({&written[0], y}, run.threads), d == Direction::col, run.threads);
}

// How v comes about, before the epilogue. Rows of d are asked for on several threads.
class Summation {
 public:
  virtual ~Summation() = default;
  virtual Sums row(int64_t n) const = 0;
};

// N16.2
class InSequence final : public Summation {
 public:
  InSequence(const Values& a, Values b, int threads) : a_by_k_(transposed(a, threads)), b_(std::move(b)) {}
  Sums row(int64_t n) const override {
    Sums sums(static_cast<size_t>(a_by_k_.cols()), 0.0);
    for (int64_t k = 0; k < a_by_k_.rows(); ++k) {
      const double b = b_(n, k);
      const float* const a = a_by_k_.data() + k * a_by_k_.cols();
      for (size_t m = 0; m < sums.size(); ++m) sums[m] = narrowed(sums[m] + narrowed(a[m] * b));
    }
    return sums;
  }

 private:
  Values a_by_k_, b_;
};

// N16.3
class Exactly final : public Summation {
 public:
  Exactly(Values a, Values b)
      : a_(std::move(a)), b_(std::move(b)), of_a_(spans_of(a_)), of_b_(spans_of(b_)) {}
  Sums row(int64_t n) const override {
    Sums sums;
    for (int64_t m = 0; m < a_.rows(); ++m) sums.push_back(sum_of(m, n));
    return sums;
  }

 private:
  // All of a row is a multiple of 2^low and below 2^high.
  struct Bits {
    bool finite = true;
    int low = 0, high = 0;
  };
  static std::vector<Bits> spans_of(const Values& values) {
    std::vector<Bits> out(static_cast<size_t>(values.rows()));
    for (int64_t r = 0; r < values.rows(); ++r) {
      Bits& bits = out[static_cast<size_t>(r)];
      bool first = true;
      for (int64_t k = 0; k < values.cols(); ++k) {
        const float x = values(r, k);
        if (!std::isfinite(x)) bits.finite = false;
        if (!std::isfinite(x) || x == 0) continue;
        int high;
        float rest = std::abs(std::frexp(x, &high));  // below 1: its bits come out one by one
        int low = high;
        for (; rest != 0; --low) rest = 2 * rest - std::trunc(2 * rest);
        bits.low = first ? low : std::min(bits.low, low);
        bits.high = first ? high : std::max(bits.high, high);
        first = false;
      }
    }
    return out;
  }
  double sum_of(int64_t m, int64_t n) const {
    const Bits &a = of_a_[static_cast<size_t>(m)], &b = of_b_[static_cast<size_t>(n)];
    const int64_t count = a_.cols();
    // Every partial sum is a multiple of 2^(a.low + b.low) and at most count * 2^(a.high + b.high): within 53
    // bits binary64 loses nothing.
    if (a.finite && b.finite &&
        static_cast<double>(count) * std::ldexp(1.0, a.high + b.high - a.low - b.low) <= 0x1p53) {
      double sum = 0;
      for (int64_t k = 0; k < count; ++k) sum += static_cast<double>(a_(m, k)) * b_(n, k);
      return narrowed(sum);
    }
    ExactSum sum;
    double special = 0;
    for (int64_t k = 0; k < count; ++k) {
      const double product = static_cast<double>(a_(m, k)) * b_(n, k);  // exact
      if (std::isfinite(product)) sum.add(product);
      else special += product;
    }
    return std::isfinite(special) ? sum.rounded() : special;
  }

  Values a_, b_;
  std::vector<Bits> of_a_, of_b_;
};

// N16.5: an operand of f32 as the unit reads it, 10 fraction bits.
double tf32(double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent;
  std::frexp(x, &exponent);
  const double quantum = power_of_two(std::max(exponent - 1, -126) - 10);
  return std::trunc(x / quantum) * quantum;
}

// fma(a, b, c) in binary32. The exact sum of a product and a number is not a binary64 one, so it is not taken
// in binary64.
double fused(double a, double b, double c) {
  const double product = a * b;  // exact
  if (!std::isfinite(product) || !std::isfinite(c) || product == 0) return narrowed(product + c);
  ExactSum sum;
  sum.add(product);
  sum.add(c);
  return sum.rounded();
}

class OnTensorCore final : public Summation {
 public:
  OnTensorCore(const Run& run, const Dequantizer& dequantize)
      : sum_(op_of(run).sum),
        core_(core_of(sum_)),
        a_(run, Side::a, sum_, dequantize),
        b_(run, Side::b, sum_, dequantize) {}
  Sums row(int64_t n) const override {
    Sums sums;
    for (int64_t m = 0; m < a_.outer(); ++m) sums.push_back(blockwise() ? by_blocks(m, n) : scaled(m, n));
    return sums;
  }

 private:
  static TensorCore core_of(GemmSum sum) {
    return sum == GemmSum::hopper_f16 ? kHopperF16 : sum == GemmSum::hopper_tf32 ? kHopperTf32 : kHopperFp8;
  }

  struct Codes {
    Codes(const Run& run, Side side, GemmSum sum, const Dequantizer& dequantize)
        : quantizer(quantizer_of(run, side)) {
      const bool bf16 = through_bf16(quantizer);  // N16.12
      const Values codes = bf16 ? dequantized(run, side, dequantize) : codes_of(run, side);
      const EncodingInfo& e = info(bf16 ? Encoding::bf16 : quantizer.element);
      for (int64_t i = 0; i < codes.size(); ++i) {
        const double x = codes.data()[i];
        factors.push_back(factor_of(sum == GemmSum::hopper_tf32 ? tf32(x) : x, 1 - e.bias));
      }
      rows = codes.rows();
      k = codes.cols();
      if (quantizer.format != FormatId::identity && !bf16)
        scales = values(run.input(name_in(side, "scale_inv")), run.threads);
    }
    int64_t outer() const { return rows; }
    // Those of one row, from k0 on, below k1.
    std::span<const Factor> at(int64_t row, int64_t k0, int64_t k1) const {
      return std::span(factors).subspan(static_cast<size_t>(row * k + k0), static_cast<size_t>(k1 - k0));
    }
    double row_scale(int64_t row) const { return scales(scale_row(quantizer, row), 0); }  // N16.6
    double block_scale(int64_t row, int64_t block) const {
      return is_square(quantizer.block) ? scales(row / kChain, block) : scales(block, row);
    }  // N9.4

    const Quantizer& quantizer;
    std::vector<Factor> factors;
    int64_t rows = 0, k = 0;
    Values scales;
  };

  bool blockwise() const { return a_.quantizer.format == FormatId::fp8_block; }
  double chain(int64_t m, int64_t n, int64_t k0, int64_t k1) const {
    return tensor_core_chain(core_, a_.at(m, k0, k1), b_.at(n, k0, k1), 0.0);
  }  // N16.5

  double acc(int64_t m, int64_t n) const {
    if (sum_ != GemmSum::hopper_fp8_split) return chain(m, n, 0, a_.k);
    double acc = 0;
    for (int64_t k = 0; k < a_.k; k += kChain)
      acc = narrowed(acc + chain(m, n, k, std::min(k + kChain, a_.k)));  // N16.5
    return acc;
  }
  double scaled(int64_t m, int64_t n) const {
    const double sum = acc(m, n);
    return a_.scales.size() == 0 ? sum
                                 : narrowed(sum * narrowed(a_.row_scale(m) * b_.row_scale(n)));  // N16.6
  }
  double by_blocks(int64_t m, int64_t n) const {
    const bool tiles = is_square(a_.quantizer.block) || is_square(b_.quantizer.block);
    double y = 0;
    for (int64_t block = 0; block * kChain < a_.k; ++block) {
      const double p = chain(m, n, block * kChain, std::min((block + 1) * kChain, a_.k)),
                   a = a_.block_scale(m, block), b = b_.block_scale(n, block);
      y = tiles ? fused(p, narrowed(a * b), y) : fused(narrowed(p * b), a, y);  // N16.7
    }
    return y;
  }

  GemmSum sum_;
  TensorCore core_;
  Codes a_, b_;
};

std::unique_ptr<Summation> summation(const Run& run, const Dequantizer& dequantize) {
  switch (op_of(run).sum) {
    case GemmSum::f32_sequential:
      return std::make_unique<InSequence>(dequantized(run, Side::a, dequantize),
                                          dequantized(run, Side::b, dequantize), run.threads);
    case GemmSum::exact:
      return std::make_unique<Exactly>(dequantized(run, Side::a, dequantize),
                                       dequantized(run, Side::b, dequantize));
    default: return std::make_unique<OnTensorCore>(run, dequantize);
  }
}

// What happens to v at (n, m), step by step; `report` sees each result.
class Epilogue {
 public:
  explicit Epilogue(const Run& run)
      : op_(op_of(run)),
        alpha_(value_of(Encoding::f32, op_.alpha)),
        beta_(value_of(Encoding::f32, op_.beta)),
        out_(run.problem.x.source),
        encode_(out_) {
    if (amaxes_after(run))
      for (Side side : kSides)
        amax_[static_cast<size_t>(side)] = values(run.input(name_in(side, "amax")), run.threads);
    if (op_.reads_c()) c_ = values(run.input("c"), run.threads);
    if (op_.bias) bias_ = values(run.input("bias"), run.threads);
  }
  template <class Report> uint32_t operator()(double v, int64_t n, int64_t m, Report report) const {
    const Values &a = amax_[0], &b = amax_[1];
    if (a.size() != 0) {
      const Quantizer &qa = op_.a.quantizer, &qb = op_.b.quantizer;
      const double of_a = a(scale_row(qa, m), 0), of_b = b(scale_row(qb, n), 0);
      if (qa.row_scaled && qb.row_scaled) {
        report("N16.9", "times the amax of b's row", v = narrowed(v * of_b));
        report("N16.9", "times the amax of a's row", v = narrowed(v * of_a));
      } else {
        report("N16.9", "times both amaxes", v = narrowed(v * narrowed(of_a * of_b)));
      }
    }
    if (op_.multiplies()) report("N16.8", "times alpha", v = narrowed(v * alpha_));
    if (op_.reads_c()) report("N16.8", "plus beta c", v = narrowed(v + narrowed(beta_ * c_(n, m))));
    if (op_.bias) report("N16.8", "plus bias", v = narrowed(v + bias_(0, m)));
    return out_ == Encoding::f32 ? f32_code(v) : encode_(v);  // N16.8: the cast
  }
  Encoding out() const { return out_; }

 private:
  const Gemm& op_;
  double alpha_, beta_;
  Encoding out_;
  Encoder encode_;
  Values amax_[2], c_, bias_;
};

}  // namespace

void gemm(const Run& run, const Dequantizer& dequantize) {
  const Buffer& d = run.output("d");
  const Epilogue epilogue(run);
  const std::unique_ptr<Summation> sum = summation(run, dequantize);
  const Shape shape = d.plane->logical;
  parallel_for(run.threads, shape.rows, [&](int64_t n) {
    const Sums v = sum->row(n);
    for (int64_t m = 0; m < shape.cols; ++m)
      store(d, n * shape.cols + m, epilogue(v[static_cast<size_t>(m)], n, m, [](auto...) {}));
  });
}

Tracer trace_gemm(const Run& run, const Dequantizer& dequantize) {
  static constexpr const char* kClauses[] = {"N16.2", "N16.3", "N16.5", "N16.5", "N16.5", "N16.5"};
  return [=, epilogue = Epilogue(run), sum = std::shared_ptr<Summation>(summation(run, dequantize)),
          last = int64_t{-1}, sums = Sums{}](int64_t row, int64_t col) mutable {
    if (row != last) sums = sum->row(last = row);
    const double v = sums[static_cast<size_t>(col)];
    std::vector<TraceStep> steps = {
        {kClauses[static_cast<size_t>(op_of(run).sum)], "sum, scaled", Encoding::f32, f32_code(v)}};
    const uint32_t code = epilogue(v, row, col, [&](const char* clause, const char* what, double x) {
      steps.push_back({clause, what, Encoding::f32, f32_code(x)});
    });
    steps.push_back({"N16.8", "code", epilogue.out(), code});
    return steps;
  };
}

}  // namespace assay::reference
