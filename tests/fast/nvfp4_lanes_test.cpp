// NVFP4's lanes against published numbers, third-party vectors, and models in value space that any correct
// lane must equal.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "contract/line.h"
#include "fast/lane/convert.cuh"
#include "fast/lane/hadamard.cuh"
#include "fast/lane/nvfp4.cuh"
#include "fast/lane/philox.cuh"
#include "fast/lane/stochastic.cuh"
#include "fixtures/safetensors.h"
#include "tests/source_path.h"

namespace assay::fast_host {
namespace {

float value(uint32_t f32_bits) { return std::bit_cast<float>(f32_bits); }
uint32_t bits_of(float v) { return std::bit_cast<uint32_t>(v); }

safetensors::File vectors(const std::string& name) {
  auto file = safetensors::read(source_path("fixtures/vectors/") + name + ".safetensors");
  if (!file) throw std::runtime_error(file.error().text());
  return *file;
}
std::vector<uint32_t> elements(const safetensors::File& file, const std::string& name) {
  const safetensors::Tensor& t = *file.find(name);
  const size_t bytes = static_cast<size_t>(safetensors::bits(t.dtype)) / 8;
  std::vector<uint32_t> out(static_cast<size_t>(t.count()));
  for (size_t i = 0; i < out.size(); ++i) std::memcpy(&out[i], t.bytes.data() + i * bytes, bytes);
  return out;
}

struct Random {
  uint64_t state;
  uint32_t operator()() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state >> 32);
  }
};

// --- the scale chain -----------------------------------------------------------------------------

// Hand-worked: encode scale, decode scale and scale multiplier of tensor amaxes (N10.2, N10.5, N10.7).
TEST(Nvfp4Lanes, TensorScales) {
  struct Row {
    uint32_t amax, encode, decode, factor;
  };
  const Nvfp4Chain chain;
  const Row rows[] = {{0, 0x3F800000, 0x3F800000, 0x3E2AAAAB},
                      {kInf, 0x3F800000, 0x3F800000, 0x3E2AAAAB},
                      {1, 0x7F7FFFFF, 0x00200000, 0x7E2AAAAA},
                      {0x05280000, 0x7F7FFFFF, 0x00200000, 0x7E2AAAAA},
                      {kNan, 0x7F7FFFFF, 0x00200000, 0x7E2AAAAA},
                      {0x05280001, 0x7F7FFFFE, 0x00200000, 0x7E2AAAAA},
                      {0x0DA24260, 0x77048754, 0x07F74093, 0x75B0B470},
                      {0x3DCCCCCD, 0x46D20000, 0x381C09C1, 0x458C0000},
                      {kOne, 0x45280000, 0x39C30C31, 0x43E00000},
                      {0x40C00000, 0x43E00000, 0x3B124925, 0x42955556},
                      {0x43E00000, 0x40C00000, 0x3E2AAAAB, 0x3F800000},
                      {0x45280000, 0x3F800000, 0x3F800000, 0x3E2AAAAB},
                      {bits_of(1e30f), 0x1354F71E, 0x6B99DD8E, 0x120DFA14},
                      {kMaxFinite, 0x05280001, 0x79C30C30, 0x03E00002}};
  for (const Row& r : rows) {
    const Nvfp4Scales s = chain.of_tensor(r.amax);
    EXPECT_EQ(bits_of(s.encode), r.encode) << std::hex << r.amax;
    EXPECT_EQ(bits_of(s.decode), r.decode) << std::hex << r.amax;
    EXPECT_EQ(bits_of(s.factor), r.factor) << std::hex << r.amax;
  }
}

// Hand-worked: what the Numerics make of special amaxes (N10.2, N10.3, N10.8).
TEST(Nvfp4Lanes, SpecialScales) {
  Nvfp4Chain fused;  // what the fused rotation kernel has
  fused.inf_zero = fused.nan_unit = fused.nan_wins = true;
  EXPECT_EQ(bits_of(fused.of_tensor(kInf).encode), 0u);
  EXPECT_EQ(bits_of(fused.of_tensor(kInf).decode), kInf);
  EXPECT_EQ(fused.block_scale(fused.of_tensor(kInf), kOne), 0u);
  EXPECT_TRUE(is_nan(bits_of(fused.multiplier(fused.of_tensor(kInf), 0))));
  EXPECT_EQ(bits_of(fused.of_tensor(kNan).encode), kOne);
  EXPECT_EQ(fused.block_scale(fused.of_tensor(kOne), kNan), 0x7Fu);
  Nvfp4Chain wins;
  wins.nan_wins = true;
  EXPECT_EQ(bits_of(wins.of_tensor(kNan).encode), kNan);
  EXPECT_EQ(wins.block_scale(wins.of_tensor(kOne), kInf), 0x7Eu);
  const Nvfp4Chain plain;
  EXPECT_EQ(plain.block_scale(plain.of_tensor(kOne), kNan), 0x7Eu);  // NaN loses against FLT_MAX
  EXPECT_EQ(bits_of(plain.multiplier(plain.of_tensor(kOne), 0)), kMaxFinite);
  EXPECT_EQ(bits_of(plain.multiplier(plain.of_tensor(kOne), 0x7F)), kMaxFinite);
  Nvfp4Chain quotient;
  quotient.by = Multiplier::bf16_quotient;
  EXPECT_EQ(bits_of(quotient.multiplier(quotient.of_tensor(kOne), 0)), kLargestBf16);
  EXPECT_EQ(bits_of(quotient.multiplier(quotient.of_tensor(0x40B00000), 0x6E)), 0x408C0000u);  // 4.375
  Nvfp4Chain narrow;
  narrow.m256 = true;
  EXPECT_EQ(bits_of(narrow.of_tensor(kOne).encode), 0x44C00000u);
}

