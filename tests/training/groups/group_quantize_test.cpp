#include "training/groups/group_quantize.h"
#include "training/formats/formats.h"

#include <algorithm>

#include "tests/training/groups/grouped_parts.h"

namespace assay::training {

namespace {

using Sizes = std::vector<int64_t>;

std::shared_ptr<NVFP4Quantizer> rotated() {
  auto q = std::make_shared<NVFP4Quantizer>();
  q->with_rht = q->with_post_rht_amax = true;
  return q;
}
ArrayPtr sizes(const Sizes& s) { return s.empty() ? nullptr : int64_array(s); }

struct Case {
  std::string name;
  QuantizerPtr quantizer;
  Arch arch;
  Sizes first, last;
  int64_t n;
  Shape x;
};
std::vector<Case> cases() {
  auto square = std::make_shared<MXFP8Quantizer>();
  square->with_2d_quantization = true;
  const auto mx = std::make_shared<MXFP8Quantizer>();
  auto swizzled = std::make_shared<MXFP8Quantizer>();
  swizzled->optimize_for_gemm = true;
  const auto current = std::make_shared<Float8CurrentScalingQuantizer>();
  const auto blocks = std::make_shared<Float8BlockQuantizer>();
  return {
      {"mxfp8 uniform", mx, Arch::sm100, {}, {}, 3, {192, 96}},
      {"mxfp8 first", mx, Arch::sm100, {32, 0, 96}, {}, 3, {192, 96}},
      {"mxfp8 last", mx, Arch::sm100, {}, {32, 96}, 2, {64, 160}},
      {"mxfp8 both", mx, Arch::sm100, {32, 64}, {96, 32}, 2, {64, 96}},
      {"mxfp8 square", square, Arch::sm100, {32, 96}, {}, 2, {128, 64}},
      {"mxfp8 swizzled", swizzled, Arch::sm100, {160, 96}, {}, 2, {256, 160}},
      {"current uniform", current, Arch::sm90, {}, {}, 2, {6, 5}},
      {"current first", current, Arch::sm100, {3, 0, 2}, {}, 3, {8, 7}},
      {"current last", current, Arch::sm90, {}, {2, 5}, 2, {4, 9}},
      {"blocks uniform", blocks, Arch::sm90, {}, {}, 2, {256, 160}},
      {"blocks first", blocks, Arch::sm90, {128, 256}, {}, 2, {512, 160}},
      {"nvfp4 first", rotated(), Arch::sm100, {128, 256}, {}, 2, {512, 128}},
  };
}

}  // namespace

// One launch gives each member's own bytes, and what stands beyond the members is neither read nor written.
TEST_F(Grouped, OneLaunchEqualsItsMembers) {
  for (const Case& c : cases()) {
    session.arch = c.arch;
    const ArrayPtr x = varied({c.x.rows, c.x.cols}, 3);
    int64_t used = 0;
    const size_t before = session.launches.size();
    const GroupedTensorPtr plan = group_quantize(session, x, c.quantizer, c.n,
                                                 {.first_dims = sizes(c.first), .last_dims = sizes(c.last)});
    EXPECT_EQ(session.launches.size(), before + 1) << c.name;
    for (size_t i = 0; i < plan->tensor_shapes.size(); ++i) {
      const Dims& shape = plan->tensor_shapes[i];
      const ArrayPtr member = view(slice(view(x, {x->count()}), 0, used, used + count_of(shape)), shape);
      used += count_of(shape);
      const auto* mx =
          dynamic_cast<const MXFP8Storage*>(std::get<StoragePtr>(plan->quantized_tensors[i]).get());
      EXPECT_TRUE(!mx || mx->with_gemm_swizzled_scales == c.quantizer->optimize_for_gemm) << c.name;
      if (count_of(shape) == 0) continue;
      EXPECT_EQ(difference(plan->quantized_tensors[i], c.quantizer->quantize(session, member)), "")
          << c.name << " " << i;
    }
    if (used == x->count()) continue;
    const ArrayPtr loud = clone(x);
    std::fill(loud->bytes().begin() + used * 2, loud->bytes().end(), std::byte{0x7F});
    const GroupedTensorPtr again = group_quantize(session, loud, c.quantizer, c.n,
                                                  {.first_dims = sizes(c.first), .last_dims = sizes(c.last)});
    for (size_t b = 0; b < plan->buffers().size(); ++b) {
      const ArrayPtr &one = *plan->buffers()[b].slot, &other = *again->buffers()[b].slot;
      EXPECT_TRUE(!one || equal_bytes(*one, *other)) << c.name << " " << plan->buffers()[b].name;
    }
    EXPECT_EQ(plan->rowwise_data->bytes().back(), std::byte{session.environment.poison}) << c.name;
  }
}

TEST_F(Grouped, AmaxesAreReducedInOneCall) {
  auto q = std::make_shared<Float8CurrentScalingQuantizer>();
  q->reduction = {true, std::make_shared<ProcessGroup>()};
  q->reduction.group->name = "tp0";
  q->reduction.group->all_reduce_max = [](std::span<F32Bits> v) {
    ASSERT_EQ(v.size(), 2u);
    v[1] = 0x44800000;  // 1024 on another rank
  };
  const ArrayPtr x = varied({4, 8});
  const GroupedTensorPtr g = group_quantize(session, x, q, 2),
                         alone =
                             group_quantize(session, x, std::make_shared<Float8CurrentScalingQuantizer>(), 2);
  ASSERT_EQ(session.collectives.size(), 1u);
  EXPECT_EQ(session.collectives[0].group, "tp0");
  F32Bits amax[2], found[2], scale_inv[2];
  std::memcpy(amax, g->amax->data(), 8);
  std::memcpy(found, alone->amax->data(), 8);
  std::memcpy(scale_inv, g->scale_inv->data(), 8);
  EXPECT_EQ(amax[0], found[0]);
  EXPECT_EQ(amax[1], 0x44800000u);
  EXPECT_EQ(scale_inv[1], 0x40124925u);  // 1024 / 448
  EXPECT_TRUE(equal_bytes(*slice(g->scale_inv, 0, 0, 1), *slice(alone->scale_inv, 0, 0, 1)));
  q->reduction.group = nullptr;
  EXPECT_EQ(error_of([&] { group_quantize(session, x, q, 2); }), "RuntimeError");
}

TEST_F(Grouped, WhatTheKernelsRefuse) {
  const ArrayPtr x = varied({256, 128});
  const auto mx = std::make_shared<MXFP8Quantizer>();
  const auto current = std::make_shared<Float8CurrentScalingQuantizer>();
  const auto refused = [&](const QuantizerPtr& q, const GroupQuantizeOptions& o = {},
                           const ArrayPtr& tensor = nullptr) {
    return error_of([&] { group_quantize(session, tensor ? tensor : x, q, 2, o); });
  };
  const QuantizerPtr others[] = {std::make_shared<IdentityQuantizer>(),
                                 std::make_shared<HybridQuantizer>(mx, current),
                                 std::make_shared<Float8Quantizer>(
                                     zeros({1}, DType::float32), zeros({1}, DType::float32), Encoding::e4m3),
                                 std::make_shared<NVFP4QuantizerRef>()};
  for (const QuantizerPtr& q : others) EXPECT_EQ(refused(q), "RuntimeError") << q->class_name();
  EXPECT_EQ(refused(std::make_shared<MXFP8Quantizer>(), {}, varied({2, 64, 128})), "RuntimeError");
  EXPECT_EQ(refused(std::make_shared<MXFP8Quantizer>(), {.first_dims = int64_array({16, 240})}),
            "RuntimeError");
  EXPECT_TRUE(session.launches.empty());
  EXPECT_EQ(refused(std::make_shared<Float8CurrentScalingQuantizer>(),
                    {.first_dims = int64_array({16, 32}), .last_dims = int64_array({64, 128})}),
            "RuntimeError");
  EXPECT_EQ(refused(std::make_shared<Float8BlockQuantizer>()), "RuntimeError");  // sm100
  EXPECT_EQ(refused(rotated()), "none");
  EXPECT_EQ(refused(std::make_shared<NVFP4Quantizer>()), "RuntimeError");
  EXPECT_EQ(refused(rotated(), {.last_dims = int64_array({64, 64})}), "RuntimeError");
  EXPECT_EQ(refused(rotated(), {.first_dims = int64_array({64, 192})}), "RuntimeError");
  const auto with = [](auto set) {
    auto q = rotated();
    set(*q);
    return q;
  };
  EXPECT_EQ(refused(with([](NVFP4Quantizer& q) { q.with_2d_quantization = true; })), "RuntimeError");
  EXPECT_EQ(refused(with([](NVFP4Quantizer& q) { q.set_4over6(true, "MAE", 448); })), "RuntimeError");
  EXPECT_EQ(refused(with([](NVFP4Quantizer& q) { q.with_post_rht_amax = false; })), "RuntimeError");
  session.arch = Arch::sm90;
  EXPECT_EQ(refused(std::make_shared<Float8BlockQuantizer>()), "none");
  EXPECT_EQ(refused(std::make_shared<Float8BlockQuantizer>(), {.first_dims = int64_array({64, 192})}),
            "RuntimeError");
  EXPECT_EQ(refused(rotated()), "RuntimeError");
}

TEST_F(Grouped, ErrorsBeginWithTheFunctionThatWasCalled) {
  auto q = std::make_shared<Float8CurrentScalingQuantizer>();
  q->reduction = {true, nullptr};
  try {
    group_quantize(session, varied({64, 64}), q, 2);
    ADD_FAILURE() << "no group reduces";
  } catch (const SemanticError& e) {
    EXPECT_NE(std::string(e.what()).find(
                  "group_quantize: expected an amax_reduction_group with with_amax_reduction, found none"),
              std::string::npos)
        << e.what();
  }
}

TEST_F(Grouped, AnOutputIsReusedAndAFlagKeepsIt) {
  const auto mx = std::make_shared<MXFP8Quantizer>();
  const GroupedTensorPtr g = group_quantize(session, varied({64, 64}, 1), mx, 2);
  const ArrayPtr data = g->rowwise_data, kept = clone(data), scales = clone(g->columnwise_scale_inv);
  EXPECT_EQ(group_quantize(session, varied({64, 64}, 2), mx, 2, {.noop = 0x3F800000, .output = g}), g);
  EXPECT_TRUE(equal_bytes(*g->rowwise_data, *kept));
  EXPECT_TRUE(equal_bytes(*g->columnwise_scale_inv, *scales));
  group_quantize(session, varied({64, 64}, 2), mx, 2, {.output = g});
  EXPECT_EQ(g->rowwise_data, data);
  EXPECT_FALSE(equal_bytes(*data, *kept));
  const auto refused = [&](const GroupQuantizeOptions& o, const QuantizerPtr& q, int64_t n) {
    return error_of([&] { group_quantize(session, varied({64, 64}), q, n, o); });
  };
  EXPECT_EQ(refused({.output = g}, std::make_shared<MXFP8Quantizer>(), 2), "RuntimeError");
  EXPECT_EQ(refused({.output = g}, mx, 1), "RuntimeError");
  EXPECT_EQ(refused({.first_dims = int64_array({32, 32}), .output = g}, mx, 2), "RuntimeError");

  const auto fp4 = rotated();
  const GroupedTensorPtr deaf = group_quantize(session, varied({256, 128}, 1), fp4, 2);
  const ArrayPtr before = clone(deaf->rowwise_data);
  group_quantize(session, varied({256, 128}, 2), fp4, 2, {.noop = 0x3F800000, .output = deaf});
  EXPECT_FALSE(equal_bytes(*deaf->rowwise_data, *before));  // NVFP4 is not handed the flag
}

TEST_F(Grouped, GivenOffsetsAreAdopted) {
  const ArrayPtr offsets = splits_to_offsets({32, 96}, 64);
  EXPECT_EQ(group_quantize(session, varied({128, 64}), std::make_shared<MXFP8Quantizer>(), 2,
                           {.first_dims = int64_array({32, 96}), .tensor_offsets = offsets})
                ->tensor_offsets,
            offsets);
  EXPECT_EQ(error_of([&] {
              group_quantize(session, varied({128, 64}), std::make_shared<MXFP8Quantizer>(), 2,
                             {.first_dims = int64_array({32, 96}), .tensor_offsets = int64_array({0, 1})});
            }),
            "RuntimeError");
}

TEST_F(Grouped, AGroupWithoutElementsLaunchesNothing) {
  const GroupedTensorPtr g = group_quantize(session, varied({0, 64}), std::make_shared<MXFP8Quantizer>(), 2,
                                            {.first_dims = int64_array({0, 0})});
  EXPECT_TRUE(session.launches.empty());
  EXPECT_EQ(g->num_tensors, 2);
}

TEST_F(Grouped, OneStateForTheGroupWithRoomForEachMember) {
  const auto q = rotated();
  q->stochastic_rounding = true;
  group_quantize(session, varied({256, 128}), q, 2);
  EXPECT_EQ(session.rng.draws.size(), 1u);
  EXPECT_EQ(session.rng.offset, 2 * kPhiloxStep);
}

TEST_F(Grouped, BiasGradientsAreSumsOfEachMembersRows) {
  std::vector<uint16_t> ones(96 * 32, 0x3F80);
  std::fill(ones.begin() + 32 * 32, ones.end(), uint16_t{0x4000});  // the last member's are twos
  const ArrayPtr x = from_bytes({96, 32}, DType::bfloat16, std::as_bytes(std::span(ones)));
  const auto [g, dbias] =
      bgrad_group_quantize(session, x, std::make_shared<MXFP8Quantizer>(), 3, int64_array({32, 0, 64}));
  EXPECT_EQ(dbias->shape, (Dims{3, 32}));
  EXPECT_EQ(dbias->dtype, DType::bfloat16);
  for (const auto& [row, bits] :
       {std::pair<size_t, uint16_t>{0, 0x4200}, {1, 0}, {2, 0x4300}}) {  // 32, 0, 128
    uint16_t found = 1;
    std::memcpy(&found, dbias->data() + row * 64 + 62, 2);
    EXPECT_EQ(found, bits) << row;
  }
  EXPECT_EQ(error_of([&] {
              bgrad_group_quantize(session, x, std::make_shared<Float8CurrentScalingQuantizer>(), 3);
            }),
            "RuntimeError");
}

TEST_F(Grouped, DequantizeTakesExactlyOneDirection) {
  auto q = std::make_shared<MXFP8Quantizer>();
  const ArrayPtr x = varied({96, 64});
  const ArrayPtr first = int64_array({32, 64});
  try {
    group_dequantize(session, *group_quantize(session, x, q, 2, {.first_dims = first}), DType::bfloat16);
    ADD_FAILURE() << "both directions were taken";
  } catch (const SemanticError& e) {
    EXPECT_EQ(e.error_class, ErrorClass::runtime_error);
    EXPECT_NE(std::string(e.what()).find("group_dequantize: expected exactly one direction, found both"),
              std::string::npos)
        << e.what();
  }
  for (const bool rows : {true, false}) {
    auto one = std::make_shared<MXFP8Quantizer>();
    one->set_usage(rows, !rows);
    const GroupedTensorPtr g = group_quantize(session, x, one, 2, {.first_dims = first});
    const GroupedTensorPtr y = group_dequantize(session, *g, DType::float32);
    EXPECT_EQ(y->rowwise_data->count(), x->count());
    EXPECT_TRUE(
        equal_bytes(*std::get<ArrayPtr>(y->quantized_tensors[1]),
                    *one->quantize(session, slice(x, 0, 32, 96))->dequantize(session, DType::float32)))
        << rows;
  }
  auto fp4 = rotated();
  fp4->set_usage(true, false);
  EXPECT_EQ(
      error_of([&] {
        group_dequantize(session, *group_quantize(session, varied({256, 128}), fp4, 2), DType::bfloat16);
      }),
      "RuntimeError");
}

// Rows arrive quantized, as experts send them: they stay, their scales are swizzled, and columns are those of
// the dequantized rows (TE tests/pytorch/test_grouped_tensor_mxfp8, pre-quantized input).
TEST_F(Grouped, RowsThatCameQuantizedAreMadeReadyForGemms) {
  for (const Sizes& first : {Sizes{128, 256}, {0, 384}, {256, 128}, {128, 0}}) {
    auto wire = std::make_shared<MXFP8Quantizer>(), op = std::make_shared<MXFP8Quantizer>();
    wire->set_usage(true, false);
    op->optimize_for_gemm = true;
    const ArrayPtr x = varied({384, 256}, 5);
    const GroupedTensorPtr g = group_quantize(session, x, wire, 2, {.first_dims = int64_array(first)});
    const auto compact = [&] {
      return group_quantize(session, x, wire, 2, {.first_dims = int64_array(first)});
    };
    const GroupedTensorPtr before = compact(), values = group_dequantize(session, *before, DType::bfloat16);
    const ArrayPtr rows = group_requantize_inplace(session, *g, op, DType::bfloat16, true);
    EXPECT_TRUE(equal_bytes(*g->rowwise_data, *before->rowwise_data));
    EXPECT_EQ(rows->shape, (Dims{384, 256}));
    int64_t row = 0;
    for (size_t i = 0; i < first.size(); row += first[i++]) {
      if (first[i] == 0) continue;
      const auto& member = dynamic_cast<const MXFP8Storage&>(*std::get<StoragePtr>(g->quantized_tensors[i]));
      EXPECT_TRUE(member.with_gemm_swizzled_scales);
      EXPECT_TRUE(equal_bytes(*slice(rows, 0, row, row + first[i]),
                              *std::get<ArrayPtr>(values->quantized_tensors[i])));
      const StoragePtr whole = op->quantize(session, slice(x, 0, row, row + first[i])),
                       again = op->quantize(session, slice(rows, 0, row, row + first[i]));
      EXPECT_TRUE(equal_bytes(*member.rowwise_scale_inv,
                              *dynamic_cast<const MXFP8Storage&>(*whole).rowwise_scale_inv))
          << i;  // as quantize swizzles them
      EXPECT_TRUE(
          equal_bytes(*member.columnwise_data, *dynamic_cast<const MXFP8Storage&>(*again).columnwise_data))
          << i;
      EXPECT_TRUE(equal_bytes(*member.columnwise_scale_inv,
                              *dynamic_cast<const MXFP8Storage&>(*again).columnwise_scale_inv))
          << i;
      EXPECT_FALSE(
          equal_bytes(*member.columnwise_data, *dynamic_cast<const MXFP8Storage&>(*whole).columnwise_data))
          << i;  // x is gone
    }
    EXPECT_EQ(group_requantize_inplace(session, *g, op, DType::bfloat16), nullptr);  // ready: left as it is
    EXPECT_TRUE(equal_bytes(*g->rowwise_data, *before->rowwise_data));
    EXPECT_EQ(error_of([&] { group_requantize_inplace(session, *g, op, DType::bfloat16, true); }),
              "RuntimeError");

    auto frozen = std::make_shared<MXFP8Quantizer>();
    frozen->set_usage(true, false);
    const GroupedTensorPtr rows_only = compact();
    EXPECT_EQ(group_requantize_inplace(session, *rows_only, frozen, DType::bfloat16), nullptr);
    EXPECT_TRUE(rows_only->with_gemm_swizzled_scales && !rows_only->has_columnwise_data());
    EXPECT_EQ(error_of([&] { group_requantize_inplace(session, *rows_only, op, DType::bfloat16); }),
              "RuntimeError");  // columns cannot be rebuilt
    EXPECT_EQ(error_of([&] {
                group_requantize_inplace(session, *compact(),
                                         std::make_shared<MXFP8Quantizer>(Encoding::e5m2), DType::bfloat16);
              }),
              "RuntimeError");
    EXPECT_EQ(error_of([&] { group_requantize_inplace(session, *compact(), rotated(), DType::bfloat16); }),
              "RuntimeError");
  }
  auto wire = std::make_shared<MXFP8Quantizer>();
  wire->set_usage(true, false);
  EXPECT_EQ(error_of([&] {
              group_requantize_inplace(session, *group_quantize(session, varied({192, 128}), wire, 2), wire,
                                       DType::bfloat16);
            }),
            "RuntimeError");  // 96 rows
  const GroupedTensorPtr empty =
      group_quantize(session, varied({0, 128}), wire, 2, {.first_dims = int64_array({0, 0})});
  EXPECT_EQ(group_requantize_inplace(session, *empty, std::make_shared<MXFP8Quantizer>(), DType::bfloat16),
            nullptr);
  EXPECT_TRUE(empty->columnwise_data && !empty->with_gemm_swizzled_scales);
}

}  // namespace assay::training
