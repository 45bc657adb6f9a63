// assay hunt and assay coverage as commands: what is found is found again, nothing is lost, the same seed
// gives the same lines.
#include "compare/commands/hunt.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "compare/choices/data.h"
#include "compare/choices/draft.h"
#include "compare/choices/draw.h"
#include "compare/commands/coverage.h"
#include "compare/commands/hunt/folder.h"
#include "compare/commands/hunt/lines.h"
#include "contract/format.h"
#include "contract/line.h"
#include "contract/planes.h"
#include "contract/words.h"
#include "fixtures/files.h"
#include "fixtures/json.h"
#include "fixtures/suite.h"
#include "reference/subject.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using hunting::Fate;
using hunting::Lines;

class Hunt : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        testing::TempDir() + "assay_hunt_" + testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  HuntOptions options(const std::string& only, int64_t batches) {
    HuntOptions o;
    o.subject = "fake";
    o.folder = folder_;
    o.only = only;
    o.minutes = 60;
    o.batches = batches;
    o.max_elements = 512;
    o.budget = 2;
    o.settings.jobs = 2;
    return o;
  }
  struct Told {
    int status;
    std::string text;
  };
  Told hunt(const HuntOptions& o, const Subjects& subjects) {
    std::FILE *out = std::tmpfile(), *err = std::tmpfile();
    Told told{run_hunt(o, subjects, out, err), {}};
    for (std::FILE* file : {out, err}) {
      std::rewind(file);
      for (int c; (c = std::fgetc(file)) != EOF;) told.text += static_cast<char>(c);
      std::fclose(file);
    }
    return told;
  }
  std::string read(const std::string& name) {
    const auto mapped = MappedFile::open(folder_ + "/" + name);
    if (!mapped) return {};
    return {reinterpret_cast<const char*>(mapped->bytes().data()), mapped->bytes().size()};
  }
  static bool read_byte(int from) {
    char byte = 0;
    return ::read(from, &byte, 1) == 1;
  }
  std::string folder_;
};

// Wrong only where the last block of a row is partial and the rows are several: no plain line shows it.
void tail_is_wrong(const Problem& p, std::span<const Buffer> out, const Environment&) {
  const Buffer* scales = find<Buffer>(out, "row.scale_inv");
  if (!scales || scales->bytes.empty() || p.x.shape.cols % 32 == 0 || p.x.shape.rows < 2) return;
  scales->bytes[0] ^= std::byte{1};
}

TEST_F(Hunt, FindsShrinksAndRepeats) {
  const Subjects wrong = fakes::with("fake", tail_is_wrong);
  const Told first = hunt(options("quantize mxfp8", 2), wrong);
  EXPECT_EQ(first.status, 1) << first.text;
  const Result<Suite> found = load_suite(folder_ + "/found.cases");
  ASSERT_TRUE(found) << found.error().text();
  ASSERT_FALSE(found->entries.empty());
  const Shape smallest = found->entries.front().problem.x.shape;
  EXPECT_LE(smallest.count(), 4) << to_line(found->entries.front().problem);
  EXPECT_TRUE(fs::exists(folder_ + "/1/case.safetensors")) << first.text;
  const size_t causes = found->entries.size();
  EXPECT_LE(causes, 6u) << "one fault, and a finding for each line: " << read("found.cases");
  const Told again = hunt(options("quantize mxfp8", 1), wrong);
  EXPECT_EQ(again.status, 1);
  EXPECT_NE(again.text.find("still fails"), std::string::npos) << again.text;
  const Told mended = hunt(options("quantize mxfp8", 1), fakes::with("fake", nullptr));
  EXPECT_EQ(mended.status, 0) << mended.text;
  EXPECT_NE(mended.text.find("passes now"), std::string::npos) << mended.text;
}

// Every scale is a binade too small, and nothing else: one cause for all lines.
void scales_are_small(const Problem&, std::span<const Buffer> out, const Environment&) {
  for (const char* name : {"row.scale_inv", "col.scale_inv", "row.scale_gemm", "col.scale_gemm"})
    if (const Buffer* scales = find<Buffer>(out, name))
      for (std::byte& b : scales->bytes)
        if (b != std::byte{0}) b = static_cast<std::byte>(static_cast<unsigned>(b) - 1);
}

TEST_F(Hunt, ACauseThatIsKnownLeavesNoFolder) {
  hunt(options("quantize mxfp8", 3), fakes::with("fake", scales_are_small));
  const std::string found = read("found.cases");  // each cause stands behind a "#"
  const auto causes = std::count(found.begin(), found.end(), '#');
  ASSERT_GT(causes, 0);
  long folders = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) folders += entry.is_directory();
  EXPECT_EQ(folders, causes) << found;
}

