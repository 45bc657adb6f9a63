// assay hunt as a command: what is found is found again, nothing is lost, the same seed gives the same lines.
#include "compare/commands/hunt.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/commands/hunt/cause.h"
#include "compare/commands/hunt/folder.h"
#include "contract/line.h"
#include "fixtures/files.h"
#include "fixtures/json.h"
#include "fixtures/suite.h"
#include "reference/subject.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

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
  // The sum of what the records of all runs say under that name.
  int64_t sum_of(std::string_view name) {
    std::istringstream records(read("hunt.jsonl"));
    int64_t out = 0;
    for (std::string text; std::getline(records, text);) {
      const auto record = json::parse(text);
      EXPECT_TRUE(record) << text;
      if (const json::Value* n = record ? record->find(name) : nullptr) out += *n->to_int();
    }
    return out;
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
  // One fault is a finding for each op with a pair of formats in which it shows, not for each line.
  const int64_t lines = sum_of("failures");
  EXPECT_LE(4 * std::ssize(found->entries), lines) << lines << " lines failed: " << read("found.cases");
  const Told again = hunt(options("quantize mxfp8", 1), wrong);
  EXPECT_EQ(again.status, 1);
  EXPECT_NE(again.text.find("still fails"), std::string::npos) << again.text;
  const Told mended = hunt(options("quantize mxfp8", 1), fakes::with("fake", nullptr));
  EXPECT_EQ(mended.status, 0) << mended.text;
  EXPECT_NE(mended.text.find("passes now"), std::string::npos) << mended.text;
}

// Where no cause makes the bytes, what the judge sees in them is told.
TEST_F(Hunt, AFindingWithoutACauseHasTheJudgesHint) {
  const auto some_are_nan = [](const Problem&, std::span<const Buffer> out, const Environment&) {
    const Buffer* data = find<Buffer>(out, "row.data");
    for (size_t i = 0; data && i < data->bytes.size(); ++i)
      if (i * i % 7 == 4) data->bytes[i] = std::byte{0x7F};
  };
  hunt(options("quantize mxfp8", 1), fakes::with("fake", some_are_nan));
  const std::string found = read("found.cases");
  EXPECT_NE(found.find("; hint: NaN only on the judged side"), std::string::npos) << found;
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
  EXPECT_GT((*folder)->earlier().judged.lines, 0u);
  EXPECT_LT((*folder)->earlier().judged.lines, 48u) << "1.2 seconds of two workers";
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
  {
    const auto folder = hunting::Folder::open(folder_, {"fake", 1, 512, "cast e4m3"});
    ASSERT_TRUE(folder) << folder.error().text();
    EXPECT_EQ(read("found.cases"), found);
  }
  // A kill may cut its comment or its line.
  const std::string last = found.substr(found.rfind("# "));
  for (const size_t left : {size_t{6}, last.find('\n') + 1, last.find('\n') + 7}) {
    const std::string cut = found.substr(0, found.size() - last.size() + left);
    ASSERT_FALSE(write_file(folder_ + "/found.cases", cut));
    const auto folder = hunting::Folder::open(folder_, {"fake", 1, 512, "cast e4m3"});
    ASSERT_TRUE(folder) << folder.error().text();
    EXPECT_TRUE(read("found.cases").ends_with("\n" + last)) << left << ": " << read("found.cases");
  }
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
    EXPECT_LE((*folder)->earlier().judged.batch, 1u);
    EXPECT_LT((*folder)->earlier().judged.lines, 1000u);
    EXPECT_GE((*folder)->earlier().judged.seconds, 0);
    EXPECT_LT((*folder)->earlier().judged.seconds, 1e6);
    for (const Problem& p : (*folder)->earlier().kept) EXPECT_LE(p.x.shape.count(), 512 * 16) << to_line(p);
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
    EXPECT_NE(told.text.find(fmt::format(" {} lines judged", sum_of("lines"))), std::string::npos)
        << told.text;
    EXPECT_NE(told.text.find(fmt::format(" {} failures of", sum_of("failures"))), std::string::npos)
        << told.text;
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
  const size_t table = told.text.find("\ncast e4m3 ");
  EXPECT_NE(table, std::string::npos) << told.text;
  EXPECT_LT(told.text.find("hunted"), table) << "it stands below the verdict: " << told.text;
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

// The number before these words, in what a hunt says at its end.
int counted(const std::string& text, const std::string& words) {
  const size_t end = text.rfind(words);
  if (end == std::string::npos) return 0;
  return std::atoi(text.c_str() + text.rfind(", ", end) + 2);
}

// The state says how many rounding cases and codes were reached; a hunt that goes on knows them from its kept
// lines.
TEST_F(Hunt, RoundingCasesAndCodesAreCountedOverAllRuns) {
  Subjects right = fakes::with("fake", nullptr);
  right.owned.front() = make_reference_subject();
  const Told first = hunt(options("cast e4m3", 2), right);
  const auto reached = [](const Told& told) {
    return std::pair(counted(told.text, " rounding cases"), counted(told.text, " codes, "));
  };
  EXPECT_GT(reached(first).first, 20) << first.text;
  EXPECT_GT(reached(first).second, 100) << first.text;
  HuntOptions over = options("cast e4m3", 1);
  over.minutes = 1e-9;
  EXPECT_EQ(reached(hunt(over, right)), reached(first)) << "a run that judges nothing";
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
  o.edges = folder_ + "/nowhere";
  EXPECT_EQ(hunt(o, fakes::with("fake", nullptr)).status, 2);
}

}  // namespace
}  // namespace assay
