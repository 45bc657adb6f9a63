// mma.sync (9.7.14.5.14) and wmma.mma (9.7.14.4.5): where the elements of their fragments lie, and the sums
// of bf16, f16 and tf32 against values worked by hand and against the same rule computed in binary64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "fast/ptx/slice.h"
#include "fixtures/safetensors.h"
#include "tests/fast/ptx/harness.h"
#include "tests/fast/ptx/tensor_sums.h"
#include "tests/source_path.h"

namespace assay::ptx {
namespace {

constexpr unsigned kRows = 16;

struct MmaCase {
  const char* opcode;
  const char* type;
  unsigned k, bits, fraction;
  int least;             // exponent of the least normal value
  unsigned columns = 8;  // of B, C and D
};
const MmaCase kCases[] = {{"mma.sync.aligned.m16n8k16.row.col", "bf16", 16, 16, 7, -126},
                          {"mma.sync.aligned.m16n8k8.row.col", "bf16", 8, 16, 7, -126},
                          {"mma.sync.aligned.m16n8k16.row.col", "f16", 16, 16, 10, -14},
                          {"mma.sync.aligned.m16n8k8.row.col", "f16", 8, 16, 10, -14},
                          {"mma.sync.aligned.m16n8k8.row.col", "tf32", 8, 32, 10, -126},
                          {"mma.sync.aligned.m16n8k4.row.col", "tf32", 4, 32, 10, -126},
                          {"wmma.mma.sync.aligned.row.row.m16n16k16", "bf16", 16, 16, 7, -126, 16},
                          {"wmma.mma.sync.aligned.col.row.m16n16k16", "bf16", 16, 16, 7, -126, 16}};

uint32_t bits_of(const MmaCase& m, double v) {
  const uint32_t f32 = std::bit_cast<uint32_t>(static_cast<float>(v));
  if (m.bits == 32) return f32;
  if (m.fraction == 7) return f32 >> 16;
  const uint32_t sign = std::signbit(v) ? 0x8000u : 0;
  if (std::isnan(v)) return 0x7E00;
  if (std::isinf(v)) return sign | 0x7C00;
  const double a = std::fabs(v);
  if (a < 0x1p-14) return sign | static_cast<uint32_t>(a * 0x1p24);
  const int e = std::ilogb(a);
  return sign | static_cast<uint32_t>(e + 15) << 10 | (static_cast<uint32_t>(std::ldexp(a, 10 - e)) & 1023);
}

// The fragments as the figures of 9.7.14.5 give them: element n of a lane, its row and its column. Those of
// wmma as the two HMMA of ptxas read them: of B and C the registers for columns 0 to 7, then the others.
std::pair<unsigned, unsigned> element_of_a(const MmaCase& m, unsigned lane, unsigned n) {
  const unsigned group = lane >> 2, in_group = lane % 4;
  if (m.bits == 32) return {n == 0 || n == 2 ? group : group + 8, n < 2 ? in_group : in_group + 4};
  return {n < 2 || (n >= 4 && n < 6) ? group : group + 8, in_group * 2 + (n & 1) + (n >= 4 ? 8 : 0)};
}
std::pair<unsigned, unsigned> element_of_b(const MmaCase& m, unsigned lane, unsigned n) {
  const unsigned group = lane >> 2, in_group = lane % 4;
  if (m.bits == 32) return {in_group + 4 * n, group};
  return {in_group * 2 + (n & 1) + (n % 4 >= 2 ? 8 : 0), group + (n >= 4 ? 8 : 0)};
}
std::pair<unsigned, unsigned> element_of_c(unsigned lane, unsigned n) {
  return {(lane >> 2) + (n & 2 ? 8 : 0), lane % 4 * 2 + (n & 1) + (n >= 4 ? 8 : 0)};
}

struct Matrices {
  std::vector<double> a, b;      // [16, k], [k, columns]
  std::vector<uint32_t> c, d;    // [16, columns], bits of binary32
  std::vector<SliceStep> slice;  // behind D[9][5], where it is asked for
};

std::string registers(const std::string& name, unsigned count) {
  std::string out;
  for (unsigned n = 0; n < count; ++n) out += (n ? ", %" : "%") + name + std::to_string(n);
  return "{" + out + "}";
}

void multiply(const MmaCase& m, Matrices& x, bool slice = false) {
  const unsigned a_elements = kRows * m.k / 32, b_elements = m.columns * m.k / 32, each = 32 / m.bits;
  const unsigned a_words = a_elements / each, b_words = b_elements / each;
  const unsigned c_words = kRows * m.columns / 32, words = a_words + b_words + c_words;
  std::vector<uint32_t> in(size_t{words} * 32), out(size_t{c_words} * 32);
  const auto put = [&](unsigned lane, unsigned word, unsigned part, uint32_t bits) {
    in[size_t{lane} * words + word] |= bits << (part * m.bits % 32);
  };
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned n = 0; n < a_elements; ++n) {
      const auto [row, column] = element_of_a(m, lane, n);
      put(lane, n / each, n % each, bits_of(m, x.a[row * m.k + column]));
    }
    for (unsigned n = 0; n < b_elements; ++n) {
      const auto [row, column] = element_of_b(m, lane, n);
      put(lane, a_words + n / each, n % each, bits_of(m, x.b[row * m.columns + column]));
    }
    for (unsigned n = 0; n < c_words; ++n) {
      const auto [row, column] = element_of_c(lane, n);
      in[size_t{lane} * words + a_words + b_words + n] = x.c[row * m.columns + column];
    }
  }
  std::string body =
      ".reg .b64 %rd<4>;\n.reg .b32 %a<4>, %b<4>, %c<8>, %d<8>, %t;\nld.param.u64 %rd0, [out];\n"
      "ld.param.u64 %rd1, [in];\nmov.u32 %t, %tid.x;\nmad.wide.u32 %rd0, %t, " +
      std::to_string(4 * c_words) + ", %rd0;\nmad.wide.u32 %rd1, %t, " + std::to_string(4 * words) +
      ", %rd1;\n";
  unsigned at = 0;
  for (const auto& [name, count] : {std::pair{"a", a_words}, {"b", b_words}, {"c", c_words}})
    for (unsigned n = 0; n < count; ++n)
      body += std::string("ld.global.b32 %") + name + std::to_string(n) + ", [%rd1+" +
              std::to_string(4 * at++) + "];\n";
  body += std::string(m.opcode) + ".f32." + m.type + "." + m.type + ".f32 " + registers("d", c_words) + ", " +
          registers("a", a_words) + ", " + (b_words == 1 ? "%b0" : registers("b", b_words)) + ", " +
          registers("c", c_words) + ";\n";
  for (unsigned n = 0; n < c_words; ++n)
    body += "st.global.b32 [%rd0+" + std::to_string(4 * n) + "], %d" + std::to_string(n) + ";\n";
  body += "ret;";
  Module module(kernel_text(".param .u64 out, .param .u64 in", body));
  Memory memory;
  memory.add(out.data(), out.size() * 4, "out", true, false);
  memory.add(in.data(), in.size() * 4, "in", false);
  Launch launch;
  launch.block = {32, 1, 1};
  launch.parameters = parameters_of(module.entry("kernel"), {reinterpret_cast<uint64_t>(out.data()),
                                                             reinterpret_cast<uint64_t>(in.data())});
  RunOptions options;
  options.check = true;
  run(module, "kernel", launch, memory, options);
  if (slice)  // D[9][5] is element 3 of lane 4 * 1 + 2; of wmma D[9][13], its element 7
    x.slice = slice_behind(
        [&](Recorder& r) {
          RunOptions recorded;
          recorded.recorder = &r;
          run(module, "kernel", launch, memory, recorded);
        },
        "out", uint64_t{32} * (c_words * 6 + c_words - 1), 32);
  x.d.assign(size_t{kRows} * m.columns, 0);
  for (unsigned lane = 0; lane < 32; ++lane)
    for (unsigned n = 0; n < c_words; ++n) {
      const auto [row, column] = element_of_c(lane, n);
      x.d[row * m.columns + column] = out[c_words * lane + n];
    }
}