void all_is_wrong(const Problem&, std::span<const Buffer> out, const Environment&) {
  for (const Buffer& b : out)
    if (!b.bytes.empty()) b.bytes[0] ^= std::byte{1};
}

TEST_F(Hunt, AFolderOfTheUserStaysAsItIs) {
  for (const char* own : {"1", "looking/pack"}) {
    fs::remove_all(folder_);
    fs::create_directories(folder_ + "/" + own);
    ASSERT_FALSE(write_file(folder_ + "/" + own + "/thesis.txt", std::string_view("years of work")));
    const Told told = hunt(options("quantize mxfp8", 3), fakes::with("fake", scales_are_small));
    EXPECT_EQ(told.status, 2) << told.text;
    EXPECT_NE(told.text.find("is in the way"), std::string::npos) << told.text;
    EXPECT_EQ(read(std::string(own) + "/thesis.txt"), "years of work");
  }
}

TEST_F(Hunt, WhatFailsWhenTheTimeIsOverIsAFindingAndLookedForLater) {
  HuntOptions o = options("quantize mxfp8", 1);
  o.minutes = 1e-9;
  const Subjects wrong = fakes::with("fake", all_is_wrong);
  const Told first = hunt(o, wrong);
  EXPECT_EQ(first.status, 1) << first.text;
  EXPECT_NE(read("found.cases").find("the time was over before its cause was looked for"), std::string::npos);
  EXPECT_EQ(read("hunt.jsonl").find(R"("looked": true)"), std::string::npos);
  o.minutes = 1, o.batches = 1, o.budget = 0.2;
  EXPECT_EQ(hunt(o, wrong).status, 1);
  EXPECT_NE(read("hunt.jsonl").find(R"("looked": true)"), std::string::npos) << read("hunt.jsonl");
}

// No cause has a name here: the kind of the failure stands for it in both runs.
TEST_F(Hunt, ACrashThatTheTimeLeftIsPackedByTheNextRun) {
  const auto crashes = [](const Problem& p, std::span<const Buffer>, const Environment&) {
    if (p.x.shape.count() > 0) std::abort();
  };
  HuntOptions o = options("cast e4m3", 1);
  o.minutes = 1e-9;
  hunt(o, fakes::with("fake", crashes));
  EXPECT_FALSE(fs::exists(folder_ + "/1"));
  o.minutes = 1;
  hunt(o, fakes::with("fake", crashes));
  EXPECT_TRUE(fs::exists(folder_ + "/2/case.safetensors")) << read("found.cases");
  const std::string found = read("found.cases");
  hunt(o, fakes::with("fake", crashes));
  EXPECT_EQ(read("found.cases"), found) << "it was looked for once";
}

TEST_F(Hunt, LinesThatTheTimeLeftAreJudgedByTheNextRun) {
  HuntOptions o = options("cast e4m3", 1);
  o.minutes = 1e-9;
  o.known = {fakes::problem("cast e4m3 7x9 bf16 fill=edges seed=77")};
  const Subjects right = fakes::with("fake", nullptr);
  hunt(o, right);
  o.minutes = 1;
  const auto wrong_there = [](const Problem& p, std::span<const Buffer> out, const Environment& e) {
    if (p.x.fill.seed == 77) all_is_wrong(p, out, e);
  };
  o.budget = 0.2;
  EXPECT_EQ(hunt(o, fakes::with("fake", wrong_there)).status, 1);
}

TEST_F(Hunt, ALongLineEndsTheBatchWhenTheTimeIsOver) {
  const auto slow = [](const Problem&, std::span<const Buffer>, const Environment&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  };
  HuntOptions o = options("cast", 1);
  o.minutes = 0.02;
  hunt(o, fakes::with("fake", slow));
  const auto folder = hunting::Folder::open(folder_, {"fake", 1, 512, "cast"});
  ASSERT_TRUE(folder) << folder.error().text();
  EXPECT_GT((*folder)->before().lines, 0u);
  EXPECT_LT((*folder)->before().lines, 48u) << "1.2 seconds of two workers";
}

