// Whole suites against plugins that misbehave: they finish, every case has its verdict, and what is wrong is
// named where it is wrong and nowhere else.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include "compare/commands/explain.h"
#include "compare/judge/cases.h"
#include "compare/subjects/plugin.h"
#include "contract/assay_plugin.h"
#include "contract/line.h"
#include "fast/subject_host.h"
#include "fixtures/json.h"
#include "fixtures/suite.h"
#include "reference/subject.h"
#include "tests/source_path.h"
#include "training/recipes/line_factory.h"

namespace {

// What whole_plugin.c calls: the reference, or the kernels where the environment has ASSAY_TEST_KERNELS.
assay::Subject& reference() {
  static const auto one = assay::make_reference_subject(), kernels = assay::make_host_subject();
  return std::getenv("ASSAY_TEST_KERNELS") ? *kernels : *one;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int assay_test_supports(const char* line, char* why,
                                                               size_t why_bytes) {
  const auto p = assay::parse_line(line);
  const assay::Support s = p ? reference().supports(*p) : assay::Support{false, p.error().text()};
  std::snprintf(why, why_bytes, "%s", s.why.c_str());
  return s.yes;
}

__attribute__((visibility("default"))) int assay_test_run(const char* line, const assay_plane* inputs,
                                                          size_t input_count, const assay_plane* outputs,
                                                          size_t output_count, char* message,
                                                          size_t message_bytes) {
  const auto p = assay::parse_line(line);
  if (!p) return std::snprintf(message, message_bytes, "%s", p.error().text().c_str()), 1;
  const std::vector<assay::Plane> in_planes = assay::input_planes(*p), out_planes = assay::output_planes(*p);
  std::vector<assay::ConstBuffer> in;
  std::vector<assay::Buffer> out;
  for (size_t i = 0; i < input_count; ++i)
    in.push_back({&in_planes.at(i), {static_cast<const std::byte*>(inputs[i].data), inputs[i].bytes}});
  for (size_t i = 0; i < output_count; ++i)
    out.push_back({&out_planes.at(i), {static_cast<std::byte*>(outputs[i].data), outputs[i].bytes}});
  try {
    reference().run(*p, in, out, assay::Environment{});
  } catch (const std::exception& e) {
    return std::snprintf(message, message_bytes, "%s", e.what()), 1;
  }
  return 0;
}
}

namespace assay {
namespace {

Subjects with(const std::string& name) {
  Subjects s;
  s.owned.push_back(make_reference_subject());
  s.owned.push_back(std::move(*make_plugin_subject(std::string(ASSAY_PLUGIN_DIR "/lib") + name + ".so")));
  return s;
}

std::vector<SuiteEntry> smoke() {
  auto suite = load_suite(source_path("fixtures/suites/smoke.cases"), training::resolve_factory);
  EXPECT_TRUE(suite) << suite.error().text();
  return std::move(suite->entries);
}

std::map<std::string, Verdict> run_suite(const std::vector<SuiteEntry>& entries, const Subjects& subjects,
                                         double timeout = 60) {
  RunSettings settings;
  settings.subjects = {std::string(subjects.owned.back()->name())};
  settings.timeout = timeout;
  std::map<std::string, Verdict> out;
  const size_t reported = run_cases(entries, subjects, settings, [&](const CaseResult& r) {
    out[entries[r.index].text] = r.verdicts.at(0);
  });
  EXPECT_EQ(reported, entries.size());
  return out;
}

struct Variable {
  Variable(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~Variable() { unsetenv(name_); }
  const char* name_;
};

// The plugin of docs/debugging-a-divergence.md: every line that it runs on has its verdict, and the hint
// names the broken line.
TEST(PluginSuite, OneBrokenLineIsNamed) {
  const auto verdicts = run_suite(smoke(), with("broken_plugin"));
  size_t failed = 0;
  for (const auto& [line, v] : verdicts) {
    EXPECT_NE(v.outcome, Outcome::crashed) << line;
    if (v.outcome != Outcome::failed) continue;
    ++failed;
    ASSERT_FALSE(v.breaches.empty()) << line;
    EXPECT_EQ(v.breaches[0].plane, "row.scale_inv") << line;
    EXPECT_NE(v.breaches[0].hint.find("the scale is rounded down where N5.3 rounds up"), std::string::npos)
        << line << ": " << v.breaches[0].hint;
  }
  EXPECT_GE(failed, 6u);
}

// ... and assay explain names it as the only cause.
TEST(PluginSuite, OneBrokenLineIsExplained) {
  const Subjects subjects = with("broken_plugin");
  ExplainOptions options;
  options.what = "quantize mxfp8 64x256 bf16 dir=row seed=7";
  options.subject = subjects.owned.back()->name();
  options.json = testing::TempDir() + "assay_broken_plugin.json";
  std::FILE* said = std::tmpfile();
  ASSERT_EQ(run_explain(options, subjects, said, said), 1);
  std::fclose(said);
  const auto diagnosis = json::read(options.json);
  ASSERT_TRUE(diagnosis) << diagnosis.error().text();
  EXPECT_EQ(diagnosis->text("confidence"), "certain");
  const json::Value& cause = (*diagnosis->find("explanations")->array())[0];
  EXPECT_EQ(cause.text("line"), "quantize mxfp8 64x256 bf16 dir=row mx_scale=down seed=7")
      << json::dump(cause);
}

// Kernels that sum in an order of their own are held to the bound, also behind the interface of a plugin
// (N20.19).
TEST(PluginSuite, AnOrderOfItsOwnIsHeldToTheBound) {
  const Variable kernels("ASSAY_TEST_KERNELS", "1");
  const Subjects subjects = with("whole_plugin");
  RunSettings settings;
  settings.subjects = {std::string(subjects.owned.back()->name())};
  const Problem p = *parse_line("attention fp8_current 32x16 bf16 sums=online kv=128");
  const std::vector<Verdict> verdicts = run_one(p, subjects, settings);
  EXPECT_EQ(verdicts.at(0).outcome, Outcome::passed);
  EXPECT_EQ(verdicts.at(0).unpinned, "sums=online: tile by tile with a running maximum");
  EXPECT_GT(verdicts.at(0).inside, 0);  // its bytes are not the reference's
}

// One wrong operation in a plugin that runs everything fails the lines that have such a plane, and no other.
TEST(PluginSuite, AWrongScaleFailsItsLinesOnly) {
  const Variable wrong("ASSAY_TEST_WRONG", "1");
  const auto entries = smoke();
  const auto verdicts = run_suite(entries, with("whole_plugin"));
  size_t failed = 0, passed = 0;
  for (const SuiteEntry& e : entries) {
    const Verdict& v = verdicts.at(e.text);
    bool spoiled = e.problem.as<Swizzle>() != nullptr;  // its claim round-trip runs the other way
    for (const Plane& p : output_planes(e.problem))
      spoiled |= p.encoding == Encoding::e8m0 && p.name.find("scale") != std::string::npos;
    EXPECT_TRUE(spoiled || !is_red(v.outcome)) << e.text << ": " << name_of(v.outcome) << " " << v.reason;
    if (v.outcome == Outcome::passed) ++passed;
    if (v.outcome != Outcome::failed) continue;
    ++failed;
    EXPECT_NE(v.breaches.at(0).plane.find("scale"), std::string::npos)
        << e.text << ": " << v.breaches[0].claim << " " << v.breaches[0].plane;
  }
  EXPECT_GE(failed, 100u);
  EXPECT_GE(passed, 400u);
}

// A crash, a hang, an exit and a write out of bounds cost one case each, and say what they are.
TEST(PluginSuite, EachDisasterCostsOneCase) {
  const auto entries = smoke();
  std::vector<const SuiteEntry*> chosen;  // of ops that no claim on another line runs
  for (const SuiteEntry& e : entries)
    if (!e.expect.unsupported &&
        (e.problem.as<Update>() || e.problem.as<ScaleChain>() || e.problem.as<Cast>()) &&
        e.problem.x.shape.count() > 0)
      chosen.push_back(&e);
  ASSERT_GT(chosen.size(), 50u);
  const size_t step = chosen.size() / 4;
  const SuiteEntry &crash = *chosen[0], &hang = *chosen[step], &leave = *chosen[2 * step],
                   &outside = *chosen[3 * step];
  const Variable a("ASSAY_TEST_CRASH", to_canonical_line(crash.problem)),
      b("ASSAY_TEST_HANG", to_canonical_line(hang.problem)),
      c("ASSAY_TEST_EXIT", to_canonical_line(leave.problem)),
      d("ASSAY_TEST_OUTSIDE", to_canonical_line(outside.problem));
  const auto verdicts = run_suite(entries, with("whole_plugin"), 10);
  std::set<std::string> red;
  for (const auto& [line, v] : verdicts)
    if (is_red(v.outcome)) red.insert(line);
  EXPECT_EQ(red, (std::set<std::string>{crash.text, hang.text, leave.text, outside.text}));
  EXPECT_EQ(verdicts.at(crash.text).outcome, Outcome::crashed);
  EXPECT_NE(verdicts.at(crash.text).reason.find("signal 11"), std::string::npos)
      << verdicts.at(crash.text).reason;
  EXPECT_EQ(verdicts.at(hang.text).outcome, Outcome::crashed);
  EXPECT_NE(verdicts.at(hang.text).reason.find("10 s"), std::string::npos) << verdicts.at(hang.text).reason;
  EXPECT_EQ(verdicts.at(leave.text).outcome, Outcome::crashed);
  ASSERT_EQ(verdicts.at(outside.text).outcome, Outcome::failed);
  EXPECT_EQ(verdicts.at(outside.text).breaches.at(0).claim, "guard");
  EXPECT_NE(verdicts.at(outside.text).breaches[0].message.find("byte 0 past the end was written (55)"),
            std::string::npos)
      << verdicts.at(outside.text).breaches[0].message;
}

}  // namespace
}  // namespace assay
