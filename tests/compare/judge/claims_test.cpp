#include "compare/judge/claims.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "compare/judge/cases.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

Verdict judged(const std::string& line, fakes::Spoiled::Spoil spoil, Expectation expect = {}) {
  const Subjects subjects = fakes::with("fake", std::move(spoil));
  SuiteEntry e = entry_of(fakes::problem(line));
  e.expect = std::move(expect);
  return judge_case(e, subjects, {"fake"}, {})[0];
}
bool breaks(const Verdict& v, const std::string& claim) {
  return std::any_of(v.breaches.begin(), v.breaches.end(), [&](const Breach& b) { return b.claim == claim; });
}

const char kMx[] = "quantize mxfp8 64x96 bf16 dir=both";

TEST(Claims, AGoodSubjectPassesEveryClaim) {
  for (const char* line :
       {kMx, "cast e4m3 8x64 bf16 fill=ties", "cast e8m0 8x64 f32 round=rp",
        "cast e5m2 8x64 f32 round=rz fill=edges", "quantize fp8_current 33x65 f32 dir=both",
        "quantize mxfp8 40x70 f16 dir=both block=32x32 scales=gemm", "dequantize mxfp8 64x96 f32",
        "swizzle mxfp8 130x256 e8m0", "swizzle mxfp8 130x256 e8m0 inverse=1", "update fp8_delayed 16x12 f32",
        "scale_chain mxfp8 1x512 f32 fill=wide", "quantize identity 8x40 bf16 dir=both",
        "quantize fp8_delayed 40x40 bf16 dir=both noop=1", "quantize mxfp8 0x32 bf16"}) {
    const Verdict v = judged(line, nullptr);
    EXPECT_EQ(v.outcome, Outcome::passed)
        << line << (v.breaches.empty() ? "" : ": " + v.breaches[0].claim + " " + v.breaches[0].message);
    EXPECT_FALSE(v.claims.empty());
    EXPECT_EQ(v.reason, std::string(line).find(" 0x") != std::string::npos ? kNoElement : "");
  }
}

// N20: heads can be moved on where there are two or more of keys.
TEST(Claims, HeadsOfAnAttentionAreMoved) {
  const auto claims = [](const std::string& keys) {
    return judged("attention identity 8x24 bf16 " + keys, nullptr).claims;
  };
  const auto has = [](const std::vector<std::string>& all, const char* one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  };
  EXPECT_TRUE(has(claims("heads=3 kv_heads=3"), "moved-heads"));
  EXPECT_TRUE(has(claims("heads=4 kv_heads=2"), "moved-heads"));
  EXPECT_FALSE(has(claims("heads=3 kv_heads=1"), "moved-heads"));
  EXPECT_TRUE(has(claims("heads=3 kv_heads=1"), "guard"));
}

TEST(Claims, Parity) {
  const Verdict v = judged(
      kMx, [](auto&, auto out, auto&) { fakes::output(out, "row.data")->bytes[96 * 5 + 7] ^= std::byte{1}; });
  EXPECT_EQ(v.outcome, Outcome::failed);
  ASSERT_FALSE(v.breaches.empty());
  EXPECT_EQ(v.breaches[0].claim, "parity");
  EXPECT_EQ(v.breaches[0].plane, "row.data");
  EXPECT_EQ(v.breaches[0].row, 5);
  EXPECT_EQ(v.breaches[0].col, 7);
  EXPECT_EQ(v.launches, 4);  // the line, again, and each direction alone
}

TEST(Claims, PaddingAndGuardAndInputs) {
  EXPECT_TRUE(breaks(judged("quantize mxfp8 33x70 bf16 dir=row",
                            [](auto&, auto out, auto&) {
                              fakes::output(out, "row.scale_inv")->bytes.back() = std::byte{1};
                            }),
                     "padding"));
  const Verdict after =
      judged(kMx, [](auto&, auto out, auto&) { out[0].bytes.data()[out[0].bytes.size()] = std::byte{0}; });
  ASSERT_EQ(after.outcome, Outcome::failed);
  EXPECT_EQ(after.breaches[0].claim, "guard");
  EXPECT_NE(after.breaches[0].message.find("row.scale_inv: byte 0 past the end"), std::string::npos)
      << after.breaches[0].message;
  const Verdict before = judged(kMx, [](auto&, auto out, auto&) { out[1].bytes.data()[-1] = std::byte{0}; });
  EXPECT_NE(before.breaches.at(0).message.find("row.data: byte 1 before the start"), std::string::npos);
}

