// Results that a later run takes over: whole ones alone, of the same command alone.
#include "compare/process/journal.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compare/process/pool.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

class JournalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string made = (fs::temp_directory_path() / "assay_journal_XXXXXX").string();
    folder_ = ::mkdtemp(made.data());
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string file() const { return (folder_ / "new" / "results.journal").string(); }
  std::unique_ptr<Journal> open(const std::string& digest = "a digest") {
    auto made = Journal::open((folder_ / "new").string(), digest);
    EXPECT_TRUE(made) << made.error().text();
    return made ? std::move(*made) : nullptr;
  }
  std::string why_not(const std::string& digest = "a digest") {
    const auto made = Journal::open((folder_ / "new").string(), digest);
    return made ? "" : made.error().text();
  }
  bool free();
  fs::path folder_;
};

TEST_F(JournalTest, KeepsResultsOfAnyBytes) {
  {
    const auto j = open();
    j->add(7, std::string("a\nb\0c", 5));
    j->add(1, "");
    EXPECT_FALSE(j->trouble());
  }
  const auto j = open();
  EXPECT_NE(j->found().find("takes over 2 results of earlier runs"), std::string::npos) << j->found();
  ASSERT_TRUE(j->find(7));
  EXPECT_EQ(*j->find(7), std::string("a\nb\0c", 5));
  ASSERT_TRUE(j->find(1));
  EXPECT_EQ(*j->find(1), "");
  EXPECT_FALSE(j->find(2));
}

TEST_F(JournalTest, ARunThatWasKilledLosesWhatItWasWriting) {
  open()->add(1, "first");
  const auto whole = fs::file_size(file());
  open()->add(2, "second");
  const auto all = fs::file_size(file());
  for (auto size = all - 1; size + 1 > whole; --size) {
    fs::resize_file(file(), size);
    const auto j = open();
    EXPECT_TRUE(j->find(1) && !j->find(2)) << size;
    EXPECT_EQ(fs::file_size(file()), whole) << size;
    const std::string cut = size > whole ? fmt::format("; {} bytes at the end", size - whole) : "";
    EXPECT_NE(j->found().find("takes over 1 result of earlier runs from " + file() + cut), std::string::npos)
        << j->found();
  }
  open()->add(3, "third");
  const auto j = open();
  EXPECT_TRUE(j->find(1) && j->find(3));
}

TEST_F(JournalTest, AResultThatChangedOnTheDiskIsDoneAgain) {
  open()->add(1, "first");
  std::fstream f(file(), std::ios::in | std::ios::out | std::ios::binary);
  f.seekp(-3, std::ios::end);
  f.put('T');
  f.close();
  EXPECT_FALSE(open()->find(1));
}

TEST_F(JournalTest, AResultIsNotTakenForThatOfAnotherTask) {
  open()->add(1, "first");
  std::fstream f(file(), std::ios::in | std::ios::out | std::ios::binary);
  std::string line;
  std::getline(f, line);
  f.seekp(f.tellg());
  f.put('2');
  f.close();
  const auto j = open();
  EXPECT_FALSE(j->find(1));
  EXPECT_FALSE(j->find(2));
}

TEST_F(JournalTest, RefusesResultsOfSomethingElseAndLeavesThem) {
  open()->add(1, "first");
  const auto size = fs::file_size(file());
  EXPECT_NE(why_not("another digest").find("another command"), std::string::npos);
  std::ofstream(file(), std::ios::binary) << "somebody's file";
  EXPECT_NE(why_not().find("no journal"), std::string::npos);
  EXPECT_NE(fs::file_size(file()), size);
  EXPECT_EQ(fs::file_size(file()), 15u);
}

// Whether another process can open it.
bool JournalTest::free() {
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string why = why_not();
    ::_exit(why.empty() ? 0 : why.find("another run has it open, process ") != std::string::npos ? 1 : 2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_LT(WEXITSTATUS(status), 2);
  return WEXITSTATUS(status) == 0;
}

TEST_F(JournalTest, OneRunAtATime) {
  auto first = open();
  EXPECT_FALSE(free());
  first.reset();
  EXPECT_TRUE(free());
}

// The workers of a run that is killed outlive it for a moment.
TEST_F(JournalTest, AWorkerDoesNotHoldIt) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  auto first = open();
  const pid_t worker = ::fork();
  if (worker == 0) {
    ::close(ends[1]);
    char byte;
    ::_exit(static_cast<int>(::read(ends[0], &byte, 1)));
  }
  first.reset();
  EXPECT_TRUE(free());
  ::close(ends[1]);
  ::waitpid(worker, nullptr, 0);
  ::close(ends[0]);
}

TEST_F(JournalTest, ItIsRemovedAloneWhereTheFolderHasMore) {
  const auto j = open();
  std::ofstream(folder_ / "new" / "mine") << "text";
  j->remove();
  EXPECT_TRUE(fs::exists(folder_ / "new" / "mine"));
  EXPECT_FALSE(fs::exists(file()));
  fs::remove(folder_ / "new" / "mine");
  open()->remove();
  EXPECT_FALSE(fs::exists(folder_ / "new"));
}

TEST_F(JournalTest, TasksWithAResultAreNotRunAgainAndACrashIs) {
  const auto run = [&](const std::string& word) {
    const auto journal = open();
    std::string all;
    TaskHooks hooks;
    hooks.numbered = NumberedTasks{10, journal.get()};
    hooks.task = [&](size_t i) {
      if (i == 2 && word == "crash") std::abort();
      return word + std::to_string(i);
    };
    hooks.crashed = [](const std::string&) { return std::string("crashed"); };
    hooks.result = [&](size_t i, const std::string& text) {
      all += text + " ";
      return word != "crash" || i < 3;
    };
    run_tasks(6, 1, 60, std::move(hooks));
    return all;
  };
  EXPECT_EQ(run("crash"), "crash0 crash1 crashed crash3 ");
  std::string second = run("again");
  EXPECT_TRUE(second.starts_with("crash0 crash1 again2 crash3 ")) << second;
  EXPECT_TRUE(second.ends_with("again5 ") || second.ends_with("crash5 ")) << second;
  EXPECT_EQ(run("third"), second);
}

}  // namespace
}  // namespace assay
