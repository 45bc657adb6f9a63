#include "compare/judge/cases.h"
#include "compare/process/interrupt.h"
#include "compare/process/pool.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include <gtest/gtest.h>

#include "compare/commands/selection.h"
#include "contract/line.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

std::vector<SuiteEntry> entries(size_t n) {
  std::vector<SuiteEntry> out;
  for (size_t i = 0; i < n; ++i)
    out.push_back(entry_of(fakes::problem("quantize mxfp8 8x64 bf16 dir=row seed=" + std::to_string(i))));
  return out;
}
RunSettings settings(int jobs) {
  RunSettings s;
  s.subjects = {"fake"};
  s.jobs = jobs;
  s.timeout = 30;
  return s;
}
std::vector<CaseResult> run(const std::vector<SuiteEntry>& list, const Subjects& subjects,
                            const RunSettings& s) {
  std::vector<CaseResult> out;
  run_cases(list, subjects, s, [&](const CaseResult& r) { out.push_back(r); });
  return out;
}

// What a program that calls run_cases gets where it sets nothing (docs/library.md).
TEST(Runner, ACaseMayTakeAMinuteUnlessSaidOtherwise) { EXPECT_EQ(RunSettings{}.timeout, 60); }

TEST(Runner, OrderAndVerdictsDoNotDependOnJobs) {
  const Subjects subjects = fakes::with("fake", [](const Problem& p, auto out, auto&) {
    if (p.x.fill.seed % 7 == 3) fakes::output(out, "row.data")->bytes[0] ^= std::byte{1};
  });
  const auto list = entries(60);
  auto one = run(list, subjects, settings(1)), three = run(list, subjects, settings(3));
  RunSettings here = settings(1);
  here.in_process = true;
  auto none = run(list, subjects, here);
  ASSERT_EQ(one.size(), 60u);
  ASSERT_EQ(three.size(), 60u);
  ASSERT_EQ(none.size(), 60u);
  for (size_t i = 0; i < 60; ++i) {
    EXPECT_EQ(one[i].index, i);
    EXPECT_EQ(one[i].verdicts[0].outcome, i % 7 == 3 ? Outcome::failed : Outcome::passed);
    for (auto* other : {&three, &none}) {
      Verdict a = one[i].verdicts[0], b = (*other)[i].verdicts[0];
      a.seconds = b.seconds = 0;
      EXPECT_EQ((*other)[i].index, i);
      EXPECT_EQ(a, b);
    }
  }
}

TEST(Runner, ACrashCostsOneCase) {
  const Subjects subjects = fakes::with("fake", [](const Problem& p, auto, auto&) {
    if (p.x.fill.seed == 5) {
      std::fprintf(stderr, "about to fall\n");
      std::raise(SIGKILL);  // which no sanitizer turns into a report of its own
    }
    if (p.x.fill.seed == 11) std::_Exit(9);
  });
  const auto results = run(entries(20), subjects, settings(2));
  ASSERT_EQ(results.size(), 20u);
  for (size_t i = 0; i < 20; ++i)
    EXPECT_EQ(results[i].verdicts[0].outcome, i == 5 || i == 11 ? Outcome::crashed : Outcome::passed) << i;
  EXPECT_NE(results[5].verdicts[0].reason.find("signal 9"), std::string::npos)
      << results[5].verdicts[0].reason;
  EXPECT_NE(results[5].verdicts[0].reason.find("about to fall"), std::string::npos);
  EXPECT_NE(results[11].verdicts[0].reason.find("status 9"), std::string::npos)
      << results[11].verdicts[0].reason;
}

TEST(Runner, AHangCostsOneCase) {
  const Subjects subjects = fakes::with("fake", [](const Problem& p, auto, auto&) {
    while (p.x.fill.seed == 2) ::usleep(10000);
  });
  RunSettings s = settings(1);
  s.timeout = 1.5;
  const auto results = run(entries(5), subjects, s);
  ASSERT_EQ(results.size(), 5u);
  for (size_t i = 0; i < 5; ++i)
    EXPECT_EQ(results[i].verdicts[0].outcome, i == 2 ? Outcome::crashed : Outcome::passed) << i;
  EXPECT_EQ(results[2].verdicts[0].reason, "timed out after 1.5 s without any work");
}

// The limit is one of processor time: a task that a busy machine keeps waiting is not ended, one that works
// without end is.
TEST(Runner, WorkWithoutEndCostsOneCase) {
  const Subjects subjects = fakes::with("fake", [](const Problem& p, auto, auto&) {
    while (p.x.fill.seed == 2) {}
    for (int i = 0; p.x.fill.seed == 3 && i < 12; ++i) {  // three seconds, a tenth of them at work
      ::usleep(225000);
      const std::clock_t until = std::clock() + CLOCKS_PER_SEC / 40;
      while (std::clock() < until) {}
    }
  });
  RunSettings s = settings(1);
  s.timeout = 1.5;
  const auto results = run(entries(5), subjects, s);
  ASSERT_EQ(results.size(), 5u);
  for (size_t i = 0; i < 5; ++i)
    EXPECT_EQ(results[i].verdicts[0].outcome, i == 2 ? Outcome::crashed : Outcome::passed) << i;
  EXPECT_EQ(results[2].verdicts[0].reason, "timed out after 1.5 s of processor time");
}

TEST(Runner, StopsAtTheFirst) {
  const Subjects subjects = fakes::with("fake", [](const Problem& p, auto out, auto&) {
    if (p.x.fill.seed >= 4) fakes::output(out, "row.data")->bytes[0] ^= std::byte{1};
  });
  RunSettings s = settings(2);
  s.stop_at_first = true;
  const auto results = run(entries(40), subjects, s);
  ASSERT_EQ(results.size(), 5u);
  EXPECT_EQ(results[4].verdicts[0].outcome, Outcome::failed);
}

