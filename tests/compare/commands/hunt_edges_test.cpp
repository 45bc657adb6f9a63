// A hunt with --edges: what libFuzzer's program finds is judged, kept, shrunk and asked about again.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "compare/commands/hunt/cause.h"
#include "contract/line.h"
#include "fixtures/files.h"
#include "fixtures/json.h"
#include "fixtures/suite.h"
#include "tests/compare/commands/hunts.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using hunts::Hunt;
using hunts::tail_is_wrong;

// Stands for assay_edges: writes lines into the folder of --new, and ends as the rest of the script says.
struct Edges : Hunt {
  HuntOptions with_edges(const std::string& rest) {
    HuntOptions o = options("quantize nvfp4", 1);
    o.edges = folder_ + "/edges.sh";
    fs::create_directories(folder_);
    EXPECT_FALSE(write_file(o.edges, std::string_view("#!/bin/sh\nfor word; do case $word in -runs=0) "
                                                      "echo 'INFO: Seed: 1'; exit;; --new=*) "
                                                      "new=${word#--new=};; esac; done\n" +
                                                      rest)));
    fs::permissions(o.edges, fs::perms::owner_all);
    return o;
  }
};

TEST_F(Edges, LinesThatReachNewOnesAreJudgedAndKept) {
  const HuntOptions o = with_edges(
      "printf 'quantize mxfp8 3x33 bf16' > $new/0a\n"
      "printf 'quantize mxfp8 3x33 bf16' > $new/failed-1\n");
  const Told told = hunt(o, fakes::with("fake", tail_is_wrong));
  EXPECT_EQ(told.status, 1) << told.text;
  EXPECT_NE(read("hunt.jsonl").find(R"("drawn": "quantize mxfp8 3x33 bf16")"), std::string::npos)
      << read("hunt.jsonl");
  EXPECT_TRUE(fs::exists(folder_ + "/edges/kept/0a"));
  EXPECT_TRUE(fs::exists(folder_ + "/edges/failed-1"));
  EXPECT_TRUE(fs::is_empty(folder_ + "/edges/new"));
}

TEST_F(Edges, WhatASanitizerSaysIsAFinding) {
  const HuntOptions o = with_edges(
      "printf 'quantize nvfp4 3x33 bf16' > $new/crash-1\n"
      "echo '==7==ERROR: AddressSanitizer: heap-buffer-overflow'\n"
      "echo 'SUMMARY: AddressSanitizer: heap-buffer-overflow mine.cpp:12'\n"
      "exit 77\n");
  const Told told = hunt(o, fakes::with("fake", nullptr));
  EXPECT_EQ(told.status, 1) << told.text;
  EXPECT_NE(told.text.find("heap-buffer-overflow mine.cpp:12"), std::string::npos) << told.text;
  EXPECT_NE(read("found.cases").find("\nquantize nvfp4 1x1 bf16"), std::string::npos) << read("found.cases");
  EXPECT_TRUE(fs::exists(folder_ + "/edges/crash-1")) << "it would end the next round";
}

// Its line is shrunk while the program says the same of the same place, whatever the values, and has a pack.
TEST_F(Edges, WhatASanitizerSaysIsShrunkAndPacked) {
  const HuntOptions o = with_edges(
      "for last; do :; done\n"
      "if [ -n \"$new\" ]; then printf 'quantize nvfp4 3x33 bf16 dir=row fill=ties' > $new/crash-1; "
      "last=$new/crash-1; fi\n"
      "grep -q nvfp4 $last || exit 0\n"
      "cols=$(sed 's/.*x\\([0-9]*\\) bf16.*/\\1/' $last)\n"
      "[ $cols -ge 2 ] || exit 0\n"
      "echo \"mine.cpp:12:3: runtime error: index $cols out of bounds\"\n"
      "exit 77\n");
  const Told told = hunt(o, fakes::with("fake", nullptr));
  EXPECT_EQ(told.status, 1) << told.text;
  const Result<Suite> found = load_suite(folder_ + "/found.cases");
  ASSERT_TRUE(found) << found.error().text();
  ASSERT_EQ(found->entries.size(), 1u);
  EXPECT_EQ(found->entries.front().problem.x.shape, (Shape{1, 2})) << read("found.cases");
  EXPECT_TRUE(fs::exists(folder_ + "/1/case.safetensors")) << told.text;
  EXPECT_FALSE(fs::exists(folder_ + "/edges/trial"));
  EXPECT_NE(told.text.find("mine.cpp:12:3: runtime error: index 33 out of bounds"), std::string::npos);
}

// Says that line {0} of a source is wrong, whatever it is given; in a round it has drawn the line {1}.
constexpr const char* kPlace =
    "for last; do :; done\n"
    "[ -z \"$new\" ] || printf '%s' '{1}' > $new/crash-{0}\n"
    "echo 'mine.cpp:{0}:3: runtime error: index 33 out of bounds'\n"
    "exit 77\n";

// Two places of which the smallest lines are equal are two findings, also where they were met in two runs.
TEST_F(Edges, TwoPlacesOfOneLineAreTwoFindings) {
  const Subjects right = fakes::with("fake", nullptr);
  // There is a round at the beginning, and after every eighth batch.
  const auto run = [&](int place, const std::string& line, int64_t batches) {
    HuntOptions o = with_edges(fmt::format(fmt::runtime(kPlace), place, line));
    o.batches = batches, o.max_elements = 16;
    return hunt(o, right);
  };
  run(12, "quantize nvfp4 3x5 bf16 dir=row", 1);
  run(34, "quantize nvfp4 2x7 bf16 dir=row", 7);
  const std::string two = read("found.cases");
  EXPECT_EQ(std::count(two.begin(), two.end(), '#'), 2) << two;
  EXPECT_EQ(load_suite(folder_ + "/found.cases")->entries.size(), 1u) << "the lines are equal: " << two;
  run(34, "quantize nvfp4 3x3 bf16 dir=row", 8);
  EXPECT_EQ(read("found.cases"), two) << "the second place once more";
}

