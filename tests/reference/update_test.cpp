// One delayed-scaling update, worked by hand (N4). History rows are written newest first: h[0] is the current
// amax.
#include <bit>
#include <cmath>

#include "tests/reference/run_line.h"

namespace assay {
namespace {

constexpr float kNan = NAN, kInf = INFINITY, kFltMax = 0x1.fffffep127f;
uint32_t bits(float v) { return std::bit_cast<uint32_t>(v); }
std::vector<uint32_t> bits(const std::vector<float>& v) {
  std::vector<uint32_t> out;
  for (float f : v) out.push_back(bits(f));
  return out;
}

struct Next {
  std::vector<uint32_t> history;
  uint32_t scale;
  bool operator==(const Next&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Next& n) {
  out << std::hex << "history";
  for (uint32_t h : n.history) out << ' ' << h;
  return out << " scale " << n.scale;
}
Next next(const std::vector<float>& history, float scale) { return {bits(history), bits(scale)}; }

// One slot.
Next update(const std::string& keys, const std::vector<float>& history, float scale,
            const float* reduced = nullptr) {
  std::map<std::string, Blob> in = {{"history", blob(bits(history))},
                                    {"scale", blob(bits(std::vector{scale}))}};
  if (reduced) in["reduced"] = blob(bits(std::vector{*reduced}));
  const Outputs out = run_line("update fp8_delayed " + std::to_string(history.size()) + "x1 f32 " + keys +
                                   (reduced ? " reduction=1" : ""),
                               in);
  return {out.u32("next.history"), out.u32("next.scale")[0]};
}

TEST(Update, TheOldestEntryStillCounts) {  // N4.2: 9 takes part and is dropped; 448 / 9 = 49.7777...
  EXPECT_EQ(update("", {1, 9, 2}, 5), (Next{bits(std::vector<float>{0, 2, 1}), 0x42471C72}));
  EXPECT_EQ(update("rule=api", {1, 9, 2}, 5), (Next{bits(std::vector<float>{0, 2, 1}), 0x42471C72}));
  EXPECT_EQ(update("rule=unfused", {1, 9, 2}, 5), (Next{bits(std::vector<float>{0, 2, 1}), 0x42471C72}));
}

TEST(Update, ZeroLatestAmax) {
  EXPECT_EQ(update("", {0, 5, 7}, 2), next({0, 5, 7}, 2));  // N4.3: nothing rolls, the scale stays
  EXPECT_EQ(update("", {-0.0f, 5, 7}, 2), next({-0.0f, 5, 7}, 2));
  EXPECT_EQ(update("algo=most_recent", {0, 5, 7}, 2), next({0, 5, 7}, 2));
  EXPECT_EQ(update("rule=api", {0, 5, 7}, 2), next({0, 7, 0}, 64));                  // N4.4: 448 / 7
  EXPECT_EQ(update("rule=unfused", {0, 5, 7}, 2), next({0, 7, 0}, 64));              // N4.5
  EXPECT_EQ(update("rule=api algo=most_recent", {0, 5, 7}, 2), next({0, 7, 0}, 2));  // N4.6: 0 is not above 0
}

TEST(Update, NanLatestAmax) {  // 448 / 5 = 89.6
  EXPECT_EQ(update("", {kNan, 3, 5}, 2),
            (Next{bits(std::vector<float>{0, 5, kNan}), 0x42B33333}));  // N4.2, N4.3: rolled in, ignored
  EXPECT_EQ(update("rule=api", {kNan, 3, 5}, 2), (Next{bits(std::vector<float>{0, 5, kNan}), 0x42B33333}));
  EXPECT_EQ(update("algo=most_recent", {kNan, 3, 5}, 2), next({0, 5, kNan}, 2));  // N4.6
  EXPECT_EQ(update("rule=unfused", {kNan, 3, 5}, 2), next({0, 5, kNan}, 2));      // N4.5: NaN wins
  EXPECT_EQ(update("rule=unfused", {4, kNan, 5}, 2), next({0, 5, 4}, 2));
  EXPECT_EQ(update("", {4, kNan, 5}, 2), (Next{bits(std::vector<float>{0, 5, 4}), 0x42B33333}));
}

TEST(Update, InfiniteAmaxFreezesTheScale) {  // N4.6
  for (const char* rule : {"rule=bulk", "rule=api", "rule=unfused"}) {
    EXPECT_EQ(update(rule, {kInf, 3, 5}, 2), next({0, 5, kInf}, 2)) << rule;
    EXPECT_EQ(update(rule, {4, 3, kInf}, 2), next({0, kInf, 4}, 2)) << rule;
  }
}

TEST(Update, InfiniteScale) {                                  // N4.7
  EXPECT_EQ(update("", {0, 3}, kInf), next({0, 3}, kFltMax));  // kept from before
  EXPECT_EQ(update("", {0, 3}, -kInf), next({0, 3}, kFltMax));
  EXPECT_EQ(update("rule=unfused", {0, 0}, kInf), next({0, 0}, kFltMax));
  EXPECT_EQ(update("rule=unfused", {0, 0}, -kInf), next({0, 0}, -kInf));  // only +inf
  for (const char* rule : {"rule=bulk", "rule=api", "rule=unfused"})
    EXPECT_EQ(update(rule, {0x1p-120f, 0}, 2), next({0, 0x1p-120f}, kFltMax))
        << rule;  // 448 * 2^120 overflows
}

TEST(Update, ScaleHasNoLowerLimit) {  // N4.6: fl(448 / FLT_MAX)
  EXPECT_EQ(update("", {kFltMax, 0}, 2), (Next{bits(std::vector<float>{0, kFltMax}), 0x03E00001}));
}

TEST(Update, HistoryOfOne) {
  for (const char* rule : {"rule=bulk", "rule=api", "rule=unfused"})
    EXPECT_EQ(update(rule, {7}, 2), next({0}, 64)) << rule;
}

TEST(Update, MostRecent) {  // 448 / 7, although 100 is larger
  for (const char* rule : {"rule=bulk", "rule=api", "rule=unfused"})
    EXPECT_EQ(update(std::string(rule) + " algo=most_recent", {7, 1, 100}, 2), next({0, 100, 7}, 64)) << rule;
}

TEST(Update, TheUnfusedRuleMultipliesByTheReciprocal) {  // N4.5: 448 / 3 rounds to ...55, 448 * fl(1 / 3) to
                                                         // the float above
  for (const char* rule : {"rule=bulk", "rule=api"})
    EXPECT_EQ(update(rule, {3}, 2), (Next{bits(std::vector<float>{0}), 0x43155555})) << rule;
  EXPECT_EQ(update("rule=unfused", {3}, 2), (Next{bits(std::vector<float>{0}), 0x43155556}));
}

TEST(Update, Margin) {
  EXPECT_EQ(update("margin=1", {7, 0}, 2), next({0, 7}, 32));
  EXPECT_EQ(update("margin=1 rule=unfused", {7, 0}, 2), next({0, 7}, 32));
  EXPECT_EQ(update("element=e5m2", {7, 0}, 2), next({0, 7}, 8192));  // 57344 / 7
  // The order shows where one order overflows: (448 * 2^-8) / 2^-120 is 1.75 * 2^120, (448 / 2^-120) is
  // infinite (N4.5, N4.6).
  EXPECT_EQ(update("margin=8", {0x1p-120f, 0}, 2), next({0, 0x1p-120f}, 0x1.cp120f));
  EXPECT_EQ(update("margin=8 rule=unfused", {0x1p-120f, 0}, 2), next({0, 0x1p-120f}, kFltMax));
}

TEST(Update, ReductionBuffer) {  // N4.1
  const float given = 14, zero = 0, minus_zero = -0.0f, nan = kNan;
  EXPECT_EQ(update("", {7, 1}, 2, &given), next({0, 14}, 32));
  EXPECT_EQ(update("", {7, 1}, 2, &zero), next({0, 7}, 64));
  EXPECT_EQ(update("", {7, 1}, 2, &minus_zero), next({0, 7}, 64));
  EXPECT_EQ(update("", {7, 1}, 2, &nan), next({0, kNan}, 448));  // the window is {1, NaN}
  EXPECT_EQ(update("", {0, 1}, 2, &given), next({0, 14}, 32));   // and decides whether the history rolls
}

TEST(Update, WhatRollsKeepsItsBits) {  // N4.2 moves values; N1.3 is about the NaN of an operation
  const Outputs out = run_line("update fp8_delayed 3x1 f32 algo=most_recent",
                               {{"history", blob<uint32_t>({0xFFC12345, 0x3F800000, 0x7FC00077})},
                                {"scale", blob<uint32_t>({0xFFC00ABC})}});
  EXPECT_EQ(out.u32("next.history"), (std::vector<uint32_t>{0, 0x7FC00077, 0xFFC12345}));
  EXPECT_EQ(out.u32("next.scale")[0], 0xFFC00ABCu);
}

TEST(Update, SlotsAreColumns) {
  const Outputs out =
      run_line("update fp8_delayed 2x3 f32", {{"history", blob(bits(std::vector<float>{7, 0, 14, 1, 2, 3}))},
                                              {"scale", blob(bits(std::vector<float>{5, 6, 7}))}});
  EXPECT_EQ(out.u32("next.history"), bits(std::vector<float>{0, 0, 0, 7, 2, 14}));
  EXPECT_EQ(out.u32("next.scale"), bits(std::vector<float>{64, 6, 32}));
}

}  // namespace
}  // namespace assay
