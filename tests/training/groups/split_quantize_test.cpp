#include "training/groups/split_quantize.h"
#include "training/formats/formats.h"

#include "tests/training/groups/grouped_parts.h"

namespace assay::training {

namespace {

using Splits = std::vector<int64_t>;

template <class Q> std::vector<QuantizerPtr> experts(size_t n, const std::function<void(Q&)>& set = {}) {
  std::vector<QuantizerPtr> out;
  for (size_t i = 0; i < n; ++i) {
    auto q = std::make_shared<Q>();
    if (set) set(*q);
    out.push_back(q);
  }
  return out;
}
void rotate(NVFP4Quantizer& q) { q.with_rht = q.with_post_rht_amax = true; }
void rotate_and_draw(NVFP4Quantizer& q) {
  rotate(q);
  q.stochastic_rounding = true;
}

StoragePtr storage(const Tensorlike& t) { return std::get<StoragePtr>(t); }

}  // namespace

TEST_F(Grouped, SplitsAreQuantizedAsAlone) {
  const Splits splits = {128, 0, 256};
  const ArrayPtr x = varied({384, 128});
  for (const auto& qs :
       {experts<MXFP8Quantizer>(3), experts<Float8BlockQuantizer>(3), experts<NVFP4Quantizer>(3),
        experts<NVFP4Quantizer>(3, rotate), experts<Float8CurrentScalingQuantizer>(3)}) {
    const SplitResult r = split_quantize(session, x, splits, qs, {});
    ASSERT_EQ(r.outputs.size(), 3u);
    EXPECT_TRUE(r.bias_gradients.empty());
    EXPECT_EQ(difference(r.outputs[0], qs[0]->quantize(session, slice(x, 0, 0, 128))), "")
        << qs[0]->class_name();
    EXPECT_EQ(difference(r.outputs[2], qs[2]->quantize(session, slice(x, 0, 128, 384))), "")
        << qs[0]->class_name();
    EXPECT_NE(storage(r.outputs[0])->quantizer, qs[0]);
  }
}

TEST_F(Grouped, MembersOfABulkShareBuffersUnlessTheyMayNot) {
  const ArrayPtr x = varied({256, 128});
  const auto shared = [&](const std::vector<QuantizerPtr>& qs, bool disable) {
    const SplitResult r = split_quantize(session, x, {128, 128}, qs, {DType::bfloat16, false, disable});
    return share_memory(*storage(r.outputs[0])->get_data_tensors(true, false)[0],
                        *storage(r.outputs[1])->get_data_tensors(true, false)[0]);
  };
  for (const auto& qs : {experts<MXFP8Quantizer>(2), experts<Float8BlockQuantizer>(2),
                         experts<NVFP4Quantizer>(2), experts<NVFP4Quantizer>(2, rotate)}) {
    EXPECT_TRUE(shared(qs, false)) << qs[0]->class_name();
    EXPECT_FALSE(shared(qs, true)) << qs[0]->class_name();
  }
  EXPECT_FALSE(shared(experts<Float8CurrentScalingQuantizer>(2), false));
}

TEST_F(Grouped, StatesThatASplitDraws) {
  const auto drawn = [&](const Splits& splits, const std::function<void(NVFP4Quantizer&)>& set, Arch arch) {
    Session own(*subject);
    own.arch = arch;
    split_quantize(own, varied({256, 128}), splits, experts<NVFP4Quantizer>(splits.size(), set), {});
    return std::pair(own.rng.draws.size(), own.rng.offset / kPhiloxStep);
  };
  using Count = std::pair<size_t, uint64_t>;
  EXPECT_EQ(drawn({128, 128}, rotate_and_draw, Arch::sm100), (Count{1, 2}));
  EXPECT_EQ(drawn({64, 192}, rotate_and_draw, Arch::sm100),
            (Count{2, 4}));  // columns have a state of their own
  const auto rows_only = [](NVFP4Quantizer& q) {
    rotate_and_draw(q);
    q.set_usage(true, false);
  };
  EXPECT_EQ(drawn({64, 192}, rows_only, Arch::sm100), (Count{1, 2}));
  EXPECT_EQ(drawn({64, 192}, rotate_and_draw, Arch::sm120), (Count{4, 4}));  // split by split, two each
  EXPECT_EQ(drawn(
                {128, 0, 128}, [](NVFP4Quantizer& q) { q.stochastic_rounding = true; }, Arch::sm100),
            (Count{3, 3}));
  EXPECT_EQ(error_of([&] { drawn({32, 224}, rotate_and_draw, Arch::sm100); }), "RuntimeError");
}

// Who draws is said in the transcript of a session.
TEST_F(Grouped, ASplitDrawsInItsOwnName) {
  split_quantize(session, varied({256, 128}), {64, 192}, experts<NVFP4Quantizer>(2, rotate_and_draw), {});
  std::vector<std::string> names;
  for (const RngDraw& d : session.rng.draws) names.push_back(d.who);
  EXPECT_EQ(names, (std::vector<std::string>{"NVFP4Quantizer split", "NVFP4Quantizer split columns"}));
}

TEST_F(Grouped, WhereTheKernelsForListsDoNotServeSplitsGoOneByOne) {
  const auto launches = [&](int64_t cols, Arch arch) {
    Session own(*subject);
    own.arch = arch;
    split_quantize(own, varied({256, cols}), {128, 128}, experts<NVFP4Quantizer>(2, rotate), {});
    return own.launches.size();
  };
  EXPECT_EQ(launches(128, Arch::sm100), 1u);
  EXPECT_EQ(launches(192, Arch::sm100), 2u);
  EXPECT_EQ(launches(128, Arch::sm90), 2u);
}

TEST_F(Grouped, WhatNoListOfNvfp4Has) {
  using Set = std::function<void(NVFP4Quantizer&)>;
  const Set square = [](NVFP4Quantizer&q) { q.with_2d_quantization = true; }, reduced = [](NVFP4Quantizer&q) {
    q.reduction = {true, std::make_shared<ProcessGroup>()};
  };
  const auto error = [&](const Set& set, bool rht, Arch arch, int64_t cols, bool disable) {
    Session own(*subject);
    own.arch = arch;
    const auto qs = experts<NVFP4Quantizer>(2, [&](NVFP4Quantizer& q) {
      if (rht) rotate(q);
      set(q);
    });
    return error_of([&] {
      split_quantize(own, varied({256, cols}), {128, 128}, qs, {DType::bfloat16, false, disable});
    });
  };
  for (const Set& set : {square, reduced})
    for (const Arch arch : {Arch::sm90, Arch::sm100}) {
      for (const bool rht : {false, true}) EXPECT_EQ(error(set, rht, arch, 128, false), "RuntimeError");
      EXPECT_EQ(error(set, false, arch, 192, false), "none") << "split by split, as alone";
      EXPECT_EQ(error(set, false, arch, 128, true), "none") << "split by split, as alone";
    }
  EXPECT_EQ(error([](NVFP4Quantizer& q) { q.nvfp4_use_4over6 = true; }, true, Arch::sm90, 128, false),
            "RuntimeError");
  EXPECT_EQ(error([](NVFP4Quantizer&) {}, true, Arch::sm90, 128, false), "none");
}

TEST_F(Grouped, DirectionsWithStatesOfTheirOwnMakeOneMember) {
  const SplitResult r =
      split_quantize(session, varied({256, 128}), {64, 192}, experts<NVFP4Quantizer>(2, rotate_and_draw), {});
  EXPECT_EQ(storage(r.outputs[1])->present(), (Usages{true, true}));
  EXPECT_EQ(storage(r.outputs[1])->quantizer->usages(), (Usages{true, true}));
  EXPECT_EQ(session.launches.size(), 2u);
}

TEST_F(Grouped, ColumnsOfAHybridComeFromItsRows) {
  const ArrayPtr x = varied({96, 64});
  std::vector<QuantizerPtr> qs;
  for (int i = 0; i < 2; ++i) {
    auto rows = std::make_shared<MXFP8Quantizer>(Encoding::e5m2);
    qs.push_back(std::make_shared<HybridQuantizer>(
        QuantizerPtr(rows), QuantizerPtr(std::make_shared<MXFP8Quantizer>()), "rowwise_dequantized"));
  }
  const SplitResult r = split_quantize(session, x, {32, 64}, qs, {});
  const auto& member = dynamic_cast<const HybridStorage&>(*storage(r.outputs[1]));
  auto columns = std::make_shared<MXFP8Quantizer>();
  columns->set_usage(false, true);
  const ArrayPtr source = member.rowwise_storage->dequantize(session, DType::bfloat16),
                 own = slice(x, 0, 32, 96);
  EXPECT_EQ(difference(*member.columnwise_storage, *columns->quantize(session, source)), "");
  EXPECT_NE(difference(*member.columnwise_storage, *columns->quantize(session, own)), "");
}

TEST_F(Grouped, BiasGradientsAreOfTheUncastTensor) {
  const std::vector<float> third(4, 1.0f / 3);
  const ArrayPtr x = from_bytes({2, 2}, DType::float32, std::as_bytes(std::span(third)));
  for (const auto& qs : {std::vector<QuantizerPtr>{nullptr}, experts<Float8CurrentScalingQuantizer>(1),
                         experts<IdentityQuantizer>(1)}) {
    const SplitResult r = split_quantize(session, x, {2}, qs, {DType::bfloat16, true, false});
    ASSERT_EQ(r.bias_gradients.size(), 1u);
    const float wanted[] = {2.0f / 3, 2.0f / 3};
    EXPECT_TRUE(equal_bytes(*r.bias_gradients[0],
                            *from_bytes({2}, DType::float32, std::as_bytes(std::span(wanted)))));
  }
}

TEST_F(Grouped, SplitsAndQuantizersMustFit) {
  EXPECT_EQ(error_of([&] {
              split_quantize(session, varied({64, 32}), {32, 32}, experts<MXFP8Quantizer>(1), {});
            }),
            "ValueError");
  EXPECT_EQ(error_of([&] {
              split_quantize(session, varied({64, 32}), {32, 64}, experts<MXFP8Quantizer>(2), {});
            }),
            "RuntimeError");
  EXPECT_EQ(error_of([&] {
              split_quantize(session, varied({64, 32}), {32}, experts<MXFP8Quantizer>(1), {});
            }),
            "RuntimeError");
}

}  // namespace assay::training