// When the time is over nothing is shrunk; the next run does it. A line that nobody has judged is no finding.
TEST_F(Edges, WhatTheTimeLeftIsShrunkByTheNextRun) {
  const Subjects right = fakes::with("fake", nullptr);
  const std::string script = fmt::format(fmt::runtime(kPlace), 12, "quantize nvfp4 3x33 bf16 dir=row");
  // Its round would last a minute, and is told to end.
  HuntOptions o = with_edges(
      "if [ -n \"$new\" ]; then\n"
      "  trap 'touch $new/../told; exit 72' INT\n"
      "  printf 'quantize nvfp4 3x33 bf16 dir=row' > $new/crash-12\n"
      "  for _ in $(seq 600); do sleep 0.1; done\n"
      "fi\n" +
      script);
  o.minutes = 1.0 / 60;
  EXPECT_EQ(hunt(o, right).text.find("runtime error"), std::string::npos);
  EXPECT_EQ(read("found.cases"), "");
  EXPECT_TRUE(fs::exists(folder_ + "/edges/told"));
  const std::string head = read("hunt.jsonl").substr(0, read("hunt.jsonl").find('\n') + 1);
  const std::string line = "quantize nvfp4 3x33 bf16 dir=row",
                    words = "mine.cpp:12:3: runtime error: index 33 out of bounds";
  hunting::Finding unlooked = hunting::finding_of_end(fakes::problem(line), words);
  unlooked.number = 1, unlooked.looked = false;
  ASSERT_FALSE(write_file(folder_ + "/hunt.jsonl", head + json::dump(to_json(unlooked)) + "\n"));
  ASSERT_FALSE(write_file(folder_ + "/found.cases", "# 1: " + words + "\n" + line + "\n"));
  hunt(with_edges(script), right);
  const Result<Suite> found = load_suite(folder_ + "/found.cases");
  ASSERT_TRUE(found) << found.error().text();
  ASSERT_EQ(found->entries.size(), 2u) << read("found.cases");
  EXPECT_EQ(found->entries[1].problem.x.shape.count(), 1);
  EXPECT_TRUE(fs::exists(folder_ + "/2/case.safetensors"));
  // What is mended meanwhile is no finding.
  ASSERT_FALSE(write_file(folder_ + "/hunt.jsonl", head + json::dump(to_json(unlooked)) + "\n"));
  ASSERT_FALSE(write_file(folder_ + "/found.cases", "# 1: " + words + "\n" + line + "\n"));
  EXPECT_EQ(hunt(with_edges("exit 0\n"), right).status, 0);
  EXPECT_EQ(load_suite(folder_ + "/found.cases")->entries.size(), 1u) << read("found.cases");
}

// The program that saw it is asked, since the line passes without a sanitizer.
TEST_F(Edges, WhatASanitizerSawIsRepeatedByItsProgram) {
  const Subjects right = fakes::with("fake", nullptr);
  const std::string line = "quantize nvfp4 1x1 bf16 dir=row";
  const HuntOptions o = with_edges(fmt::format(fmt::runtime(kPlace), 12, line));
  EXPECT_EQ(hunt(o, right).status, 1);
  const std::string found = read("found.cases");
  const Told again = hunt(o, right);
  EXPECT_NE(again.text.find("still fails  " + line), std::string::npos) << again.text;
  EXPECT_EQ(again.status, 1);
  HuntOptions without = o;
  without.edges.clear();
  const Told not_asked = hunt(without, right);
  EXPECT_NE(not_asked.text.find("not asked    " + line), std::string::npos) << not_asked.text;
  EXPECT_EQ(not_asked.status, 0);
  // Another place of the source is another finding, and the first one is mended.
  const Told other = hunt(with_edges(fmt::format(fmt::runtime(kPlace), 34, line)), right);
  EXPECT_NE(other.text.find("found 2 "), std::string::npos) << other.text;
  EXPECT_EQ(hunt(with_edges("echo no such subject; exit 2\n"), right).status, 2);
  const Told mended = hunt(with_edges("exit 0\n"), right);
  EXPECT_NE(mended.text.find("passes now   " + line), std::string::npos) << mended.text;
  EXPECT_EQ(mended.status, 0);
  EXPECT_TRUE(read("found.cases").starts_with(found));
  EXPECT_FALSE(fs::exists(folder_ + "/edges/trial"));
}

TEST_F(Edges, AProgramThatCannotRunEndsTheHunt) {
  const Told none = hunt(with_edges("echo no such subject; exit 2\n"), fakes::with("fake", nullptr));
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.text.find("exit status 2: no such subject"), std::string::npos) << none.text;
  HuntOptions o = options("cast", 1);
  for (const auto& [program, why] :
       {std::pair{"/nowhere", "No such file"}, {"/bin/true", "found one without libFuzzer"}}) {
    fs::remove_all(folder_);
    o.edges = program;
    const Told told = hunt(o, fakes::with("fake", nullptr));
    EXPECT_EQ(told.status, 2);
    EXPECT_NE(told.text.find(why), std::string::npos) << told.text;
    EXPECT_FALSE(fs::exists(folder_)) << "nothing was hunted";
  }
}

}  // namespace
}  // namespace assay
