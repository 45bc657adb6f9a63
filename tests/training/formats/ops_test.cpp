#include "training/formats/ops.h"
#include "training/formats/formats.h"

#include "tests/training/storage_kit.h"

namespace assay::training {
namespace {

using enum ErrorClass;

StoragePtr storage(const Piece& p) {
  return std::holds_alternative<StoragePtr>(p) ? std::get<StoragePtr>(p) : nullptr;
}
ArrayPtr plain(const Piece& p) {
  return std::holds_alternative<ArrayPtr>(p) ? std::get<ArrayPtr>(p) : nullptr;
}

StoragePtr transpose_only(Session& session, const ArrayPtr& x) {
  const StoragePtr s = quantized<Float8CurrentScalingQuantizer>(session, x, kBoth);
  s->update_usage(false, true);
  return s;
}
StoragePtr hybrid(Session& session, const ArrayPtr& x, const QuantizerPtr& row, const QuantizerPtr& col) {
  return HybridQuantizer(row, col).copy()->quantize(session, x);
}
template <class Q> QuantizerPtr make() { return std::make_shared<Q>(); }

// Split

TEST(StorageSplit, ATransposeAloneIsCutInItsOwnLayout) {
  Setting t(Arch::sm90);
  const ArrayPtr x = bf16({12, 16});
  const StoragePtr s = transpose_only(t.session, x);
  const ArrayPtr whole = s->dequantize(t.session);
  const struct {
    int64_t size, dim;
    std::vector<Dims> pieces, planes;
  } rows[] = {
      {5, 0, {{5, 16}, {5, 16}, {2, 16}}, {{16, 5}, {16, 5}, {16, 2}}},
      {6, 1, {{12, 6}, {12, 6}, {12, 4}}, {{6, 12}, {6, 12}, {4, 12}}},
      {6, -1, {{12, 6}, {12, 6}, {12, 4}}, {{6, 12}, {6, 12}, {4, 12}}},
  };
  for (const auto& row : rows) {
    const std::vector<Piece> pieces = split(t.session, *s, row.size, row.dim);
    ASSERT_EQ(pieces.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      const StoragePtr p = storage(pieces[i]);
      ASSERT_TRUE(p);
      EXPECT_EQ(p->size(), row.pieces[i]);
      EXPECT_EQ(buffers(*p).at("_transpose")->shape, row.planes[i]);
      const int64_t from = static_cast<int64_t>(i) * row.size, dim = row.dim < 0 ? 1 : row.dim;
      EXPECT_TRUE(equal_bytes(*p->dequantize(t.session),
                              *contiguous(slice(whole, static_cast<size_t>(dim), from,
                                                from + row.pieces[i][static_cast<size_t>(dim)]))));
    }
  }
}

TEST(StorageSplit, AMiddleDimensionIsOneFurtherInTheTranspose) {
  Setting t(Arch::sm90);
  const StoragePtr s = transpose_only(t.session, bf16({2, 6, 8}));
  const StoragePtr p = storage(split(t.session, *s, 4, 1).at(0));
  EXPECT_EQ(p->size(), (Dims{2, 4, 8}));
  EXPECT_EQ(buffers(*p).at("_transpose")->shape, (Dims{8, 2, 4}));
}

TEST(StorageSplit, PiecesOfMxfp8AreWhatTheirOwnQuantizationGives) {
  Setting t;
  for (const Dims& shape : {Dims{192, 160}, Dims{4, 32, 96}}) {
    const ArrayPtr x = bf16(shape);
    const StoragePtr s = quantized<MXFP8Quantizer>(t.session, x, kBoth);
    const int64_t size = shape[0] / 2;
    const std::vector<Piece> pieces = split(t.session, *s, size);
    ASSERT_EQ(pieces.size(), 2u);
    for (int64_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(storage(pieces[static_cast<size_t>(i)]));
      expect_equal(*storage(pieces[static_cast<size_t>(i)]),
                   *quantized<MXFP8Quantizer>(t.session, slice(x, 0, i * size, (i + 1) * size), kBoth));
    }
  }
}

TEST(StorageSplit, WhereBlocksWouldBreakPiecesArePlain) {
  Setting t;
  const ArrayPtr x = bf16({96, 128});
  const StoragePtr mx = quantized<MXFP8Quantizer>(t.session, x, kRows);
  const auto all_plain = [&](Storage& s, int64_t size, int64_t dim) {
    for (const Piece& p : split(t.session, s, size, dim))
      if (!plain(p)) return false;
    return true;
  };
  EXPECT_TRUE(all_plain(*mx, 48, 0)) << "not a multiple of 32 rows";
  EXPECT_TRUE(all_plain(*mx, 64, 0)) << "unequal pieces";
  EXPECT_TRUE(all_plain(*mx, 64, 1)) << "not along the rows";
  EXPECT_FALSE(all_plain(*mx, 32, 0));
  dynamic_cast<MXFP8Storage&>(*mx).with_gemm_swizzled_scales = true;
  EXPECT_TRUE(all_plain(*mx, 32, 0)) << "swizzled scales";
  EXPECT_TRUE(all_plain(*quantized<Float8BlockQuantizer>(t.session, x, kRows), 32, 0));
  EXPECT_EQ(raised([&] { split(t.session, *mx, 0); }), value_error);
  EXPECT_EQ(raised([&] { split(t.session, *mx, 1, 2); }), value_error);
}

TEST(StorageSplit, IdentityPiecesAliasThePayload) {
  Setting t;
  const StoragePtr s = quantized<IdentityQuantizer>(t.session, bf16({6, 4}), kBoth);
  const StoragePtr p = storage(split(t.session, *s, 3, 0).at(1));
  EXPECT_TRUE(share_memory(*buffers(*p).at("_hp_data"), *buffers(*s).at("_hp_data")));
  EXPECT_EQ(p->size(), (Dims{3, 4}));
}

TEST(StorageSplit, AHybridNeedsPiecesOfBothChildren) {
  Setting t;
  const ArrayPtr x = bf16({64, 96});
  const StoragePtr s = hybrid(t.session, x, make<MXFP8Quantizer>(), make<IdentityQuantizer>());
  const std::vector<Piece> pieces = split(t.session, *s, 32);
  ASSERT_EQ(pieces.size(), 2u);
  const auto& first = dynamic_cast<const HybridStorage&>(*storage(pieces[0]));
  EXPECT_EQ(first.rowwise_storage->size(), (Dims{32, 96}));
  EXPECT_EQ(first.columnwise_storage->size(), (Dims{32, 96}));
  EXPECT_EQ(raised([&] { split(t.session, *s, 16); }), not_implemented_error);
  EXPECT_EQ(raised([&] {
              split(t.session, *hybrid(t.session, x, make<MXFP8Quantizer>(), make<Float8BlockQuantizer>()),
                    32);
            }),
            not_implemented_error);
  EXPECT_TRUE(plain(split(t.session, *s, 48, 1).at(0)));
  s->update_usage(false, true);
  EXPECT_FALSE(dynamic_cast<const HybridStorage&>(*storage(split(t.session, *s, 16).at(3))).rowwise_storage)
      << "columns alone";
}

// Slice and as_strided

TEST(StorageSlice, AllOfItIsAnotherObjectOverTheSameBuffers) {
  Setting t;
  const StoragePtr s = quantized<NVFP4Quantizer>(t.session, bf16({32, 64}), kBoth),
                   all = storage(slice(t.session, *s, 0, 0, 32));
  ASSERT_TRUE(all);
  EXPECT_NE(all, s);
  EXPECT_EQ(buffers(*all), buffers(*s));
  EXPECT_TRUE(plain(slice(t.session, *s, 0, 0, 16)));
}

TEST(StorageSlice, AHybridIsPlainAsSoonAsAChildIs) {
  Setting t(Arch::sm90);
  const ArrayPtr x = bf16({64, 64});
  const StoragePtr both =
                       hybrid(t.session, x, make<Float8CurrentScalingQuantizer>(), make<IdentityQuantizer>()),
                   one = hybrid(t.session, x, make<MXFP8Quantizer>(), make<IdentityQuantizer>());
  EXPECT_TRUE(storage(slice(t.session, *both, 0, 8, 24)));
  const ArrayPtr fallback = plain(slice(t.session, *one, 0, 8, 24));
  ASSERT_TRUE(fallback);
  EXPECT_TRUE(equal_bytes(*fallback, *slice(one->dequantize(t.session), 0, 8, 24)));
}

TEST(StorageStrided, RowsOfATransposeKeepThePlaneAndOthersDoNot) {
  Setting t(Arch::sm90);
  const StoragePtr s = transpose_only(t.session, bf16({12, 16}));
  const ArrayPtr whole = s->dequantize(t.session);
  const StoragePtr shard = storage(as_strided(t.session, *s, {4, 16}, {16, 1}, 32));
  ASSERT_TRUE(shard);
  EXPECT_EQ(buffers(*shard).at("_transpose")->shape, (Dims{16, 4}));
  EXPECT_TRUE(equal_bytes(*shard->dequantize(t.session), *slice(whole, 0, 2, 6)));
  EXPECT_TRUE(plain(as_strided(t.session, *s, {16, 12}, {1, 16})));
  EXPECT_TRUE(plain(as_strided(t.session, *s, {4, 16}, {16, 1}, 8))) << "not at a row";
  EXPECT_EQ(buffers(*storage(as_strided(t.session, *s, {12, 16}, {16, 1}))), buffers(*s));
}

TEST(StorageStrided, DataTakesAnyGeometryAndLosesItsTranspose) {
  Setting t(Arch::sm90);
  const StoragePtr s = quantized<Float8CurrentScalingQuantizer>(t.session, bf16({12, 16}), kBoth),
                   other = storage(as_strided(t.session, *s, {16, 12}, {1, 16}));
  ASSERT_TRUE(other);
  EXPECT_EQ(other->present(), kRows);
  EXPECT_TRUE(
      equal_bytes(*other->dequantize(t.session), *contiguous(transpose(s->dequantize(t.session), 0, 1))));
}

// Clone, detach, contiguous

TEST(StorageClone, SharesNothing) {
  Setting t;
  const StoragePtr s = hybrid(t.session, bf16({32, 32}), make<MXFP8Quantizer>(), make<NVFP4Quantizer>()),
                   copy = clone(*s);
  expect_equal(*s, *copy);
  for (const auto& [name, array] : buffers(*s))
    EXPECT_FALSE(share_memory(*array, *buffers(*copy).at(name))) << name;
}

TEST(StorageDetach, SavingTheDetachedOneLeavesTheOriginal) {
  Setting t;
  const StoragePtr s = hybrid(t.session, bf16({32, 32}), make<MXFP8Quantizer>(), make<NVFP4Quantizer>()),
                   d = detach(*s);
  EXPECT_EQ(buffers(*d), buffers(*s));
  d->prepare_for_saving();
  EXPECT_EQ(buffers(*s).size(), 5u);
  auto light = make<MXFP8Quantizer>();
  light->internal = true;
  EXPECT_EQ(raised([&] {
              detach(*hybrid(t.session, bf16({32, 32}), light, make<MXFP8Quantizer>()));
            }),
            not_implemented_error);
}

TEST(StorageContiguous, RefusesWhatTheOriginalRefuses) {
  Setting t;
  const ArrayPtr x = bf16({128, 128});
  const StoragePtr mx = quantized<MXFP8Quantizer>(t.session, x, kColumns);
  EXPECT_EQ(contiguous(mx), mx);
  EXPECT_EQ(raised([&] { contiguous(quantized<Float8BlockQuantizer>(t.session, x, kColumns)); }),
            value_error);
  EXPECT_EQ(
      raised([&] { contiguous(hybrid(t.session, x, make<MXFP8Quantizer>(), make<Float8BlockQuantizer>())); }),
      value_error);
}

// New zeros

TEST(StorageNewZeros, EveryBufferIsZeroInTheDirectionsThatExist) {
  Setting t;
  auto random = std::make_shared<NVFP4Quantizer>();
  random->stochastic_rounding = true;
  const StoragePtr s = hybrid(t.session, bf16({64, 64}), make<MXFP8Quantizer>(), random);
  s->update_usage(std::nullopt, false);
  const uint64_t offset = t.session.rng.offset;
  const StoragePtr z = new_zeros(t.session, *s, {32, 96}, DType::float32);
  EXPECT_EQ(z->size(), (Dims{32, 96}));
  EXPECT_EQ(z->present(), kRows);
  EXPECT_EQ(z->quantizer->usages(), kRows);
  EXPECT_EQ(s->quantizer->usages(), kBoth) << "the live quantizer stays";
  EXPECT_EQ(t.session.rng.offset, offset);
  for (const auto& [name, array] : buffers(*z))
    EXPECT_TRUE(equal_bytes(*array, *zeros(array->shape, array->dtype))) << name;
}

TEST(StorageNewZeros, Mxfp8ScalesComeWithoutPadding) {
  Setting t;
  const StoragePtr z =
      new_zeros(t.session, *quantized<MXFP8Quantizer>(t.session, bf16({32, 32}), kBoth), {64, 96});
  EXPECT_EQ(buffers(*z).at("_rowwise_scale_inv")->shape, (Dims{64, 3}));
  EXPECT_EQ(buffers(*z).at("_columnwise_scale_inv")->shape, (Dims{2, 96}));
  EXPECT_TRUE(equal_bytes(*z->dequantize(t.session), *zeros({64, 96}, DType::bfloat16)));
}

TEST(StorageNewZeros, Errors) {
  Setting t;
  const StoragePtr s = hybrid(t.session, bf16({32, 32}), make<MXFP8Quantizer>(), make<IdentityQuantizer>());
  EXPECT_EQ(raised([&] { new_zeros(t.session, *s, {32, 32}, DType::int32); }), type_error);
  s->update_usage(false, std::nullopt);
  EXPECT_NO_THROW(new_zeros(t.session, *s, {32, 32}, DType::int32)) << "Identity holds any";
  s->update_usage(std::nullopt, false);
  EXPECT_EQ(raised([&] { new_zeros(t.session, *s, {32, 32}); }), runtime_error);
}

// Copy

TEST(StorageCopy, OfTheSameClassBringsTheBytes) {
  Setting t;
  const StoragePtr a = hybrid(t.session, bf16({32, 32}), make<MXFP8Quantizer>(), make<NVFP4Quantizer>()),
                   b = hybrid(t.session, bf16({32, 32}, false, 5), make<MXFP8Quantizer>(),
                              make<NVFP4Quantizer>());
  copy_into(t.session, *a, *b);
  expect_equal(*a, *b);
}

TEST(StorageCopy, HybridsNeedTheSameDirectionsBeforeAnythingIsWritten) {
  Setting t;
  const StoragePtr a = hybrid(t.session, bf16({32, 32}), make<MXFP8Quantizer>(), make<MXFP8Quantizer>()),
                   b = hybrid(t.session, bf16({32, 32}, false, 5), make<MXFP8Quantizer>(),
                              make<MXFP8Quantizer>()),
                   before = clone(*b);
  a->update_usage(std::nullopt, false);
  EXPECT_EQ(raised([&] { copy_into(t.session, *a, *b); }), not_implemented_error);
  expect_equal(*b, *before);
}

TEST(StorageCopy, AnythingElseIsQuantizedAnew) {
  Setting t;
  const ArrayPtr x = bf16({32, 32});
  const StoragePtr want = quantized<MXFP8Quantizer>(t.session, x, kBoth),
                   from_plain = quantized<MXFP8Quantizer>(t.session, bf16({32, 32}, false, 5), kBoth),
                   from_other = clone(*from_plain);
  copy_into(t.session, x, *from_plain);
  expect_equal(*want, *from_plain);
  copy_into(t.session, *quantized<IdentityQuantizer>(t.session, x, kBoth), *from_other);
  expect_equal(*want, *from_other);
  from_plain->quantizer = nullptr;
  EXPECT_EQ(raised([&] { copy_into(t.session, x, *from_plain); }), runtime_error);
}

TEST(StorageCopy, ATransposeThatWasNotCopiedIsStale) {
  Setting t(Arch::sm90);
  const StoragePtr to = quantized<Float8CurrentScalingQuantizer>(t.session, bf16({32, 32}), kBoth);
  copy_into(t.session, *quantized<Float8CurrentScalingQuantizer>(t.session, bf16({32, 32}, false, 5), kRows),
            *to);
  EXPECT_EQ(to->present(), kRows);
}

// Pickle

TEST(StoragePickle, ComesBackWithTheSameBytesInMemoryOfItsOwn) {
  Setting t;
  const StoragePtr s = hybrid(t.session, bf16({32, 32}), make<MXFP8Quantizer>(), make<NVFP4Quantizer>()),
                   before = clone(*s);
  const Pickled p = pickled(*s);
  s->clear();
  const StoragePtr back = unpickled(p);
  expect_equal(*before, *back);
  EXPECT_EQ(back->class_name(), before->class_name());
  EXPECT_EQ(p.shape, (Dims{32, 32}));
  EXPECT_EQ(back->dtype, before->dtype);
  back->clear();
  expect_equal(*before, *unpickled(p));
}

TEST(StoragePickle, LeavesTheProcessGroupAtHome) {
  Setting t;
  const StoragePtr s = quantized<NVFP4Quantizer>(t.session, bf16({32, 32}), kBoth);
  s->quantizer->amax_reduction()->group = std::make_shared<ProcessGroup>();
  EXPECT_FALSE(unpickled(pickled(*s))->quantizer->amax_reduction()->group);
  EXPECT_TRUE(s->quantizer->amax_reduction()->group);
}

TEST(StoragePickle, FloatEightLosesItsQuantizerAndATransposeThatDataRemakes) {
  Setting t(Arch::sm90);
  const ArrayPtr x = bf16({32, 48});
  const StoragePtr both = unpickled(pickled(*quantized<Float8CurrentScalingQuantizer>(t.session, x, kBoth))),
                   alone = unpickled(pickled(*transpose_only(t.session, x)));
  EXPECT_FALSE(both->quantizer);
  EXPECT_EQ(both->present(), kRows);
  EXPECT_EQ(alone->present(), kColumns);
  EXPECT_TRUE(equal_bytes(*both->dequantize(t.session), *alone->dequantize(t.session)));
}

// Gathering a hybrid parameter

struct Shards {
  std::vector<StoragePtr> parts;
  std::vector<HybridGather> sent;
  std::vector<ArrayPtr> gathered;
  HybridStorage& part(size_t i) { return dynamic_cast<HybridStorage&>(*parts[i]); }
};
Shards gather(Session& session, const ArrayPtr& x, const HybridQuantizer& q, int64_t n) {
  Shards out;
  const int64_t rows = x->shape[0] / n;
  for (int64_t i = 0; i < n; ++i) {
    out.parts.push_back(q.copy()->quantize(session, slice(x, 0, i * rows, (i + 1) * rows)));
    out.sent.push_back(fsdp_pre_all_gather(out.part(static_cast<size_t>(i))));
  }
  for (size_t b = 0; b < out.sent[0].buffers.size(); ++b) {
    std::vector<ArrayPtr> alike;
    for (const HybridGather& g : out.sent) alike.push_back(g.buffers[b]);
    out.gathered.push_back(concatenate(alike));
  }
  return out;
}

TEST(HybridGather, IsTheWholeTensorOfBothChildren) {
  Setting t;
  const HybridQuantizer q(make<MXFP8Quantizer>(), std::make_shared<Float8BlockQuantizer>(Encoding::e4m3, 2));
  const ArrayPtr x = bf16({256, 160});
  Shards s = gather(t.session, x, q, 2);
  const auto whole = fsdp_post_all_gather(s.part(0), s.sent[0], s.gathered);
  expect_equal(*whole, *q.copy()->quantize(t.session, x));
  EXPECT_EQ(s.parts[0]->size(), (Dims{128, 160})) << "the shard stays";
  EXPECT_EQ(fsdp_post_all_gather(s.part(0), s.sent[0], s.gathered, whole), whole);
  EXPECT_EQ(raised([&] { fsdp_post_all_gather(s.part(0), s.sent[0], {}); }), runtime_error);
}

TEST(HybridGather, SharesThePerTensorScaleAndDropsAStaleTranspose) {
  Setting t(Arch::sm90);
  const HybridQuantizer q(make<Float8CurrentScalingQuantizer>(), make<IdentityQuantizer>());
  Shards s = gather(t.session, bf16({64, 32}), q, 2);
  const auto whole = fsdp_post_all_gather(s.part(0), s.sent[0], s.gathered);
  auto& rows = dynamic_cast<Float8Storage&>(*whole->rowwise_storage);
  EXPECT_EQ(rows.scale_inv, dynamic_cast<Float8Storage&>(*s.part(0).rowwise_storage).scale_inv);
  rows.update_usage(true, true);
  ASSERT_TRUE(rows.has_transpose());
  fsdp_post_all_gather(s.part(0), s.sent[0], s.gathered, whole);
  EXPECT_FALSE(rows.has_transpose());
}

TEST(HybridGather, RefusesChildrenThatCannot) {
  Setting t;
  const ArrayPtr x = bf16({32, 32});
  const StoragePtr fp4 = hybrid(t.session, x, make<MXFP8Quantizer>(), make<NVFP4Quantizer>());
  try {
    fsdp_pre_all_gather(dynamic_cast<HybridStorage&>(*fp4));
    FAIL();
  } catch (const SemanticError& e) {
    EXPECT_EQ(e.error_class, not_implemented_error);
    EXPECT_NE(std::string(e.what()).find("columnwise"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("NVFP4Tensor"), std::string::npos);
  }
  auto light = make<MXFP8Quantizer>();
  light->internal = true;
  EXPECT_EQ(raised([&] {
              fsdp_pre_all_gather(
                  dynamic_cast<HybridStorage&>(*hybrid(t.session, x, light, make<MXFP8Quantizer>())));
            }),
            not_implemented_error);
}

TEST(IdentityGather, PayloadMustHaveTheLogicalDtype) {
  Setting t;
  const ArrayPtr x = bf16({64, 32}), wide = cast(t.session, x, DType::float32);
  const StoragePtr shard = IdentityQuantizer().copy()->quantize(t.session, slice(x, 0, 0, 32)),
                   cast_first = IdentityQuantizer(DType::float32).copy()->quantize(t.session, x);
  const auto& plain = dynamic_cast<const IdentityStorage&>(*shard);
  const auto whole = fsdp_post_all_gather(plain, {x}, DType::bfloat16);
  EXPECT_EQ(whole->hp_data, x);
  EXPECT_EQ(whole->class_name(), "IdentityTensor");
  EXPECT_EQ(plain.size(), (Dims{32, 32})) << "the shard stays";
  EXPECT_EQ(raised([&] { fsdp_post_all_gather(plain, {wide}, DType::bfloat16); }), runtime_error);
  EXPECT_EQ(raised([&] { fsdp_post_all_gather(plain, {x}, DType::float32); }), runtime_error);
  EXPECT_EQ(raised([&] { fsdp_post_all_gather(plain, {x, x}, DType::bfloat16); }), value_error);
  // A quantizer's own dtype decides over the parameter's.
  const auto& named = dynamic_cast<const IdentityStorage&>(*cast_first);
  EXPECT_EQ(fsdp_post_all_gather(named, {wide}, DType::bfloat16)->dtype, DType::float32);
  EXPECT_EQ(raised([&] { fsdp_post_all_gather(named, {x}, DType::bfloat16); }), runtime_error);
  // An earlier result is bound to the new payload, or left as it is.
  EXPECT_EQ(raised([&] { fsdp_post_all_gather(plain, {wide}, DType::bfloat16, whole); }), runtime_error);
  EXPECT_EQ(whole->hp_data, x);
  const ArrayPtr next = bf16({64, 32}, false, 9);
  EXPECT_EQ(fsdp_post_all_gather(plain, {next}, DType::bfloat16, whole), whole);
  EXPECT_EQ(whole->hp_data, next);
}

TEST(IdentityGather, StorageProtocolTakesAnyDtype) {
  Setting t;
  const StoragePtr s = IdentityQuantizer().copy()->quantize(t.session, bf16({64, 32}));
  const ArrayPtr wide = zeros({64, 32}, DType::float32);
  s->fsdp_assign_gathered({wide}, s->fsdp_extract_buffers().meta);
  EXPECT_EQ(dynamic_cast<IdentityStorage&>(*s).hp_data, wide);
}

TEST(Clone, Nvfp4NeedsItsRows) {
  Setting t;
  const ArrayPtr x = bf16({32, 32});
  const StoragePtr rows = quantized<NVFP4Quantizer>(t.session, x, {true, false}),
                   columns = quantized<NVFP4Quantizer>(t.session, x, {false, true});
  expect_equal(*clone(*rows), *rows);
  EXPECT_EQ(raised([&] { clone(*columns); }), assertion_error);
  expect_equal(*unpickled(pickled(*columns)), *columns);  // a checkpoint has no such need
  auto pair = HybridQuantizer(make<MXFP8Quantizer>(), make<NVFP4Quantizer>());
  pair.set_usage(false, true);
  const StoragePtr s = pair.copy()->quantize(t.session, x);
  expect_equal(*clone(*s), *s);
}

}  // namespace
}  // namespace assay::training
