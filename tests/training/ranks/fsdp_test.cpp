#include "training/ranks/fsdp.h"

#include "tests/training/formats/quantizer_kit.h"

namespace assay::training {
namespace {

// What is gathered keeps the directions that its shard asked for; the shard's quantizer stays as it is.
TEST(Fsdp, AGatheredFp4WeightWantsWhatItsShardWanted) {
  for (const bool columns : {false, true}) {
    Setting t;
    auto q = make<NVFP4Quantizer>();
    q->with_2d_quantization = true;
    q->set_usage(true, columns);
    const StoragePtr shard = q->quantize(t.session, random_bf16({128, 128}));
    const FsdpSent sent = fsdp_pre_all_gather(*shard, nullptr, ParamGroup{false, TrainingState::forward});
    shard->quantizer->set_usage(true, !columns);
    std::vector<ArrayPtr> gathered;
    for (const ArrayPtr& b : sent.buffers) gathered.push_back(concatenate(std::vector{b, b}));
    const StoragePtr whole = fsdp_post_all_gather(*shard, sent, gathered, DType::bfloat16);
    EXPECT_EQ(whole->quantizer->usages(), (Usages{true, columns}));
    EXPECT_EQ(whole->present(), (Usages{true, columns}));
    EXPECT_EQ(shard->quantizer->usages(), (Usages{true, !columns}));
  }
}

}  // namespace
}  // namespace assay::training