TEST(Claims, AnUnwrittenByteDoesNotRepeat) {
  // Byte 0 is left as the poison; whatever parity says, a repeat under another poison shows it.
  const Verdict v = judged(kMx, [](auto&, auto out, const Environment& env) {
    fakes::output(out, "col.data")->bytes[0] = std::byte{env.poison};
  });
  EXPECT_TRUE(breaks(v, "repeat"));
}

// A tail that nobody writes is no matter of NaN or of rounding, and a fault beside it is counted apart.
TEST(Claims, ElementsThatAreNeverWrittenAreSaidToBeSo) {
  for (const bool second : {false, true}) {
    const Verdict v =
        judged("quantize mxfp8 33x70 bf16 dir=row", [&](auto&, auto out, const Environment& env) {
          const Buffer& data = *fakes::output(out, "row.data");
          for (size_t row = 0; row < 33; ++row) data.bytes[70 * row + 69] = std::byte{env.poison};
          if (second) data.bytes[70 * 5 + 7] ^= std::byte{1};
        });
    ASSERT_FALSE(v.breaches.empty());
    EXPECT_EQ(v.breaches[0].claim, "parity");
    const std::string hint = v.breaches[0].hint;
    EXPECT_TRUE(
        hint.starts_with("33 elements of row.data still hold the poison: never written, all in column 69"))
        << hint;
    EXPECT_EQ(hint.ends_with("; 1 other elements differ for a separate cause"), second) << hint;
    ASSERT_TRUE(breaks(v, "repeat"));
  }
}

// A wrong byte of the padding has another cause than the scale that was not written.
TEST(Claims, WhatIsNeverWrittenSaysNothingOfThePadding) {
  const Verdict v = judged("quantize mxfp8 33x70 bf16 dir=row", [](auto&, auto out, const Environment& env) {
    fakes::output(out, "row.scale_inv")->bytes[4 * 5 + 2] = std::byte{env.poison};
    fakes::output(out, "row.scale_inv")->bytes[4 * 127 + 3] = std::byte{1};
  });
  std::map<std::string, std::string> hints;
  for (const Breach& b : v.breaches)
    if (b.plane == "row.scale_inv") hints[b.claim] = b.hint;
  EXPECT_EQ(hints["parity"],
            "1 element of row.scale_inv still holds the poison: never written, at row 5, columns 64..69");
  ASSERT_TRUE(hints.contains("padding"));
  EXPECT_EQ(hints["padding"], "");
}

// Both codes of a byte, each by its own half of the poison; and the scales of a whole tensor.
TEST(Claims, UnwrittenCodesOfFourBitsAndScalars) {
  const Verdict v = judged("quantize nvfp4 16x64 bf16 dir=row", [&](auto&, auto out, const Environment& env) {
    fakes::output(out, "row.data")->bytes[32 * 3 + 5] = std::byte{env.poison};
  });
  ASSERT_TRUE(breaks(v, "repeat"));
  const auto repeat =
      std::find_if(v.breaches.begin(), v.breaches.end(), [](const Breach& b) { return b.claim == "repeat"; });
  EXPECT_NE(repeat->hint.find("of row.data still hold"), std::string::npos) << repeat->hint;
  EXPECT_NE(repeat->hint.find(" row 3"), std::string::npos) << repeat->hint;
  const Verdict scale =
      judged("quantize fp8_current 16x64 bf16 dir=row", [&](auto&, auto out, const Environment& env) {
        for (std::byte& b : fakes::output(out, "row.scale_inv")->bytes) b = std::byte{env.poison};
      });
  EXPECT_EQ(scale.breaches.at(0).hint,
            "1 element of row.scale_inv still holds the poison: never written, the tensor's only value");
}