Matrices empty_matrices(const MmaCase& m) {
  return {std::vector<double>(size_t{kRows} * m.k),
          std::vector<double>(size_t{m.columns} * m.k),
          std::vector<uint32_t>(size_t{kRows} * m.columns),
          {},
          {}};
}

TEST(PtxMma, SmallIntegersGiveTheProductOfMatrices) {
  for (const MmaCase& m : kCases) {
    Matrices x = empty_matrices(m);
    Draw draw;
    for (auto* v : {&x.a, &x.b})
      for (double& e : *v) e = static_cast<double>(static_cast<int>(draw() % 17) - 8);
    for (uint32_t& c : x.c)
      c = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int>(draw() % 99) - 49));
    multiply(m, x);
    for (unsigned row = 0; row < kRows; ++row)
      for (unsigned column = 0; column < m.columns; ++column) {
        double sum = std::bit_cast<float>(x.c[row * m.columns + column]);
        for (unsigned k = 0; k < m.k; ++k) sum += x.a[row * m.k + k] * x.b[k * m.columns + column];
        EXPECT_EQ(std::bit_cast<float>(x.d[row * m.columns + column]), sum)
            << m.opcode << m.type << row << "," << column;
      }
  }
}

TEST(PtxMma, SumsAreCutAsTheRuleSays) {
  Draw draw;
  size_t tried = 0, inexact = 0;
  for (const MmaCase& m : kCases)
    for (int round = 0; round < 300; ++round) {
      Matrices x = empty_matrices(m);
      // From terms of one size to terms that only the cut of the largest leaves out; some subnormal.
      const int spread = 1 + round % 40, middle = round % 3 == 0   ? m.least + 2
                                                  : round % 5 == 0 ? m.least / 2
                                                                   : 0;
      const auto value = [&](unsigned fraction, int least) {
        const int e = std::clamp(
            middle + static_cast<int>(draw() % static_cast<unsigned>(spread)) - spread / 2, least - 3, 15);
        const int places = std::min(static_cast<int>(fraction), e - least + static_cast<int>(fraction));
        const double one = 1 + std::floor(std::ldexp(static_cast<double>(draw() % 65536) / 65536, places)) /
                                   std::ldexp(1, places);
        return draw() % 9 == 0 ? 0 : std::ldexp(draw() & 1 ? one : -one, e);
      };
      for (auto* v : {&x.a, &x.b})
        for (double& e : *v) e = value(m.fraction, m.least);
      for (uint32_t& c : x.c) c = std::bit_cast<uint32_t>(static_cast<float>(value(10, -126)));
      multiply(m, x);
      for (unsigned row = 0; row < kRows; ++row)
        for (unsigned column = 0; column < m.columns; ++column) {
          std::vector<double> a(m.k), b(m.k);
          double exact = std::bit_cast<float>(x.c[row * m.columns + column]);
          for (unsigned k = 0; k < m.k; ++k) {
            a[k] = x.a[row * m.k + k], b[k] = x.b[k * m.columns + column];
            exact += a[k] * b[k];
          }
          const uint32_t want =
              sum_in_binary64({m.least, m.least}, a, b, std::bit_cast<float>(x.c[row * m.columns + column]));
          ASSERT_EQ(x.d[row * m.columns + column], want) << m.opcode << m.type << " round " << round;
          ++tried, inexact += std::bit_cast<float>(want) != exact;
        }
    }
  EXPECT_EQ(tried, 6u * 300 * 128 + 2u * 300 * 256);
  EXPECT_GT(inexact, tried / 4);
}

