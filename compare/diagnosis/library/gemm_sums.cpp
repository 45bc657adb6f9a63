// A gemm (N16.2, N16.8): products that are summed in another order or in a narrower accumulator, and a bias
// or c that comes from another place or at another step.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/diagnosis/library/rows.h"

namespace assay {

namespace {

using std::string;
using Planes = std::vector<PlaneData>;

float number(F32Bits bits) { return std::bit_cast<float>(bits); }

std::vector<float> values_of(const PlaneData& p) {
  std::vector<float> out;
  for (int64_t n = 0; n < p.plane.logical.count(); ++n)
    out.push_back(static_cast<float>(value_of(p.plane.encoding, code_at(p.plane, p.bytes, n))));
  return out;
}

// The elements of one operand, line after line of K, as its own dequantize gives them (N16.2).
std::optional<std::vector<float>> elements(const Problem& gemm, Side side, const Planes& inputs,
                                           const RunLine& run) {
  const Problem line = operand_dequantize(gemm, side);
  Planes in;
  for (Plane& plane : input_planes(line)) {
    const PlaneData* own =
        find_plane(inputs, string(name_of(side)) + plane.name.substr(plane.name.find('.')));
    if (!own) return {};
    in.push_back({std::move(plane), own->bytes});
  }
  const auto made = run(line, in);
  if (!made) return {};
  std::vector<float> y = values_of(made->front());
  if (gemm.as<Gemm>()->direction(side) == Direction::row) return y;
  const Shape of = line.x.shape;  // [K, lines]
  std::vector<float> turned(y.size());
  for (int64_t k = 0; k < of.rows; ++k)
    for (int64_t i = 0; i < of.cols; ++i)
      turned[static_cast<size_t>(i * of.rows + k)] = y[static_cast<size_t>(k * of.cols + i)];
  return turned;
}

// What the rows of one lane share, which has one set of inputs: made once, by the first that asks.
struct Shared {
  std::once_flag elements_once, sums_once;
  std::optional<std::vector<float>> a, b;  // elements of the operands
  std::optional<std::vector<float>> sums;  // before the epilogue
};

// ---- the epilogue ----

// What one element of d is made of.
struct Last {
  float v, alpha, beta, c, bias;
  bool multiplies, reads_c, has_bias;
  Encoding out;  // that of d
};
float scaled_sum(const Last& e) { return e.multiplies ? e.v * e.alpha : e.v; }
float before_bias(const Last& e) { return e.reads_c ? scaled_sum(e) + e.beta * e.c : scaled_sum(e); }
float as_it_should_be(const Last& e) { return e.has_bias ? before_bias(e) + e.bias : before_bias(e); }

float narrowed(Encoding to, float v) {
  return static_cast<float>(value_of(to, nearest_code(to, static_cast<double>(v))));
}

using Index = std::function<int64_t(int64_t n, int64_t m, Shape of)>;
int64_t own_column(int64_t, int64_t m, Shape) { return m; }
int64_t own_place(int64_t n, int64_t m, Shape of) { return n * of.cols + m; }

// d of these sums [N, M].
std::optional<Planes> finished(const Problem& p, const Planes& inputs, const std::vector<float>& sums,
                               float (*last)(const Last&) = as_it_should_be,
                               const Index& bias_at = own_column, const Index& c_at = own_place) {
  const Gemm& op = *p.as<Gemm>();
  Plane plane = output_planes(p).front();
  const Shape of = plane.logical;
  PlaneData d{plane, std::vector<std::byte>(plane.bytes())};
  const PlaneData *c = find_plane(inputs, "c"), *bias = find_plane(inputs, "bias");
  if ((op.reads_c() && !c) || (op.bias && !bias)) return {};
  const auto at = [](const PlaneData& from, int64_t i) {
    return static_cast<float>(value_of(from.plane.encoding, code_at(from.plane, from.bytes, i)));
  };
  const bool wide = info(plane.encoding).bits > 8;
  for (int64_t n = 0; n < of.rows; ++n)
    for (int64_t m = 0; m < of.cols; ++m) {
      const Last e{sums[static_cast<size_t>(n * of.cols + m)],
                   number(op.alpha),
                   number(op.beta),
                   op.reads_c() ? at(*c, c_at(n, m, of)) : 0,
                   op.bias ? at(*bias, bias_at(n, m, of)) : 0,
                   op.multiplies(),
                   op.reads_c(),
                   op.bias.has_value(),
                   plane.encoding};
      const double v = static_cast<double>(last(e));
      set_code(plane, d.bytes, n * of.cols + m,
               wide ? nearest_code(plane.encoding, v) : element_code(plane.encoding, v));
    }
  return Planes{std::move(d)};
}

// The sums before the epilogue, whatever adds them.
std::optional<std::vector<float>> right_sums(const Problem& p, const Planes& inputs, const RunLine& run) {
  Problem plain = p;
  Gemm& op = *plain.as<Gemm>();
  op.alpha = 0x3F800000, op.beta = 0;
  op.bias.reset();
  plain.x.source = Encoding::f32;
  const auto made = run(plain, inputs);
  return made ? std::optional(values_of(made->front())) : std::nullopt;
}

struct EpilogueRow {
  const char *id, *title;
  bool (*applies)(const Gemm&, Encoding out);
  float (*last)(const Last&) = as_it_should_be;
  int64_t (*bias_at)(int64_t n, int64_t m, Shape of) = own_column;
  int64_t (*c_at)(int64_t n, int64_t m, Shape of) = own_place;
};
bool has_bias(const Gemm& g, Encoding) { return g.bias.has_value(); }
// FP32 is not rounded a second time, and FP8 saturates.
bool rounds_twice(Encoding out) { return out == Encoding::bf16 || out == Encoding::f16; }
constexpr EpilogueRow kEpilogue[] = {
    {"bias_by_row", "the bias goes along the other axis: a row of d takes the number of its row", has_bias,
     as_it_should_be, [](int64_t n, int64_t, Shape of) { return std::min(n, of.cols - 1); }},
    {"bias_first", "the first number of the bias serves all columns", has_bias, as_it_should_be,
     [](int64_t, int64_t, Shape) { return int64_t{0}; }},
    {"bias_next", "a column takes the next column's bias", has_bias, as_it_should_be,
     [](int64_t, int64_t m, Shape of) { return std::min(m + 1, of.cols - 1); }},
    {"c_crossed", "c is read column after column", [](const Gemm& g, Encoding) { return g.reads_c(); },
     as_it_should_be, own_column, [](int64_t n, int64_t m, Shape of) { return m * of.rows + n; }},
    {"alpha_last", "alpha multiplies c and the bias too",
     [](const Gemm& g, Encoding) { return g.multiplies() && (g.reads_c() || g.bias); },
     [](const Last& e) {
       float v = e.reads_c ? e.v + e.beta * e.c : e.v;
       if (e.has_bias) v = v + e.bias;
       return v * e.alpha;
     }},
    {"beta_of_bias", "beta multiplies the bias too",
     [](const Gemm& g, Encoding) { return g.reads_c() && g.bias.has_value(); },
     [](const Last& e) { return before_bias(e) + e.beta * e.bias; }},
    {"bias_twice", "the bias is added twice", has_bias,
     [](const Last& e) { return as_it_should_be(e) + e.bias; }},
    {"bias_after_cast", "the bias is added after the result was rounded, which is then rounded again",
     [](const Gemm& g, Encoding out) { return g.bias && rounds_twice(out); },
     [](const Last& e) { return narrowed(e.out, before_bias(e)) + e.bias; }},
    {"c_after_cast", "beta * c is added after the result was rounded, which is then rounded again",
     [](const Gemm& g, Encoding out) { return g.reads_c() && rounds_twice(out); },
     [](const Last& e) {
       const float v = narrowed(e.out, scaled_sum(e)) + e.beta * e.c;
       return e.has_bias ? v + e.bias : v;
     }},
    {"alpha_after_cast", "alpha multiplies the result after it was rounded, which is then rounded again",
     [](const Gemm& g, Encoding out) {
       return g.multiplies() && !g.reads_c() && !g.bias && rounds_twice(out);
     },
     [](const Last& e) { return narrowed(e.out, e.v) * e.alpha; }},
};

// ---- sums in another way ----

using Sum = std::function<float(const float* a, const float* b, int64_t k)>;
struct SumRow {
  string id, title;
  Sum sum;
};

float in_sequence(const float* a, const float* b, int64_t from, int64_t to, float acc = 0) {
  for (; from < to; ++from) acc = acc + a[from] * b[from];
  return acc;
}

// The accumulator is rounded after every `step` products.
SumRow accumulator(Encoding to, int64_t step) {
  const string each = step == 1 ? "every product" : fmt::format("every {} products", step);
  return {fmt::format("accumulator.{}={}", info(to).name, step),
          fmt::format("the sum is rounded to {} after {}", info(to).name, each),
          [=](const float* a, const float* b, int64_t k) {
            float acc = 0;
            for (int64_t i = 0; i < k; i += step)
              acc = narrowed(to, in_sequence(a, b, i, std::min(i + step, k), acc));
            return acc;
          }};
}
// K is split into parts of whole units, whose sums are rounded before they are added.
SumRow partials(Encoding to, int64_t parts, int64_t unit) {
  return {fmt::format("split_k.{}={}x{}", info(to).name, parts, unit),
          fmt::format("K is split into {} parts{}, whose sums are {}added at the end", parts,
                      unit == 1 ? "" : fmt::format(" of whole {}", unit),
                      to == Encoding::f32 ? "" : fmt::format("rounded to {} and ", info(to).name)),
          [=](const float* a, const float* b, int64_t k) {
            const int64_t part = std::max<int64_t>(round_up(ceil_div(k, parts), unit), 1);
            if (part >= k) return in_sequence(a, b, 0, k);
            float acc = narrowed(to, in_sequence(a, b, 0, part));
            for (int64_t i = part; i < k; i += part)
              acc = acc + narrowed(to, in_sequence(a, b, i, std::min(i + part, k)));
            return acc;
          }};
}
// Threads that each take every n-th product, and are added in their order.
SumRow lanes(int64_t n) {
  return {fmt::format("lanes={}", n), fmt::format("each of {} sums takes one product in {}", n, n),
          [=](const float* a, const float* b, int64_t k) {
            float acc = 0;
            for (int64_t lane = 0; lane < n; ++lane) {
              float own = 0;
              for (int64_t i = lane; i < k; i += n) own = own + a[i] * b[i];
              acc = lane == 0 ? own : acc + own;
            }
            return acc;
          }};
}

std::vector<SumRow> sum_rows() {
  std::vector<SumRow> out;
  for (const Encoding to : {Encoding::bf16, Encoding::f16})
    for (const int64_t step : {1, 16, 32, 64, 128}) out.push_back(accumulator(to, step));
  for (const Encoding to : {Encoding::f32, Encoding::bf16, Encoding::f16})
    for (const int64_t parts : {2, 4})
      for (const int64_t unit : {1, 16, 32, 64, 128}) out.push_back(partials(to, parts, unit));
  for (const int64_t n : {2, 4, 8, 16, 32}) out.push_back(lanes(n));
  out.push_back({"fused", "every product and its sum are one fused operation",
                 [](const float* a, const float* b, int64_t k) {
                   float acc = 0;
                   for (int64_t i = 0; i < k; ++i) acc = std::fma(a[i], b[i], acc);
                   return acc;
                 }});
  out.push_back(
      {"descending", "products are added from the last one", [](const float* a, const float* b, int64_t k) {
         float acc = 0;
         for (int64_t i = k; i-- > 0;) acc = acc + a[i] * b[i];
         return acc;
       }});
  for (const Encoding to : {Encoding::bf16, Encoding::f16})
    out.push_back({fmt::format("products={}", info(to).name),
                   fmt::format("every product is rounded to {} before it is added", info(to).name),
                   [to](const float* a, const float* b, int64_t k) {
                     float acc = 0;
                     for (int64_t i = 0; i < k; ++i) acc = acc + narrowed(to, a[i] * b[i]);
                     return acc;
                   }});
  return out;
}

constexpr int64_t kMostProducts = int64_t{1} << 24;

std::optional<Planes> summed(const Sum& sum, const Problem& p, const Planes& inputs, const RunLine& run,
                             Shared& shared) {
  std::call_once(shared.elements_once, [&] {
    shared.a = elements(p, Side::a, inputs, run), shared.b = elements(p, Side::b, inputs, run);
  });
  const auto &a = shared.a, &b = shared.b;
  if (!a || !b) return {};
  const Shape of = p.x.shape;
  const int64_t k = p.as<Gemm>()->k;
  std::vector<float> sums;
  for (int64_t n = 0; n < of.rows; ++n)
    for (int64_t m = 0; m < of.cols; ++m) sums.push_back(sum(a->data() + m * k, b->data() + n * k, k));
  return finished(p, inputs, sums);
}

bool sums_in_sequence(const Problem& p) {
  const Gemm& op = *p.as<Gemm>();
  return op.sum == GemmSum::f32_sequential && !op.a.quantizer.row_scaled && !op.b.quantizer.row_scaled &&
         p.x.shape.count() * op.k <= kMostProducts;
}

}  // namespace

std::vector<Hypothesis> gemm_sum_hypotheses(const Problem& problem) {
  std::vector<Hypothesis> out;
  if (!problem.as<Gemm>()) return out;
  const auto shared = std::make_shared<Shared>();
  const auto add = [&](const string& id, const string& title, const char* clause) -> Hypothesis& {
    Hypothesis h;
    h.id = "gemm." + id;
    h.title = title;
    h.stage = Stage::code;
    h.clause = clause;
    out.push_back(std::move(h));
    return out.back();
  };
  const Encoding out_encoding = output_planes(problem).front().encoding;
  for (const EpilogueRow& row : kEpilogue)
    if (row.applies(*problem.as<Gemm>(), out_encoding))
      add(row.id, row.title, "N16.8").rerun = [row, shared](const Problem& p, const Planes& inputs,
                                                            const RunLine& run) -> std::optional<Planes> {
        std::call_once(shared->sums_once, [&] { shared->sums = right_sums(p, inputs, run); });
        const auto& sums = shared->sums;
        return sums ? finished(p, inputs, *sums, row.last, row.bias_at, row.c_at) : std::nullopt;
      };
  if (!sums_in_sequence(problem)) return out;
  for (SumRow& row : sum_rows())
    add(row.id, row.title, "N16.2").rerun = [sum = std::move(row.sum), shared](
                                                const Problem& p, const Planes& inputs, const RunLine& run) {
      return summed(sum, p, inputs, run, *shared);
    };
  return out;
}

}  // namespace assay