TEST(Claims, OrderMayNotMatter) {
  const Verdict v = judged(kMx, [](auto&, auto out, const Environment& env) {
    if (env.order != Environment::kForward) fakes::output(out, "row.data")->bytes[3] ^= std::byte{1};
  });
  EXPECT_EQ(v.outcome, Outcome::failed);
  EXPECT_FALSE(breaks(v, "parity"));
  ASSERT_TRUE(breaks(v, "repeat"));
  EXPECT_NE(v.breaches[0].environment.find("order="), std::string::npos);
}

TEST(Claims, Untouched) {
  const Verdict v = judged("quantize mxfp8 64x64 bf16 dir=both noop=1", [](auto&, auto out, auto&) {
    fakes::output(out, "col.data")->bytes[64 * 2 + 5] = std::byte{0x7E};
  });
  ASSERT_EQ(v.outcome, Outcome::failed);
  EXPECT_EQ(v.breaches[0].claim, "untouched");
  EXPECT_EQ(v.breaches[0].plane, "col.data");
  EXPECT_EQ(v.breaches[0].row, 2);
  EXPECT_EQ(v.breaches[0].col, 5);
}

TEST(Claims, AThrowIsAFailure) {
  const Verdict v = judged(kMx, [](auto&, auto, auto&) { throw std::runtime_error("kernel fault: lane 3"); });
  EXPECT_EQ(v.outcome, Outcome::failed);
  EXPECT_EQ(v.breaches.at(0).claim, "run");
  EXPECT_NE(v.breaches[0].message.find("lane 3"), std::string::npos);
}

// N6.5: each way there is right, and the way back is not.
TEST(Claims, ASwizzleComesBack) {
  const Verdict v = judged("swizzle mxfp8 130x256 e8m0", [](const Problem& p, auto out, auto&) {
    if (p.as<Swizzle>()->inverse) fakes::output(out, "row.scale_inv")->bytes[8 * 3 + 2] ^= std::byte{1};
  });
  ASSERT_EQ(v.breaches.size(), 1u);
  EXPECT_EQ(v.breaches[0].claim, "round-trip");
  EXPECT_EQ(v.breaches[0].where, "row 3, column 2 of the scales");
  // A scale in the place of its neighbour: only scales of blocks of 128 have copies (N9.6).
  EXPECT_TRUE(breaks(judged("swizzle mxfp8 130x256 e8m0 inverse=1",
                            [](const Problem& p, auto out, auto&) {
                              if (const Buffer* gemm = fakes::output(out, "row.scale_gemm");
                                  !p.as<Swizzle>()->inverse)
                                gemm->bytes[1] = gemm->bytes[0];
                            }),
                     "round-trip"));
}

TEST(Claims, WhatOnlyTheDataTellIsUnsupported) {
  const Verdict v = judged(kMx, [](auto&, auto, auto&) { throw Unsupported("no such data"); });
  EXPECT_EQ(v.outcome, Outcome::unsupported);
  EXPECT_EQ(v.reason, "no such data");
}

TEST(Expectations, Unsupported) {
  Expectation unsupported;
  unsupported.unsupported = true;
  EXPECT_EQ(judged("quantize mxfp8 96x160 bf16 flavour=te arch=sm90", nullptr).outcome, Outcome::unsupported);
  EXPECT_EQ(judged("quantize mxfp8 96x160 bf16 flavour=te arch=sm90", nullptr, unsupported).outcome,
            Outcome::passed);
  EXPECT_EQ(judged(kMx, nullptr, unsupported).outcome, Outcome::failed);
}

