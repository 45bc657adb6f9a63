#include "training/attention/packing.h"

#include <gtest/gtest.h>

#include "reference/subject.h"
#include "training/attention/fused_flow.h"
#include "training/base/data.h"
#include "training/base/errors.h"
#include "training/formats/float8.h"
#include "training/formats/mxfp8.h"

namespace assay::training {

namespace {

struct Packing : testing::Test {
  std::unique_ptr<Subject> subject = make_reference_subject();
  Session session{*subject};

  QuantizerPtr mxfp8 = std::make_shared<MXFP8Quantizer>();
  ErrorClass refusal(const PlainQkv& x) {
    try {
      quantize_qkv(session, x, mxfp8, {true, true});
    } catch (const SemanticError& e) {
      return e.error_class;
    }
    ADD_FAILURE() << "nothing was thrown for " << x.layout;
    return {};
  }
  static PlainQkv three(const std::string& layout, const Dims& shape) {
    return {layout,
            {drawn(shape, DType::bfloat16, 1), drawn(shape, DType::bfloat16, 2),
             drawn(shape, DType::bfloat16, 3)}};
  }
};

const MXFP8Storage& mx(const StoragePtr& s) { return dynamic_cast<const MXFP8Storage&>(*s); }

}  // namespace

TEST_F(Packing, ViewsOfAPackedBufferAreItsTensors) {
  const ArrayPtr packed = drawn({4, 2, 3, 2, 8}, DType::bfloat16, 1);
  const std::array<ArrayPtr, 3> t = split_qkv({"sb3hd", {packed}});
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(t[static_cast<size_t>(i)]->shape, (Dims{4, 2, 2, 8}));
    EXPECT_TRUE(equal_bytes(*contiguous(t[static_cast<size_t>(i)]),
                            *view(contiguous(slice(packed, 2, i, i + 1)), {4, 2, 2, 8})));
  }
  const ArrayPtr by_head = drawn({4, 2, 2, 3, 8}, DType::bfloat16, 2);
  EXPECT_TRUE(equal_bytes(*contiguous(split_qkv({"sbh3d", {by_head}})[1]),
                          *view(contiguous(slice(by_head, 3, 1, 2)), {4, 2, 2, 8})));
}

TEST_F(Packing, PackedBuffersAreSplitAgain) {
  const std::array<ArrayPtr, 3> t = {drawn({4, 2, 2, 8}, DType::bfloat16, 1),
                                     drawn({4, 2, 2, 8}, DType::bfloat16, 2),
                                     drawn({4, 2, 2, 8}, DType::bfloat16, 3)};
  for (const char* layout : {"sb3hd", "sbh3d", "sbhd_sb2hd", "sbhd_sbh2d", "sbhd_sbhd_sbhd"}) {
    const std::array<ArrayPtr, 3> again = split_qkv({layout, pack_qkv(layout, t)});
    for (size_t i = 0; i < t.size(); ++i)
      EXPECT_TRUE(equal_bytes(*contiguous(again[i]), *t[i])) << layout << i;
  }
}

// Current scaling whose Q, K and V came quantized in one buffer: the gradients go back in one cast of that
// buffer.
TEST_F(Packing, GradientsOfAPackedBufferAreCastTogether) {
  for (const char* layout : {"sb3hd", "sbhd_sbh2d", "sbhd_sbhd_sbhd"}) {
    const std::array<ArrayPtr, 3> given = {drawn({4, 2, 2, 8}, DType::bfloat16, 4),
                                           drawn({4, 2, 2, 8}, DType::bfloat16, 5),
                                           drawn({4, 2, 2, 8}, DType::bfloat16, 6)};
    const auto current = [] { return std::make_shared<Float8CurrentScalingQuantizer>(); };
    const AttentionQuantizers q{current(), current(), current(), current(), current(), current()};
    const PlainQkv plain{layout, pack_qkv(layout, given)};
    FusedOptions options;
    options.o_format = "sbhd";
    const AttentionKernels kernels = {[&](const ForwardCall&) { return Tensorlike(given[0]); },
                                      [&](const BackwardCall&) {
                                        return std::array<Tensorlike, 3>{given[0], given[1], given[2]};
                                      }};
    const FusedForward done =
        fused_forward(session, quantize_qkv(session, plain, q.qkv, {true, true}), q, options, kernels);
    const auto back = fused_backward(session, *done.saved, given[0], options, kernels);
    const QuantizedQkv want = quantize_qkv(session, plain, q.dqkv, {true, true});
    for (size_t i = 0; i < back.size(); ++i) {
      const auto& got = dynamic_cast<const Float8Storage&>(*std::get<StoragePtr>(back[i]));
      const auto& one = dynamic_cast<const Float8Storage&>(*want.tensors[i]);
      EXPECT_TRUE(equal_bytes(*contiguous(got.data), *contiguous(one.data))) << layout << i;
      EXPECT_TRUE(equal_bytes(*got.scale_inv, *one.scale_inv)) << layout << i;
    }
  }
}