// Hand-worked: one block (N10.6 to N10.9).
TEST(Nvfp4Lanes, OneBlock) {
  const Nvfp4Chain chain;
  const Nvfp4Scales s = chain.of_tensor(0x40B00000);  // 5.5
  EXPECT_EQ(bits_of(s.encode), 0x43F45D17u);
  EXPECT_EQ(chain.block_scale(s, bits_of(1.3984375f)), 0x6Eu);
  EXPECT_EQ(bits_of(chain.multiplier(s, 0x6E)), 0x408BA2E8u);
  EXPECT_EQ(bits_of(chain.decode_multiplier(0x40B00000, 0x6E)), 0x3E6AAAABu);
  const float in[] = {0.1f, -0.2f, 0.3f, -0.4f, 0.5f, -0.6f, 0.7f, -0.8f,
                      0.9f, -1.0f, 1.1f, -1.2f, 1.3f, -1.4f, 0.0f, -0.0f};
  const uint32_t want[] = {1, 0xA, 3, 0xB, 4, 0xD, 5, 0xD, 6, 0xE, 6, 0xF, 7, 0xF, 0, 8};
  for (int i = 0; i < 16; i += 2) {
    auto y = [&](int k) {
      return __fmul_rn(value(encode<Encoding::bf16>(bits_of(in[k])) << 16), chain.multiplier(s, 0x6E));
    };
    EXPECT_EQ(Bits::pair<Encoding::e2m1>(y(i), y(i + 1)), want[i] | want[i + 1] << 4) << i;
    EXPECT_EQ(Hardware::pair<Encoding::e2m1>(y(i), y(i + 1)), want[i] | want[i + 1] << 4) << i;
  }
}

TEST(Nvfp4Lanes, ScaleChainEqualsTheVectors) {
  const safetensors::File file = vectors("nvfp4_scale_chain_a01");
  const std::vector<uint32_t> amax = elements(file, "global_amax"), block = elements(file, "block_amax"),
                              encode_scale = elements(file, "S_enc"),
                              narrow_scale = elements(file, "S_enc_e4m3max256"),
                              scale = elements(file, "block_scale_e4m3"),
                              multiplier = elements(file, "element_multiplier");
  const Nvfp4Chain chain;
  Nvfp4Chain narrow;
  narrow.m256 = true;
  int zero_scales = 0;
  for (size_t i = 0; i < amax.size(); ++i) {
    const Nvfp4Scales s = chain.of_tensor(amax[i]);
    ASSERT_EQ(bits_of(s.encode), encode_scale[i]) << i;
    ASSERT_EQ(bits_of(narrow.of_tensor(amax[i]).encode), narrow_scale[i]) << i;
    ASSERT_EQ(chain.block_scale(s, block[i]), scale[i]) << i;
    ASSERT_EQ(bits_of(chain.multiplier(s, scale[i])), multiplier[i]) << i;
    zero_scales += scale[i] == 0;
  }
  EXPECT_GT(zero_scales, 300);
}

// Every step in binary64, narrowed once. The orders that others use give other bytes, and often enough that
// this would notice (N10.5, N10.6, N10.8).
TEST(Nvfp4Lanes, ScaleChainEqualsValueSpace) {
  auto narrow = [](double v) { return static_cast<double>(static_cast<float>(v)); };
  auto e4m3 = [](double v) { return encode<Encoding::e4m3>(bits_of(static_cast<float>(v))); };
  const double sixth = double(value(kSixth));
  const Nvfp4Chain chain;
  Random random{23};
  int other_order = 0, other_multiplier = 0;
  for (int i = 0; i < 300000; ++i) {  // amaxes of BF16: those of binary32 hardly ever come close to a tie
    const uint32_t amax = (0x38000000u + random() % 0x10000000u) & 0xFFFF0000u,
                   block_amax = (amax - random() % 0x03000000u) & 0xFFFF0000u;
    const Nvfp4Scales t = chain.of_tensor(amax);
    const double s = narrow(2688 / double(value(amax))), b = double(value(block_amax));
    const uint32_t scale = e4m3(narrow(b * narrow(s * sixth)));
    ASSERT_EQ(chain.block_scale(t, block_amax), scale) << i;
    other_order += scale != e4m3(narrow(narrow(b / 6) * s));
    if (scale == 0) continue;
    const double code = double(value(decode<Encoding::e4m3>(scale))),
                 multiplier = narrow(1 / narrow(code * narrow(1 / s)));
    ASSERT_EQ(bits_of(chain.multiplier(t, scale)), bits_of(static_cast<float>(multiplier))) << i;
    other_multiplier += multiplier != narrow(s / code);
  }
  EXPECT_GT(other_order, 100);
  EXPECT_GT(other_multiplier, 50000);
}

