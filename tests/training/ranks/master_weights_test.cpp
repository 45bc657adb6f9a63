#include "training/ranks/master_weights.h"

#include "tests/training/formats/quantizer_kit.h"
#include "training/ranks/master_fragments.h"

namespace assay::training {
namespace {

// What such a parameter holds is written element by element, so that an offset that is off by one would reach
// another row, or memory of somebody else.
TEST(MasterWeights, AFragmentLiesInsideAParameterThatIsATransposeAlone) {
  Setting t(Arch::sm90);
  ProcessGroup group;
  for (const QuantizerPtr& q :
       {QuantizerPtr(delayed()), QuantizerPtr(make<Float8CurrentScalingQuantizer>())}) {
    const StoragePtr weight = q->quantize(t.session, bf16({16, 32}));
    weight->update_usage(false, true);
    const ArrayPtr before = clone(buffers(*weight).at("_transpose"));
    const auto written = [&](int64_t offset) {
      quantize_master_weights(t.session, {{weight, zeros({64}, DType::float32), offset, {}}}, group);
    };
    for (const int64_t offset : {16 * 32 - 63, 16 * 32, -1}) {
      EXPECT_EQ(raised([&] { written(offset); }), ErrorClass::value_error)
          << q->class_name() << " from " << offset;
      EXPECT_TRUE(equal_bytes(*buffers(*weight).at("_transpose"), *before)) << q->class_name();
    }
    EXPECT_NO_THROW(written(16 * 32 - 64));
    EXPECT_FALSE(equal_bytes(*buffers(*weight).at("_transpose"), *before)) << q->class_name();
  }
}

// Two directions take a fragment where each has a shard of its own; into the parameter they take the whole.
TEST(MasterWeights, AFragmentOfAHybridNeedsAShardForEachDirection) {
  Setting t;
  ProcessGroup group;
  const StoragePtr weight =
      HybridQuantizer(QuantizerPtr(make<IdentityQuantizer>()), QuantizerPtr(make<IdentityQuantizer>()))
          .copy()
          ->quantize(t.session, bf16({16, 32}));
  const ArrayPtr master = zeros({64}, DType::float32);
  const auto written = [&](size_t shards) {
    MasterWeight w{weight, master, 32, {}};
    for (size_t i = 0; i < shards; ++i) w.shard.push_back(random_bf16({64}));
    quantize_master_weights(t.session, {w}, group);
    for (const ArrayPtr& shard : w.shard) EXPECT_TRUE(equal_bytes(*shard, *zeros({64}, DType::bfloat16)));
  };
  EXPECT_EQ(raised([&] { written(0); }), ErrorClass::value_error);
  EXPECT_EQ(raised([&] { written(1); }), ErrorClass::value_error);
  EXPECT_NO_THROW(written(2));
}

// Scales stand in rows of a multiple of four; behind the real ones is that of a tile of zeros.
TEST(MasterWeights, PaddingOfBlockScalesIsWrittenInEveryRow) {
  Setting t;
  ProcessGroup group;
  const StoragePtr weight =
      make<Float8BlockQuantizer>(Encoding::e4m3, 2)->quantize(t.session, bf16({384, 640}));
  const ArrayPtr scales = buffers(*weight).at("_rowwise_scale_inv");
  ASSERT_EQ(scales->shape, (Dims{3, 8}));
  std::ranges::fill(scales->bytes(), std::byte{0x55});
  const ArrayPtr master = zeros({384 * 640}, DType::float32);
  quantize_master_weights(t.session, {{weight, master, 0, {}}}, group);
  const std::vector<float> ones(24, 1.0F);  // of tiles of zeros, as all of them are
  EXPECT_TRUE(equal_bytes(*scales, *from_bytes({3, 8}, DType::float32, std::as_bytes(std::span(ones)))));
}

// Two codes share a byte of NVFP4; an odd one has a byte as well.
TEST(MasterWeights, AShardOfFp4ThatIsTooShortIsMeasuredInBytes) {
  Setting t;
  ProcessGroup group;
  auto q = make<NVFP4Quantizer>();
  q->with_2d_quantization = true;
  const StoragePtr weight = q->quantize(t.session, bf16({16, 32}));
  const MasterWeight w{weight, zeros({63}, DType::float32), 0, {zeros({31}, DType::uint8)}};
  try {
    quantize_master_weights(t.session, {w}, group);
    ADD_FAILURE() << "nothing was raised";
  } catch (const SemanticError& e) {
    EXPECT_EQ(e.error_class, ErrorClass::runtime_error);
    EXPECT_NE(std::string(e.what()).find("expected a shard of 32 bytes, found 31"), std::string::npos)
        << e.what();
  }
}

// A fragment of 200 rows ends in the second row of tiles, whose amax is that of its own rows alone: what is
// large in the last row of the first tiles does not count.
TEST(MasterWeights, TilesOfSquareBlocksAreSquare) {
  Setting t;
  ProcessGroup group;
  auto q = make<Float8BlockQuantizer>(Encoding::e4m3, 2);
  q->set_usage(true, false);
  constexpr int64_t kRows = 200, kCols = 256;
  const ArrayPtr x = random_bf16({256, kCols});
  const uint16_t outlier = 0x4880;  // 2^18
  std::ranges::copy(std::as_bytes(std::span(&outlier, 1)), x->bytes().begin() + 127 * kCols * 2);
  std::ranges::fill(x->bytes().subspan(kRows * kCols * 2), std::byte{0});
  const StoragePtr want = q->quantize(t.session, x), got = q->quantize(t.session, bf16({256, kCols}));
  const ArrayPtr master =
      view(clone(slice(cast(t.session, x, DType::float32), 0, 0, kRows)), {kRows * kCols});
  quantize_master_weights(t.session, {{got, master, 0, {}}}, group);
  const auto written = [&](const StoragePtr& s) {
    return clone(slice(s->dequantize(t.session), 0, 0, kRows));
  };
  EXPECT_TRUE(equal_bytes(*written(got), *written(want)));
}

// A fragment from the end of one row into the next, in blocks of 1 x 2.
TEST(MasterFragments, AnAmaxIsTheMagnitudeInTheDtypeOfTheValues) {
  Setting t;
  const float values[] = {-3, 2, 1, -5};
  const ArrayPtr wide = from_bytes({4}, DType::float32, std::as_bytes(std::span(values)));
  EXPECT_EQ(block_amaxes({wide, 3, {2, 4}}, {1, 2}),
            (std::vector<uint32_t>{0, 0x40400000, 0x40000000, 0x40A00000}));
  EXPECT_EQ(block_amaxes({cast(t.session, wide, DType::bfloat16), 3, {2, 4}}, {1, 2}),
            (std::vector<uint32_t>{0, 0x4040, 0x4000, 0x40A0}));
}

}  // namespace
}  // namespace assay::training
