#include "training/formats/quantizer.h"

#include <algorithm>
#include <bit>
#include <limits>

#include <gtest/gtest.h>

#include "tests/training/formats/quantizer_kit.h"
#include "training/formats/kernel_quantizer.h"

namespace assay::training {
namespace {

constexpr F32Bits kOne = 0x3F800000;

// What quantize makes

TEST(Quantize, TheResultKnowsItsDtypeClassAndACopyOfItsQuantizer) {
  Setting t;
  auto q = make<MXFP8Quantizer>(Encoding::e5m2);
  q->internal = true;
  const StoragePtr s = q->quantize(t.session, random_bf16({32, 64}));
  EXPECT_EQ(s->class_name(), "MXFP8TensorStorage");
  EXPECT_EQ(s->dtype, DType::bfloat16);
  EXPECT_EQ(dynamic_cast<MXFP8Storage&>(*s).element, Encoding::e5m2);
  EXPECT_NE(s->quantizer, q);
  EXPECT_TRUE(equal(*s->quantizer, *q));
}

TEST(Quantize, OptimizeForGemmPermutesMxfp8Scales) {
  Setting t;
  const ArrayPtr x = random_bf16({128, 256});
  auto q = make<MXFP8Quantizer>();
  Bytes compact = bytes_of(*q->quantize(t.session, x));
  q->optimize_for_gemm = true;
  const StoragePtr s = q->quantize(t.session, x);
  Bytes swizzled = bytes_of(*s);
  EXPECT_TRUE(dynamic_cast<MXFP8Storage&>(*s).with_gemm_swizzled_scales);
  EXPECT_EQ(swizzled["_rowwise_data"], compact["_rowwise_data"]);
  EXPECT_NE(swizzled["_rowwise_scale_inv"], compact["_rowwise_scale_inv"]);
  EXPECT_TRUE(std::ranges::is_permutation(swizzled["_rowwise_scale_inv"], compact["_rowwise_scale_inv"]));
}

TEST(Quantize, CalibrationTakesTheLargerOfBothEnds) {
  Setting t;
  const auto found = [&](const std::vector<float>& values) {
    const auto q = delayed();
    q->calibrate(t.session, from_bytes({static_cast<int64_t>(values.size())}, DType::float32,
                                       std::as_bytes(std::span(values))));
    return std::bit_cast<F32Bits>(number(q->amax));
  };
  const auto bits = [](float v) { return std::bit_cast<F32Bits>(v); };
  EXPECT_EQ(found({1, 5, -2, 3}), bits(5));
  EXPECT_EQ(found({1, 5, -7, 3}), bits(7));
  EXPECT_EQ(found({-3, -1, -2}), bits(3));
  EXPECT_EQ(found({0, 0}), bits(-0.0F));
  EXPECT_EQ(found({1, std::numeric_limits<float>::quiet_NaN(), 2}), 0x7FC00000u);
}

TEST(Quantize, APlaneOfAnotherSizeThanItsBufferIsRefused) {
  const ArrayPtr buffer = zeros({3}, DType::uint8);
  for (const size_t n : {2u, 4u}) {
    const std::vector<std::byte> plane(n, std::byte{7});
    EXPECT_THROW(kernels::write(buffer, plane), std::logic_error) << n;
  }
  EXPECT_TRUE(equal_bytes(*buffer, *zeros({3}, DType::uint8)));
}

TEST(Quantize, SourcesMayHaveAnyStrides) {
  Setting t;
  const ArrayPtr x = transpose(random_bf16({64, 32}), 0, 1);
  auto q = make<MXFP8Quantizer>();
  EXPECT_EQ(bytes_of(*q->quantize(t.session, x)), bytes_of(*q->quantize(t.session, clone(x))));
}

// What cannot be quantized

TEST(QuantizeErrors, ShapesThatAFormatDoesNotTake) {
  Setting t;
  EXPECT_EQ(raised([&] {
              make<MXFP8Quantizer>()->quantize(t.session, random_bf16({16, 64}));
            }),
            ErrorClass::runtime_error);
  EXPECT_EQ(raised([&] {
              make<NVFP4Quantizer>()->quantize(t.session, random_bf16({24, 64}));
            }),
            ErrorClass::runtime_error);
}

TEST(QuantizeErrors, PerTensorColumnsAloneNeedAnArchitectureWithoutTransposes) {
  Setting t;
  const ArrayPtr x = random_bf16({32, 64});
  for (const QuantizerPtr& q :
       {QuantizerPtr(delayed()), QuantizerPtr(make<Float8CurrentScalingQuantizer>())}) {
    t.session.arch = Arch::sm100;
    q->set_usage(false, true);
    const StoragePtr s = q->quantize(t.session, x);
    EXPECT_EQ(bytes_of(*s).count("_data"), 1u);
    for (Arch arch : {Arch::sm90, Arch::sm120}) {
      t.session.arch = arch;
      EXPECT_EQ(raised([&] { q->quantize(t.session, x); }), ErrorClass::not_implemented_error);
      EXPECT_EQ(raised([&] { update(*q, t.session, x, *s); }), ErrorClass::not_implemented_error);
    }
  }
}

TEST(QuantizeErrors, RowScaledNvfp4) {
  Setting t;
  const auto error = [&](Dims shape, DType dtype, auto set) {
    NVFP4Quantizer q;
    q.row_scaled_nvfp4 = true;
    set(q);
    const ArrayPtr x = cast(t.session, random_bf16(std::move(shape)), dtype);
    return raised([&] { q.quantize(t.session, x); });
  };
  constexpr ErrorClass kWant = ErrorClass::runtime_error;
  EXPECT_EQ(error({64, 64}, DType::bfloat16, [](auto& q) { q.with_rht = q.with_post_rht_amax = true; }),
            kWant);
  EXPECT_EQ(error({64, 64}, DType::bfloat16, [](auto& q) { q.with_2d_quantization = true; }), kWant);
  EXPECT_EQ(error({64, 64}, DType::bfloat16, [](auto& q) { q.stochastic_rounding = true; }), kWant);
  EXPECT_EQ(error({64, 64}, DType::bfloat16,
                  [](auto& q) {
                    q.reduction = {true, std::make_shared<ProcessGroup>(), {}};
                  }),
            kWant);
  EXPECT_EQ(error({64, 64}, DType::bfloat16, [](auto& q) { q.set_usage(false, true); }), kWant);
  EXPECT_EQ(error({48, 64}, DType::bfloat16, [](auto&) {}), kWant);
  EXPECT_EQ(error({64, 64}, DType::float32, [](auto&) {}), kWant);
}

TEST(QuantizeErrors, TheRotationWantsBf16AndItsOwnAmax) {
  Setting t;
  auto q = make<NVFP4Quantizer>();
  q->with_rht = true;
  EXPECT_EQ(raised([&] { q->quantize(t.session, random_bf16({32, 32})); }), ErrorClass::runtime_error);
  q->with_post_rht_amax = true;
  q->quantize(t.session, random_bf16({32, 32}));
  EXPECT_EQ(raised([&] {
              q->quantize(t.session, cast(t.session, random_bf16({32, 32}), DType::float32));
            }),
            ErrorClass::runtime_error);
}

// Refreshing in place

TEST(Update, BuffersFollowTheUsages) {
  Setting t;
  auto q = make<MXFP8Quantizer>();
  const ArrayPtr x = random_bf16({32, 64});
  const StoragePtr s = q->quantize(t.session, x);
  const Bytes both = bytes_of(*s);
  q->set_usage(true, false);
  update(*q, t.session, x, *s);
  EXPECT_EQ(s->present(), (Usages{true, false}));
  q->set_usage(true, true);
  update(*q, t.session, x, *s);
  EXPECT_EQ(bytes_of(*s), both);
}

TEST(Update, ATransposeOnTnOnlyIsValidAndElsewhereGone) {
  Setting t;
  auto q = make<Float8CurrentScalingQuantizer>();
  t.session.arch = Arch::sm90;
  const StoragePtr s = q->quantize(t.session, random_bf16({32, 64}));
  EXPECT_FALSE(dynamic_cast<Float8Storage&>(*s).transpose_invalid);
  q->set_usage(true, false);
  update(*q, t.session, random_bf16({32, 64}, 2), *s);
  EXPECT_TRUE(dynamic_cast<Float8Storage&>(*s).transpose_invalid);
  EXPECT_EQ(dynamic_cast<Float8Storage&>(*s).transpose, nullptr);
}

TEST(Update, EachClassGuardsItsDestination) {
  Setting t;
  const ArrayPtr x = random_bf16({128, 128});
  auto light = make<MXFP8Quantizer>();
  light->internal = true;
  const StoragePtr storage = light->quantize(t.session, x),
                   identity = make<IdentityQuantizer>()->quantize(t.session, x);
  EXPECT_EQ(raised([&] { update(*light, t.session, x, *storage); }), ErrorClass::assertion_error);
  const auto error = [&](const QuantizerPtr& q) {
    return raised([&] { update(*q, t.session, x, *identity); });
  };
  EXPECT_EQ(error(delayed()), ErrorClass::value_error);
  EXPECT_EQ(error(make<Float8CurrentScalingQuantizer>()), ErrorClass::value_error);
  EXPECT_EQ(error(make<Float8BlockQuantizer>()), ErrorClass::assertion_error);
  EXPECT_EQ(error(make<NVFP4Quantizer>()), ErrorClass::assertion_error);
  auto mx = make<MXFP8Quantizer>();
  const StoragePtr tensor = mx->quantize(t.session, x);
  EXPECT_EQ(raised([&] {
              update(*mx, t.session, random_bf16({64, 128}), *tensor);
            }),
            ErrorClass::runtime_error);
  EXPECT_EQ(raised([&] { update(*make<IdentityQuantizer>(), t.session, x, *tensor); }),
            ErrorClass::value_error);
}

// Delayed scaling

TEST(Delayed, ReadsTheScaleAndGathersTheAmaxInPlace) {
  Setting t;
  auto q = delayed(4, 3);
  const std::byte* amax = q->amax->data();
  const ArrayPtr x = cast(t.session, f32_scalar(-2.5f, {1, 1}), DType::bfloat16);
  const StoragePtr s = q->quantize(t.session, x);
  EXPECT_EQ(number(dynamic_cast<Float8Storage&>(*s).scale_inv), 0.25f);
  EXPECT_EQ(number(q->amax), 3.0f);
  q->quantize(t.session, cast(t.session, f32_scalar(-7.0f, {1, 1}), DType::bfloat16));
  EXPECT_EQ(number(q->amax), 7.0f);
  update(*q, t.session, cast(t.session, f32_scalar(9.0f, {1, 1}), DType::bfloat16), *s, kOne);
  EXPECT_EQ(number(q->amax), 7.0f);
  q->calibrate(t.session, x);
  EXPECT_EQ(number(q->amax), 2.5f);
  EXPECT_EQ(q->amax->data(), amax);
}

// Amax reduction

TEST(Reduction, ScalesByTheGroupsAmaxAndLeavesATrace) {
  for (const bool nvfp4 : {false, true}) {
    Setting t;
    if (!nvfp4) t.session.arch = Arch::sm90;  // where one amax serves two planes
    const ArrayPtr whole = random_bf16({64, 64}), shard = slice(whole, 0, 32, 64);
    float largest = 0;
    const ArrayPtr wide = cast(t.session, whole, DType::float32);
    for (size_t i = 0; i < 64 * 64; ++i)
      largest = std::max(largest, std::abs(reinterpret_cast<const float*>(wide->bytes().data())[i]));
    largest *= 4;
    QuantizerPtr q = make<Float8CurrentScalingQuantizer>();
    if (nvfp4) q = make<NVFP4Quantizer>();
    const Bytes alone = bytes_of(*q->quantize(t.session, shard));
    auto group = std::make_shared<ProcessGroup>();
    group->name = "tp0";
    group->all_reduce_max = [&](std::span<F32Bits> values) {
      EXPECT_EQ(values.size(), nvfp4 ? 2u : 1u);
      for (F32Bits& v : values) v = std::max(v, std::bit_cast<F32Bits>(largest));
    };
    set_amax_reduction_group(*q, group);
    t.session.tensor_name = "input";
    const StoragePtr reduced = q->quantize(t.session, shard);
    EXPECT_EQ(t.session.collectives, (std::vector<Collective>{{"all_reduce_max", "input", "tp0"}}));
    EXPECT_NE(bytes_of(*reduced), alone);
    if (nvfp4) {
      EXPECT_EQ(number(dynamic_cast<NVFP4Storage&>(*reduced).amax_columnwise), largest);
    } else {
      EXPECT_EQ(number(dynamic_cast<Float8Storage&>(*reduced).scale_inv), 1 / (448 / largest));
    }
    EXPECT_EQ(reduced->quantizer->amax_reduction()->group, nullptr);
    EXPECT_EQ(q->amax_reduction()->group, group);
  }
}

// Identity

TEST(Identity, AliasesItsInputUnlessItCasts) {
  Setting t;
  const ArrayPtr x = random_bf16({4, 4});
  const StoragePtr s = make<IdentityQuantizer>()->quantize(t.session, x);
  EXPECT_EQ(dynamic_cast<IdentityStorage&>(*s).hp_data->data(), x->data());
  const StoragePtr wide = make<IdentityQuantizer>(DType::float32)->quantize(t.session, x);
  EXPECT_EQ(wide->dtype, DType::float32);
  EXPECT_FALSE(share_memory(*dynamic_cast<IdentityStorage&>(*wide).hp_data, *x));
}

TEST(Identity, UpdatesInPlaceOrRebindsAndAnyFlagButZeroFreezes) {
  Setting t;
  IdentityQuantizer q;
  IdentityStorage s;
  s.hp_data = random_bf16({4, 4}, 1);
  const std::byte* home = s.hp_data->data();
  const ArrayPtr x = random_bf16({4, 4}, 2), other = random_bf16({2, 4}, 3);
  for (F32Bits flag : {0x3F000000u, kOne}) {
    update(q, t.session, x, s, flag);
    EXPECT_FALSE(equal_bytes(*s.hp_data, *x));
    update(q, t.session, other, s, flag);
    EXPECT_EQ(s.hp_data->data(), home);
  }
  update(q, t.session, x, s, 0);
  EXPECT_TRUE(equal_bytes(*s.hp_data, *x));
  EXPECT_EQ(s.hp_data->data(), home);
  update(q, t.session, other, s, std::nullopt);
  EXPECT_EQ(s.hp_data->data(), other->data());
}

// Hybrid

TEST(Hybrid, ColumnsOfDequantizedRowsComeFromTheSourcesDtype) {
  Setting t;
  const ArrayPtr x = random_bf16({64, 128});
  auto h = std::make_shared<HybridQuantizer>(QuantizerPtr(make<NVFP4Quantizer>()),
                                             QuantizerPtr(make<MXFP8Quantizer>()), "rowwise_dequantized");
  const StoragePtr s = h->quantize(t.session, x);
  auto& hybrid = dynamic_cast<HybridStorage&>(*s);
  const ArrayPtr source = hybrid.rowwise_storage->dequantize(t.session, DType::bfloat16);
  EXPECT_EQ(bytes_of(*hybrid.columnwise_storage),
            bytes_of(*h->columnwise_quantizer->quantize(t.session, source)));
  EXPECT_NE(bytes_of(*hybrid.columnwise_storage), bytes_of(*h->columnwise_quantizer->quantize(t.session, x)));
}

TEST(Hybrid, OneDirectionIsRefreshedAlone) {
  Setting t;
  auto h = std::make_shared<HybridQuantizer>(QuantizerPtr(make<Float8CurrentScalingQuantizer>()),
                                             QuantizerPtr(make<MXFP8Quantizer>()));
  const StoragePtr s = h->quantize(t.session, random_bf16({64, 128}, 1));
  auto& hybrid = dynamic_cast<HybridStorage&>(*s);
  const Bytes rows = bytes_of(*hybrid.rowwise_storage), columns = bytes_of(*hybrid.columnwise_storage);
  h->set_usage(false, true);
  update(*h, t.session, random_bf16({64, 128}, 2), *s, std::nullopt);
  EXPECT_EQ(bytes_of(*hybrid.rowwise_storage), rows);
  EXPECT_NE(bytes_of(*hybrid.columnwise_storage), columns);
}

TEST(Hybrid, ARowScaledColumnChildFails) {
  Setting t;
  auto rs = make<NVFP4Quantizer>();
  rs->row_scaled_nvfp4 = true;
  auto h = std::make_shared<HybridQuantizer>(QuantizerPtr(make<NVFP4Quantizer>()), QuantizerPtr(rs));
  EXPECT_EQ(raised([&] { h->quantize(t.session, random_bf16({64, 64})); }), ErrorClass::runtime_error);
}

}  // namespace
}  // namespace assay::training