// --- four over six -------------------------------------------------------------------------------

// Every step in binary64, narrowed once (N10.10 to N10.12).
TEST(Nvfp4Lanes, FourOverSixEqualsValueSpace) {
  auto narrow = [](double v) { return static_cast<double>(static_cast<float>(v)); };
  Random random{3};
  for (int i = 0; i < 200000; ++i) {
    Nvfp4Chain chain;
    chain.m256 = (i & 1) != 0;
    const FourOverSixRule rule{true, (i & 2) != 0, (i & 4) != 0};
    const uint32_t amax = 0x38000000u + random() % 0x10000000u, block_amax = amax - random() % 0x03000000u;
    const Nvfp4Scales t = chain.of_tensor(amax);
    for (bool four : {false, true}) {
      const double base = narrow(narrow(double(value(block_amax)) / 6) * double(t.encode)),
                   wanted = std::min(four ? narrow(base * 1.5) : base, 448.0);
      ASSERT_EQ(rule.scale(t, block_amax, four), encode<Encoding::e4m3>(bits_of(static_cast<float>(wanted))))
          << i;
    }
    const uint32_t code = random() & 15u, scale = random() % 0x7F,
                   x = (block_amax - random() % 0x01000000u) | (random() & kSign);
    const double product =
        double(value(decode<Encoding::e2m1>(code))) * double(value(decode<Encoding::e4m3>(scale)));
    const double diff = rule.fast
                            ? narrow(product - narrow(double(value(x)) * double(t.encode)))
                            : narrow(narrow(narrow(product * double(t.amax)) / (chain.m256 ? 1536 : 2688)) -
                                     double(value(x)));
    const float before = value(random() % 0x50000000u);
    const double want = narrow(double(before) + (rule.squared ? narrow(diff * diff) : std::fabs(diff)));
    ASSERT_EQ(bits_of(rule.add(before, chain, t, value(decode<Encoding::e4m3>(scale)), x, code)),
              bits_of(static_cast<float>(want)))
        << i;
  }
}
TEST(Nvfp4Lanes, FourOverSixLimits) {
  const Nvfp4Chain chain;
  const FourOverSixRule rule{true};
  const Nvfp4Scales t = chain.of_tensor(kOne);
  EXPECT_EQ(rule.scale(t, kOne, false), 0x7Eu);
  EXPECT_EQ(rule.scale(t, kOne, true), 0x7Eu);         // 672, cut to 448
  EXPECT_EQ(rule.scale(t, 0x3F000000, false), 0x76u);  // 224
  EXPECT_EQ(rule.scale(t, 0x3F000000, true), 0x7Au);   // 336, a tie between 320 and 352
}

// --- Philox --------------------------------------------------------------------------------------

TEST(Nvfp4Lanes, PhiloxEqualsTheVectors) {
  const safetensors::File kat = vectors("philox_kat");
  const std::vector<uint32_t> c = elements(kat, "counter"), k = elements(kat, "key"),
                              want = elements(kat, "output"), rounds = elements(kat, "rounds");
  auto check = [&](const uint32_t* counter, const uint32_t* key, int n, const uint32_t* words) {
    const uint4 got =
        philox(make_uint4(counter[0], counter[1], counter[2], counter[3]), make_uint2(key[0], key[1]), n);
    EXPECT_EQ(got.x, words[0]);
    EXPECT_EQ(got.y, words[1]);
    EXPECT_EQ(got.z, words[2]);
    EXPECT_EQ(got.w, words[3]);
  };
  for (size_t i = 0; i < rounds.size(); ++i)
    check(&c[4 * i], &k[2 * i], static_cast<int>(rounds[i]), &want[4 * i]);
  const safetensors::File sequence = vectors("philox_seq_a01");
  const std::vector<uint32_t> rc = elements(sequence, "raw.counter"), rk = elements(sequence, "raw.key"),
                              ten = elements(sequence, "raw.output10"),
                              seven = elements(sequence, "raw.output7_first64");
  for (size_t i = 0; i < rk.size() / 2; ++i) check(&rc[4 * i], &rk[2 * i], 10, &ten[4 * i]);
  for (size_t i = 0; i < seven.size() / 4; ++i) check(&rc[4 * i], &rk[2 * i], 7, &seven[4 * i]);
}

