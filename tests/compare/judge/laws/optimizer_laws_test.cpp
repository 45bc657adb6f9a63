// Laws of optimizer steps, on codes worked by hand: nothing is asked of the reference.
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "compare/arithmetic/codes.h"
#include "compare/judge/laws/laws.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

// The first codes of planes, by their names; all others are 0.
using Codes = std::map<std::string, std::vector<uint32_t>>;

std::vector<PlaneData> filled(const std::vector<Plane>& planes, const Codes& codes) {
  std::vector<PlaneData> out;
  for (const Plane& plane : planes) {
    PlaneData& data = out.emplace_back(PlaneData{plane, std::vector<std::byte>(plane.bytes())});
    if (const auto given = codes.find(plane.name); given != codes.end())
      for (size_t i = 0; i < given->second.size(); ++i)
        set_code(plane, data.bytes, static_cast<int64_t>(i), given->second[i]);
  }
  return out;
}

// The laws that these inputs and outputs break, and where: "bound next.v".
std::set<std::string> broken(const std::string& line, const Codes& codes) {
  const Problem p = fakes::problem(line);
  std::set<std::string> out;
  for (const Breach& b :
       check_laws(p, filled(input_planes(p), codes), filled(output_planes(p), codes), "fake")) {
    out.insert(b.claim + " " + b.plane);
    EXPECT_TRUE(b.row == 0 && b.col >= 0 && b.col < p.x.shape.cols) << line << ": " << b.col;
  }
  return out;
}
const std::set<std::string> kNone;

// beta1 m = beta2 v = 1 and g = 0, so that m' = v' = 1; a last place of 1 is 2^-23.
TEST(OptimizerLaws, MomentsAreWithinThreeAndFourLastPlaces) {
  const std::string line = "adam f32 1x1 f32 lr=0 beta1=0.5 beta2=0.5";
  const auto of = [&](uint32_t m, uint32_t v) {
    return broken(line, {{"m", {0x40000000}}, {"v", {0x40000000}}, {"next.m", {m}}, {"next.v", {v}}});
  };
  EXPECT_EQ(of(0x3F800003, 0x3F800004), kNone);
  EXPECT_EQ(of(0x3F800004, 0x3F800004), std::set<std::string>{"bound next.m"});
  EXPECT_EQ(of(0x3F800003, 0x3F800005), std::set<std::string>{"bound next.v"});
}

// As above, with p = 0, lr = 1 and no correction: p' = -1. Moments in bf16 may move it by 2^-6.
TEST(OptimizerLaws, MomentsInBf16WidenTheBoundOfTheParameter) {
  const std::string line = "adam f32 1x1 f32 lr=1 beta1=0.5 beta2=0.5 eps=0 bias_correction=0";
  const auto narrow = [&](uint32_t p) {
    return broken(
        line + " moments=bf16",
        {{"m", {0x4000}}, {"v", {0x4000}}, {"next.m", {0x3F80}}, {"next.v", {0x3F80}}, {"next.p", {p}}});
  };
  const auto wide = [&](uint32_t p) {
    return broken(line, {{"m", {0x40000000}},
                         {"v", {0x40000000}},
                         {"next.m", {0x3F800000}},
                         {"next.v", {0x3F800000}},
                         {"next.p", {p}}});
  };
  const std::set<std::string> parameter = {"bound next.p"};
  EXPECT_EQ(narrow(0xBF820000), kNone);  // 2^-6 off
  EXPECT_EQ(narrow(0xBF840000), parameter);
  EXPECT_EQ(wide(0xBF800010), kNone);  // 2^-19 off
  EXPECT_EQ(wide(0xBF820000), parameter);
}

TEST(OptimizerLaws, AParameterWithoutAnUpdateStays) {
  const auto of = [](uint32_t p) {
    return broken("adam f32 1x1 f32", {{"p", {0x3F800000}}, {"next.p", {p}}});
  };
  EXPECT_EQ(of(0x3F800000), kNone);
  EXPECT_EQ(of(0x3F800003), std::set<std::string>{"bound next.p"});  // three last places off
}

// N19.6: the quotient is rounded once. 448 / 448 is 1, and 450 / 448 lies between two codes.
TEST(OptimizerLaws, TheScaleOfAStateIsTheNearestQuotient) {
  const auto of = [](uint32_t x, uint32_t scale) {
    const auto all = broken("scale_state e4m3 1x1 f32", {{"x", {x}}, {"scale", {scale}}});
    return all.count("range scale");
  };
  EXPECT_EQ(of(0x43E00000, 0x3F800000), 0u);
  EXPECT_EQ(of(0x43E00000, 0x3F7FFFFF), 1u);
  EXPECT_EQ(of(0x43E00000, 0x3F800001), 1u);
  EXPECT_EQ(of(0x43E10000, 0x3F809249), 0u);  // and a seventh of a last place
  EXPECT_EQ(of(0x43E10000, 0x3F80924A), 1u);
  EXPECT_EQ(of(0x7FC00000, 0x7FFFFFFF), 0u);  // a NaN and its canonical code
  EXPECT_EQ(of(0x7FC00000, 0x3F800000), 1u);
}

// Scale and multiplier are 1, as 32752 has them; 2049 is a tie of 2048 (6800) and 2050 (6801).
TEST(OptimizerLaws, AStateThatIsATieGoesToTheEvenCode) {
  const auto of = [](uint32_t y) {
    return broken("scale_state f16 1x2 f32", {{"x", {0x46FFE000, 0x45001000}},
                                              {"scale", {0x3F800000}},
                                              {"multiplier", {0x3F800000}},
                                              {"y", {0x77FF, y}}});
  };
  EXPECT_EQ(of(0x6800), kNone);
  EXPECT_EQ(of(0x6801), std::set<std::string>{"half-step y"});
}

}  // namespace
}  // namespace assay
