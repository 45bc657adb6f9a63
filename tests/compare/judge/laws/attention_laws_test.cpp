// The laws of an attention without any second side: outputs of the reference with one fault, judged by
// check_laws alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/places.h"
#include "compare/judge/laws/laws.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

// The laws that are broken where a code of a plane is another one, as "<law> at <plane>".
std::vector<std::string> broken(const std::string& line, const std::string& name, int64_t row, int64_t col,
                                uint32_t code) {
  const Problem p = fakes::problem(line);
  const auto reference = make_reference_subject();
  const auto inputs = *make_inputs(p, *reference);
  std::vector<PlaneData> out = execute(*reference, p, inputs, {}).planes;
  EXPECT_TRUE(check_laws(p, inputs, out, "reference").empty()) << line;
  const auto at =
      std::find_if(out.begin(), out.end(), [&](const PlaneData& d) { return d.plane.name == name; });
  if (at == out.end()) {
    std::string names;
    for (const PlaneData& d : out) names += " " + d.plane.name;
    ADD_FAILURE() << line << " has no plane " << name << ", but" << names;
    return {};
  }
  set_code(at->plane.encoding, at->bytes, row * at->plane.padded.cols + col, code);
  std::vector<std::string> laws;
  for (const Breach& b : check_laws(p, inputs, out, "reference")) laws.push_back(b.claim + " at " + b.plane);
  return laws;
}
bool has(const std::vector<std::string>& laws, const std::string& one) {
  return std::find(laws.begin(), laws.end(), one) != laws.end();
}

constexpr uint32_t kOne = 0x3F80;  // in bf16

// N20.3: every cast of every slot is held to the laws of its quantize.
TEST(AttentionLaws, EveryCastObeysTheLawsOfItsQuantize) {
  for (const char* cast : {"qkv", "s", "o", "dp", "dqkv"}) {
    const std::string scale = std::string(cast) + ".scale_inv";
    EXPECT_TRUE(has(broken("attention fp8_current 32x32 bf16 heads=2 backward=1", scale, 0, 0, 0x3F812345),
                    "range at " + scale))
        << cast;
  }
  for (const char* cast : {"q", "k", "v", "o", "dq", "dk", "dv"}) {
    const std::string scale = std::string(cast) + ".scale_inv";
    EXPECT_TRUE(
        has(broken("attention mxfp8 128x64 bf16 heads=2 backward=1", scale, 0, 0, 0x11), "range at " + scale))
        << cast;
  }
}

TEST(AttentionLaws, ProbabilitiesOfARowSumToOne) {  // N20.7
  EXPECT_TRUE(has(broken("attention identity 8x16 bf16", "s", 3, 2, kOne), "rows at s"));
  // The last query of the shorter sequence is padding.
  EXPECT_TRUE(
      has(broken("attention identity 16x16 bf16 batch=2 lengths=8,7 kv_lengths=8,8", "s", 15, 0, kOne),
          "rows at s"));
}

TEST(AttentionLaws, EqualLogitsHaveEqualProbabilities) {  // N20.7
  const std::string line = "attention identity 8x16 bf16 fill=zeros";
  EXPECT_TRUE(has(broken(line, "s", 5, 1, 0x3E01), "exact-rows at s"));  // one code above 1/8
}

TEST(AttentionLaws, MaskedKeysHaveNoProbability) {  // N20.6, N20.14
  const std::string line = "attention identity 8x16 bf16 mask=causal backward=1";
  EXPECT_TRUE(has(broken(line, "s", 2, 3, 0x3C00), "masked-keys at s"));
  EXPECT_TRUE(has(broken(line, "dp", 2, 3, 0x3C00), "masked-keys at dp"));
  EXPECT_FALSE(has(broken(line, "s", 2, 2, 0x3C00), "masked-keys at s"));
  const std::string window = "attention identity 8x16 bf16 window=2,1";
  EXPECT_TRUE(has(broken(window, "s", 5, 2, 0x3C00), "masked-keys at s"));
  EXPECT_TRUE(has(broken(window, "s", 5, 7, 0x3C00), "masked-keys at s"));
  EXPECT_FALSE(has(broken(window, "s", 5, 3, 0x3C00), "masked-keys at s"));
  EXPECT_FALSE(has(broken(window, "s", 5, 6, 0x3C00), "masked-keys at s"));
}

TEST(AttentionLaws, UnseenKeysGetNoGradient) {  // N20.14
  const std::string line = "attention identity 8x32 bf16 heads=2 kv=12 mask=causal backward=1";
  for (const char* gradient : {"dv", "dk"}) {
    // Key 8 of either head is seen by none of the 8 queries, key 7 by the last one.
    for (const int64_t head : {0, 1}) {
      EXPECT_TRUE(
          has(broken(line, gradient, 12 * head + 8, 15, kOne), std::string("masked-keys at ") + gradient))
          << gradient << ' ' << head;
      EXPECT_FALSE(
          has(broken(line, gradient, 12 * head + 7, 15, kOne), std::string("masked-keys at ") + gradient))
          << gradient << ' ' << head;
    }
  }
}

// A row whose logits are all as small as those of masked keys shares itself among all keys, which then get
// gradients that break no law.
TEST(AttentionLaws, KeysMayGetGradientsWhereNoLogitIsFar) {  // N20.6
  const Problem p =
      fakes::problem("attention identity 8x16 bf16 kv=12 mask=causal bias=post_scale backward=1");
  const auto reference = make_reference_subject();
  auto inputs = *make_inputs(p, *reference);
  const auto bias =
      std::find_if(inputs.begin(), inputs.end(), [](const PlaneData& d) { return d.plane.name == "bias"; });
  ASSERT_NE(bias, inputs.end());
  for (int64_t i = 0; i < bias->plane.logical.count(); ++i)
    set_code(Encoding::bf16, bias->bytes, i, 0xC61C);  // -9984
  const std::vector<PlaneData> out = execute(*reference, p, inputs, {}).planes;
  const auto dv =
      std::find_if(out.begin(), out.end(), [](const PlaneData& d) { return d.plane.name == "dv"; });
  ASSERT_NE(dv, out.end());
  EXPECT_NE(code_at(Encoding::bf16, dv->bytes, 11 * 16), 0u);  // of a key that no query sees
  EXPECT_TRUE(check_laws(p, inputs, out, "reference").empty());
}

}  // namespace
}  // namespace assay