// Random123 and hand-carried counters of 128 bits: (offset, sequence) as the kernels of TransformerEngine
// count.
TEST(Nvfp4Lanes, CountersCarry) {
  struct Row {
    uint64_t seed, sequence, offset;
    uint32_t words[4];
  };
  for (const Row& r : {Row{0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
                       {0x0123456789ABCDEF, 5, 7, {0x91b7d2e0, 0xa4d4b6c4, 0xc6acf628, 0xe0e4b442}},
                       {1234, 0x100000003, 0xFFFFFFFF, {0x9be1ae3f, 0x75518a10, 0xeed9c1bc, 0xde577383}},
                       {1234, 0x100000003, 0x100000000, {0xc5791049, 0xa08b9d43, 0x89368438, 0x6b841110}}}) {
    const uint4 got = philox(make_uint4(uint32_t(r.offset), uint32_t(r.offset >> 32), uint32_t(r.sequence),
                                        uint32_t(r.sequence >> 32)),
                             make_uint2(uint32_t(r.seed), uint32_t(r.seed >> 32)));
    EXPECT_EQ(got.x, r.words[0]);
    EXPECT_EQ(got.y, r.words[1]);
    EXPECT_EQ(got.z, r.words[2]);
    EXPECT_EQ(got.w, r.words[3]);
  }
}

Draws draws_of(const std::string& line, Direction d) {
  const auto p = parse_line(line);
  if (!p) throw std::runtime_error(p.error().text());
  return Draws::of(*p, d);
}
// The words that serve element (i, j) of stored data of rows x cols: four elements from a multiple of 4.
uint32_t word_of(const Draws& draws, int64_t i, int64_t j, int64_t rows, int64_t cols, uint32_t member = 0) {
  const uint2 two = draws.eight(Draws::block(i, j, cols), i, j & ~int64_t{7}, rows, cols, member);
  return (j & 4) != 0 ? two.y : two.x;
}
uint32_t philox_word(uint64_t seed, uint32_t x, uint32_t y, uint32_t z, uint32_t w, int index) {
  const uint4 words = philox(make_uint4(x, y, z, w), make_uint2(uint32_t(seed), uint32_t(seed >> 32)));
  const uint32_t all[] = {words.x, words.y, words.z, words.w};
  return all[index];
}

// Hand-worked in docs/draws.md: 30x40, offset 7 (N12.2).
TEST(Nvfp4Lanes, LogicalDraws) {
  const std::string line = "quantize nvfp4 30x40 bf16 dir=both round=sr rng=81985529216486895,7,0";
  const uint64_t seed = 81985529216486895u;
  const Draws row = draws_of(line, Direction::row), col = draws_of(line, Direction::col);
  EXPECT_EQ(word_of(row, 0, 0, 30, 40), philox_word(seed, 7, 0, 0, 0, 0));
  EXPECT_EQ(word_of(row, 1, 39, 30, 40), philox_word(seed, 7, 0, 5, 0, 1));
  EXPECT_EQ(word_of(row, 29, 22, 30, 40), philox_word(seed, 7, 0, 88, 0, 1));
  EXPECT_EQ(word_of(col, 22, 29, 40, 30), philox_word(seed, 7, 0, 45, 0x80000000, 3));
  EXPECT_EQ(word_of(col, 39, 17, 40, 30, 3), philox_word(seed, 7, 0, 79, 0x8000C000, 0));
  EXPECT_EQ(word_of(row, 29, 39, 30, 40, 131071), philox_word(seed, 7, 0, 89, 0x7FFFC000, 1));
  // A block number of more than 32 bits, and an offset of 64.
  const Draws far =
      draws_of("quantize nvfp4 16x16 bf16 dir=row round=sr rng=5,18446744073709551615,0", Direction::row);
  const uint2 two = far.eight(0x300000001u, 0, 0, 16, 16, 1);
  EXPECT_EQ(two.x, philox_word(5, 0xFFFFFFFF, 0xFFFFFFFF, 1, 3 | 1 << 14, 0));
  const Draws interleaved =
      draws_of("quantize nvfp4 30x40 bf16 dir=row round=sr sr_bytes=interleaved rng=81985529216486895,7,0",
               Direction::row);
  const uint32_t straight = word_of(row, 3, 8, 30, 40),
                 mixed = word_of(interleaved, 3, 8, 30, 40);  // N12.5: bytes 0, 2, 1, 3
  EXPECT_EQ(mixed, (straight & 0xFF0000FFu) | (straight >> 8 & 0xFF00u) | (straight << 8 & 0xFF0000u));
}

// Hand-worked in docs/draws.md (N12.4).
TEST(Nvfp4Lanes, TransformerEngineDraws) {
  const std::string line = "quantize nvfp4 256x256 bf16 dir=both round=sr draw=te_t1d rng=9,100,0";
  const Draws row = draws_of(line, Direction::row), col = draws_of(line, Direction::col);
  EXPECT_EQ(word_of(row, 70, 37, 256, 256), philox_word(9, 108, 0, 26, 0, 3));
  EXPECT_EQ(word_of(col, 37, 70, 256, 256), philox_word(9, 111, 0, 114, 0, 1));
  const Draws rotated = draws_of(
      "quantize nvfp4 256x256 bf16 dir=both round=sr draw=te_t1d col.rht=1 rng=9,100,0", Direction::col);
  EXPECT_EQ(word_of(rotated, 37, 70, 256, 256), philox_word(9, 100 + 1024 + 3, 0, 20, 0, 3));
  const Draws carried =
      draws_of("quantize nvfp4 256x256 bf16 dir=both round=sr draw=te_t1d rng=9,18446744073709551612,0",
               Direction::row);
  EXPECT_EQ(word_of(carried, 70, 37, 256, 256),
            philox_word(9, 4, 0, 27, 0, 3));  // 2^64 - 4 + 8 carries into the sequence
}

// The tables of N12.4 by division, element by element, as they are printed.
TEST(Nvfp4Lanes, AddressesEqualTheTables) {
  struct Place {
    int64_t sequence, tick, word;
    bool operator==(const Place&) const = default;
    auto operator<=>(const Place&) const = default;
  };
  auto table = [](Draw draw, bool rows, bool both_made, int64_t r, int64_t c, int64_t m,
                  int64_t k_size) -> Place {
    const int64_t gx = (k_size + 127) / 128, both = both_made ? 1 : 0, e = rows ? c % 16 : r % 16;
    auto launch = [&](int64_t n) { return n * (c / 128) + n * gx * (r / 128); };
    auto swapped = [&](int64_t g) { return 2 * ((e / 8) ^ g) + e % 8 / 4; };
    switch (draw) {
      case Draw::te_t1d: {
        const int64_t s = 2 * (r % 128 / 64) + c % 128 / 64;
        if (rows)
          return {launch(128) + 4 * (r % 32) + c % 64 / 16, 2 * s * (1 + both) + r % 64 / 32,
                  swapped(r % 8 / 4)};
        const int64_t lane = c % 64 / 2, warp = ((r % 64 / 16 - lane / 2) % 4 + 4) % 4;
        return {launch(128) + 32 * warp + lane, 4 * s + 2 + c % 2, e / 4};
      }
      case Draw::te_q2d: {
        const int64_t base = 2 * (r % 128 / 32) * (1 + both);
        if (rows)
          return {launch(128) + 8 * (r % 16) + c % 128 / 16, base + 2 * both + r % 32 / 16,
                  swapped(r % 4 / 2)};
        return {launch(128) + c % 128, base + r % 32 / 16, e / 4};
      }
      case Draw::te_fb: {
        if (rows) return {launch(256) + 8 * (r % 32) + c % 128 / 16, r % 128 / 32, e / 4};
        const int64_t p = c % 128 / 2;
        return {launch(256) + 8 * (p % 32) + r % 128 / 16, 4 * both + 2 * (p / 32) + c % 2, e / 4};
      }
      default: {
        const int64_t kt = (std::min<int64_t>(m, 1024) + 127) / 128, n = r / 128, k = n % kt,
                      lin = c / 128 + gx * (n / kt);
        if (rows)
          return {256 + 32 * (r % 128 / 16) + 2 * (r % 16) + c % 128 / 64 + 512 * (k + 1) + 512 * kt * lin,
                  c % 64 / 16, e / 4};
        return {128 + c % 128 + 512 * k + 512 * kt * lin, r % 128 / 16, e / 4};
      }
    }
  };
  struct Case {
    Draw draw;
    int64_t rows, cols;
  };
  for (const Case& t : {Case{Draw::te_t1d, 256, 288},
                        {Draw::te_q2d, 160, 256},
                        {Draw::te_fb, 176, 304},
                        {Draw::te_rhtrc, 192, 256},
                        {Draw::te_rhtrc, 1344, 256},
                        {Draw::te_rhtrc, 2048, 128}})
    for (bool both : {false, true}) {
      std::set<Place> seen;
      for (bool rows : {true, false}) {
        if (!rows && !both) seen.clear();
        Draws draws;
        draws.draw = t.draw, draws.both = both, draws.as_rows = rows, draws.columns = !rows;
        for (int64_t r = 0; r < t.rows; r += rows ? 1 : 4)
          for (int64_t c = 0; c < t.cols; c += rows ? 4 : 1) {
            const int64_t e = rows ? c % 16 : r % 16;
            const Draws::Address at =
                draws.address(uint64_t(r), uint64_t(c), uint64_t(t.rows), uint64_t(t.cols + 127) / 128);
            const Place got{int64_t(at.sequence), at.tick, (e / 4) ^ (at.swapped ? 2 : 0)},
                want = table(t.draw, rows, both, r, c, t.rows, t.cols);
            ASSERT_TRUE(got == want) << int(t.draw) << ' ' << rows << ' ' << r << ',' << c << ": "
                                     << got.sequence << ' ' << got.tick << ' ' << got.word;
            ASSERT_TRUE(seen.insert(got).second)
                << "shared: " << int(t.draw) << ' ' << rows << ' ' << r << ',' << c;
          }
      }
    }
}

// --- stochastic rounding -------------------------------------------------------------------------

constexpr double kGrid[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

uint32_t by_real_numbers(uint32_t x, uint32_t byte) {
  if (is_nan(x)) return 7;
  const double a = std::fabs(double(value(x)));
  const uint32_t sign = x >> 31 << 3;
  if (a >= 6) return sign | 7;
  uint32_t lo = 0;
  while (kGrid[lo + 1] <= a) ++lo;
  const double f = (a - kGrid[lo]) / (kGrid[lo + 1] - kGrid[lo]);
  return sign | (lo + (std::floor(256 * f) + byte >= 256 ? 1 : 0));
}

// Every high half with a few low halves, and random patterns about the grid.
void for_drawn_floats(const std::function<void(uint32_t)>& f) {
  for (uint32_t high = 0; high < 0x10000; ++high)
    for (uint32_t low : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0xFFFFu}) f(high << 16 | low);
  Random random{11};
  for (int i = 0; i < 300000; ++i) f((0x3A000000u + random() % 0x06E00000u) | (random() & kSign));
}

TEST(Nvfp4Lanes, StochasticIntegersEqualRealNumbers) {
  Random random{5};
  for_drawn_floats([&](uint32_t x) {
    for (uint32_t byte : {0u, 1u, 127u, 128u, 254u, 255u, random() & 255u})
      ASSERT_EQ(stochastic_integer(x, byte), by_real_numbers(x, byte)) << std::hex << x << ' ' << byte;
  });
}
// The adder against the integers: all bytes, so that no carry is missed, in each of eight places.
TEST(Nvfp4Lanes, StochasticPoliciesAgree) {
  Random random{6};
  for_drawn_floats([&](uint32_t x) {
    const uint32_t bytes = random(), y = random();
    ASSERT_EQ(StochasticHardware::four(value(x), value(y), value(x ^ kSign), value(x + 1), bytes),
              StochasticBits::four(value(x), value(y), value(x ^ kSign), value(x + 1), bytes))
        << std::hex << x << ' ' << bytes;
  });
  for (uint32_t x = 0x3A000000u; x < 0x40D00000u; x += 0x3FF1)
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const float v = value(x), values[8] = {v, -v, 6.5f, v, -0.25f, v, std::nanf(""), v};
      const uint32_t bytes = byte | byte << 8 | 77u << 16 | byte << 24;
      uint32_t want = 0;
      for (int k = 0; k < 8; ++k)
        want |= stochastic_integer(bits_of(values[k]), bytes >> (8 * (k % 4)) & 0xFFu) << (4 * k);
      const uint2 words = make_uint2(bytes, bytes);
      ASSERT_EQ(Hardware::e2m1_drawn(values, 1.0f, e2m1_signs(values), false, words), want)
          << std::hex << x << ' ' << byte;
    }
}