TEST_F(Packing, LayoutsThatAreNoneAreRefused) {
  for (const char* layout : {"", "s3bhd", "sbhd3", "sbhd", "sbhd_sbhd", "sb2hd_sbhd", "hdsb_hdsb_hdsb", "3"})
    EXPECT_THROW(split_qkv(three(layout, {4, 2, 2, 8})), SemanticError) << layout;
  EXPECT_THROW(split_qkv({"sb3hd", {drawn({4, 2, 2, 2, 8}, DType::bfloat16, 1)}}), SemanticError);
}

// Row blocks along d do not depend on where a head lies, so the in-place cast, whose scales are put in the
// order of heads afterwards, has the scales of a cast of the reordered tensor; columns of bshd likewise.
TEST_F(Packing, ScalesOfTheInPlaceCastAreThoseOfTheReorderedTensor) {
  for (const char* layout : {"bshd_bshd_bshd", "sbhd_sbhd_sbhd"}) {
    const bool batch_first = layout[0] == 'b';
    const PlainQkv x = three(layout, batch_first ? Dims{2, 128, 2, 64} : Dims{128, 2, 2, 64});
    const QuantizedQkv fast = quantize_qkv(session, x, mxfp8, {true, true});
    const QuantizedQkv slow = quantize_qkv(session, x, mxfp8, {true, true}, {}, true);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(equal_bytes(*mx(fast.tensors[i]).rowwise_scale_inv, *mx(slow.tensors[i]).rowwise_scale_inv))
          << layout << " rows of " << i;
      EXPECT_TRUE(
          equal_bytes(*mx(fast.tensors[i]).columnwise_scale_inv, *mx(slow.tensors[i]).columnwise_scale_inv))
          << layout << " columns of " << i;
      EXPECT_TRUE(mx(fast.tensors[i]).with_gemm_swizzled_scales);
    }
  }
}

TEST_F(Packing, Mxfp8SaysWhatItCannotPack) {
  EXPECT_EQ(refusal(three("thd_thd_thd", {256, 2, 64})), ErrorClass::assertion_error);
  EXPECT_EQ(refusal(three("bshd_bshd_bshd", {1, 64, 2, 64})), ErrorClass::assertion_error);
  EXPECT_EQ(refusal(three("bshd_bshd_bshd", {1, 128, 8, 16})), ErrorClass::assertion_error);
  EXPECT_EQ(refusal(three("bshd_bshd_bshd", {1, 128, 1, 64})), ErrorClass::runtime_error);
  EXPECT_EQ(refusal(three("sbhd_sbhd_sbhd", {128, 1, 1, 64})), ErrorClass::runtime_error);
  // Two sequences of one head of 64 fill the scales of sbhd, whose matrix is (s, b h d).
  EXPECT_NO_THROW(quantize_qkv(session, three("sbhd_sbhd_sbhd", {128, 2, 1, 64}), mxfp8, {true, true}));
}

TEST_F(Packing, OneCastHasTheBytesOfThreeByItsScale) {
  const PlainQkv x = three("bshd_bshd_bshd", {1, 4, 2, 8});
  const auto q = std::make_shared<Float8CurrentScalingQuantizer>();
  q->set_usage(true, false);
  std::vector<Dims> casts;
  const CastLog log = [&](const Quantizer&, const Dims& shape) { casts.push_back(shape); };
  const QuantizedQkv got = quantize_qkv(session, x, q, {true, false}, log);
  EXPECT_EQ(casts, (std::vector<Dims>{{192}}));
  const auto& first = dynamic_cast<const Float8Storage&>(*got.tensors[0]);
  for (const StoragePtr& t : got.tensors)
    EXPECT_EQ(dynamic_cast<const Float8Storage&>(*t).scale_inv, first.scale_inv);
  EXPECT_EQ(got.tensors[2]->size(), (Dims{1, 4, 2, 8}));
}

}  // namespace assay::training