TEST(PtxMma, ValuesWorkedByHandComeOut) {
  size_t compared = 0;
  for (const auto& [file, index] : {std::pair{"bf16", 0}, {"fp16", 2}, {"tf32", 5}}) {
    const MmaCase& m = kCases[index];
    const auto read = safetensors::read(
        source_path("fixtures/vectors/tensor_core_" + std::string(file) + "_hand.safetensors"));
    ASSERT_TRUE(read);
    const auto words = [&](const char* name, size_t bytes) {
      const safetensors::Tensor* t = read->find(name);
      std::vector<uint32_t> out(t->bytes.size() / bytes);
      for (size_t n = 0; n < out.size(); ++n) std::memcpy(&out[n], t->bytes.data() + n * bytes, bytes);
      return out;
    };
    const auto c = words("c", 4), d = words("d", 4);
    const auto a = words("a", m.bits / 8), b = words("b", m.bits / 8);
    const auto value = [&](uint32_t bits) -> double {
      if (m.bits == 32) return std::bit_cast<float>(bits);
      if (m.fraction == 7) return std::bit_cast<float>(bits << 16);
      const int e = static_cast<int>(bits >> 10 & 31);
      const double f = bits & 1023,
                   magnitude = e == 31 ? (f != 0 ? std::nan("") : std::numeric_limits<double>::infinity())
                               : e     ? std::ldexp(1024 + f, e - 25)
                                       : std::ldexp(f, -24);
      return bits & 0x8000 ? -magnitude : magnitude;
    };
    for (size_t first = 0; first < c.size(); first += m.columns) {
      Matrices x = empty_matrices(m);
      const size_t count = std::min<size_t>(m.columns, c.size() - first);
      for (size_t r = 0; r < count; ++r) {
        for (size_t k = 0; k < m.k; ++k) {
          x.a[r * m.k + k] = value(a[(first + r) * m.k + k]);
          x.b[k * m.columns + r] = value(b[(first + r) * m.k + k]);
        }
        x.c[r * m.columns + r] = c[first + r];
      }
      multiply(m, x);
      for (size_t r = 0; r < count; ++r, ++compared) {
        const uint32_t got = x.d[r * m.columns + r], want = d[first + r];
        if (std::isnan(std::bit_cast<float>(want))) EXPECT_TRUE(std::isnan(std::bit_cast<float>(got)));
        else EXPECT_EQ(got, want) << file << " row " << first + r;
      }
    }
  }
  EXPECT_EQ(compared, 22u);
}

TEST(PtxMma, ASliceHasTheRowTheColumnAndTheSumBefore) {
  for (const MmaCase& m : {kCases[0], kCases[6]}) {
    Matrices x = empty_matrices(m);
    for (double& v : x.a) v = 1;
    for (double& v : x.b) v = 2;
    multiply(m, x, true);
    // 8 registers of A (a row of 16, in pairs), 8 of B, one of C; the product, its store.
    ASSERT_EQ(x.slice.size(), 8u + 8u + 1u + 2u);
    for (const SliceStep& s : x.slice)
      if (s.loads) {
        EXPECT_TRUE(s.thread / 4 == 1 || s.thread / 4 == 5) << s.thread;
      }
  }
}

}  // namespace
}  // namespace assay::ptx