// Hand-counted: how many of 256 bytes round up, for both rules (N12.3).
TEST(Nvfp4Lanes, UpCounts) {
  struct Row {
    float x;
    int up;
  };
  for (const Row& r : {Row{0.1f, 51},
                       {0.25f, 128},
                       {0.49f, 250},
                       {0.75f, 128},
                       {1.9f, 204},
                       {2.5f, 128},
                       {3.999f, 255},
                       {4.5f, 64},
                       {5.99f, 254},
                       {6, 0},
                       {-0.3f, 153},
                       {-2.25f, 64},
                       {0.0f, 0},
                       {-0.0f, 0},
                       {3, 0}}) {
    int integer = 0, fma = 0;
    const uint32_t x = bits_of(r.x), low = by_real_numbers(x, 0);
    for (uint32_t byte = 0; byte < 256; ++byte) {
      EXPECT_TRUE(stochastic_integer(x, byte) == low || stochastic_integer(x, byte) == low + 1);
      integer += stochastic_integer(x, byte) != low;
      fma += stochastic_fma(x, byte) != low;
    }
    EXPECT_EQ(integer, r.up) << r.x;
    EXPECT_EQ(fma, r.up) << r.x;
  }
  EXPECT_EQ(stochastic_integer(0x3AFFFFFF, 255),
            0u);  // where one rounding of the sum carries it onto the grid
  EXPECT_EQ(stochastic_fma(0x3AFFFFFF, 255), 1u);
  EXPECT_EQ(stochastic_integer(0x80000001, 255), 8u);
  EXPECT_EQ(stochastic_integer(0xFFC00000, 3), 7u);
  EXPECT_EQ(stochastic_fma(0xFFC00000, 3), 7u);
  EXPECT_EQ(stochastic_fma(kSign | kInf, 0), 15u);
}
TEST(Nvfp4Lanes, StochasticFmaEqualsTheVectors) {
  const safetensors::File file = vectors("sr_e2m1_a01");
  const std::vector<uint32_t> x = elements(file, "input"), byte = elements(file, "rbits8"),
                              want = elements(file, "code");
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_EQ(stochastic_fma(x[i], byte[i]), want[i]) << std::hex << x[i] << ' ' << byte[i];
}

