// Plugins: a right one passes, a wrong one fails on the plane that is wrong, and a library that crashes,
// hangs, exits or writes out of bounds costs its own cases only.
#include "compare/subjects/plugin.h"

#include <gtest/gtest.h>

#include <fstream>

#include "compare/commands/coverage.h"
#include "compare/judge/cases.h"
#include "compare/process/float_environment.h"
#include "contract/line.h"
#include "reference/subject.h"
#include "tests/compare/ended.h"

namespace assay {
namespace {

std::string path_of(const std::string& name) { return std::string(ASSAY_PLUGIN_DIR "/lib") + name + ".so"; }

Subjects with_plugin(const std::string& name) {
  Subjects s;
  s.owned.push_back(make_reference_subject());
  auto plugin = make_plugin_subject(path_of(name));
  EXPECT_TRUE(plugin) << plugin.error().text();
  s.owned.push_back(std::move(*plugin));
  return s;
}

Problem line(const std::string& text) {
  auto p = parse_line(text);
  EXPECT_TRUE(p) << p.error().text();
  return *p;
}

Verdict judge_line(const Subjects& subjects, const std::string& text, double timeout = 20,
                   bool in_process = false) {
  RunSettings settings;
  settings.subjects = {std::string(subjects.owned.back()->name())};
  settings.timeout = timeout;
  settings.jobs = 1;
  settings.in_process = in_process;
  const auto verdicts = run_one(line(text), subjects, settings);
  EXPECT_EQ(verdicts.size(), 1u) << text;
  return verdicts.empty() ? Verdict{} : verdicts.front();
}

constexpr const char* kCase = "quantize mxfp8 64x256 bf16 dir=row fill=ties seed=3";

TEST(Plugin, RightOnePasses) {
  const Subjects subjects = with_plugin("example_plugin");
  for (const char* fill : {"normal", "ties", "edges", "amax_edges", "nonfinite", "wide", "denormal"})
    for (const char* source : {"f32", "bf16", "f16"})
      for (const char* element : {"e4m3", "e5m2"})
        for (const char* shape : {"64x256", "33x70"}) {
          const std::string text = std::string("quantize mxfp8 ") + shape + " " + source +
                                   " dir=row element=" + element + " fill=" + fill;
          const Verdict v = judge_line(subjects, text);
          EXPECT_TRUE(v.outcome == Outcome::passed)
              << text << ": " << name_of(v.outcome) << " " << v.reason
              << (v.breaches.empty() ? "" : " " + v.breaches[0].claim + " " + v.breaches[0].plane);
        }
  EXPECT_EQ(judge_line(subjects, "quantize identity 64x256 bf16 fill=nonfinite").outcome, Outcome::passed);
  EXPECT_EQ(judge_line(subjects, "quantize mxfp8 0x256 bf16 dir=row").breaches.size(), 0u);
}

TEST(Plugin, SaysWhatItDoesNotRun) {
  const Subjects subjects = with_plugin("example_plugin");
  const Verdict v = judge_line(subjects, "quantize mxfp8 64x256 bf16 dir=both");
  EXPECT_EQ(v.outcome, Outcome::unsupported);
  EXPECT_EQ(v.reason, "only dir=row");
  const Verdict other = judge_line(subjects, "quantize mxfp8 64x256 bf16 dir=row mx_scale=floor");
  EXPECT_EQ(other.outcome, Outcome::unsupported);
  EXPECT_EQ(other.reason, "not mx_scale=floor");
}

TEST(Plugin, WrongRoundingFailsOnItsPlane) {
  const Verdict v = judge_line(with_plugin("faulty_plugin_rounding"), kCase);
  ASSERT_EQ(v.outcome, Outcome::failed);
  ASSERT_FALSE(v.breaches.empty());
  EXPECT_EQ(v.breaches[0].claim, "parity");
  EXPECT_EQ(v.breaches[0].plane, "row.data");
  EXPECT_EQ(v.breaches[0].apart, 1);
}

TEST(Plugin, CrashCostsOneCase) {
  const Subjects subjects = with_plugin("faulty_plugin_crash");
  std::vector<SuiteEntry> entries = {entry_of(line(kCase)), entry_of(line("quantize fp8_current 8x8 bf16")),
                                     entry_of(line(kCase))};
  RunSettings settings;
  settings.subjects = {std::string(subjects.owned.back()->name())};
  settings.jobs = 1;
  std::vector<Outcome> outcomes;
  EXPECT_EQ(run_cases(entries, subjects, settings,
                      [&](const CaseResult& r) { outcomes.push_back(r.verdicts.at(0).outcome); }),
            3u);
  EXPECT_EQ(outcomes, (std::vector<Outcome>{Outcome::crashed, Outcome::unsupported, Outcome::crashed}));
}

TEST(Plugin, HangEndsAtTheTimeout) {
  const Verdict v = judge_line(with_plugin("faulty_plugin_hang"), kCase, 0.5);
  EXPECT_EQ(v.outcome, Outcome::crashed);
  EXPECT_NE(v.reason.find("0.5"), std::string::npos) << v.reason;
}

TEST(Plugin, ExitIsNoPass) {
  EXPECT_EQ(judge_line(with_plugin("faulty_plugin_exit"), kCase).outcome, Outcome::crashed);
}

TEST(Plugin, WritingOutOfBoundsIsNamed) {
  const Verdict v = judge_line(with_plugin("faulty_plugin_out_of_bounds"), kCase);
  ASSERT_EQ(v.outcome, Outcome::failed);
  ASSERT_FALSE(v.breaches.empty());
  EXPECT_EQ(v.breaches[0].claim, "guard");
  EXPECT_NE(v.breaches[0].message.find("row.data"), std::string::npos) << v.breaches[0].message;
}

TEST(Plugin, WritingFarOutOfBoundsReachesNobodyElse) {
  const std::string identity = "quantize identity 64x64 bf16 dir=row fill=zeros";
  for (const std::string& text : {identity, std::string(kCase)}) {
    const Verdict past = judge_line(with_plugin("faulty_plugin_far_past"), text);
    EXPECT_EQ(past.outcome, Outcome::crashed);
    EXPECT_NE(past.reason.find("outside of its planes: byte 1000 past the end of row.data"),
              std::string::npos)
        << past.reason;
    const Verdict before = judge_line(with_plugin("faulty_plugin_far_before"), text);
    EXPECT_EQ(before.outcome, Outcome::crashed);
    EXPECT_NE(before.reason.find("outside of its planes: byte 70000 before the start of row.data"),
              std::string::npos)
        << before.reason;
  }
}

TEST(Plugin, ExitInThisProcessIsToldAndNoSuccess) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  for (const char* plugin : {"faulty_plugin_exit", "faulty_plugin_quick_exit"})
    EXPECT_EXIT(judge_line(with_plugin(plugin), kCase, 20, true), testing::ExitedWithCode(2),
                "assay: exit\\(\\) was called while 'quantize mxfp8 64x256 .*' was judged");
}

// Like those that link with -ffast-math: they run under what they asked for, and the reference does not.
TEST(Plugin, FlushingDenormalsSinceItWasLoadedIsItsOwn) {
  const Subjects subjects = with_plugin("faulty_plugin_float_load");
  for (const bool in_process : {false, true}) {
    const Verdict v =
        judge_line(subjects, "quantize mxfp8 64x256 f32 dir=row fill=denormal seed=1", 20, in_process);
    ASSERT_EQ(v.outcome, Outcome::failed);
    ASSERT_FALSE(v.breaches.empty());
    EXPECT_EQ(v.breaches[0].claim, "parity");
    EXPECT_EQ(v.breaches[0].got, "plugin:faulty_plugin_float_load");
    EXPECT_EQ(v.breaches[0].of, v.breaches[0].plane == "row.data" ? 64 * 256 : 64 * 8);
    EXPECT_EQ(judge_line(subjects, kCase, 20, in_process).outcome, Outcome::passed);
  }
}

// The line and the end of the only breach: claim `guard`, and no plane is to blame.
void expect_floats_left(const std::string& plugin, const std::string& text, const std::string& message) {
  const Subjects subjects = with_plugin(plugin);
  for (const bool in_process : {false, true}) {
    const FloatEnvironment before = FloatEnvironment::now();
    const Verdict v = judge_line(subjects, text, 20, in_process);
    EXPECT_EQ(FloatEnvironment::now(), before);
    ASSERT_EQ(v.outcome, Outcome::failed);
    ASSERT_EQ(v.breaches.size(), 1u);
    EXPECT_EQ(v.breaches[0].claim, "guard");
    EXPECT_EQ(v.breaches[0].got, "plugin:" + plugin);
    EXPECT_EQ(v.breaches[0].plane, "");
    EXPECT_EQ(v.breaches[0].message, message);
  }
}

TEST(Plugin, AFloatEnvironmentThatACallLeavesChangedIsNamedAndRestored) {
  expect_floats_left("faulty_plugin_float_rounding", kCase,
                     "it left the float environment changed: rounds toward zero");
  expect_floats_left("faulty_plugin_float_supports", kCase,
                     "assay_plugin_supports left the float environment changed: rounds toward positive "
                     "infinity");
#if defined(__x86_64__)
  expect_floats_left("faulty_plugin_float_flush", kCase,
                     "it left the float environment changed: flushes denormal results to zero, takes "
                     "denormal operands for zero");
  expect_floats_left("faulty_plugin_float_load_and_back", kCase,
                     "it left the float environment changed: keeps denormal results, takes denormal operands "
                     "as they are");
#endif
}

TEST(Plugin, RefusalIsAFailureWithItsMessage) {
  const Verdict v = judge_line(with_plugin("faulty_plugin_refuse"), kCase);
  EXPECT_EQ(v.outcome, Outcome::failed);
  ASSERT_FALSE(v.breaches.empty());
  EXPECT_NE(v.breaches[0].message.find("plugin returned 7: out of luck"), std::string::npos)
      << v.breaches[0].message;
}

TEST(Plugin, PackedAndGroupedPlanesAreDescribed) {
  const Subjects subjects = with_plugin("faulty_plugin_describe");
  const Verdict packed = judge_line(subjects, "quantize nvfp4 8x33 bf16 dir=row");
  ASSERT_FALSE(packed.breaches.empty());
  EXPECT_NE(packed.breaches[0].message.find("row.data packed 1 bytes 136 members 0 last at 0"),
            std::string::npos)
      << packed.breaches[0].message;
  const Verdict grouped = judge_line(subjects, "split mxfp4 40x33 bf16 groups=8,32 dir=col");
  ASSERT_FALSE(grouped.breaches.empty());
  EXPECT_NE(grouped.breaches[0].message.find("col.data packed 1 bytes 660 members 2 last at 264 of 33x32"),
            std::string::npos)
      << grouped.breaches[0].message;
}

TEST(Plugin, PresenceIsProbedInAChild) {
  EXPECT_TRUE(with_plugin("example_plugin").owned.back()->present().yes);
  const Support abi = with_plugin("faulty_plugin_next_abi").owned.back()->present();
  EXPECT_FALSE(abi.yes);
  EXPECT_NE(abi.why.find("interface version 4, this program has 2 to 3"), std::string::npos) << abi.why;
  const Support crash = with_plugin("faulty_plugin_load_crash").owned.back()->present();
  EXPECT_FALSE(crash.yes);
  EXPECT_NE(crash.why.find("ended the process that loaded it"), std::string::npos) << crash.why;
}

TEST(Plugin, ACrashWhenItIsAskedWhatItRunsNamesTheLine) {
  const Subjects subjects = with_plugin("faulty_plugin_supports_crash");
  CoverageOptions o;
  o.space.only = "quantize identity";
  o.space.jobs = 1;
  o.lines = {line("quantize identity 8x8 bf16"), line("quantize identity 0x8 bf16"),
             line("quantize identity 8x4 bf16")};
  const Ended asked =
      of_streams([&](auto&, auto& err) { return ask_subject(o, *subjects.owned.back(), err).value_or(0); });
  EXPECT_EQ(asked.status, 2);
  EXPECT_TRUE(asked.says("'quantize identity 0x8 bf16': ")) << asked.err;
  // A line that the search draws.
  o.lines = {line("quantize identity 8x8 bf16"), line("quantize mxfp4 8x8 bf16")};
  const Ended kept =
      of_streams([&](auto&, auto& err) { return ask_subject(o, *subjects.owned.back(), err).value_or(0); });
  EXPECT_EQ(kept.status, 0) << kept.err;
  ASSERT_EQ(o.lines.size(), 1u);
  try {
    of_streams([&](auto& out, auto& err) { return run_coverage(o, out, err); });
    ADD_FAILURE() << "the search drew no tensor without rows";
  } catch (const std::runtime_error& e) {
    const std::string why = e.what();
    EXPECT_NE(why.find("whether it runs 'quantize identity"), std::string::npos) << why;
    EXPECT_NE(why.find(" 0x"), std::string::npos) << why;
  }
}

TEST(Plugin, LibrariesOfAnOlderInterfaceStillRun) {
  const Subjects subjects = with_plugin("faulty_plugin_old_abi");
  EXPECT_TRUE(subjects.owned.back()->present().yes);
  EXPECT_EQ(judge_line(subjects, kCase).outcome, Outcome::passed);
}

TEST(Plugin, WhatIsNoPluginIsAnError) {
  EXPECT_FALSE(make_plugin_subject("/nonexistent/libx.so"));
  EXPECT_FALSE(make_plugin_subject("/tmp"));
  const std::string text = testing::TempDir() + "/libtext.so";
  std::ofstream(text) << "no library";
  auto plugin = make_plugin_subject(text);
  ASSERT_TRUE(plugin);
  EXPECT_FALSE((*plugin)->present().yes);
}

}  // namespace
}  // namespace assay
