// Stochastic rounding (N12.3): what each byte does to a value, how often values go up, and that streams are
// independent.
#include <bit>
#include <cmath>

#include "reference/draws.h"
#include "reference/stochastic.h"
#include "tests/reference/run_line.h"

namespace assay {
namespace {

using reference::Draws;
using reference::stochastic_code;

constexpr SrRule kRules[] = {SrRule::integer, SrRule::fma};
float f32(uint32_t bits) { return std::bit_cast<float>(bits); }

TEST(Stochastic, CountsOverAllBytes) {  // the first byte that rounds up, from TransformerEngine's own rule
  const struct {
    float y;
    uint32_t below;
    int first;  // 256: none
  } rows[] = {{0.1f, 0, 205},
              {0.25f, 0, 128},
              {0.49f, 0, 6},
              {0.75f, 1, 128},
              {1.9f, 3, 52},
              {2.5f, 4, 128},
              {3.999f, 5, 1},
              {4.5f, 6, 192},
              {5.99f, 6, 2},
              {6.0f, 7, 256},
              {-0.3f, 8, 103},
              {-2.25f, 12, 192},
              {0.0f, 0, 256},
              {-0.0f, 8, 256},
              {0.5f, 1, 256},
              {-4.0f, 14, 256},
              {1000.0f, 7, 256},
              {-1000.0f, 15, 256},
              {f32(0x7F800000), 7, 256},
              {f32(0xFF800000), 15, 256},
              {0x1.fffffep-10f, 0, 256},
              {0x1p-9f, 0, 255},
              {-0x1p-100f, 8, 256},
              {f32(0x40BFFFFF), 6, 1}};
  for (SrRule rule : kRules)
    for (const auto& row : rows)
      for (int byte = 0; byte < 256; ++byte) {
        // The fused multiply-add rounds below 1/4 up onto the grid in a few places: here 2^-9 less its last
        // bit.
        if (rule == SrRule::fma && row.y == 0x1.fffffep-10f && byte == 255) continue;
        EXPECT_EQ(stochastic_code(row.y, static_cast<uint32_t>(byte), rule),
                  row.below + (byte >= row.first ? 1 : 0))
            << row.y << " byte " << byte << " rule " << static_cast<int>(rule);
      }
}

TEST(Stochastic, NanIsSix) {
  for (SrRule rule : kRules)
    for (uint32_t nan : {0x7FC00000u, 0xFFC00001u, 0x7F800001u})
      for (uint32_t byte : {0u, 255u}) EXPECT_EQ(stochastic_code(f32(nan), byte, rule), 7u);
}

TEST(Stochastic, TheRulesPart) {  // N12.3: 3AFFFFFF + 255/512 rounds to 1/2 in binary32
  EXPECT_EQ(stochastic_code(f32(0x3AFFFFFF), 255, SrRule::integer), 0u);
  EXPECT_EQ(stochastic_code(f32(0x3AFFFFFF), 255, SrRule::fma), 1u);
  EXPECT_EQ(stochastic_code(f32(0xBAFFFFFF), 255, SrRule::fma), 9u);
  EXPECT_EQ(stochastic_code(f32(0x3AFFFFFF), 254, SrRule::fma), 0u);
}

// The rule on bits, as PTX words it: the random byte is added to the first eight discarded bits, and the
// carry goes into the code.
uint32_t on_bits(uint32_t bits, uint32_t byte) {
  const uint32_t sign = bits >> 31, a = bits & 0x7FFFFFFF;
  if (a > 0x7F800000) return 7;
  if (a >= 0x40C00000) return sign << 3 | 7;
  uint32_t base, top;
  if (a >= 0x3F800000) {
    base = 2 + 2 * ((a >> 23) - 127) + (a >> 22 & 1);
    top = a >> 14 & 255;
  } else {
    const uint32_t e = a >> 23, q = e < 118 ? 0 : (0x800000 | (a & 0x7FFFFF)) >> (141 - e);
    base = q >> 8;
    top = q & 255;
  }
  return sign << 3 | (base + ((top + byte) >> 8));
}

TEST(Stochastic, RealNumbersAndBitsAgree) {
  uint32_t state = 1;
  const auto next = [&state] { return state = state * 1664525u + 1013904223u; };
  for (int n = 0; n < 2'000'000; ++n) {
    const uint32_t any = next();
    const uint32_t bits =
        n % 2 ? any : (any & 0x80000000) | (0x3A000000 + next() % 0x07000000);  // or in the range of the grid
    const uint32_t byte = next() >> 24;
    ASSERT_EQ(stochastic_code(f32(bits), byte, SrRule::integer), on_bits(bits, byte))
        << std::hex << bits << " " << byte;
  }
  for (uint32_t top = 0; top < 65536; ++top)  // every BF16 with every byte
    for (uint32_t byte = 0; byte < 256; ++byte)
      ASSERT_EQ(stochastic_code(f32(top << 16), byte, SrRule::integer), on_bits(top << 16, byte))
          << std::hex << top;
}

TEST(Stochastic, CastOp) {
  const std::vector<uint32_t> x = {0x3E800000, 0x3E800000, 0xC0200000, 0x3AFFFFFF, 0x7FC00000};
  const std::vector<uint8_t> bits = {127, 128, 128, 255, 9};
  EXPECT_EQ(run_line("cast e2m1 1x5 f32 round=sr", {{"x", blob(x)}, {"bits", blob(bits)}}).u8("y"),
            (std::vector<uint8_t>{0, 1, 13, 0, 7}));
  EXPECT_EQ(
      run_line("cast e2m1 1x5 f32 round=sr sr_rule=fma", {{"x", blob(x)}, {"bits", blob(bits)}}).u8("y"),
      (std::vector<uint8_t>{0, 1, 13, 1, 7}));
}

// ---- statistics: each check is false with a probability below 10^-9 for a random seed -----------

constexpr double kLog = 21.42;  // ln(2 / 10^-9), rounded up

// Of n independent draws that go up with probability p, S go up. Bernstein: P(|S - n p| >= s) <= 2 exp(-s^2 /
// (2 (n p (1 - p) + s / 3))), for the terms are within 1 of their mean. The right side is 10^-9 where s^2 = 2
// L (n p (1 - p) + s / 3), L = kLog, which gives s = L / 3 + sqrt(L^2 / 9 + 2 L n p (1 - p)).
double allowance(double n, double p) {
  return kLog / 3 + std::sqrt(kLog * kLog / 9 + 2 * kLog * n * p * (1 - p));
}

TEST(Stochastic, HowOftenValuesGoUp) {  // P(up) = floor(256 f) / 256 over 10^7 draws
  const struct {
    float y;
    int of_256;
  } rows[] = {{0.1f, 51},    {0.25f, 128}, {0.49f, 250}, {1.9f, 204}, {-2.25f, 64},
              {3.999f, 255}, {5.99f, 254}, {0x1p-9f, 1}, {0.001f, 0}, {4.0f, 0}};
  constexpr int64_t kRows = 1000, kCols = 10000;
  for (const Direction d : kDirections) {
    const Draws draws(problem("quantize nvfp4 1000x10000 bf16 round=sr rng=2026,1,0"), d);
    const int64_t stored_rows = (d == Direction::row ? kRows : kCols) / 2,
                  stored_cols = d == Direction::row ? kCols : kRows;  // half of 10^7 in each direction
    int64_t ups[std::size(rows)] = {}, n[std::size(rows)] = {};
    Draws::Last last;
    for (int64_t i = 0; i < stored_rows; ++i)
      for (int64_t j = 0; j < stored_cols; ++j) {
        const size_t k =
            static_cast<size_t>(i + j) % std::size(rows);  // every place of a block serves every value
        const float y = rows[k].y;
        const uint32_t code = stochastic_code(y, draws.byte_at(i, j, last), SrRule::integer);
        ups[k] += code != stochastic_code(y, 0, SrRule::integer);
        ++n[k];
      }
    for (size_t k = 0; k < std::size(rows); ++k) {
      const double count = static_cast<double>(n[k]), p = rows[k].of_256 / 256.0;
      EXPECT_GT(count, 400'000);
      if (rows[k].of_256 == 0) EXPECT_EQ(ups[k], 0) << rows[k].y;
      else
        EXPECT_LE(std::abs(static_cast<double>(ups[k]) - count * p), allowance(count, p))
            << rows[k].y << " " << name_of(d);
    }
  }
}

// Sum over n places of (a - m)(b - m), m = 127.5 the mean of a byte. For independent bytes the terms are
// independent given b, have mean 0 and lie within m^2, so by Hoeffding P(|sum| >= s) <= 2 exp(-s^2 / (2 n
// m^4)), which is 10^-9 at s = m^2 sqrt(2 n L). Equal bytes give n m (m + 1) / 3.
double correlation_limit(double n) { return 127.5 * 127.5 * std::sqrt(2 * n * kLog); }

double correlation(const Draws& a, const Draws& b, int64_t shift_i, int64_t shift_j, bool swapped) {
  constexpr int64_t kSize = 512;
  double sum = 0;
  Draws::Last last_a, last_b;
  for (int64_t i = 0; i < kSize; ++i)
    for (int64_t j = 0; j < kSize; ++j) {
      const int64_t u = i + shift_i, v = j + shift_j;
      sum += (a.byte_at(i, j, last_a) - 127.5) *
             ((swapped ? b.byte_at(v, u, last_b) : b.byte_at(u, v, last_b)) - 127.5);
    }
  return sum / correlation_limit(static_cast<double>(kSize * kSize));
}

TEST(Stochastic, StreamsAreUncorrelated) {
  const auto draws = [](const std::string& rng, Direction d) {
    return Draws(problem("quantize nvfp4 1024x1024 bf16 round=sr rng=" + rng), d);
  };
  const Draws row = draws("77,5,0", Direction::row), col = draws("77,5,0", Direction::col);
  EXPECT_GT(correlation(row, row, 0, 0, false), 1);            // the limit would notice
  EXPECT_LT(std::abs(correlation(row, col, 0, 0, false)), 1);  // the same stored place
  EXPECT_LT(std::abs(correlation(row, col, 0, 0, true)), 1);   // the same element of x
  EXPECT_LT(std::abs(correlation(row, draws("77,6,0", Direction::row), 0, 0, false)), 1);
  EXPECT_LT(std::abs(correlation(row, draws("77,5,1", Direction::row), 0, 0, false)), 1);
  EXPECT_LT(std::abs(correlation(row, draws("78,5,0", Direction::row), 0, 0, false)), 1);
  for (const auto& [i, j] : {std::pair{0, 1}, {0, 4}, {0, 16}, {1, 0}, {16, 0}})
    EXPECT_LT(std::abs(correlation(row, row, i, j, false)), 1) << i << " " << j;
}

TEST(Stochastic, MeanOverOffsets) {     // an element's mean over 256 offsets is its value, but for what
                                        // floor(256 f) leaves out
  std::vector<uint16_t> x(16, 0x3EA0);  // 0.3125, f = 5/8: exactly 160 of 256
  x[0] = 0x40C0;
  double sum = 0, n = 0;
  for (int offset = 0; offset < 256; ++offset) {
    const Outputs out =
        run_line("quantize nvfp4 1x16 bf16 dir=row round=sr amax=2688 rng=3," + std::to_string(offset) + ",0",
                 {{"x", blob(x)}, {"row.given.amax", blob<uint32_t>({0x45280000})}});
    const std::vector<uint8_t> data = out.u8("row.data");
    for (size_t k = 1; k < 16; ++k, ++n) sum += data[k / 2] >> (k % 2 * 4) & 15;
  }
  EXPECT_LE(std::abs(sum - n * 160 / 256), allowance(n, 160 / 256.0));
}

TEST(Stochastic, ThreadsDecideNoByte) {
  std::vector<uint16_t> x(70 * 96);
  uint32_t state = 5;
  for (uint16_t& e : x) {
    state = state * 1664525u + 1013904223u;
    e = static_cast<uint16_t>(0x3C00 + (state >> 16) % 0x700 + (state & 0x8000));
  }
  for (const std::string keys : {"", "draw=te_fb", "block=16x16", "sr_rule=fma sr_bytes=interleaved"}) {
    const std::string line = "quantize nvfp4 70x96 bf16 round=sr rng=1,2,3 " + keys;
    const Outputs one = run_line(line, {{"x", blob(x)}}, 1);
    for (int threads : {2, 5}) EXPECT_EQ(run_line(line, {{"x", blob(x)}}, threads), one) << line;
    EXPECT_NE(run_line("quantize nvfp4 70x96 bf16 rng=1,3,3 round=sr " + keys, {{"x", blob(x)}}), one)
        << line;
  }
}

}  // namespace
}  // namespace assay