// --- the rotation --------------------------------------------------------------------------------

using Sixteen = std::vector<uint32_t>;

Sixteen rotated(const Sixteen& v, uint32_t mask, RhtSum sum) {
  uint32_t group[16];
  std::copy(v.begin(), v.end(), group);
  rotate_group({true, mask, sum}, group);
  return {group, group + 16};
}

// Published: v[i] = bf16(0.1 (i + 1)).
TEST(Nvfp4Lanes, RotationOfARamp) {
  Sixteen v;
  for (int i = 0; i < 16; ++i) v.push_back(rounded_to_bf16(bits_of(0.1f * static_cast<float>(i + 1))));
  const uint32_t want[] = {0xBFC6, 0xBF40, 0x3F40, 0xBD44, 0x3F40, 0xBD58, 0xBFC6, 0x3F5A,
                           0x3F59, 0x3FD3, 0x3E18, 0x3E17, 0x3E19, 0xBE7E, 0x3F87, 0xBFE0};
  for (RhtSum sum : {RhtSum::butterfly, RhtSum::exact, RhtSum::tc16}) {
    const Sixteen got = rotated(v, kRhtSignMask, sum);
    for (size_t j = 0; j < 16; ++j) EXPECT_EQ(got[j], want[j] << 16) << int(sum) << ' ' << j;
  }
}
TEST(Nvfp4Lanes, RotationEqualsTheVectors) {
  for (const auto& [name, mask] :
       {std::pair{"nvfp4_rht_a01", uint32_t{kRhtSignMask}}, {"nvfp4_rht_a02", 0u}}) {
    const safetensors::File file = vectors(name);
    const std::vector<uint32_t> x = elements(file, "input"), want = elements(file, "input_t_rht");
    const size_t rows = static_cast<size_t>(file.find("input")->shape[0]),
                 cols = static_cast<size_t>(file.find("input")->shape[1]);
    for (size_t c = 0; c < cols; ++c)
      for (size_t r = 0; r < rows; r += 16) {
        Sixteen v;
        for (size_t i = 0; i < 16; ++i) v.push_back(x[(r + i) * cols + c] << 16);
        for (RhtSum sum : {RhtSum::butterfly, RhtSum::exact, RhtSum::tc16}) {
          const Sixteen got = rotated(v, mask, sum);
          for (size_t j = 0; j < 16; ++j)
            ASSERT_EQ(got[j], want[c * rows + r + j] << 16) << name << ' ' << int(sum);
        }
      }
  }
}

