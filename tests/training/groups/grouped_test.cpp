#include "training/groups/grouped.h"
#include "training/formats/formats.h"

#include "tests/training/groups/grouped_parts.h"
#include "training/formats/shapes.h"

namespace assay::training {

namespace {

struct Kind {
  std::string name;
  QuantizerPtr quantizer;
  std::vector<Shape> members;
};
std::vector<Kind> kinds() {
  auto row_scaled = std::make_shared<NVFP4Quantizer>();
  row_scaled->row_scaled_nvfp4 = true;
  row_scaled->set_usage(true, false);
  return {
      {"MXFP8", std::make_shared<MXFP8Quantizer>(), {{32, 96}, {160, 128}, {0, 64}}},
      {"1-D blocks", std::make_shared<Float8BlockQuantizer>(Encoding::e4m3, 1), {{128, 256}, {200, 384}}},
      {"2-D blocks", std::make_shared<Float8BlockQuantizer>(Encoding::e4m3, 2), {{128, 256}, {256, 128}}},
      {"NVFP4", std::make_shared<NVFP4Quantizer>(), {{48, 80}, {80, 48}, {16, 16}}},
      {"row-scaled NVFP4", row_scaled, {{48, 80}, {80, 48}}},
      {"current scaling", std::make_shared<Float8CurrentScalingQuantizer>(), {{5, 7}, {3, 9}}},
  };
}

}  // namespace

TEST_F(Grouped, MembersAreQuantizedInPlaceAsAlone) {
  for (const Arch arch : {Arch::sm90, Arch::sm100})
    for (const Kind& k : kinds()) {
      session.arch = arch;
      const GroupedTensorPtr g =
          make_grouped_tensor_with_shapes(session, k.members, k.quantizer, DType::bfloat16);
      std::vector<ArrayPtr> before, tensors;
      for (const Field& f : g->buffers()) before.push_back(*f.slot);
      for (size_t i = 0; i < k.members.size(); ++i)
        tensors.push_back(varied({k.members[i].rows, k.members[i].cols}, static_cast<uint32_t>(i + 1)));
      const auto& members = g->quantize(session, tensors);
      for (size_t i = 0; i < tensors.size(); ++i)
        EXPECT_EQ(difference(members[i], k.quantizer->quantize(session, tensors[i])), "")
            << k.name << " " << i;
      // Not one buffer moved, and the members still look into them.
      for (size_t b = 0; const Field& f : g->buffers())
        EXPECT_EQ(*f.slot, before[b++]) << k.name << " " << f.name;
      for (const Tensorlike& m : members)
        for (const Field& f : std::get<StoragePtr>(m)->fields()) {
          bool inside = !*f.slot;
          for (const ArrayPtr& b : before) inside = inside || (b && share_memory(*b, **f.slot));
          EXPECT_TRUE(inside) << k.name << " " << f.name;
        }
    }
}

TEST_F(Grouped, ANoopFlagOfOneKeepsEveryByte) {
  for (const Kind& k : kinds()) {
    const GroupedTensorPtr g =
        make_grouped_tensor_with_shapes(session, k.members, k.quantizer, DType::bfloat16);
    std::vector<ArrayPtr> first, second, kept;
    for (size_t i = 0; i < k.members.size(); ++i) {
      first.push_back(varied({k.members[i].rows, k.members[i].cols}, 1));
      second.push_back(varied({k.members[i].rows, k.members[i].cols}, 2));
    }
    g->quantize(session, first);
    for (const Field& f : g->buffers()) kept.push_back(*f.slot ? clone(*f.slot) : nullptr);
    g->quantize(session, second, 0x3F800000);
    for (size_t b = 0; const Field& f : g->buffers()) {
      EXPECT_TRUE(!*f.slot || equal_bytes(**f.slot, *kept[b])) << k.name << " " << f.name;
      ++b;
    }
    g->quantize(session, second, 0x3F000000);
    EXPECT_FALSE(equal_bytes(*g->rowwise_data, *kept[0])) << k.name;
  }
}

// Were the columns' scales sized as the rows' are, MXFP8 would show it in the shape alone and NVFP4 in the
// length.
TEST_F(Grouped, ScalesOfColumnsHaveTheirOwnShape) {
  const GroupedTensorPtr mx =
      make_grouped_tensor_with_shapes(session, {{160, 128}, {160, 128}}, std::make_shared<MXFP8Quantizer>());
  EXPECT_EQ(dynamic_cast<MXFP8Storage&>(*std::get<StoragePtr>(mx->quantized_tensors[1]))
                .columnwise_scale_inv->shape,
            (Dims{8, 128}));
  const GroupedTensorPtr fp4 =
      make_grouped_tensor_with_shapes(session, {{48, 80}, {48, 80}}, std::make_shared<NVFP4Quantizer>());
  EXPECT_EQ(fp4->scale_inv->count(), 2048);
  EXPECT_EQ(fp4->columnwise_scale_inv->count(), 1024);
}

TEST_F(Grouped, DelayedMembersNoteTheirAmaxEachInItsOwnSlot) {
  const F32Bits one = 0x3F800000, zero = 0;
  const auto scalar = [](const F32Bits& v) {
    return from_bytes({1}, DType::float32, std::as_bytes(std::span(&v, 1)));
  };
  auto q = std::make_shared<Float8Quantizer>(scalar(one), scalar(zero), Encoding::e4m3);
  const GroupedTensorPtr g = make_grouped_tensor_with_shapes(session, {{2, 2}, {2, 2}}, q);
  const uint16_t small[] = {0x3F80, 0, 0, 0xC000}, large[] = {0x4080, 0, 0, 0};  // 1, -2 and 4
  g->quantize(session, {from_bytes({2, 2}, DType::bfloat16, std::as_bytes(std::span(small))),
                        from_bytes({2, 2}, DType::bfloat16, std::as_bytes(std::span(large)))});
  const uint32_t wanted[] = {0x40000000, 0x40800000};  // 2 and 4
  EXPECT_EQ(std::memcmp(g->amax->data(), wanted, sizeof wanted), 0);
  EXPECT_TRUE(equal_bytes(*q->amax, *scalar(zero)));
}

TEST_F(Grouped, ArithmeticInPlaceNeedsOneShape) {
  const auto q = std::make_shared<MXFP8Quantizer>();
  const ArrayPtr source = varied({32, 64}, 7);
  const auto replace = [&](const ArrayPtr& member) {
    EXPECT_EQ(member->shape, (Dims{32, 64}));
    return source;
  };
  const GroupedTensorPtr g =
      make_grouped_tensor_with_shapes(session, {{32, 64}, {32, 64}}, q, DType::bfloat16);
  g->update_in_place(session, replace);
  EXPECT_EQ(difference(g->quantized_tensors[1], q->quantize(session, source)), "");
  const GroupedTensorPtr plain =
      make_grouped_tensor_with_shapes(session, {{32, 64}, {32, 64}}, nullptr, DType::bfloat16);
  plain->update_in_place(session, replace);
  EXPECT_TRUE(equal_bytes(*view(slice(plain->rowwise_data, 0, 2048, 4096), {32, 64}), *source));
  EXPECT_EQ(
      error_of([&] {
        make_grouped_tensor_with_shapes(session, {{32, 64}, {64, 64}}, q)->update_in_place(session, replace);
      }),
      "NotImplementedError");
}

// A module packs its weights by copying each into its member, and a checkpoint takes them apart again.
TEST_F(Grouped, PackedWeightsAreTheSeparateOnes) {
  for (const Kind& k : kinds()) {
    const GroupedTensorPtr g =
        make_grouped_tensor_with_shapes(session, k.members, k.quantizer, DType::bfloat16);
    std::vector<StoragePtr> separate;
    for (size_t i = 0; i < k.members.size(); ++i)
      separate.push_back(k.quantizer->quantize(
          session, varied({k.members[i].rows, k.members[i].cols}, static_cast<uint32_t>(i + 1))));
    for (size_t i = 0; i < separate.size(); ++i)
      std::get<StoragePtr>(g->quantized_tensors[i])->copy_from_storage(*separate[i]);
    const std::vector<Tensorlike> apart = g->split_into_quantized_tensors(session);
    for (size_t i = 0; i < separate.size(); ++i)
      EXPECT_EQ(difference(apart[i], separate[i]), "") << k.name << " " << i;
  }
}

TEST_F(Grouped, SavedBuffersComeBackInOrder) {
  const GroupedTensorPtr g =
      make_grouped_tensor_with_shapes(session, {{32, 32}, {64, 32}}, std::make_shared<MXFP8Quantizer>());
  const ArrayPtr data = g->columnwise_data, dims = g->first_dims;
  Saved saved = g->prepare_for_saving();
  EXPECT_FALSE(g->has_columnwise_data());
  saved.insert(saved.begin(), nullptr);  // another tensor's
  EXPECT_EQ(g->restore_from_saved(saved, 1), saved.size());
  EXPECT_EQ(g->columnwise_data, data);
  EXPECT_EQ(g->first_dims, dims);
  EXPECT_EQ(error_of([&] { g->restore_from_saved(saved, 2); }), "ValueError");
}

TEST_F(Grouped, OnlyAFlatViewIsOne) {
  const GroupedTensorPtr g =
      make_grouped_tensor_with_shapes(session, {{3, 4}, {3, 4}}, nullptr, DType::bfloat16);
  EXPECT_EQ(g->view({-1})->shape, (Dims{24}));
  EXPECT_EQ(g->view({24})->memory, g->rowwise_data->memory);
  EXPECT_EQ(error_of([&] { g->view({6, 4}); }), "RuntimeError");
  EXPECT_EQ(error_of([&] { g->view({23}); }), "RuntimeError");
}

TEST_F(Grouped, QuantizeTakesOneTensorForEachMember) {
  const GroupedTensorPtr g =
      make_grouped_tensor_with_shapes(session, {{32, 32}, {32, 32}}, std::make_shared<MXFP8Quantizer>());
  EXPECT_EQ(error_of([&] { g->quantize(session, {varied({32, 32})}); }), "ValueError");
}

}  // namespace assay::training
