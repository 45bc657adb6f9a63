// Random states of NVFP4, and its kernels under flavour te.
#include "training/formats/nvfp4.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/training/formats/quantizer_kit.h"

namespace assay::training {
namespace {

constexpr F32Bits kOne = 0x3F800000;

// Random states

struct DrawCase {
  const char* what;
  bool rht;
  Dims shape;
  Usages usages;
  Arch arch;
  std::vector<bool> used;
};

TEST(Draws, StatesAreDrawnAsTheOriginalDrawsThem) {
  const DrawCase cases[] = {
      {"no rotation", false, {64, 128}, {true, true}, Arch::sm100, {true}},
      {"no rotation, columns", false, {64, 128}, {false, true}, Arch::sm100, {true}},
      {"fused", true, {64, 128}, {true, true}, Arch::sm100, {true}},
      {"fused, columns", true, {64, 128}, {false, true}, Arch::sm100, {true}},
      {"rows too few", true, {32, 128}, {true, true}, Arch::sm100, {true, true}},
      {"columns too few", true, {64, 64}, {true, true}, Arch::sm100, {true, true}},
      {"another architecture", true, {64, 128}, {true, true}, Arch::sm120, {true, true}},
      {"unfused rows", true, {32, 128}, {true, false}, Arch::sm100, {true}},
      {"unfused columns", true, {32, 128}, {false, true}, Arch::sm100, {false, true}},
      {"nothing to quantize", true, {0, 128}, {true, true}, Arch::sm100, {}},
  };
  for (const DrawCase& c : cases) {
    Setting t;
    t.session.arch = c.arch;
    t.session.rng.reseed(7, 100);
    auto q = stochastic(c.rht);
    q->set_usage(c.usages.rowwise, c.usages.columnwise);
    q->quantize(t.session, random_bf16(c.shape));
    std::vector<bool> used;
    for (const RngDraw& d : t.session.rng.draws) used.push_back(d.used);
    EXPECT_EQ(used, c.used) << c.what;
    EXPECT_EQ(t.session.rng.offset, 100 + kPhiloxStep * c.used.size()) << c.what;
  }
}

TEST(Draws, NothingIsDrawnWithoutStochasticRounding) {
  Setting t;
  for (const QuantizerPtr& q : vanilla()) q->quantize(t.session, random_bf16({128, 256}));
  EXPECT_TRUE(t.session.rng.draws.empty());
}

// The bytes that one pass over both directions, and two passes as a hybrid makes them, give from one seed.
TEST(Draws, TwoPassesShareTheRowStreamButNotTheColumns) {
  for (const Dims& shape : {Dims{32, 128}, Dims{64, 128}}) {
    Setting one, two;
    const ArrayPtr x = random_bf16(shape);
    Bytes both = bytes_of(*stochastic(true)->quantize(one.session, x));
    const HybridQuantizer hybrid{QuantizerPtr(stochastic(true)), QuantizerPtr(stochastic(true))};
    Bytes rows = bytes_of(*hybrid.rowwise_quantizer->quantize(two.session, x)),
          columns = bytes_of(*hybrid.columnwise_quantizer->quantize(two.session, x));
    EXPECT_EQ(both["_rowwise_data"], rows["_rowwise_data"]);
    EXPECT_NE(both["_columnwise_data"], columns["_columnwise_data"]);
    EXPECT_EQ(both["_columnwise_scale_inv"], columns["_columnwise_scale_inv"]);
    EXPECT_LT(one.session.rng.offset, two.session.rng.offset);
  }
}

TEST(Draws, UnfusedColumnsUseTheSecondState) {
  Setting both, alone;
  both.session.rng.reseed(7, 100);
  alone.session.rng.reseed(7, 100);
  const ArrayPtr x = random_bf16({32, 128});
  auto columns = stochastic(true);
  columns->set_usage(false, true);
  EXPECT_EQ(bytes_of(*stochastic(true)->quantize(both.session, x))["_columnwise_data"],
            bytes_of(*columns->quantize(alone.session, x))["_columnwise_data"]);
  ASSERT_EQ(both.session.launches.size(), 2u);
  EXPECT_NE(both.session.launches[0].find("rng=7,100"), std::string::npos) << both.session.launches[0];
  EXPECT_NE(both.session.launches[1].find("rng=7,1124"), std::string::npos) << both.session.launches[1];
}

// Flavour te

TEST(FlavourTe, ANoopTensorOfZeroChangesTheKernelAndSoNegativeZeros) {
  Setting t;
  t.session.flavour = Flavour::te;
  std::vector<uint16_t> bits(32 * 128, 0x8000);
  bits[0] = 0x3F80;
  const ArrayPtr x = from_bytes({32, 128}, DType::bfloat16, std::as_bytes(std::span(bits)));
  auto q = make<MXFP8Quantizer>();
  const StoragePtr s = q->quantize(t.session, x);
  const auto second = [&] { return std::to_integer<int>(bytes_of(*s)["_rowwise_data"][1]); };
  EXPECT_EQ(second(), 0x00);
  update(*q, t.session, x, *s, 0);
  EXPECT_EQ(second(), 0x80);
  EXPECT_NE(t.session.launches.back().find("flavour=te"), std::string::npos);
}

TEST(FlavourTe, RotatingKernelsDoNotSeeTheFlag) {
  for (const bool fused : {false, true}) {
    Setting t;
    t.session.flavour = Flavour::te;
    auto q = make<NVFP4Quantizer>();
    q->with_rht = q->with_post_rht_amax = true;
    const Dims shape = {fused ? 64 : 32, 128};
    const ArrayPtr x = random_bf16(shape, 1),
                   y = cast(t.session,
                            from_bytes(shape, DType::float32,
                                       std::vector<std::byte>(static_cast<size_t>(count_of(shape)) * 4,
                                                              std::byte{0x41})),
                            DType::bfloat16);
    const StoragePtr s = q->quantize(t.session, x);
    Bytes before = bytes_of(*s), fresh = bytes_of(*q->quantize(t.session, y));
    update(*q, t.session, y, *s, kOne);
    Bytes after = bytes_of(*s);
    for (const char* name : {"_amax_rowwise", "_amax_columnwise"})
      EXPECT_EQ(after[name], fresh[name]) << name;
    for (const char* name :
         {"_rowwise_data", "_columnwise_data", "_rowwise_scale_inv", "_columnwise_scale_inv"})
      EXPECT_EQ(after[name], fused ? fresh[name] : before[name]) << name;
  }
}

TEST(Nvfp4, OnlyBfloat16IsRotated) {
  Setting t;
  for (const DType dtype : {DType::float32, DType::float16}) {
    const ArrayPtr x = cast(t.session, random_bf16({64, 128}), dtype);
    try {
      stochastic(true)->quantize(t.session, x);
      ADD_FAILURE() << name_of(dtype) << " was rotated";
    } catch (const SemanticError& e) {
      EXPECT_EQ(e.error_class, ErrorClass::runtime_error);
      EXPECT_NE(std::string(e.what()).find("with_rht rotates bfloat16"), std::string::npos) << e.what();
    }
    EXPECT_TRUE(stochastic(false)->quantize(t.session, x)) << name_of(dtype);
  }
}

// Columns that are made of the rows, because their scales are missing, go to where the old ones lie: others
// may hold that memory.
TEST(Nvfp4Columns, AreMadeWhereTheyLay) {
  Setting t;
  auto q = make<NVFP4Quantizer>();
  q->with_2d_quantization = true;
  const StoragePtr s = q->quantize(t.session, random_bf16({64, 128}, 1)),
                   other = q->quantize(t.session, random_bf16({64, 128}, 2));
  auto& fp4 = dynamic_cast<NVFP4Storage&>(*s);
  const ArrayPtr lay = fp4.columnwise_data, right = clone(lay);
  copy_into(*dynamic_cast<NVFP4Storage&>(*other).columnwise_data, *lay);
  ASSERT_FALSE(equal_bytes(*lay, *right));
  fp4.columnwise_scale_inv = nullptr;
  fp4.update_usage(true, true);
  EXPECT_EQ(fp4.columnwise_data, lay);
  EXPECT_TRUE(equal_bytes(*lay, *right));
}

}  // namespace
}  // namespace assay::training