TEST(Expectations, Failure) {
  Expectation fails;
  fails.fail = Expectation::Failure{"col.data", "https://example.org/1"};
  auto spoil = [](auto&, auto out, auto&) { fakes::output(out, "col.data")->bytes[3] ^= std::byte{1}; };
  auto elsewhere = [](auto&, auto out, auto&) { fakes::output(out, "row.data")->bytes[3] ^= std::byte{1}; };
  EXPECT_EQ(judged(kMx, spoil, fails).outcome, Outcome::passed);
  EXPECT_EQ(judged(kMx, nullptr, fails).outcome, Outcome::failed);  // turned red: it passes
  EXPECT_EQ(judged(kMx, elsewhere, fails).outcome, Outcome::failed);
  auto both = [&](auto& p, auto out, auto& env) { elsewhere(p, out, env), spoil(p, out, env); };
  EXPECT_EQ(judged(kMx, both, fails).outcome, Outcome::failed);  // at row.data first
  // A wrong scale is named before the codes that it decides.
  fails.fail->plane = "row.data";
  EXPECT_EQ(
      judged(
          kMx, [](auto&, auto out, auto&) { fakes::output(out, "row.scale_inv")->bytes[0] ^= std::byte{1}; },
          fails)
          .outcome,
      Outcome::failed);
  // What is mistrusted passes, but for that; what did not run says nothing.
  const Verdict mistrusted = judged("cast e4m3 8x32 bf16 fill=zeros", nullptr, fails);
  EXPECT_EQ(mistrusted.outcome, Outcome::failed);
  EXPECT_TRUE(breaks(mistrusted, "expect"));
  EXPECT_EQ(judged("quantize mxfp8 96x160 bf16 flavour=te arch=sm90", nullptr, fails).outcome,
            Outcome::unsupported);
}

TEST(Expectations, Trust) {
  Expectation trust;
  trust.trust = "zeros are the point";
  const std::string zeros = "cast e4m3 8x32 bf16 fill=zeros";
  EXPECT_EQ(judged(zeros, nullptr).outcome, Outcome::mistrusted);
  EXPECT_EQ(judged(zeros, nullptr, trust).outcome, Outcome::passed);
  EXPECT_EQ(judged(
                zeros, [](auto&, auto out, auto&) { out[0].bytes[0] = std::byte{1}; }, trust)
                .outcome,
            Outcome::failed);
}

TEST(Claims, AbsentAndUnknownSubjectsAreSkipped) {
  Subjects subjects = fakes::with("fake", nullptr);
  static_cast<fakes::Spoiled&>(*subjects.owned[1]).present_ = {false, "no device"};
  const auto verdicts = judge_case(entry_of(fakes::problem(kMx)), subjects, {"fake", "nobody"}, {});
  EXPECT_EQ(verdicts[0].outcome, Outcome::skipped);
  EXPECT_EQ(verdicts[0].reason, "no device");
  EXPECT_EQ(verdicts[1].outcome, Outcome::skipped);
}

TEST(Claims, VerdictsTravelAsJson) {
  Verdict v = judged(
      kMx, [](auto&, auto out, auto&) { fakes::output(out, "row.scale_inv")->bytes[0] ^= std::byte{1}; });
  v.seconds = 0.25;
  ASSERT_FALSE(v.breaches.empty());
  const auto back = verdict_from_json(*json::parse(json::dump(to_json(v))));
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, v);
}

// The kinds of claims that a spoiled subject breaks on a line.
std::set<std::string> broken(const std::string& line, fakes::Spoiled::Spoil spoil) {
  const Subjects subjects = fakes::with("fake", std::move(spoil));
  const std::vector<Verdict> v = judge_case(entry_of(fakes::problem(line)), subjects, {"fake"}, {});
  std::set<std::string> out;
  for (const Breach& b : v.at(0).breaches) out.insert(b.claim);
  return out;
}
void flip(std::span<const Buffer> out, std::string_view name, size_t at = 0) {
  if (const Buffer* b = fakes::output(out, name); b && at < b->bytes.size()) b->bytes[at] ^= std::byte{1};
}

