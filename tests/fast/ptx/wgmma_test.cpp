// wgmma (9.7.15): where its matrices lie in shared memory and in registers, its sums against the rule in
// binary64, against values worked by hand and against recordings of tensor cores, and what a kernel may do
// wrong around it.
#include <gtest/gtest.h>

#include <cstdlib>

#include "fast/ptx/slice.h"
#include "fixtures/safetensors.h"
#include "tests/fast/ptx/tensor_sums.h"
#include "tests/fast/ptx/wgmma_harness.h"
#include "tests/source_path.h"

namespace assay::ptx {
namespace {

const ProductType kProductF16{"f16", "f16", 16}, kProductBf16{"bf16", "bf16", 16},
    kProductTf32{"tf32", "tf32", 32}, kProductE4m3{"e4m3", "e4m3", 8}, kProductE5m2{"e5m2", "e5m2", 8},
    kProductMixed{"e4m3", "e5m2", 8}, kProductOther{"e5m2", "e4m3", 8};

CodeFormat code_format(std::string_view name) {
  if (name == "f16") return {16, 10, 15};
  if (name == "bf16") return {16, 7, 127};
  if (name == "tf32") return {32, 23, 127};
  if (name == "e4m3") return {8, 3, 7, false};
  return {8, 2, 15};
}
StepRule step_rule(const ProductType& t) {
  StepRule r{code_format(t.a).least(), code_format(t.b).least()};
  if (t.bits == 8) r.unit = r.fraction = 13;
  return r;
}
uint32_t bits_of(float v) { return std::bit_cast<uint32_t>(v); }

// The code of a value that the code_format has.
uint32_t small_code(std::string_view name, double v) {
  const CodeFormat f = code_format(name);
  if (f.bits == 32) return bits_of(static_cast<float>(v));
  for (uint32_t code = 0; code < 1u << f.bits; ++code)
    if (f.value(code) == v && std::signbit(f.value(code)) == std::signbit(v)) return code;
  ADD_FAILURE() << name << " has no " << v;
  return 0;
}

// Small integers, whose sums no step cuts.
void fill_with_integers(ProductCase& x, Draw& draw) {
  const int most = x.type.bits == 8 ? 4 : 8;
  std::vector<uint32_t> a_codes, b_codes;
  for (int v = -most; v <= most; ++v)
    a_codes.push_back(small_code(x.type.a, v)), b_codes.push_back(small_code(x.type.b, v));
  x.a.resize(size_t{kProductRows} * x.type.k()), x.b.resize(size_t{x.columns} * x.type.k());
  x.c.resize(size_t{kProductRows} * x.columns);
  for (uint32_t& v : x.a) v = a_codes[draw() % a_codes.size()];
  for (uint32_t& v : x.b) v = b_codes[draw() % b_codes.size()];
  for (uint32_t& v : x.c) v = bits_of(static_cast<float>(static_cast<int>(draw() % 99) - 49));
}

void expect_product(const ProductCase& x, const std::vector<uint32_t>& got, const std::string& what) {
  const CodeFormat a = code_format(x.type.a), b = code_format(x.type.b);
  for (unsigned row = 0; row < kProductRows; ++row)
    for (unsigned column = 0; column < x.columns; ++column) {
      const size_t at = size_t{row} * x.columns + column;
      double sum = x.adds ? std::bit_cast<float>(x.c[at]) : 0;
      for (unsigned k = 0; k < x.type.k(); ++k)
        sum +=
            x.a_sign * a.value(x.a[row * x.type.k() + k]) * x.b_sign * b.value(x.b[column * x.type.k() + k]);
      ASSERT_EQ(std::bit_cast<float>(got[at]), sum) << what << " row " << row << " column " << column;
    }
}

TEST(PtxWgmma, EveryTypeAndLayoutGivesTheProductOfMatrices) {
  Draw draw;
  size_t tried = 0;
  for (const ProductType& t :
       {kProductF16, kProductBf16, kProductTf32, kProductE4m3, kProductE5m2, kProductMixed, kProductOther})
    for (const bool in_registers : {false, true})
      for (const unsigned swizzle : {0u, 32u, 64u, 128u})
        for (unsigned along = 0; along < (t.bits == 16 ? 4u : 1u); ++along) {
          ProductCase x;
          x.type = t, x.a_in_registers = in_registers;
          x.columns = (std::array{8u, 64u, 128u, 40u})[tried % 4];
          // A stretch of swizzled bytes along columns is as many columns.
          if (along & 1 && swizzle) x.columns = 64;
          x.b_lay = {swizzle, (along & 1) != 0},
          x.a_lay = {(std::array{64u, 128u, 0u, 32u})[swizzle / 32 % 4], (along & 2) != 0};
          x.a_sign = tried % 3 == 0 ? -1 : 1, x.b_sign = tried % 5 == 0 ? -1 : 1, x.adds = tried % 2 == 0;
          fill_with_integers(x, draw);
          expect_product(
              x, product_of(x),
              x.opcode() + " swizzle " + std::to_string(swizzle) + " along " + std::to_string(along));
          if (HasFatalFailure()) return;
          ++tried;
        }
  EXPECT_EQ(tried, 2u * 4 * (2 * 4 + 5));
}

TEST(PtxWgmma, TheWidestProductIsWholeInEveryOrder) {
  Draw draw;
  for (const uint64_t order : {0, 1, 2, 3}) {
    ProductCase x;
    x.type = order % 2 ? kProductE4m3 : kProductF16, x.columns = 256, x.a_in_registers = order > 1;
    x.a_lay = x.b_lay = {128, false};
    fill_with_integers(x, draw);
    expect_product(x, product_of(x, kPlainProduct, {.order = order, .check = true}), "order");
  }
}

// Codes from terms of one size to terms that only the cut of the largest leaves out.
TEST(PtxWgmma, SumsAreCutAsTheRuleSays) {
  Draw draw;
  size_t tried = 0, inexact = 0;
  for (const ProductType& t :
       {kProductF16, kProductBf16, kProductTf32, kProductE4m3, kProductE5m2, kProductMixed, kProductOther})
    for (int round = 0; round < 12; ++round) {
      ProductCase x;
      x.type = t, x.columns = 32, x.a_in_registers = round % 2;
      fill_with_integers(x, draw);
      const CodeFormat fa = code_format(t.a), fb = code_format(t.b);
      const auto draw_codes = [&](std::vector<uint32_t>& codes, const CodeFormat& f) {
        // Exponents of a stretch around one place, subnormal numbers among them.
        const unsigned most = (1u << std::min(f.bits - 1 - f.fraction, 6u)) - 1;
        const unsigned spread = 1 + static_cast<unsigned>(round) % most,
                       low = round % 3 == 0 ? 0 : static_cast<unsigned>(draw() % (most - spread + 1));
        const unsigned base = f.bias > 64 && round % 3 ? static_cast<unsigned>(f.bias) - 32 : 0;
        for (uint32_t& code : codes) {
          const uint32_t exponent = base + low + static_cast<uint32_t>(draw() % spread);
          const uint32_t fraction = f.bits == 32 ? static_cast<uint32_t>(draw() % 1024) << 13
                                                 : static_cast<uint32_t>(draw()) & ((1u << f.fraction) - 1);
          code = draw() % 9 == 0
                     ? 0
                     : static_cast<uint32_t>(draw() & 1) << (f.bits - 1) | exponent << f.fraction | fraction;
          if (std::isnan(f.value(code)) || std::isinf(f.value(code))) code = 0;
        }
      };
      draw_codes(x.a, fa), draw_codes(x.b, fb);
      const double typical = fa.value(x.a[1]) * fb.value(x.b[1]);
      for (uint32_t& c : x.c)
        c = bits_of(static_cast<float>(
            typical * static_cast<double>(static_cast<int64_t>(draw() % 65537) - 32768) / 8192));
      const auto got = product_of(x);
      for (unsigned row = 0; row < kProductRows; ++row)
        for (unsigned column = 0; column < x.columns; ++column) {
          std::vector<double> a(t.k()), b(t.k());
          const size_t at = size_t{row} * x.columns + column;
          double exact = std::bit_cast<float>(x.c[at]);
          for (unsigned k = 0; k < t.k(); ++k) {
            a[k] = fa.value(x.a[row * t.k() + k]), b[k] = fb.value(x.b[column * t.k() + k]);
            exact += a[k] * b[k];
          }
          const uint32_t want = sum_in_binary64(step_rule(t), a, b, std::bit_cast<float>(x.c[at]));
          ASSERT_EQ(got[at], want) << x.opcode() << " round " << round;
          ++tried, inexact += std::bit_cast<float>(want) != exact;
        }
    }
  EXPECT_EQ(tried, 7u * 12 * 64 * 32);
  EXPECT_GT(inexact, tried / 4);
}

TEST(PtxWgmma, NaNAndInfinities) {
  ProductCase x;
  x.type = kProductE5m2, x.columns = 8;
  Draw draw;
  fill_with_integers(x, draw);
  std::fill(x.a.begin(), x.a.end(), small_code("e5m2", 1)),
      std::fill(x.b.begin(), x.b.end(), small_code("e5m2", 1));
  const unsigned k = x.type.k();
  x.a[0 * k + 3] = 0x7C;                         // infinity
  x.a[1 * k + 3] = 0x7C, x.a[1 * k + 4] = 0xFC;  // of both signs
  x.a[2 * k + 3] = 0x7E;                         // NaN
  x.a[3 * k + 3] = 0xFC;
  x.b[1 * k + 3] = 0;  // infinity times zero in column 1
  x.c[5 * 8] = 0x7F800000, x.c[6 * 8] = 0x7FC00000;
  const auto got = product_of(x);
  const auto at = [&](unsigned row, unsigned column) { return got[size_t{row} * 8 + column]; };
  EXPECT_EQ(at(0, 0), 0x7F800000u);
  EXPECT_EQ(at(0, 1), 0x7FFFFFFFu);
  EXPECT_EQ(at(1, 0), 0x7FFFFFFFu);
  EXPECT_EQ(at(2, 0), 0x7FFFFFFFu);
  EXPECT_EQ(at(3, 0), 0xFF800000u);
  EXPECT_EQ(at(5, 0), 0x7F800000u);
  EXPECT_EQ(at(6, 0), 0x7FFFFFFFu);
  ProductCase y = x;
  y.type = kProductE4m3;
  std::fill(y.a.begin(), y.a.end(), 0x38u), std::fill(y.b.begin(), y.b.end(), 0x38u);
  std::fill(y.c.begin(), y.c.end(), 0u);
  y.a[0] = 0x7F, y.a[k] = 0x7E;  // NaN; 448, the largest
  const auto of_e4m3 = product_of(y);
  EXPECT_EQ(of_e4m3[0], 0x7FFFFFFFu);
  EXPECT_EQ(of_e4m3[8], bits_of(448 + 31));
}

// The rows of a file of steps: a and b [n, k] of codes, c and d [n] of binary32.
struct TensorSteps {
  std::vector<uint32_t> a, b, c, d;
};
std::optional<TensorSteps> steps_of(const std::string& path, const ProductType& t) {
  const auto read = safetensors::read(path);
  if (!read) return {};
  const auto words = [&](const char* name, size_t bytes) {
    const safetensors::Tensor* tensor = read->find(name);
    std::vector<uint32_t> out(tensor->bytes.size() / bytes);
    for (size_t n = 0; n < out.size(); ++n) std::memcpy(&out[n], tensor->bytes.data() + n * bytes, bytes);
    return out;
  };
  return TensorSteps{words("a", t.bytes()), words("b", t.bytes()), words("c", 4), words("d", 4)};
}

// Each row of a file is an element of the diagonal of a product, whose k may be larger. How many were wrong.
std::pair<size_t, size_t> compare_steps(const ProductType& t, const TensorSteps& s) {
  size_t compared = 0, wrong = 0;
  const size_t k = s.a.size() / s.c.size();
  for (size_t first = 0; first < s.c.size(); first += kProductRows) {
    ProductCase x;
    x.type = t, x.columns = kProductRows;
    x.a.resize(size_t{kProductRows} * t.k()), x.b = x.a, x.c.resize(size_t{kProductRows} * kProductRows);
    const size_t count = std::min<size_t>(kProductRows, s.c.size() - first);
    for (size_t r = 0; r < count; ++r) {
      for (size_t n = 0; n < k; ++n) {
        x.a[r * t.k() + n] = s.a[(first + r) * k + n];
        x.b[r * t.k() + n] = s.b[(first + r) * k + n];
      }
      x.c[r * kProductRows + r] = s.c[first + r];
    }
    const auto got = product_of(x);
    for (size_t r = 0; r < count; ++r, ++compared) {
      const uint32_t d = got[r * kProductRows + r], want = s.d[first + r];
      const bool nan = (want & 0x7FFFFFFF) > 0x7F800000;
      wrong += nan ? (d & 0x7FFFFFFF) <= 0x7F800000 : d != want;
    }
  }
  return {compared, wrong};
}

const std::pair<const char*, const ProductType*> kStepFiles[] = {{"e4m3", &kProductE4m3},
                                                                 {"e5m2", &kProductE5m2},
                                                                 {"bf16", &kProductBf16},
                                                                 {"fp16", &kProductF16},
                                                                 {"tf32", &kProductTf32}};

TEST(PtxWgmma, ValuesWorkedByHandComeOut) {
  size_t compared = 0;
  for (const auto& [name, type] : kStepFiles) {
    const auto steps = steps_of(
        source_path("fixtures/vectors/tensor_core_" + std::string(name) + "_hand.safetensors"), *type);
    ASSERT_TRUE(steps) << name;
    const auto [rows, wrong] = compare_steps(*type, *steps);
    EXPECT_EQ(wrong, 0u) << name;
    compared += rows;
  }
  EXPECT_GT(compared, 30u);
}

// As in tests/reference/hadamard_test.cpp: the folder is fixtures/vectors/silicon, or that of ASSAY_SILICON.
// Rows of FP8 are of wgmma with c = +0, the others of mma.
TEST(PtxWgmma, TensorCoreRecordings) {
  const char* named = std::getenv("ASSAY_SILICON");
  const std::string folder = named ? named : source_path("fixtures/vectors/silicon");
  size_t recordings = 0;
  for (const char* gpu : {"h100", "h200", "gpu"})
    for (const auto& [name, type] : kStepFiles) {
      const auto steps = steps_of(folder + "/" + gpu + "_" + name + ".safetensors", *type);
      if (!steps) continue;
      const auto [rows, wrong] = compare_steps(*type, *steps);
      EXPECT_GT(rows, 0u) << gpu << name;
      EXPECT_EQ(wrong, 0u) << gpu << name;
      ++recordings;
    }
  if (recordings == 0) GTEST_SKIP() << folder << " holds no recordings of tensor cores";
}

TEST(PtxWgmma, ASliceHasTheRowTheColumnAndTheSumBefore) {
  for (const bool in_registers : {false, true}) {
    ProductCase x;
    x.type = kProductE4m3, x.columns = 16, x.a_in_registers = in_registers;
    Draw draw;
    fill_with_integers(x, draw);
    std::vector<SliceStep> slice;
    product_of(x, kPlainProduct, {}, [&](Module& module, Launch& launch, Memory& memory) {
      // Sum 6 of thread 33: row 16 + 8, column 8 + 2.
      slice = slice_behind(
          [&](Recorder& r) {
            RunOptions recorded;
            recorded.recorder = &r;
            run(module, "kernel", launch, memory, recorded);
          },
          "out", uint64_t{32} * (8 * 33 + 6), 32);
    });
    ASSERT_EQ(place_of_sum(33, 6), (std::pair{24u, 10u}));
    size_t products = 0, sums = 0, fragments = 0, images = 0;
    for (const SliceStep& s : slice) {
      products += s.text.starts_with("wgmma");
      sums += s.memory == "sums";
      fragments += s.memory == "fragments";
      images += s.memory == "image";
    }
    EXPECT_EQ(products, 1u);
    EXPECT_EQ(sums, 1u);
    // A row and a column of 32 bytes: two stretches of 16 bytes each, which threads copied by words; or the
    // words of four lanes.
    EXPECT_EQ(images, in_registers ? 8u : 16u);
    EXPECT_EQ(fragments, in_registers ? 8u : 0u);
  }
}

std::string product_error(const ProductCase& x, const std::string& body, RunOptions options,
                          const std::function<void(Launch&)>& change = {}) {
  try {
    product_of(x, body, {}, [&](Module& module, Launch& launch, Memory& memory) {
      if (change) change(launch);
      run(module, "kernel", launch, memory, options);
    });
  } catch (const Fault& e) {
    return e.what();
  }
  return "";
}

struct ProductError {
  const char* name;
  std::string body, mended;
  const char* words;
  bool always = false;  // without checks too
};

const std::string kTileReady = "fence.proxy.async;\nbar.sync 0;\n",
                  kProductFence = "wgmma.fence.sync.aligned;\n",
                  kProductCommit = "wgmma.commit_group.sync.aligned;\n",
                  kProductWait = "wgmma.wait_group.sync.aligned 0;\n",
                  kWholeProduct = kTileReady + kProductFence + "$product" + kProductCommit + kProductWait;
const ProductError kProductErrors[] = {
    {"NoFence", kTileReady + "$product" + kProductCommit + kProductWait + "$store", kWholeProduct + "$store",
     "is the first of its warp, and no wgmma.fence stands before it"},
    {"NoFenceBehindAnAccess",
     kWholeProduct + "add.f32 %f0, %f0, %f1;\n$product" + kProductCommit + kProductWait + "$store",
     kWholeProduct + "add.f32 %f0, %f0, %f1;\n" + kProductFence + "$product" + kProductCommit + kProductWait +
         "$store",
     "(add.f32) accesses, and no wgmma.fence stands between"},
    {"NoWait", kTileReady + kProductFence + "$product" + kProductCommit + "$store" + kProductWait,
     kWholeProduct + "$store", "st.global.b32 reads a register of the product at PTX line"},
    {"NoCommit", kTileReady + kProductFence + "$product" + kProductWait + "$store", kWholeProduct + "$store",
     "for which no wgmma.wait_group has waited"},
    {"AWaitForOneGroupTooFew",
     kTileReady + kProductFence + "$product" + kProductCommit + "$product" + kProductCommit +
         "wgmma.wait_group.sync.aligned 1;\n$store",
     kTileReady + kProductFence + "$product" + kProductCommit + "$product" + kProductCommit + kProductWait +
         "$store",
     "for which no wgmma.wait_group has waited"},
    {"AnAccumulatorIsWrittenMeanwhile",
     kTileReady + kProductFence + "$product" + kProductCommit + "mov.f32 %f3, 0f00000000;\n" + kProductWait,
     kWholeProduct + "mov.f32 %f3, 0f00000000;\n", "mov.f32 writes a register of the product"},
    {"NoProxyFence", "bar.sync 0;\n" + kProductFence + "$product" + kProductCommit + kProductWait,
     kWholeProduct, "and no fence.proxy.async stands between the two"},
    {"NoBarrier", "fence.proxy.async;\n" + kProductFence + "$product" + kProductCommit + kProductWait,
     kWholeProduct, "a byte that thread "},
    {"ATileIsWrittenMeanwhile",
     kTileReady + kProductFence + "$product" + kProductCommit + "st.shared.u32 [%r7], 7;\n" + kProductWait,
     kWholeProduct + "bar.sync 0;\nst.shared.u32 [%r7], 7;\n", "a byte that thread "},
    {"APartOfTheWarp",
     kTileReady + kProductFence + "and.b32 %r3, %r0, 1;\nsetp.eq.u32 %p2, %r3, 0;\n@%p2 $product" +
         kProductCommit,
     kWholeProduct, "is in a deadlock", true},
    {"LanesHaveLeft",
     kTileReady + kProductFence + "setp.eq.u32 %p2, %r0, 7;\n@%p2 ret;\n$product" + kProductCommit,
     kWholeProduct, "is carried out by a part of its warp", true},
    {"OneWarpLess",
     kTileReady + kProductFence + "setp.ge.u32 %p2, %r0, 32;\n@%p2 $product" + kProductCommit + kProductWait,
     kWholeProduct, "was carried out by other warps of this warpgroup and never by this one", true},
    {"AnotherDescriptorInOneWarp",
     kTileReady + kProductFence + "setp.ge.u32 %p2, %r0, 96;\n@%p2 add.u64 %rd3, %rd3, 1;\n$product" +
         kProductCommit + kProductWait,
     kWholeProduct, "with another descriptor or scale-d than by another", true},
    {"AnotherDescriptorInOneLane",
     kTileReady + kProductFence + "setp.eq.u32 %p2, %r0, 5;\n@%p2 add.u64 %rd3, %rd3, 1;\n$product" +
         kProductCommit + kProductWait,
     kWholeProduct, "thread 5: wgmma", true},
    {"AnotherScaleInOneLane",
     kTileReady + kProductFence + "setp.eq.u32 %p0, %r0, 5;\n$product" + kProductCommit + kProductWait,
     kWholeProduct, "is given another scale-d than lane 0", true},
    {"OutsideSharedMemory",
     kTileReady + kProductFence + "or.b64 %rd3, %rd3, 0x3FFF;\n$product" + kProductCommit + kProductWait,
     kWholeProduct, "has a matrix descriptor of B that leads outside shared memory of 65536 bytes", true},
    {"ABaseOffset",
     kTileReady + kProductFence + "or.b64 %rd3, %rd3, 0x2000000000000;\n$product" + kProductCommit +
         kProductWait,
     kWholeProduct, "with base offset 1, which is not understood", true},
};

class PtxWgmmaPlanted : public testing::TestWithParam<ProductError> {};
TEST_P(PtxWgmmaPlanted, IsNamedAndGoneWhenMended) {
  const ProductError& p = GetParam();
  Draw draw;
  for (const bool in_registers : {false, true}) {
    ProductCase x;
    x.type = kProductBf16, x.columns = 16, x.a_in_registers = in_registers;
    fill_with_integers(x, draw);
    for (const uint64_t order : {0, 1, 2, 3}) {
      const std::string found = product_error(x, p.body, {.order = order, .check = true});
      // Where A is in registers nobody reads its tile.
      const bool unread = in_registers && std::string_view(p.name) == "ATileIsWrittenMeanwhile";
      EXPECT_EQ(found.find(p.words) != std::string::npos, !unread) << found;
      EXPECT_EQ(product_error(x, p.mended, {.order = order, .check = true}), "");
    }
    EXPECT_EQ(product_error(x, p.body, {}).empty(), !p.always);
  }
}
INSTANTIATE_TEST_SUITE_P(Errors, PtxWgmmaPlanted, testing::ValuesIn(kProductErrors),
                         [](const auto& p) { return std::string(p.param.name); });

TEST(PtxWgmma, AnIncompleteWarpgroupAndAForgottenWaitAreNoticed) {
  ProductCase x;
  x.columns = 16;
  Draw draw;
  fill_with_integers(x, draw);
  EXPECT_NE(product_error(x, kWholeProduct, {},
                          [](Launch& l) {
                            l.block = {96, 1, 1};
                          })
                .find("needs a warpgroup"),
            std::string::npos);
  // In reverse order the warp that writes the tile is the one that reads it.
  EXPECT_NE(product_error(x,
                          kTileReady + kProductFence + "$product" + kProductCommit +
                              "st.shared.u32 [%r7], 7;\n" + kProductWait,
                          {.order = 1, .check = true})
                .find("nobody has waited for that product"),
            std::string::npos);
  // Without a wait the accumulators are what they were.
  EXPECT_EQ(product_of(x, kTileReady + kProductFence + "$product" + kProductCommit + "$store"), x.c);
  EXPECT_NE(product_of(x, kWholeProduct + "$store"), x.c);
}

TEST(PtxWgmma, WhatWasNeverWrittenMakesItsRowsAndColumnsUndefined) {
  ProductCase x;
  x.columns = 16, x.adds = false;
  Draw draw;
  fill_with_integers(x, draw);
  const std::string text = "setp.lt.u32 %p1, %r0, 0;\n" + kWholeProduct + "$store";
  EXPECT_EQ(product_error(x, text, {.check = true}), "");
  const auto of = [&](const std::string& undefined) {
    return product_error(x, undefined + text, {.check = true});
  };
  x.a_in_registers = true;
  EXPECT_NE(of(".reg .b32 %nothing;\nmov.b32 %a1, %nothing;\n").find("stores an undefined value"),
            std::string::npos)
      << of(".reg .b32 %nothing;\nmov.b32 %a1, %nothing;\n");
  EXPECT_NE(of(".reg .b64 %nothing;\nmov.b64 %rd3, %nothing;\n").find("takes an undefined operand"),
            std::string::npos);
  // What lies in shared memory without a value.
  x.a_in_registers = false;
  for (const char* at : {"0", "32768"}) {
    const std::string stored =
        std::string(".reg .b32 %nothing;\nbar.sync 0;\nsetp.eq.u32 %p1, %r0, 0;\n@%p1 st.shared.u32 [%r7+") +
        at + "], %nothing;\n";
    EXPECT_NE(of(stored).find("st.global.b32 stores an undefined value"), std::string::npos)
        << at << of(stored);
    EXPECT_NE(of(stored).find("read at PTX line"), std::string::npos) << of(stored);
  }
  // What is not added may be undefined.
  x.a_in_registers = false;
  EXPECT_EQ(of(".reg .f32 %nothing;\nmov.f32 %f5, %nothing;\n"), "");
  x.adds = true;
  EXPECT_NE(of(".reg .f32 %nothing;\nmov.f32 %f5, %nothing;\n").find("stores an undefined value"),
            std::string::npos);
}

std::string product_refusal(const std::string& statement) {
  try {
    Module m(kernel_text("", ".reg .pred %p;\n.reg .b32 %r<8>;\n.reg .b64 %d;\n" + statement + "\nret;"));
    m.kernel("kernel");
  } catch (const Fault& e) {
    return e.what();
  }
  return "";
}
TEST(PtxWgmma, WhatIsNotUnderstoodSaysWhy) {
  const std::string product = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r0, %r1, %r2, %r3}, ";
  EXPECT_EQ(product_refusal(product + "%d, %d, %p, 1, -1, 0, 1;"), "");
  EXPECT_EQ(product_refusal(product + "{%r4, %r5, %r6, %r7}, %d, %p, 1, 1, 1;"), "");
  for (const auto& [statement, why] :
       {std::pair{product + "%d, %d, %p, 2, 1, 0, 0;", "takes 1 or -1"},
        {product + "%d, %d, %p, 1, 1, 2, 0;", "takes 0 or 1"},
        {product + "%d, %d, %p, 1, 1, 0;", "needs 4 numbers behind scale-d, not 3"},
        {product + "{%r4, %r5, %r6, %r7}, %d, %p, 1, 1, 0, 0;", "needs 3 numbers behind scale-d, not 4"},
        {product + "{%r4, %r5}, %d, %p, 1, 1, 0;", "needs 4 registers in braces"},
        {std::string(
             "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%r0, %r1}, %d, %d, %p, 1, 1, 0, 0;"),
         "needs 8 registers in braces"},
        {std::string("wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {%r0}, %d, %d, %p, 1, 1, 0, 0;"),
         "'.m64n12k16' is not among its modifiers"},
        {std::string("wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%r0, %r1}, %d, %d, %p, 1, 1, 0, 0;"),
         "nobody has validated a rule for them"},
        {std::string("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%r0}, {%r0}, {%r0}, {%r0};"),
         "nobody has validated a rule for them"},
        {std::string("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r0}, {%r0}, {%r0}, {%r0};"),
         "nobody has validated a rule for them"}})
    EXPECT_NE(product_refusal(statement).find(why), std::string::npos)
        << statement << ": " << product_refusal(statement);
}

}  // namespace
}  // namespace assay::ptx