// A value of 128 bits, m * 2^scale, to binary32 and then to BF16.
uint32_t narrowed(__int128 m, int scale, bool nearest) {
  if (m == 0) return 0;
  const bool minus = m < 0;
  const unsigned __int128 size =
      minus ? -static_cast<unsigned __int128>(m) : static_cast<unsigned __int128>(m);
  int top = 127;
  while ((size >> top & 1) == 0) --top;
  const int unit = std::max(top + scale - 23, -149), drop = unit - scale;
  double v =
      std::ldexp(static_cast<double>(static_cast<uint64_t>(drop > 0 ? size >> drop : size << -drop)), unit);
  if (nearest && drop > 0) {
    const unsigned __int128 one = 1, rest = size & ((one << drop) - 1), half = one << (drop - 1);
    if (rest > half || (rest == half && (size >> drop & 1) != 0)) v += std::ldexp(1.0, unit);
  }
  return rounded_to_bf16(bits_of(static_cast<float>(minus ? -v : v)));
}

// Leaves of any spread of exponents that 128 bits hold; the model adds them one by one.
TEST(Nvfp4Lanes, RotationByIntegersEqualsTheDefinition) {
  Random random{17};
  for (int t = 0; t < 60000; ++t) {
    const int spread = t % 3 == 0   ? 8
                       : t % 3 == 1 ? 45
                                    : 110,
              base = t % 7 == 0 ? 0 : static_cast<int>(random() % static_cast<uint32_t>(250 - spread));
    Sixteen v;
    for (int i = 0; i < 16; ++i) {
      if (random() % 11 == 0) {
        v.push_back(random() & kSign);
      } else {
        const uint32_t exponent = static_cast<uint32_t>(base) + random() % static_cast<uint32_t>(spread + 1);
        v.push_back((random() & kSign) | exponent << 23 | (random() & 0x7Fu) << 16);
      }
    }
    const uint32_t mask = random() & 0xFFFFu;
    if (t % 5 == 0) v[15] = v[3] ^ kSign;  // cancels in half of the outputs
    const Sixteen exact = rotated(v, mask, RhtSum::exact), core = rotated(v, mask, RhtSum::tc16);
    int least = 255, greatest = 1;
    for (uint32_t x : v)
      if ((x & kAbs) != 0)
        least = std::min(least, bf16_exponent(x)), greatest = std::max(greatest, bf16_exponent(x));
    if (least == 255) continue;
    for (int j = 0; j < 16; ++j) {
      __int128 sum = 0, cut = 0;
      for (int i = 0; i < 16; ++i) {
        const uint32_t x = v[size_t(i)];
        if ((x & kAbs) == 0) continue;
        const bool minus = ((x >> 31) ^ (mask >> i & 1) ^
                            static_cast<uint32_t>(std::popcount(static_cast<unsigned>(i & j)) & 1)) != 0;
        const __int128 s = static_cast<__int128>(bf16_significand(x)) << (bf16_exponent(x) - least);
        // A product of significands has 14 fraction bits, the grid of the greatest exponent 25.
        const uint64_t product = uint64_t{bf16_significand(x)} * 128 << 25;
        const int right = 14 + greatest - bf16_exponent(x);
        const __int128 term = right > 63 ? 0 : static_cast<__int128>(product >> right);
        sum += minus ? -s : s, cut += minus ? -term : term;
      }
      ASSERT_EQ(exact[size_t(j)], narrowed(sum, least - 127 - 7 - 2, true)) << t << ' ' << j;
      ASSERT_EQ(core[size_t(j)], narrowed(cut, greatest - 127 - 2 - 25, false)) << t << ' ' << j;
    }
  }
}

