// assay hunt as a command: what is found is found again, nothing is lost, the same seed gives the same lines.
#include "compare/commands/hunt.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
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
#include "fixtures/suite.h"
#include "reference/subject.h"
#include "tests/compare/commands/hunts.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using hunts::Hunt;
using hunts::tail_is_wrong;

TEST_F(Hunt, FindsShrinksAndRepeats) {
  const Subjects wrong = fakes::with("fake", tail_is_wrong);
  HuntOptions given = options("quantize mxfp8", 2);
  given.budget = 20;  // the search for a smaller line has three times as long, also on a busy machine
  const Told first = hunt(given, wrong);
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
  for (const char* own : {"1/thesis.txt", "looking/pack/thesis.txt", "1/README.md", "1/README/thesis.txt",
                          "1/README", "1/reproduce.cpp"}) {
    fs::remove_all(folder_);
    fs::create_directories(fs::path(folder_ + "/" + own).parent_path());
    ASSERT_FALSE(write_file(folder_ + "/" + own, std::string_view("years of work")));
    const Told told = hunt(options("quantize mxfp8", 3), fakes::with("fake", scales_are_small));
    EXPECT_EQ(told.status, 2) << own << ": " << told.text;
    EXPECT_NE(told.text.find("is in the way"), std::string::npos) << own << ": " << told.text;
    EXPECT_EQ(read(own), "years of work");
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
  o.given = {fakes::problem("cast e4m3 7x9 bf16 fill=edges seed=77")};
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
  EXPECT_EQ(hunt(options("cast mxfp8", 1), none).status, 3) << "no line has it";
}

TEST_F(Hunt, AnOpThatDoesNotExistIsRefusedAndTheFolderStaysFree) {
  const Subjects right = fakes::with("fake", nullptr);
  const Told told = hunt(options("quantize mxpf8", 1), right);
  EXPECT_EQ(told.status, 2);
  EXPECT_NE(told.text.find("no op with a format contains 'quantize mxpf8'"), std::string::npos) << told.text;
  EXPECT_EQ(hunt(options("quantize mxfp8", 1), right).status, 0);
  const Told other = hunt(options("quantize mxfp4", 1), right);
  EXPECT_EQ(other.status, 2);
  EXPECT_NE(other.text.find("--only 'quantize mxfp8', not this one"), std::string::npos) << other.text;
}

TEST_F(Hunt, WhatIsPrintedRepeatsTheFinding) {
  folder_ += " of mine";
  const Told told = hunt(options("cast e4m3", 1), fakes::with("fake", all_is_wrong));
  const std::string command = "assay run '" + folder_ + "/found.cases' --subject fake repeats";
  EXPECT_NE(told.text.find(command), std::string::npos) << told.text;
}

TEST_F(Hunt, LinesThatAreGivenLaterAreJudgedOnce) {
  const auto wrong_there = [](const Problem& p, std::span<const Buffer> out, const Environment& e) {
    if (p.x.shape == Shape{7, 9} && p.x.fill.seed == 77) all_is_wrong(p, out, e);
  };
  const Subjects wrong = fakes::with("fake", wrong_there);
  HuntOptions o = options("cast e4m3", 1);
  o.budget = 0.2;
  EXPECT_EQ(hunt(o, wrong).status, 0);
  o.given = {fakes::problem("cast e4m3 7x9 bf16 fill=edges seed=77")};
  EXPECT_EQ(hunt(o, wrong).status, 1);
  hunt(o, fakes::with("fake", nullptr));
  const std::string records = read("hunt.jsonl");
  EXPECT_EQ(records.find("\"given\": \""), records.rfind("\"given\": \"")) << records;
}

TEST_F(Hunt, ItsOwnStateIsNoPlaceForRecords) {
  HuntOptions o = options("cast e4m3", 1);
  ASSERT_EQ(hunt(o, fakes::with("fake", nullptr)).status, 0);
  const std::string records = read("hunt.jsonl");
  o.jsonl = folder_ + "/../" + fs::path(folder_).filename().string() + "/hunt.jsonl";
  const Told told = hunt(o, fakes::with("fake", nullptr));
  EXPECT_EQ(told.status, 2) << told.text;
  EXPECT_NE(told.text.find("the hunt keeps its own state there"), std::string::npos) << told.text;
  EXPECT_EQ(read("hunt.jsonl"), records);
}

TEST_F(Hunt, APipeGetsEachRecordOnce) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  HuntOptions o = options("cast e4m3", 2);
  o.jsonl = fmt::format("/dev/fd/{}", ends[1]);
  ASSERT_EQ(hunt(o, fakes::with("fake", nullptr)).status, 0);
  close(ends[1]);
  std::string told(65536, '\0');
  const ssize_t size = ::read(ends[0], told.data(), told.size());
  close(ends[0]);
  ASSERT_GT(size, 0);
  told.resize(static_cast<size_t>(size));
  EXPECT_EQ(told, read("hunt.jsonl"));
}

TEST_F(Hunt, AFileOfAnotherProgramIsNotTakenForItsRecords) {
  fs::create_directories(folder_);
  ASSERT_FALSE(write_file(folder_ + "/hunt.jsonl", std::string_view("{\"deer\": 12}\n")));
  const Told told = hunt(options("cast e4m3", 1), fakes::with("fake", nullptr));
  EXPECT_EQ(told.status, 2) << told.text;
  EXPECT_NE(told.text.find("does not begin as that of a hunt does"), std::string::npos) << told.text;
  EXPECT_EQ(read("hunt.jsonl"), "{\"deer\": 12}\n");
}

TEST_F(Hunt, GoesOnAfterAKill) {
  const Subjects right = fakes::with("fake", nullptr);
  ASSERT_EQ(hunt(options("scale_chain", 2), right).status, 0);
  const std::string whole = read("kept.cases"), records = read("hunt.jsonl");
  // What a kill leaves: a record and a line that were cut short.
  ASSERT_FALSE(write_file(folder_ + "/kept.cases", whole + "scale_chain nvf"));
  ASSERT_FALSE(write_file(folder_ + "/hunt.jsonl", records + "{\"record\": \"bat"));
  ASSERT_EQ(hunt(options("scale_chain", 2), right).status, 0);
  EXPECT_EQ(read("hunt.jsonl").find("\"bat\n"), std::string::npos)
      << "the part of a record that a kill left is removed";
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

class OfOneOp final : public ForwardingSubject {
 public:
  OfOneOp() : ForwardingSubject(make_reference_subject(), "fake") {}
  Support supports(const Problem& p) const override {
    return {to_line(p).starts_with("cast e4m3 "), "another op"};
  }
};

// A run that goes on knows from the kept lines what the subject does not run.
TEST_F(Hunt, ANarrowSubjectIsAskedForItsOwnLinesAfterAResume) {
  Subjects subjects = fakes::with("reference", nullptr);
  subjects.owned.erase(subjects.owned.begin() + 1);
  subjects.owned.push_back(std::make_unique<OfOneOp>());
  ASSERT_EQ(hunt(options("", 1), subjects).status, 0);
  const int64_t before = sum_of("lines");
  ASSERT_EQ(hunt(options("", 1), subjects).status, 0);
  EXPECT_GE(sum_of("lines") - before, 48) << "of 96";
}

}  // namespace
}  // namespace assay
