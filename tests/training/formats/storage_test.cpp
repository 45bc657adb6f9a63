#include "training/formats/storage.h"

#include "tests/training/storage_kit.h"
#include "training/formats/formats.h"
#include "training/formats/shapes.h"

namespace assay::training {
namespace {

using enum ErrorClass;

std::shared_ptr<NVFP4Quantizer> square_fp4() {
  auto q = std::make_shared<NVFP4Quantizer>();
  q->with_2d_quantization = true;
  return q;
}

// Dequantization

TEST(StorageDequantize, AClassReadsColumnsWhereRowsAreGone) {
  Setting t(Arch::sm90);
  const ArrayPtr x = bf16({2, 64, 160}, true);
  const struct {
    const char* what;
    StoragePtr rows, columns;
  } rows[] = {
      {"current", quantized<Float8CurrentScalingQuantizer>(t.session, x, kBoth),
       quantized<Float8CurrentScalingQuantizer>(t.session, x, kBoth)},
      {"mxfp8", quantized<MXFP8Quantizer>(t.session, x, kRows),
       quantized<MXFP8Quantizer>(t.session, x, kColumns)},
      {"vectors", quantized<Float8BlockQuantizer>(t.session, x, kRows, Encoding::e4m3, 1),
       quantized<Float8BlockQuantizer>(t.session, x, kColumns, Encoding::e4m3, 1)},
      {"squares", quantized<Float8BlockQuantizer>(t.session, x, kRows, Encoding::e4m3, 2),
       quantized<Float8BlockQuantizer>(t.session, x, kColumns, Encoding::e4m3, 2)},
  };
  rows[0].columns->update_usage(false, true);
  for (const auto& row : rows) {
    EXPECT_EQ(row.columns->size(), x->shape) << row.what;
    EXPECT_TRUE(equal_bytes(*row.rows->dequantize(t.session), *row.columns->dequantize(t.session)))
        << row.what;
  }
  EXPECT_TRUE(equal_bytes(*rows[1].columns->dequantize(t.session), *x)) << "powers of two are exact in MXFP8";
}

TEST(StorageDequantize, NominalDtypeUnlessAnotherIsAskedFor) {
  Setting t;
  const ArrayPtr x = bf16({32, 32}, true);
  const StoragePtr s = quantized<MXFP8Quantizer>(t.session, x, kRows);
  EXPECT_EQ(s->dequantize(t.session)->dtype, DType::bfloat16);
  EXPECT_TRUE(equal_bytes(*s->dequantize(t.session, DType::float32), *cast(t.session, x, DType::float32)));
}

TEST(StorageDequantize, Nvfp4ReadsPackedRowsUnderItsAmax) {
  Setting t;
  const uint16_t six = 0x40C0, minus_three = 0xC040;  // 6 and -3 under an amax of 6 are points of E2M1
  std::vector<uint16_t> bits(32 * 32);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = i % 3 ? six : minus_three;
  const ArrayPtr x = from_bytes({32, 32}, DType::bfloat16, std::as_bytes(std::span(bits)));
  EXPECT_TRUE(equal_bytes(*quantized<NVFP4Quantizer>(t.session, x, kRows)->dequantize(t.session), *x));
}

TEST(StorageDequantize, WhatIsMissingIsSaidInTheClassesOwnWay) {
  Setting t(Arch::sm90);
  const ArrayPtr x = bf16({128, 128});
  const StoragePtr fp4 = quantized<NVFP4Quantizer>(t.session, x, kColumns),
                   mx = quantized<MXFP8Quantizer>(t.session, x, kRows),
                   fp8 = quantized<Float8CurrentScalingQuantizer>(t.session, x, kBoth),
                   block = quantized<Float8BlockQuantizer>(t.session, x, kRows);
  EXPECT_EQ(raised([&] { fp4->dequantize(t.session); }), not_implemented_error);
  for (const StoragePtr& s : {fp4, mx, fp8, block}) s->prepare_for_saving();
  EXPECT_EQ(raised([&] { fp4->dequantize(t.session); }), value_error);
  EXPECT_EQ(raised([&] { mx->dequantize(t.session); }), runtime_error);
  EXPECT_EQ(raised([&] { fp8->dequantize(t.session); }), runtime_error);
  EXPECT_EQ(raised([&] { block->dequantize(t.session); }), assertion_error);
  EXPECT_EQ(raised([&] { mx->device(); }), runtime_error);
}

TEST(StorageDequantize, AStaleTransposeIsNotRead) {
  Setting t(Arch::sm90);
  const StoragePtr s = quantized<Float8CurrentScalingQuantizer>(t.session, bf16({32, 48}), kBoth);
  auto& fp8 = dynamic_cast<Float8Storage&>(*s);
  fp8.data = nullptr;
  EXPECT_NO_THROW(s->dequantize(t.session));
  fp8.transpose_invalid = true;
  EXPECT_EQ(raised([&] { s->dequantize(t.session); }), runtime_error);
}

TEST(StorageDequantize, IdentityGivesItsPayloadItself) {
  Setting t;
  const ArrayPtr x = bf16({8, 8});
  const StoragePtr s = quantized<IdentityQuantizer>(t.session, x, kBoth);
  const ArrayPtr payload = buffers(*s).at("_hp_data");
  EXPECT_EQ(s->dequantize(t.session), payload);
  EXPECT_NE(s->dequantize(t.session, DType::float32), payload);
}

TEST(StorageDequantize, SwizzledScalesReadAsCompactOnesDo) {
  Setting t;
  const ArrayPtr x = bf16({160, 192});
  for (const bool rows : {true, false}) {
    auto q = std::make_shared<MXFP8Quantizer>();
    q->set_usage(rows, !rows);
    const StoragePtr compact = q->quantize(t.session, x);
    q->optimize_for_gemm = true;
    const StoragePtr swizzled = q->quantize(t.session, x);
    ASSERT_TRUE(dynamic_cast<MXFP8Storage&>(*swizzled).with_gemm_swizzled_scales);
    EXPECT_TRUE(equal_bytes(*swizzled->dequantize(t.session), *compact->dequantize(t.session)));
    EXPECT_EQ(raised([&] { swizzled->fsdp_extract_buffers(); }), not_implemented_error);
  }
}

TEST(StorageDequantize, ScalesOfAnotherPaddingAreFitted) {
  Setting t;
  const StoragePtr s = quantized<MXFP8Quantizer>(t.session, tiled({96, 160}), kRows);
  const ArrayPtr before = s->dequantize(t.session);
  auto& mx = dynamic_cast<MXFP8Storage&>(*s);
  mx.rowwise_scale_inv = clone(slice(slice(mx.rowwise_scale_inv, 0, 0, 96), 1, 0, 5));
  EXPECT_TRUE(equal_bytes(*s->dequantize(t.session), *before));
  mx.rowwise_data = slice(mx.rowwise_data, 0, 0, 64);
  mx.rowwise_scale_inv = nullptr;
  EXPECT_EQ(raised([&] { s->dequantize(t.session); }), runtime_error);
}

TEST(StorageDequantize, AHybridPrefersItsRows) {
  Setting t;
  const ArrayPtr x = bf16({64, 64});
  HybridQuantizer q(std::make_shared<MXFP8Quantizer>(), std::make_shared<IdentityQuantizer>());
  const StoragePtr s = q.copy()->quantize(t.session, x);
  auto& h = dynamic_cast<HybridStorage&>(*s);
  EXPECT_TRUE(equal_bytes(*s->dequantize(t.session), *h.rowwise_storage->dequantize(t.session)));
  s->update_usage(false, std::nullopt);
  EXPECT_TRUE(equal_bytes(*s->dequantize(t.session), *x));
  s->update_usage(std::nullopt, false);
  EXPECT_EQ(raised([&] { s->dequantize(t.session); }), runtime_error);
}

// Synthesis

TEST(StorageSynthesis, MadeColumnsAreTheColumnsThatAQuantizerWrites) {
  Setting t(Arch::sm90);
  for (const Dims& shape : {Dims{256, 160}, Dims{2, 64, 96}}) {
    const ArrayPtr x = tiled(shape);
    for (const QuantizerPtr& q :
         std::vector<QuantizerPtr>{std::make_shared<Float8CurrentScalingQuantizer>(),
                                   std::make_shared<Float8BlockQuantizer>(Encoding::e4m3, 2), square_fp4()}) {
      const StoragePtr both = q->quantize(t.session, x), made = q->quantize(t.session, x);
      made->update_usage(true, false);
      EXPECT_EQ(made->present(), kRows);
      made->update_usage(true, true);
      expect_equal(*both, *made);
    }
  }
}

TEST(StorageSynthesis, AHeldPlaneIsRefreshedInPlace) {
  Setting t(Arch::sm90);
  const StoragePtr s = quantized<Float8CurrentScalingQuantizer>(t.session, bf16({32, 48}), kBoth);
  auto& fp8 = dynamic_cast<Float8Storage&>(*s);
  const ArrayPtr held = fp8.transpose;
  fp8.transpose_invalid = true;
  const ArrayPtr right = clone(held), noise = zeros(held->shape, DType::uint8);
  copy_into(*noise, *held);
  s->update_usage(true, true);
  EXPECT_EQ(fp8.transpose, held);
  EXPECT_TRUE(equal_bytes(*held, *right));
}

TEST(StorageSynthesis, FormatsOfVectorsCannot) {
  Setting t;
  const ArrayPtr x = bf16({128, 128});
  EXPECT_EQ(raised([&] { quantized<MXFP8Quantizer>(t.session, x, kRows)->update_usage(true, true); }),
            runtime_error);
  EXPECT_EQ(raised([&] { quantized<NVFP4Quantizer>(t.session, x, kRows)->update_usage(true, true); }),
            runtime_error);
  EXPECT_EQ(raised([&] { quantized<Float8BlockQuantizer>(t.session, x, kRows)->update_usage(true, true); }),
            assertion_error);
}

// What is left after an error

TEST(StorageUsage, ErrorsLeaveWhatTheOriginalLeaves) {
  Setting t(Arch::sm90);
  const ArrayPtr x = bf16({128, 128});
  const StoragePtr mx = quantized<MXFP8Quantizer>(t.session, x, kRows),
                   fp4 = quantized<NVFP4Quantizer>(t.session, x, kRows),
                   block = quantized<Float8BlockQuantizer>(t.session, x, kRows),
                   fp8 = quantized<Float8CurrentScalingQuantizer>(t.session, x, kBoth);
  for (const StoragePtr& s : {mx, fp4}) {
    EXPECT_EQ(raised([&] { s->update_usage(false, true); }), runtime_error);
    EXPECT_EQ(s->present(), kNeither) << s->class_name();
  }
  EXPECT_EQ(raised([&] { block->update_usage(false, true); }), assertion_error);
  EXPECT_EQ(block->present(), kRows);
  fp8->update_usage(false, true);
  EXPECT_EQ(raised([&] { fp8->update_usage(true, false); }), runtime_error);
  EXPECT_EQ(fp8->present(), kColumns);
  const StoragePtr hybrid =
      HybridQuantizer(std::make_shared<MXFP8Quantizer>(), std::make_shared<MXFP8Quantizer>())
          .copy()
          ->quantize(t.session, x);
  hybrid->update_usage(std::nullopt, false);
  EXPECT_EQ(raised([&] { hybrid->update_usage(false, true); }), runtime_error);
  EXPECT_EQ(hybrid->present(), kRows);
}

TEST(StorageUsage, OnePlaneServesBothWhereGemmsReadEitherLayout) {
  Setting t;
  const StoragePtr s = quantized<Float8CurrentScalingQuantizer>(t.session, bf16({32, 48}), kColumns);
  EXPECT_EQ(s->present(), kBoth);
  s->update_usage(false, true);
  EXPECT_EQ(s->present(), kBoth);
  EXPECT_FALSE(dynamic_cast<Float8Storage&>(*s).transpose);
}

TEST(StorageUsage, TheLightNvfp4StorageDoesNotSay) {
  Setting t;
  const StoragePtr s = quantized<NVFP4Quantizer>(t.session, bf16({32, 32}), kBoth);
  EXPECT_EQ(s->get_usages(), kBoth);
  s->is_tensor = false;
  EXPECT_EQ(raised([&] { s->get_usages(); }), not_implemented_error);
}

// Sharing

TEST(StorageSharing, ViewsShowTheSameBytes) {
  Setting t;
  const StoragePtr s = quantized<MXFP8Quantizer>(t.session, bf16({2, 32, 64}), kBoth), v = s->view({-1, 64});
  EXPECT_EQ(v->size(), (Dims{64, 64}));
  for (const char* name : {"_rowwise_data", "_columnwise_data"})
    EXPECT_TRUE(share_memory(*buffers(*s).at(name), *buffers(*v).at(name))) << name;
  EXPECT_EQ(buffers(*s).at("_rowwise_scale_inv"), buffers(*v).at("_rowwise_scale_inv"));
  EXPECT_NE(s->quantizer, v->quantizer);
  EXPECT_EQ(raised([&] { s->view({3, -1, 64}); }), runtime_error);
}

TEST(StorageSharing, AViewOfAHybridIsAViewOfItsChildren) {
  Setting t;
  const HybridQuantizer q(std::make_shared<MXFP8Quantizer>(), std::make_shared<IdentityQuantizer>());
  const StoragePtr s = q.copy()->quantize(t.session, bf16({2, 32, 64}));
  const auto& whole = dynamic_cast<const HybridStorage&>(*s);
  for (const Dims& shape : {Dims{64, 64}, Dims{1, 64, 64}, Dims{2, 32, 64}}) {
    const StoragePtr v = s->view(shape);
    const auto& seen = dynamic_cast<const HybridStorage&>(*v);
    for (const auto& [child, of] : {std::pair{seen.rowwise_storage, whole.rowwise_storage},
                                    {seen.columnwise_storage, whole.columnwise_storage}}) {
      EXPECT_NE(child, of);
      EXPECT_EQ(child->size(), shape);
      for (const auto& [name, array] : buffers(*of))
        EXPECT_TRUE(share_memory(*buffers(*child).at(name), *array)) << name;
    }
  }
}

TEST(StorageSharing, SavingAnotherObjectDoesNotEmptyThisOne) {
  Setting t;
  const StoragePtr s = quantized<NVFP4Quantizer>(t.session, bf16({32, 32}), kBoth), other = s->make_like();
  const Saved saved = other->prepare_for_saving();
  EXPECT_EQ(saved.size(), 6u);
  EXPECT_EQ(other->present(), kNeither);
  EXPECT_EQ(s->present(), kBoth);
  EXPECT_EQ(other->restore_from_saved(saved, 0), 6u);
  expect_equal(*s, *other);
}

TEST(StorageSharing, ClearFreesAlsoForThoseWhoShare) {
  Setting t(Arch::sm90);
  const StoragePtr s = quantized<Float8CurrentScalingQuantizer>(t.session, bf16({32, 32}), kBoth),
                   other = s->make_like();
  s->clear();
  EXPECT_EQ(buffers(*other).at("_data")->count(), 0);
  EXPECT_EQ(buffers(*other).at("_scale_inv")->count(), 1) << "tensors share the scale";
  EXPECT_TRUE(dynamic_cast<Float8Storage&>(*s).transpose_invalid);
}

// Gathering: the concatenation of what shards send is what the whole tensor holds.
TEST(StorageGather, ConcatenatedShardsAreTheWholeTensor) {
  Setting t;
  const struct {
    const char* what;
    QuantizerPtr quantizer;
    int64_t rows;
  } rows[] = {
      {"mxfp8", std::make_shared<MXFP8Quantizer>(), 32},
      {"mxfp8", std::make_shared<MXFP8Quantizer>(), 96},
      {"squares", std::make_shared<Float8BlockQuantizer>(Encoding::e4m3, 2), 128},
      {"identity", std::make_shared<IdentityQuantizer>(), 3},
  };
  for (const auto& row : rows)
    for (const Usages usages : {kRows, kColumns})
      for (const int64_t n : {2, 3}) {
        const ArrayPtr x = tiled({n * row.rows, 160});
        row.quantizer->set_usage(usages.rowwise, usages.columnwise);
        const StoragePtr whole = row.quantizer->quantize(t.session, x),
                         target = row.quantizer->quantize(t.session, bf16(x->shape, false, 99));
        std::vector<Extracted> sent;
        for (int64_t i = 0; i < n; ++i)
          sent.push_back(row.quantizer->quantize(t.session, slice(x, 0, i * row.rows, (i + 1) * row.rows))
                             ->fsdp_extract_buffers());
        std::vector<ArrayPtr> gathered;
        for (size_t b = 0; b < sent[0].buffers.size(); ++b) {
          std::vector<ArrayPtr> alike;
          for (const Extracted& e : sent) alike.push_back(e.buffers[b]);
          gathered.push_back(concatenate(alike));
        }
        target->fsdp_assign_gathered(gathered, sent[0].meta);
        SCOPED_TRACE(testing::Message() << row.what << " of " << row.rows << " rows, " << n << " shards, "
                                        << (usages.rowwise ? "rows" : "columns"));
        expect_equal(*whole, *target);
      }
}

TEST(StorageGather, WhatCannotBeGatheredIsRefused) {
  Setting t;
  EXPECT_EQ(raised([&] {
              quantized<Float8BlockQuantizer>(t.session, bf16({192, 128}), kRows, Encoding::e4m3, 2)
                  ->fsdp_extract_buffers();
            }),
            runtime_error);
  EXPECT_EQ(raised([&] {
              quantized<Float8BlockQuantizer>(t.session, bf16({128, 128}), kRows)->fsdp_extract_buffers();
            }),
            not_implemented_error);
  EXPECT_EQ(raised([&] {
              quantized<NVFP4Quantizer>(t.session, bf16({128, 128}), kRows)->fsdp_extract_buffers();
            }),
            not_implemented_error);
}

// Of per-tensor FP8 rows or columns are gathered, and what was made of the old ones stays stale.
TEST(StorageGather, ATransposeIsFreshOnlyIfItWasGathered) {
  Setting t(Arch::sm90);
  const StoragePtr s = quantized<Float8CurrentScalingQuantizer>(t.session, bf16({32, 16}), kBoth);
  auto& fp8 = dynamic_cast<Float8Storage&>(*s);
  fp8.transpose_invalid = true;
  const Extracted rows = s->fsdp_extract_buffers();
  s->fsdp_assign_gathered(rows.buffers, rows.meta);
  EXPECT_TRUE(fp8.transpose_invalid);
  json::Value columns = rows.meta;
  columns.set("transport_layout", "columnwise_m_major");
  EXPECT_EQ(raised([&] { s->fsdp_assign_gathered(rows.buffers, columns); }), runtime_error);
  columns.set("field_names", json::array({"_transpose", "_data"}));
  EXPECT_EQ(raised([&] { s->fsdp_assign_gathered(rows.buffers, columns); }), runtime_error);
  const json::Value nameless = json::object({{"transport_layout", "columnwise_m_major"}});
  EXPECT_EQ(raised([&] { s->fsdp_assign_gathered(rows.buffers, nameless); }), runtime_error);
  const StoragePtr other = quantized<Float8CurrentScalingQuantizer>(t.session, bf16({32, 16}), kBoth);
  other->update_usage(false, true);
  const Extracted turned = other->fsdp_extract_buffers();
  s->fsdp_assign_gathered(turned.buffers, turned.meta);
  EXPECT_FALSE(fp8.transpose_invalid);
  EXPECT_EQ(fp8.data, nullptr);
}

TEST(StorageViews, AStaleTransposeIsNotShown) {
  Setting t(Arch::sm90);
  const StoragePtr s = quantized<Float8CurrentScalingQuantizer>(t.session, bf16({32, 16}), kBoth);
  auto& fp8 = dynamic_cast<Float8Storage&>(*s);
  const auto shown = [&] { return dynamic_cast<Float8Storage&>(*s->view({32, 16})).transpose; };
  EXPECT_EQ(shown(), fp8.transpose);
  fp8.transpose_invalid = true;
  EXPECT_EQ(shown(), nullptr);
}

TEST(StorageUsages, ColumnsOfSquareBlocksAreMadeBesideTheirScales) {
  Setting t;
  const StoragePtr s = quantized<Float8BlockQuantizer>(t.session, bf16({256, 384}), kBoth, Encoding::e4m3, 2);
  auto& block = dynamic_cast<Float8BlockwiseStorage&>(*s);
  const ArrayPtr data = block.columnwise_data, scales = block.columnwise_scale_inv, right = clone(scales);
  block.columnwise_data = nullptr;
  std::ranges::fill(scales->bytes(), std::byte{0});
  s->update_usage(true, true);
  EXPECT_TRUE(equal_bytes(*block.columnwise_data, *data));
  EXPECT_EQ(block.columnwise_scale_inv, scales);
  EXPECT_TRUE(equal_bytes(*scales, *right));
}

// Shapes

TEST(StorageShapes, FloatEightKeepsOnePlaneOrTwo) {
  const Float8CurrentScalingQuantizer q;
  const BufferShape data{"_data", {2, 16, 48}, DType::uint8},
      transpose{"_transpose", {48, 2, 16}, DType::uint8}, scale{"_scale_inv", {1}, DType::float32};
  EXPECT_EQ(allocated(q, {2, 16, 48}, kBoth, DType::bfloat16, true),
            (std::vector<BufferShape>{data, transpose, scale}));
  EXPECT_EQ(allocated(q, {2, 16, 48}, kColumns, DType::bfloat16, true),
            (std::vector<BufferShape>{transpose, scale}));
  EXPECT_EQ(allocated(q, {2, 16, 48}, kColumns, DType::bfloat16, false),
            (std::vector<BufferShape>{data, scale}));
}

TEST(StorageShapes, ScalesThatAreNoBlocksHaveNoShape) {
  EXPECT_EQ(raised([] {
              scale_shape(Float8CurrentScalingQuantizer(), {32, 64}, Direction::row);
            }),
            not_implemented_error);
  EXPECT_EQ(scale_shape(MXFP8Quantizer(), {128, 128}, Direction::row), (Dims{128, 4}));
}

TEST(StorageShapes, IdentityHasItsConfiguredDtype) {
  EXPECT_EQ(allocated(IdentityQuantizer(), {4}, kRows, DType::float16, true).at(0).dtype, DType::float16);
  EXPECT_EQ(allocated(IdentityQuantizer(DType::float32), {4}, kRows, DType::float16, true).at(0).dtype,
            DType::float32);
}

// A cached weight of blockwise FP8 or Identity is never looked at; per-tensor FP8 only for its transpose.
TEST(StorageWorkspace, EachClassChecksWhatTheOriginalChecks) {
  Setting t(Arch::sm90);
  const ArrayPtr x = bf16({128, 128});
  const MXFP8Quantizer both;
  EXPECT_FALSE(workspace_valid(*quantized<MXFP8Quantizer>(t.session, x, kRows), both, true));
  EXPECT_TRUE(workspace_valid(*quantized<Float8BlockQuantizer>(t.session, x, kRows), both, true));
  const StoragePtr fp8 = quantized<Float8CurrentScalingQuantizer>(t.session, x, kRows);
  EXPECT_FALSE(workspace_valid(*fp8, both, true));
  EXPECT_TRUE(workspace_valid(*fp8, both, false));
}

}  // namespace
}  // namespace assay::training