// Hand-worked: the far ends of BF16, and what no finite sum shows (N11.3).
TEST(Nvfp4Lanes, RotationOfExtremes) {
  Sixteen v(16, 0);
  v[0] = 0x7F7F0000, v[1] = 0x7F7F0000, v[2] = 0x00010000;  // twice the largest, and the least
  Sixteen got = rotated(v, 0, RhtSum::exact);
  EXPECT_EQ(got[0], 0x7EFF0000u);
  EXPECT_EQ(got[1], 0x00000000u);  // 2^-133 / 4 in binary32, then to even
  v[2] = 0x00040000;
  got = rotated(v, 0, RhtSum::exact);
  EXPECT_EQ(got[1], 0x00010000u);                 // the largest cancel: 2^-131 / 4
  EXPECT_EQ(rotated(v, 0, RhtSum::tc16)[1], 0u);  // truncated away beside them
  // A tie at 24 bits, and one that only the least value breaks.
  EXPECT_EQ(f32_of_integer((uint64_t{1} << 24) + 1, 0, false, true), 0x4B800000u);
  EXPECT_EQ(f32_of_integer((uint64_t{1} << 24) + 3, 0, false, true), 0x4B800002u);
  EXPECT_EQ(f32_of_integer((uint64_t{1} << 24) + 1, 0, true, true), 0x4B800001u);
  EXPECT_EQ(f32_of_integer((uint64_t{1} << 24) + 3, 0, true, false), 0x4B800001u);
  v.assign(16, 0);
  v[0] = 0x4B800000, v[1] = 0x3F800000, v[2] = 0x00800000;  // 2^24 + 1 + 2^-126
  uint32_t leaf[16];
  std::copy(v.begin(), v.end(), leaf);
  EXPECT_EQ(rht_by_digits(leaf, 0, 1), 0x4A800001u);
  leaf[2] = 0x80800000;
  EXPECT_EQ(rht_by_digits(leaf, 0, 1), 0x4A800000u);
  EXPECT_EQ(rht_by_digits(leaf, 3, 1), 0xCA800001u);  // both large ones negated
  for (RhtSum sum : {RhtSum::butterfly, RhtSum::exact, RhtSum::tc16}) {
    Sixteen one(16, kOne);
    one[5] = kInf;
    const Sixteen infinite = rotated(one, 0, sum);
    EXPECT_EQ(infinite[0], kInf) << int(sum);
    EXPECT_EQ(infinite[1], kSign | kInf) << int(sum);  // element 5 is odd
    one[4] = kInf;
    const Sixteen two = rotated(one, 0, sum);
    EXPECT_EQ(two[0], kInf) << int(sum);
    EXPECT_EQ(two[1], 0x7FFF0000u) << int(sum);
    one[4] = 0x7F810000;
    for (uint32_t x : rotated(one, 0, sum)) EXPECT_EQ(x, 0x7FFF0000u) << int(sum);
    const Sixteen negative_zeros = rotated(Sixteen(16, kSign), 0, sum);
    EXPECT_EQ(negative_zeros[0], sum == RhtSum::butterfly ? kSign : 0u) << int(sum);
  }
}

// Every impulse gives a row of the signed matrix (N11.1).
TEST(Nvfp4Lanes, RotationOfImpulses) {
  const std::vector<uint32_t> want = elements(vectors("rht_matrices"), "rht_matrix_signed");
  for (RhtSum sum : {RhtSum::butterfly, RhtSum::exact, RhtSum::tc16})
    for (size_t i = 0; i < 16; ++i) {
      Sixteen v(16, 0);
      v[i] = kOne;
      const Sixteen got = rotated(v, kRhtSignMask, sum);
      for (size_t j = 0; j < 16; ++j) ASSERT_EQ(got[j], want[16 * i + j] << 16) << i << ' ' << j;
    }
}

}  // namespace
}  // namespace assay::fast_host