TEST_F(Hunt, ACauseThatComesBackIsFoundAgain) {
  HuntOptions o = options("cast e4m3", 1);
  o.budget = 0.2;
  hunt(o, fakes::with("fake", all_is_wrong));
  const std::string found = read("found.cases");
  EXPECT_NE(found, "");
  EXPECT_EQ(hunt(o, fakes::with("fake", nullptr)).status, 0);
  EXPECT_EQ(read("found.cases"), found);
  // Wrong on other lines than those of found.cases, which are the smallest.
  const auto back = [](const Problem& p, std::span<const Buffer> out, const Environment& e) {
    if (p.x.shape.count() > 64) all_is_wrong(p, out, e);
  };
  const Told again = hunt(o, fakes::with("fake", back));
  EXPECT_EQ(again.status, 1) << again.text;
  EXPECT_GT(read("found.cases").size(), found.size());
}

// Says three lines and aborts, where a row has more than 8 elements.
void crashes_on_long_rows(const Problem& p, std::span<const Buffer>, const Environment&) {
  if (p.x.shape.cols <= 8 || p.x.shape.rows == 0) return;
  std::fputs("first line\nsecond line: quantize\nthird\n", stderr);
  std::abort();
}

TEST_F(Hunt, ACrashIsShrunkAndPackedAndItsWordsStayAComment) {
  const Subjects wrong = fakes::with("fake", crashes_on_long_rows);
  const Told first = hunt(options("cast e4m3", 1), wrong);
  EXPECT_EQ(first.status, 1) << first.text;
  const Result<Suite> found = load_suite(folder_ + "/found.cases");
  ASSERT_TRUE(found) << found.error().text() << read("found.cases");
  ASSERT_FALSE(found->entries.empty());
  EXPECT_LE(found->entries.front().problem.x.shape.count(), 16) << read("found.cases");
  EXPECT_TRUE(fs::exists(folder_ + "/1/case.safetensors")) << first.text;
  const Told again = hunt(options("cast e4m3", 1), wrong);
  EXPECT_EQ(again.status, 1) << again.text;
  EXPECT_NE(again.text.find("still fails"), std::string::npos) << again.text;
}

TEST_F(Hunt, ALineOfFoundCasesThatWasCutShortIsLeftOut) {
  const Subjects wrong = fakes::with("fake", all_is_wrong);
  HuntOptions o = options("cast e4m3", 1);
  o.minutes = 1e-9;
  hunt(o, wrong);
  const std::string whole = read("found.cases");
  ASSERT_FALSE(write_file(folder_ + "/found.cases", whole + "cast e4m3 1x1 bf16 round=r"));
  EXPECT_EQ(hunt(o, wrong).status, 1);
  EXPECT_NE(read("found.cases").find("\n# cut short: cast e4m3 1x1 bf16 round=r\n"), std::string::npos)
      << read("found.cases");
  // One that can be read was written by the user.
  ASSERT_FALSE(write_file(folder_ + "/found.cases", whole + "cast e4m3 1x1 bf16"));
  const Told told = hunt(o, wrong);
  EXPECT_NE(told.text.find("  cast e4m3 1x1 bf16\n"), std::string::npos) << told.text;
}

TEST_F(Hunt, AFindingWhoseLineAKillLeftOutGetsIt) {
  HuntOptions o = options("cast e4m3", 1);
  o.minutes = 1e-9;
  hunt(o, fakes::with("fake", all_is_wrong));
  const std::string found = read("found.cases"), records = read("hunt.jsonl");
  ASSERT_NE(found, "");
  const size_t after = records.find("{\"record\": \"first\"");
  ASSERT_NE(after, std::string::npos) << records;
  ASSERT_FALSE(write_file(folder_ + "/hunt.jsonl", records.substr(0, after)));
  fs::remove(folder_ + "/found.cases");
  const auto folder = hunting::Folder::open(folder_, {"fake", 1, 512, "cast e4m3"});
  ASSERT_TRUE(folder) << folder.error().text();
  EXPECT_EQ(read("found.cases"), found);
}

TEST_F(Hunt, RecordsThatNoHuntWritesCountAsNothing) {
  HuntOptions o = options("cast e4m3", 1);
  ASSERT_EQ(hunt(o, fakes::with("fake", nullptr)).status, 0);
  const std::string records = read("hunt.jsonl"), kept = read("kept.cases");
  for (const char* record : {R"({"record": "batch", "batch": 1e300, "lines": -5e20, "seconds": 1e300})",
                             R"({"record": "batch", "batch": -5, "lines": 1e10, "seconds": -7})",
                             R"({"record": "batch", "batch": "x", "lines": [], "seconds": null})"}) {
    ASSERT_FALSE(write_file(folder_ + "/hunt.jsonl", records + record + "\n"));
    ASSERT_FALSE(write_file(folder_ + "/kept.cases", kept + "cast e4m3 65536x32768 bf16\n"));
    const auto folder = hunting::Folder::open(folder_, {"fake", 1, 512, "cast e4m3"});
    ASSERT_TRUE(folder) << folder.error().text();
    EXPECT_LE((*folder)->before().batch, 1u);
    EXPECT_LT((*folder)->before().lines, 1000u);
    EXPECT_GE((*folder)->before().seconds, 0);
    EXPECT_LT((*folder)->before().seconds, 1e6);
    for (const Problem& p : (*folder)->kept()) EXPECT_LE(p.x.shape.count(), 512 * 16) << to_line(p);
  }
}