// N13.2: a launch of a pair that is wrong by itself, while each direction alone is right; and the other way
// round.
TEST(Pairs, DirectionsEqualTheSubjectsOwnLines) {
  const char* hybrid = "quantize mxfp8/fp8_current 33x65 bf16 fill=outliers";
  EXPECT_TRUE(broken(hybrid, [](const Problem& p, auto out, auto&) {
                if (p.row && p.col) flip(out, "row.data");
              }).count("hybrid.row"));
  EXPECT_TRUE(broken(hybrid, [](const Problem& p, auto out, auto&) {
                if (p.row && p.col) flip(out, "col.data");
              }).count("hybrid.col"));
  EXPECT_TRUE(broken(hybrid, [](const Problem& p, auto out, auto&) {
                if (!p.row) flip(out, "col.scale_inv");
              }).count("hybrid.col"));
  EXPECT_TRUE(broken("quantize nvfp4 32x64 bf16", [](const Problem& p, auto out, auto&) {
                if (!p.col) flip(out, "row.data", 3);
              }).count("hybrid.same"));
  const char* cascade = "quantize mxfp4/mxfp8 33x65 bf16 col_source=row_dequantized fill=outliers";
  EXPECT_TRUE(broken(cascade, [](const Problem& p, auto out, auto&) {
                if (p.as<Dequantize>()) flip(out, "y", 11);
              }).count("hybrid.col"));
  EXPECT_TRUE(broken(cascade, nullptr).empty());
  EXPECT_TRUE(
      broken("quantize nvfp4/mxfp8 33x65 bf16 col_source=row_dequantized row.amax=2", nullptr).empty());
}

// The columns of a cascade are given the rows dequantized, which no fill draws: no line stands for them.
TEST(Pairs, TheLineOfDequantizedRowsHasNoFill) {
  const Verdict v = judged("quantize mxfp4/mxfp8 33x65 bf16 col_source=row_dequantized fill=outliers seed=3",
                           [](const Problem& p, auto out, auto&) {
                             if (p.row && p.col) fakes::output(out, "col.data")->bytes[7] ^= std::byte{1};
                           });
  const auto column =
      std::find_if(v.breaches.begin(), v.breaches.end(), [](auto& b) { return b.claim == "hybrid.col"; });
  ASSERT_NE(column, v.breaches.end());
  EXPECT_EQ(column->hint, "wanted: the same subject on quantize mxfp8 33x65 bf16 dir=col fill=literal:00");
}

// N14.2, N14.3, N14.6
TEST(Splits, MembersAreTheirOwnLinesAndTheSpareRoomIsNobodys) {
  const char* line = "split nvfp4 96x64 bf16 groups=32,0,64 capacity=9000 fill=normal";
  EXPECT_TRUE(broken(line, nullptr).empty());
  EXPECT_EQ(broken(line,
                   [](const Problem& p, auto out, auto&) {
                     if (p.as<Split>()) flip(out, "row.data", 32 * 32 + 5);
                   })
                .count("member"),
            1u);
  EXPECT_EQ(broken(line,
                   [](const Problem& p, auto out, auto&) {
                     if (p.as<Quantize>() && p.rng.member == 2) flip(out, "col.data", 5);
                   }),
            std::set<std::string>{"member"});
  const Verdict second = judged(line, [](const Problem& p, auto out, auto&) {
    if (p.as<Quantize>() && p.rng.member == 2) flip(out, "col.data", 5);
  });
  ASSERT_FALSE(second.breaches.empty());
  EXPECT_EQ(second.breaches[0].plane, "col.data[2]");  // of which member
  EXPECT_TRUE(broken(line, [](auto&, auto out, auto&) { flip(out, "offsets", 8); }).count("parity"));
  EXPECT_EQ(broken(line,
                   [](const Problem& p, auto out, auto&) {
                     if (p.as<Split>()) flip(out, "row.data", 96 * 32);
                   }),
            std::set<std::string>{"untouched"});
  // A byte that happens to be the poison of one Environment is not that of the other.
  EXPECT_EQ(broken(line,
                   [](const Problem& p, auto out, auto&) {
                     if (p.as<Split>()) fakes::output(out, "col.scale_inv")->bytes.back() = std::byte{0x7F};
                   }),
            std::set<std::string>{"untouched"});
}

}  // namespace
}  // namespace assay
