// Causes of a gemm's sums and of its epilogue, put in by loops of this file over the bytes of bf16 operands.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "compare/diagnosis/library/hypotheses.h"
#include "compare/diagnosis/report/text.h"
#include "compare/diagnosis/search/diagnose.h"
#include "tests/compare/diagnosis/narrow.h"
#include "tests/compare/diagnosis/planes.h"

namespace assay {
namespace {

using std::string;
using Numbers = std::vector<float>;

constexpr int kRows = 24, kCols = 20, kDepth = 150;  // of d, and K
const string kLine = "gemm a=identity b=identity 20x24x150 bf16 out=f32";

Numbers bf16_numbers(const std::vector<PlaneData>& planes, const char* name) {
  const PlaneData* p = find_plane(planes, name);
  if (!p) throw std::runtime_error(string("no plane ") + name);
  Numbers out(p->bytes.size() / 2);
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t code;
    std::memcpy(&code, p->bytes.data() + 2 * i, 2);
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(code) << 16);
  }
  return out;
}
Numbers f32_numbers(const std::vector<PlaneData>& planes, const char* name) {
  const PlaneData* p = find_plane(planes, name);
  Numbers out(p ? p->bytes.size() / 4 : 0);
  if (p) std::memcpy(out.data(), p->bytes.data(), p->bytes.size());
  return out;
}

using narrow::to_bf16;
using narrow::to_f16;
float as_it_is(float v) { return v; }
using Round = float (*)(float);

// The products of one element, and what is made of them.
using Sum = std::function<float(const Numbers& products)>;
float added(const Numbers& products, size_t from, size_t to) {
  float acc = 0;
  for (size_t i = from; i < to && i < products.size(); ++i) acc += products[i];
  return acc;
}
Sum narrow_accumulator(Round round, size_t step) {
  return [=](const Numbers& products) {
    float acc = 0;
    for (size_t i = 0; i < products.size(); ++i) {
      acc += products[i];
      if (i % step == step - 1 || i + 1 == products.size()) acc = round(acc);
    }
    return acc;
  };
}
Sum in_parts(Round round, size_t part) {
  return [=](const Numbers& products) {
    float acc = 0;
    for (size_t i = 0; i < products.size(); i += part) {
      const float own = round(added(products, i, i + part));
      acc = i == 0 ? own : acc + own;
    }
    return acc;
  };
}
float in_four_lanes(const Numbers& products) {
  float lane[4] = {};
  for (size_t i = 0; i < products.size(); ++i) lane[i % 4] += products[i];
  return lane[0] + lane[1] + lane[2] + lane[3];
}
float from_the_end(const Numbers& products) {
  float acc = 0;
  for (size_t i = products.size(); i-- > 0;) acc += products[i];
  return acc;
}

struct Row {
  string id;
  Sum sum;
};
std::vector<Row> rows() {
  return {
      {"accumulator.f16=16", narrow_accumulator(to_f16, 16)},
      {"accumulator.bf16=1", narrow_accumulator(to_bf16, 1)},
      {"accumulator.bf16=128", narrow_accumulator(to_bf16, 128)},
      {"split_k.bf16=2x32", in_parts(to_bf16, 96)},
      {"split_k.f16=4x16", in_parts(to_f16, 48)},
      {"split_k.f32=2x1", in_parts(as_it_is, 75)},
      {"lanes=4", in_four_lanes},
      {"descending", from_the_end},
  };
}

void expect_named(const string& id, const planes::Case& c, const std::vector<std::byte>& bytes) {
  Observation seen{c.problem, "test", c.inputs, c.want};
  seen.got.front().bytes = bytes;
  const auto d = diagnose(seen, *make_reference_subject(), {});
  ASSERT_TRUE(d) << id;
  bool named = false;
  for (const Explanation& e : d->explanations) named |= e.exact() && e.ids == std::vector{"gemm." + id};
  EXPECT_TRUE(named) << id << '\n' << diagnosis_screen(*d);
}

// Element by element of d, from the elements of both operands.
std::vector<std::byte> made(const planes::Case& c,
                            const std::function<float(const float* a, const float* b)>& element) {
  const Numbers a = bf16_numbers(c.inputs, "a.data"), b = bf16_numbers(c.inputs, "b.data");
  std::vector<std::byte> out(4 * kRows * kCols);
  for (int n = 0; n < kRows; ++n)
    for (int m = 0; m < kCols; ++m) {
      const float v = element(a.data() + m * kDepth, b.data() + n * kDepth);
      std::memcpy(out.data() + 4 * (n * kCols + m), &v, 4);
    }
  return out;
}
std::vector<std::byte> summed(const planes::Case& c, const Sum& sum) {
  return made(c, [&](const float* a, const float* b) {
    Numbers products(kDepth);
    for (int k = 0; k < kDepth; ++k) products[static_cast<size_t>(k)] = a[k] * b[k];
    return sum(products);
  });
}