TEST_F(Hunt, TwoInOneFolderAreRefused) {
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready) | pipe(done), 0);
  const pid_t other = fork();
  if (other == 0) {
    char byte = 0;
    const auto folder = hunting::Folder::open(folder_, {"fake", 1, 512, "cast"});
    const bool good = write(ready[1], &byte, 1) == 1 && read_byte(done[0]);
    _exit(folder && good ? 0 : 1);
  }
  ASSERT_TRUE(read_byte(ready[0]));
  const Told told = hunt(options("cast", 1), fakes::with("fake", nullptr));
  EXPECT_EQ(told.status, 2) << told.text;
  EXPECT_NE(told.text.find(fmt::format("another run has it open, process {}", other)), std::string::npos)
      << told.text;
  ASSERT_EQ(write(done[1], "x", 1), 1);
  int status = 1;
  waitpid(other, &status, 0);
  EXPECT_EQ(status, 0);
  for (const int end : {ready[0], ready[1], done[0], done[1]}) close(end);
  EXPECT_EQ(hunt(options("cast", 1), fakes::with("fake", nullptr)).status, 0);
}

TEST_F(Hunt, RecordsBeginWithAHeadAndAddUpToWhatIsSaid) {
  HuntOptions o = options("cast e4m3", 1);
  o.budget = 0.2;
  o.jsonl = folder_ + "-records.jsonl";
  const Subjects wrong = fakes::with("fake", all_is_wrong);
  for (int run = 0; run < 2; ++run) {
    const Told told = hunt(o, wrong);
    int64_t lines = 0, failures = 0;
    std::istringstream records(read("hunt.jsonl"));
    for (std::string text; std::getline(records, text);) {
      const auto record = json::parse(text);
      ASSERT_TRUE(record) << text;
      if (const json::Value* n = record->find("lines")) lines += *n->to_int();
      if (const json::Value* n = record->find("failures")) failures += *n->to_int();
    }
    EXPECT_NE(told.text.find(fmt::format(" {} lines judged", lines)), std::string::npos) << told.text;
    EXPECT_NE(told.text.find(fmt::format(" {} failures of", failures)), std::string::npos) << told.text;
    const auto mapped = MappedFile::open(o.jsonl);
    ASSERT_TRUE(mapped);
    const std::string given(reinterpret_cast<const char*>(mapped->bytes().data()), mapped->bytes().size());
    EXPECT_TRUE(given.starts_with("{\"schema\": \"assay.hunt/1\", \"subject\": \"fake\"")) << given;
  }
  std::remove(o.jsonl.c_str());
}

TEST_F(Hunt, ARightSubjectGivesNothing) {
  const Told told = hunt(options("cast", 3), fakes::with("fake", nullptr));
  EXPECT_EQ(told.status, 0) << told.text;
  EXPECT_EQ(read("found.cases"), "");
  EXPECT_NE(read("kept.cases"), "");
}

// What an earlier run found is near trouble in this one, though none of its lines was kept.
TEST_F(Hunt, FindingsAreNearTroubleAfterAResume) {
  const Subjects wrong = fakes::with("fake", tail_is_wrong);
  ASSERT_EQ(hunt(options("quantize mxfp8", 1), wrong).status, 1);
  ASSERT_NE(read("found.cases"), "");
  fs::remove(folder_ + "/kept.cases");
  hunt(options("quantize mxfp8", 1), wrong);
  EXPECT_NE(read("kept.cases").find("fill=literal:"), std::string::npos) << read("kept.cases");
}

