#include "training/formats/observer.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/training/formats/quantizer_kit.h"

namespace assay::training {
namespace {

// The observer

TEST(Observer, ChangesNothingAndSeesEverything) {
  Setting plain, watched;
  const ArrayPtr x = random_bf16({32, 128}), y = random_bf16({32, 128}, 2);
  auto bare = stochastic(true);
  std::vector<std::string> seen;
  auto observer = std::make_shared<ObserverQuantizer>(
      stochastic(true), [&](const Observation& o) { seen.emplace_back(o.call); });
  const auto steps = [&](Quantizer& q, Session& session) {
    q.set_usage(true, true);
    const StoragePtr s = q.quantize(session, x);
    q.set_usage(false, true);
    update(q, session, y, *s);
    return bytes_of(*s);
  };
  EXPECT_EQ(steps(*observer, watched.session), steps(*bare, plain.session));
  EXPECT_EQ(watched.session.launches, plain.session.launches);
  EXPECT_EQ(watched.session.rng.offset, plain.session.rng.offset);
  EXPECT_EQ(observer->inner->usages(), bare->usages());
  EXPECT_EQ(seen, (std::vector<std::string>{"quantize", "update_quantized"}));
}

TEST(Observer, AmaxGroupsReachTheQuantizerWithin) {
  auto inner = make<Float8CurrentScalingQuantizer>();
  ObserverQuantizer observer(inner, [](const Observation&) {});
  auto group = std::make_shared<ProcessGroup>();
  set_amax_reduction_group(observer, group);
  EXPECT_TRUE(inner->reduction.enabled);
  EXPECT_EQ(inner->reduction.group, group);
  EXPECT_EQ(&unwrapped(observer), inner.get());

  auto hybrid = std::make_shared<HybridQuantizer>(QuantizerPtr(make<Float8CurrentScalingQuantizer>()),
                                                  QuantizerPtr(make<MXFP8Quantizer>()));
  ObserverQuantizer around(hybrid, [](const Observation&) {});
  set_amax_reduction_group(around, group);
  EXPECT_EQ(hybrid->amax_reduction_group(), group);
  EXPECT_EQ(wgrad_gather_usages(around), (Usages{false, true}));
}

}  // namespace
}  // namespace assay::training