// Ctrl-C: what was judged until then is handed over, and nothing is begun any more.
TEST(Runner, AnInterruptEndsItWithWhatThereIs) {
  const Subjects subjects = fakes::with("fake", nullptr);
  const InterruptScope scope;
  EXPECT_FALSE(interrupted());
  size_t seen = 0;
  const auto all = entries(200);
  const size_t done = run_cases(all, subjects, settings(2), [&](const CaseResult&) {
    if (++seen == 3) std::raise(SIGINT);
  });
  EXPECT_TRUE(interrupted());
  EXPECT_EQ(done, seen);
  EXPECT_GE(done, 3u);
  EXPECT_LT(done, 200u);
}

// A byte from the process that waits to the one that works: work that ends no sooner than somebody waited for
// it.
struct Baton {
  Baton() { EXPECT_EQ(::pipe(ends), 0); }
  ~Baton() {
    for (const int end : ends) ::close(end);
  }
  void give() const { EXPECT_EQ(::write(ends[1], "", 1), 1); }
  void take() const {
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 1);
  }
  int ends[2] = {};
};

// What a progress line is written by while one case takes long.
TEST(Runner, WaitingIsToldOfWhileACaseRuns) {
  const Baton baton;
  const Subjects subjects = fakes::with("fake", [&](const Problem& p, auto, auto&) {
    if (p.x.fill.seed == 0) baton.take();
  });
  RunSettings s = settings(1);
  size_t started = 0, waited = 0;
  s.on_start = [&](const SuiteEntry&) { ++started; };
  s.on_wait = [&] {
    if (started == 0 || waited++ > 0) return;
    for (int i = 0; i < 16; ++i) baton.give();  // claims run the subject again
  };
  const auto results = run(entries(1), subjects, s);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].verdicts[0].outcome, Outcome::passed) << results[0].verdicts[0].reason;
  EXPECT_GT(waited, 0u);
  const auto text = in_child([&] { return baton.take(), std::string("done"); }, 30, [&] { baton.give(); });
  EXPECT_TRUE(text);
}

TEST(Runner, WorkInAChild) {
  std::string bytes("a\0b\n\xFF", 5);
  const auto text = in_child([&] { return bytes; }, 30);
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, bytes);
  EXPECT_FALSE(in_child([]() -> std::string { std::abort(); }, 30));
  EXPECT_FALSE(in_child([]() -> std::string { throw std::runtime_error("lost"); }, 30));
  EXPECT_TRUE(in_child([] { return std::string(size_t{3} << 20, 'x'); }, 30));  // more than a pipe holds
}

TEST(Select, LinesFiltersAndShards) {
  const std::string sweep = "quantize mxfp8 {8,16}x{32,64} bf16 dir={row,both}";
  auto count = [&](const CaseSelection& s) {
    const auto r = select(s);
    return r ? static_cast<int>(r->size()) : -1;
  };
  EXPECT_EQ(count({{sweep}, "", ""}), 8);
  EXPECT_EQ(count({{sweep, sweep}, "", ""}), 8);
  EXPECT_EQ(count({{sweep}, "8x32", ""}), 2);
  EXPECT_EQ(count({{sweep}, "/x(32|64) .*both/", ""}), 4);
  EXPECT_EQ(count({{sweep}, "/(/", ""}), -1);
  int all = 0;
  for (const char* shard : {"1/3", "2/3", "3/3"}) all += count({{sweep}, "", shard});
  EXPECT_EQ(all, 8);
  for (const char* bad : {"0/3", "4/3", "x/3", "1", "1/", "1/3x"})
    EXPECT_EQ(count({{sweep}, "", bad}), -1) << bad;
  EXPECT_EQ(count({{"quantize mxfp9 8x8 bf16"}, "", ""}), -1);
  EXPECT_EQ(count({{"no_such_suite"}, "", ""}), -1);
  EXPECT_EQ(split_names("host,,gpu"), (std::vector<std::string>{"host", "gpu"}));
}

// A factory is resolved in lines and in suites alike, before anything else sees the line; of a swept line the
// error shows which.
TEST(Select, FactoriesAreResolved) {
  const std::string line =
      "quantize auto 64x256 bf16 role=grouped_linear/{input,weight} "
      "factory={nvfp4_row_scaled_fwd_mxfp8_bwd_factory,mxfp8_factory}";
  const std::vector<std::string> means = {
      "quantize nvfp4/mxfp8 64x256 bf16 col_source=row_dequantized row.row_scaled=1",
      "quantize mxfp8 64x256 bf16", "quantize nvfp4/mxfp8 64x256 bf16 col_source=row_dequantized"};
  const std::string path = ::testing::TempDir() + "factories.cases";
  std::ofstream(path) << line << "\n";
  for (const std::string& what : {line, path}) {
    const auto entries = select({{what}, "", ""});
    ASSERT_TRUE(entries) << entries.error().text();
    ASSERT_EQ(entries->size(), means.size());
    for (size_t i = 0; i < means.size(); ++i) {
      EXPECT_EQ((*entries)[i].text, means[i]);
      EXPECT_EQ(to_line((*entries)[i].problem), means[i]);
    }
  }
  const auto unknown =
      select({{"quantize auto 64x256 bf16 role=linear/input factory={mxfp8_factory,nvfp4_factroy}"}, "", ""});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().text(),
            "line:1: unknown factory 'nvfp4_factroy', in 'quantize auto 64x256 bf16 role=linear/input "
            "factory=nvfp4_factroy' (did you mean 'nvfp4_factory'?)");
}

}  // namespace
}  // namespace assay