// The state says how many rounding cases were reached; a hunt that goes on knows them from its kept lines.
TEST_F(Hunt, RoundingCasesAreCountedOverAllRuns) {
  const auto reached = [](const std::string& text) {
    const size_t end = text.rfind(" rounding cases");
    if (end == std::string::npos) return 0;
    const size_t begin = text.rfind(", ", end) + 2;
    return std::atoi(text.c_str() + begin);
  };
  Subjects right = fakes::with("fake", nullptr);
  right.owned.front() = make_reference_subject();
  const Told first = hunt(options("cast e4m3", 2), right);
  EXPECT_GT(reached(first.text), 20) << first.text;
  HuntOptions over = options("cast e4m3", 1);
  over.minutes = 1e-9;
  EXPECT_EQ(reached(hunt(over, right).text), reached(first.text)) << "a run that judges nothing";
}

TEST_F(Hunt, NothingRanIsNoSuccess) {
  Subjects none = fakes::with("fake", nullptr);
  HuntOptions o = options("no such op", 1);
  EXPECT_EQ(hunt(o, none).status, 3);
}

TEST_F(Hunt, GoesOnAfterAKill) {
  const Subjects right = fakes::with("fake", nullptr);
  ASSERT_EQ(hunt(options("scale_chain", 2), right).status, 0);
  const std::string whole = read("kept.cases"), records = read("hunt.jsonl");
  // What a kill leaves: a record and a line that were cut short.
  ASSERT_FALSE(write_file(folder_ + "/kept.cases", whole + "scale_chain nvf"));
  ASSERT_FALSE(write_file(folder_ + "/hunt.jsonl", records + "{\"record\": \"bat"));
  ASSERT_EQ(hunt(options("scale_chain", 2), right).status, 0);
  const std::string cut = read("kept.cases");
  fs::remove_all(folder_);
  ASSERT_EQ(hunt(options("scale_chain", 4), right).status, 0);
  std::set<std::string> one, other;
  for (const auto& [text, lines] : {std::pair{cut, &one}, std::pair{read("kept.cases"), &other}}) {
    std::istringstream in(text);
    for (std::string word; std::getline(in, word);)
      if (parse_line(word)) lines->insert(word);
  }
  for (const std::string& kept : one) EXPECT_TRUE(other.contains(kept)) << kept;
  EXPECT_GE(one.size() + 5, other.size());
  EXPECT_EQ(hunt(
                [&] {
                  auto o = options("scale_chain", 1);
                  o.seed = 2;
                  return o;
                }(),
                right)
                .status,
            2)
      << "the folder holds a hunt with another seed";
}

// Of the lines of MXFP8 it runs those whose scales are laid out for a GEMM and whose other keys are the
// defaults.
class OfOneLine final : public ForwardingSubject {
 public:
  explicit OfOneLine(std::string words)
      : ForwardingSubject(make_reference_subject(), "fake"), words_(std::move(words)) {}
  Support supports(const Problem& p) const override {
    Problem plain = fakes::problem("quantize mxfp8 1x1 bf16 dir=row scales=gemm");
    plain.x = p.x;
    return {p.x.source == Encoding::bf16 && p == plain, "another line"};
  }
  std::string own_words() const override { return words_; }

 private:
  std::string words_;
};

TEST_F(Hunt, ASubjectOfOneKindOfLineIsAskedForIt) {
  for (const auto& [words, status] :
       {std::pair{"quantize mxfp8 bf16 dir=row scales=gemm", 0}, std::pair{"", 3}}) {
    Subjects subjects = fakes::with("reference", nullptr);
    subjects.owned.erase(subjects.owned.begin() + 1);
    subjects.owned.push_back(std::make_unique<OfOneLine>(words));
    fs::remove_all(folder_);
    const Told told = hunt(options("quantize mxfp8", 1), subjects);
    EXPECT_EQ(told.status, status) << told.text;
  }
}

