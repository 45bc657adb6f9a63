#include "training/ranks/gather.h"

#include <vector>

#include "tests/training/formats/quantizer_kit.h"
#include "training/base/ranks.h"

namespace assay::training {
namespace {

// Each of two ranks gathers a shard that one quantizer made, for another one.
ErrorClass gathered(const QuantizerPtr& of_shard, const QuantizerPtr& of_gather) {
  std::vector<ErrorClass> seen(2);
  run_ranks(
      2, "tp",
      [&](int rank, const GroupPtr& group) {
        Setting t;
        const StoragePtr shard = of_shard->copy()->quantize(t.session, bf16({128, 128}));
        seen[static_cast<size_t>(rank)] =
            raised([&] { gather_along_first_dim(t.session, shard, *group, of_gather->copy()); });
      },
      shared(seen));
  EXPECT_EQ(seen[0], seen[1]);
  return seen[0];
}

TEST(Gather, AShardOfPerTensorFp8IsNotGatheredForAnotherFormat) {
  const QuantizerPtr fp8 = make<Float8CurrentScalingQuantizer>();
  for (const QuantizerPtr& other :
       {QuantizerPtr(make<MXFP8Quantizer>()), QuantizerPtr(make<Float8BlockQuantizer>(Encoding::e4m3, 1))})
    EXPECT_EQ(gathered(fp8, other), ErrorClass::value_error) << other->class_name();
}

}  // namespace
}  // namespace assay::training