TEST(GemmSums, WithoutACauseTheBytesAreTheReferences) {
  const planes::Case c(kLine);
  EXPECT_EQ(summed(c, [](const Numbers& all) { return added(all, 0, all.size()); }), c.want.front().bytes);
}

TEST(GemmSums, AreNamed) {
  const planes::Case c(kLine);
  for (const Row& row : rows()) expect_named(row.id, c, summed(c, row.sum));
}

TEST(GemmSums, ProductsAreNamed) {
  const planes::Case c(kLine);
  expect_named("products=bf16", c, made(c, [](const float* a, const float* b) {
                 float acc = 0;
                 for (int k = 0; k < kDepth; ++k) acc += to_bf16(a[k] * b[k]);
                 return acc;
               }));
}

// A product of two F32 numbers is not exact, so that one rounding differs from two.
TEST(GemmSums, FusedProductsAreNamed) {
  const planes::Case c("gemm a=identity b=identity 20x24x150 f32 out=f32");
  const Numbers a = f32_numbers(c.inputs, "a.data"), b = f32_numbers(c.inputs, "b.data");
  std::vector<std::byte> bytes(4 * kRows * kCols);
  for (int n = 0; n < kRows; ++n)
    for (int m = 0; m < kCols; ++m) {
      float acc = 0;
      for (int k = 0; k < kDepth; ++k)
        acc = std::fmaf(a[static_cast<size_t>(m * kDepth + k)], b[static_cast<size_t>(n * kDepth + k)], acc);
      std::memcpy(bytes.data() + 4 * (n * kCols + m), &acc, 4);
    }
  expect_named("fused", c, bytes);
}

// ---- the epilogue ----------------------------------------------------------------------------------------

struct Last {
  float v, c, bias, bias_of_row, bias_next, c_crossed;
};
struct EpilogueRow {
  const char *id, *keys;
  float (*last)(const Last&);
};
constexpr float kAlpha = 0.7f, kBeta = 0.3f;
const EpilogueRow kEpilogue[] = {
    {"bias_by_row", " bias=f32", [](const Last& e) { return e.v + e.bias_of_row; }},
    {"bias_next", " bias=f32", [](const Last& e) { return e.v + e.bias_next; }},
    {"bias_twice", " bias=f32", [](const Last& e) { return e.v + e.bias + e.bias; }},
    {"c_crossed", " beta=0.3", [](const Last& e) { return e.v + kBeta * e.c_crossed; }},
    {"alpha_last", " alpha=0.7 bias=f32", [](const Last& e) { return (e.v + e.bias) * kAlpha; }},
    {"beta_of_bias", " beta=0.3 bias=f32", [](const Last& e) { return e.v + kBeta * e.c + kBeta * e.bias; }},
};

TEST(GemmSums, EpiloguesAreNamed) {
  const Numbers sums = f32_numbers(planes::Case(kLine).want, "d");
  for (const EpilogueRow& row : kEpilogue) {
    const planes::Case c(kLine + row.keys);
    const Numbers bias = f32_numbers(c.inputs, "bias"), other = f32_numbers(c.inputs, "c");
    std::vector<std::byte> bytes(4 * sums.size());
    const auto at = [](const Numbers& of, int i) { return of.empty() ? 0 : of[static_cast<size_t>(i)]; };
    for (int n = 0; n < kRows; ++n)
      for (int m = 0; m < kCols; ++m) {
        const int i = n * kCols + m;
        const float v = row.last({at(sums, i), at(other, i), at(bias, m), at(bias, std::min(n, kCols - 1)),
                                  at(bias, std::min(m + 1, kCols - 1)), at(other, m * kRows + n)});
        std::memcpy(bytes.data() + 4 * i, &v, 4);
      }
    expect_named(row.id, c, bytes);
  }
}

TEST(GemmSums, LongOnesAreNotTried) {
  for (const Hypothesis& h : line_hypotheses(*parse_line("gemm a=identity b=identity 1024x1024x1024 bf16")))
    EXPECT_FALSE(h.id.starts_with("gemm.accumulator")) << h.id;
}

}  // namespace
}  // namespace assay