// Stands for assay_edges: writes lines into the folder of --new, and ends as the rest of the script says.
struct Edges : Hunt {
  HuntOptions with_edges(const std::string& rest) {
    HuntOptions o = options("quantize nvfp4", 1);
    o.edges = folder_ + "/edges.sh";
    fs::create_directories(folder_);
    EXPECT_FALSE(write_file(o.edges, std::string_view("#!/bin/sh\nfor word; do case $word in --new=*) "
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

TEST_F(Edges, AProgramThatCannotRunEndsTheHunt) {
  const Told none = hunt(with_edges("echo no such subject; exit 2\n"), fakes::with("fake", nullptr));
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.text.find("exit status 2: no such subject"), std::string::npos) << none.text;
  HuntOptions o = options("cast", 1);
  o.edges = folder_ + "/nowhere";
  EXPECT_EQ(hunt(o, fakes::with("fake", nullptr)).status, 2);
}

TEST(HuntLines, HaveTheWordsOfASubject) {
  const Lines lines(1, 4096, "quantize mxfp8");
  const std::vector<Problem> own = lines.with_words("quantize mxfp8 bf16 dir=row scales=gemm");
  ASSERT_EQ(own.size(), 5u);
  bool tall = false;
  for (const Problem& p : own) {
    EXPECT_EQ(p.row->scales, ScaleLayout::gemm);
    tall |= p.x.shape.rows > 128;
  }
  EXPECT_TRUE(tall);
  EXPECT_TRUE(lines.with_words("quantize mxfp9 bf16 dir=row").empty());
  EXPECT_TRUE(lines.with_words("quantize nvfp4 bf16 dir=row").empty()) << "another group than this search's";
  EXPECT_TRUE(lines.with_words("").empty());
}

// A kernel for the rows of one format meets a line of its own before any batch.
TEST(HuntLines, BeginWithPlainRowsOfEveryFormat) {
  for (const FormatInfo& f : kFormats) {
    if (!parse_line(concat({"quantize ", f.name, " 64x64 bf16 dir=row"}))) continue;
    const std::vector<Problem> first = Lines(1, 4096, concat({"quantize ", f.name})).first();
    EXPECT_TRUE(std::any_of(first.begin(), first.end(), [&](const Problem& p) {
      return p.as<Quantize>() && !p.col && p.row->format == f.id && p.x.shape.count() > 0;
    })) << f.name;
  }
}

// Some lines of every few batches are larger than the limit, and none is larger than 16 times that.
TEST(HuntLines, AFewAreLarger) {
  constexpr int64_t kMost = 4096;
  Lines lines(1, kMost, "quantize mxfp8");
  for (const Problem& p : lines.first()) lines.told(p, Fate::quiet);
  int larger = 0;
  bool long_row = false, tiles_across_and_down = false;
  for (uint64_t n = 0; n < 8; ++n)
    for (const Problem& p : lines.batch(n, 96)) {
      const Shape& s = p.x.shape;
      EXPECT_LE(s.count(), 16 * kMost) << to_line(p);
      larger += s.count() > kMost;
      long_row |= s.cols > 4096;
      tiles_across_and_down |= s.rows > 128 && s.cols > 128;
    }
  EXPECT_GT(larger, 8 * 96 / 48);
  EXPECT_LT(larger, 8 * 96 / 12);
  EXPECT_TRUE(long_row);
  EXPECT_TRUE(tiles_across_and_down);
}

// Elements of the largest plane, without what pads it.
int64_t largest_plane(const Problem& p) {
  int64_t most = 0;
  for (const auto& planes : {input_planes(p), output_planes(p)})
    for (const Plane& plane : planes) most = std::max(most, plane.logical.count());
  return most;
}

// Whatever is drawn keeps to the limit, also what is not x: K and the scores of an attention, B of a gemm.
TEST(HuntLines, NoTensorIsLargerThanTheLimit) {
  for (const auto& [only, most] : {std::pair{"attention", 16}, std::pair{"gemm", 16}, std::pair{"split", 100},
                                   std::pair{"quantize nvfp4", 16}, std::pair{"update", 1}}) {
    Lines lines(1, most, only);
    const std::vector<Problem> first = lines.first();
    EXPECT_FALSE(first.empty()) << only;
    for (const Problem& p : first) {
      EXPECT_LE(largest_plane(p), most) << to_line(p);
      lines.told(p, Fate::quiet);
    }
    size_t larger = 0, drawn = 0;
    for (uint64_t n = 0; n < 2; ++n)
      for (const Problem& p : lines.batch(n, 96)) {
        const int64_t largest = largest_plane(p);
        EXPECT_LE(largest, choices::kLarger * most) << to_line(p);
        larger += largest > most, ++drawn;
        lines.told(p, Fate::quiet);
      }
    EXPECT_GT(drawn, 96u) << only;
    EXPECT_LT(larger, drawn / 12) << only;
  }
  const Lines lines(1, 16, "quantize mxfp8");
  for (const Problem& p : lines.with_words("quantize mxfp8 bf16 dir=row scales=gemm"))
    EXPECT_LE(largest_plane(p), 16) << to_line(p);
  const std::vector<Problem> usual = Lines(1, 4096, "quantize mxfp8").first();
  EXPECT_EQ(usual.front().x.shape, (Shape{64, 64}));
}

// Few lines are empty, and most have a fill whose values lie at borders.
TEST(HuntLines, MostHaveElementsAndAFillOfBorders) {
  Lines lines(1, 4096, "");
  size_t count = 0, empty = 0, named = 0, borders = 0;
  for (uint64_t n = 0; n < 8; ++n)
    for (const Problem& p : lines.batch(n, 96)) {
      const choices::Draft d = choices::draft_of(p);
      ++count;
      empty += std::find(d.sizes.begin(), d.sizes.end(), 0) != d.sizes.end();
      bool names = false, border = false;
      for (const auto& [key, value] : d.keys) {
        if (key != "fill" && !key.ends_with(".fill")) continue;
        names = true;
        for (const char* word :
             {"ties", "edges", "amax_edges", "nonfinite", "denormal", "negative_zeros", "outliers"})
          border |= value == word;
      }
      named += names, borders += border;
      lines.told(p, Fate::quiet);
    }
  EXPECT_GT(count, 700u);
  EXPECT_GT(empty, count / 24);
  EXPECT_LT(empty, count / 8);
  EXPECT_GT(named, count * 3 / 4);
  EXPECT_GT(borders, count / 2);
}

// A line near trouble comes again with a few of its elements changed, and that one with others.
TEST(HuntLines, DataOfALineNearTroubleAreChanged) {
  Lines lines(3, 4096, "quantize mxfp8"), same(3, 4096, "quantize mxfp8");
  const Problem red = fakes::problem("quantize mxfp8 3x17 bf16 dir=row fill=ties seed=9");
  lines.told(red, Fate::near_trouble), same.told(red, Fate::near_trouble);
  size_t literals = 0, again = 0;
  std::set<std::string> payloads;
  for (uint64_t n = 0; n < 6; ++n) {
    const std::vector<Problem> batch = lines.batch(n, 96);
    EXPECT_EQ(batch, same.batch(n, 96));
    for (const Problem& p : batch) {
      const bool literal = p.x.fill.kind == FillKind::literal;
      EXPECT_TRUE(choices::data_fit(p)) << to_line(p);
      literals += literal;
      payloads.insert(p.x.fill.payload);
      // Of those, one is near trouble as well.
      const Fate fate = literal && ++again % 4 == 1 ? Fate::near_trouble : Fate::quiet;
      lines.told(p, fate), same.told(p, fate);
    }
  }
  EXPECT_GT(literals, 6u * 96 / 32);
  EXPECT_GT(payloads.size(), literals / 2);
}

// What an earlier run found is near trouble in this one.
TEST(HuntLines, TroubleIsKnownAfterAResume) {
  Lines lines(1, 4096, "quantize mxfp8"), without(1, 4096, "quantize mxfp8");
  lines.near_trouble(fakes::problem("quantize mxfp8 5x7 f16 dir=col fill=outliers seed=321"));
  const auto near = [](const std::vector<Problem>& batch) {
    return std::count_if(batch.begin(), batch.end(), [](const Problem& p) {
      return p.x.shape == Shape{5, 7} && p.x.fill.seed == 321 && p.x.source == Encoding::f16;
    });
  };
  EXPECT_GT(near(lines.batch(0, 96)), 0);
  EXPECT_EQ(near(without.batch(0, 96)), 0);
}

// A line is kept for the rounding cases that its own data reach, though it has no new pair of choices.
TEST(HuntLines, ANewRoundingCaseKeepsALine) {
  const std::unique_ptr<Subject> reference = make_reference_subject();
  Lines lines(1, 4096, "cast e4m3"), blind(1, 4096, "cast e4m3");
  lines.look_at_cases(*reference);
  ASSERT_TRUE(lines.cases());
  EXPECT_GT(lines.cases()->of(), 20u);
  EXPECT_LT(lines.cases()->of(), 100u) << "cases of other units";
  const Problem one = fakes::problem("cast e4m3 1x1 f32 fill=literal:3f800000"),
                tie = fakes::problem("cast e4m3 1x1 f32 fill=literal:3f880000"),
                far = fakes::problem("cast e4m3 1x1 f32 fill=literal:7f7fffff"),
                large = fakes::problem("cast e4m3 1x257 f32 fill=literal:ff800000");
  EXPECT_TRUE(lines.told(one, Fate::quiet));
  const size_t after_one = lines.cases()->reached();
  EXPECT_GT(after_one, 0u);
  EXPECT_TRUE(lines.told(tie, Fate::quiet));
  EXPECT_FALSE(lines.told(tie, Fate::quiet));
  EXPECT_FALSE(lines.told(far, Fate::unsupported)) << "what does not run reaches nothing";
  EXPECT_TRUE(lines.told(far, Fate::quiet));
  EXPECT_GT(lines.cases()->reached(), after_one + 1);
  const size_t before = lines.cases()->reached();
  lines.told(large, Fate::quiet);
  EXPECT_EQ(lines.cases()->reached(), before) << "a large line is not traced";
  EXPECT_TRUE(blind.told(one, Fate::quiet));
  EXPECT_FALSE(blind.told(tie, Fate::quiet));
}

TEST(HuntLines, AreEqualForASeedAndFollowWhatIsCovered) {
  Lines one(7, 512, "quantize mxfp8"), two(7, 512, "quantize mxfp8"), other(8, 512, "quantize mxfp8");
  EXPECT_EQ(one.batch(0, 30), two.batch(0, 30));
  EXPECT_NE(one.batch(0, 30), other.batch(0, 30));
  size_t guided = 0;
  for (const Problem& p : one.batch(1, 60)) one.told(p, Fate::quiet);
  guided = one.pairs();
  EXPECT_GT(guided, 1000u);
  Lines blind(7, 512, "quantize mxfp8");
  for (const Problem& p : blind.batch(1, 60)) blind.told(p, Fate::unsupported);
  EXPECT_EQ(blind.pairs(), 0u) << "a line that did not run covers nothing";
}

TEST(Coverage, OfAnAbsentSubjectIsItsReason) {
  Subjects subjects = fakes::with("fake", nullptr);
  auto& fake = static_cast<fakes::Spoiled&>(*subjects.owned.back());
  CoverageOptions o;
  o.space.jobs = 1;
  o.lines = {fakes::problem("philox u32 8x4 u32")};
  std::ostringstream err;
  EXPECT_EQ(ask_subject(o, fake, err), std::nullopt) << err.str();
  EXPECT_EQ(o.lines.size(), 1u);
  fake.present_ = {false, "it is away"};
  EXPECT_EQ(ask_subject(o, fake, err), 3);
  EXPECT_EQ(err.str(), "assay: subject fake is absent: it is away\n");
}

// A pair that the search misses counts for every suite, and not only for one that has it.
TEST(Coverage, CountsWhatItsEvidenceShows) {
  const auto valid = [](const std::string& evidence) {
    CoverageOptions o;
    o.space.only = "philox";
    o.space.jobs = 1;
    o.space.random_lines = 1, o.space.tries = 0;
    if (!evidence.empty()) o.evidence = {fakes::problem(evidence)};
    o.json = testing::TempDir() + "assay_coverage_evidence.json";
    std::ostringstream out, err;
    EXPECT_EQ(run_coverage(o, out, err), 0) << err.str();
    const auto json = json::read(o.json);
    std::remove(o.json.c_str());
    const json::Value& group = json->find("groups")->array()->front();
    EXPECT_EQ(group.find("exercised")->to_int(), 0) << "evidence is no line of the suite";
    return *group.find("valid")->to_int();
  };
  const int64_t searched = valid("");
  EXPECT_GT(valid("philox u32 1x4 u32 rounds=1 fill=ties"), searched);
  EXPECT_GT(valid("philox u32 33x4 u32 rounds=7 fill=edges"), searched);
}

TEST(Coverage, SaysWhatASuiteLeavesOut) {
  CoverageOptions o;
  o.space.only = "philox";
  o.space.jobs = 1;
  o.suites = {"mine"};
  o.lines = {fakes::problem("philox u32 8x4 u32"), fakes::problem("philox u32 1x4 u32 rounds=1 fill=ties")};
  o.json = testing::TempDir() + "assay_coverage.json";
  o.complete = testing::TempDir() + "assay_coverage.cases";
  o.whole = true;
  std::ostringstream out, err;
  EXPECT_EQ(run_coverage(o, out, err), 1) << err.str();
  const auto json = json::read(o.json);
  ASSERT_TRUE(json);
  const json::Value& group = json->find("groups")->array()->front();
  const int64_t valid = *group.find("valid")->to_int(), done = *group.find("exercised")->to_int();
  EXPECT_EQ(static_cast<size_t>(valid - done), group.find("left_out")->array()->size());
  EXPECT_GT(done, 10);
  const Result<Suite> rest = load_suite(o.complete);
  ASSERT_TRUE(rest) << rest.error().text();
  for (const SuiteEntry& e : rest->entries) o.lines.push_back(e.problem);
  EXPECT_EQ(run_coverage(o, out, err), 0) << out.str();
  EXPECT_NE(out.str().find("100 %"), std::string::npos);
  std::remove(o.json.c_str());
  std::remove(o.complete.c_str());
}

}  // namespace
}  // namespace assay
