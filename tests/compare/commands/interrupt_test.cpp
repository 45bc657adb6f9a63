// Ctrl-C in commands that measure, write or compare: what was reached is said and written, nothing else is
// called wrong, and the exit status is 130.
#include <gtest/gtest.h>

#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <sstream>
#include <streambuf>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compare/commands/count.h"
#include "compare/commands/coverage.h"
#include "compare/commands/diff.h"
#include "compare/commands/flavours.h"
#include "compare/commands/model.h"
#include "compare/commands/record.h"
#include "compare/commands/trace.h"
#include "compare/diagnosis/identify/choices.h"
#include "compare/judge/cases.h"
#include "compare/packs/pack.h"
#include "contract/line.h"
#include "fixtures/json.h"
#include "tests/compare/ended.h"
#include "tests/compare/fakes.h"
#include "tests/compare/interrupting.h"

namespace assay {
namespace {

std::string scratch(const std::string& name) { return testing::TempDir() + "assay_interrupt_" + name; }

Subjects with_interrupting(int n) {
  Subjects subjects;
  subjects.owned.push_back(std::make_unique<fakes::Interrupting>("reference", 0));
  subjects.owned.push_back(std::make_unique<fakes::Interrupting>("interrupting", n));
  return subjects;
}

// Its count ends no more, and sends Ctrl-C first.
class Counting final : public ForwardingSubject {
 public:
  Counting() : ForwardingSubject(make_reference_subject(), "counting") {}
  bool interprets() const override { return true; }
  std::vector<LaunchCounts> count(const Problem&, std::span<const ConstBuffer>, const Environment&) override {
    ::kill(test_, SIGINT);
    while (::getpid() != test_) ::pause();
    return {};
  }

 private:
  const pid_t test_ = ::getpid();
};

Subjects with_counting() {
  Subjects subjects;
  subjects.owned.push_back(make_reference_subject());
  subjects.owned.push_back(std::make_unique<Counting>());
  return subjects;
}

TEST(Interrupt, FlavoursShowTheTablesThatAreComplete) {
  const int choices = static_cast<int>(choices_of(FormatId::mxfp4).size());
  for (const bool second : {false, true}) {
    Subjects subjects;
    subjects.owned.push_back(std::make_unique<fakes::Interrupting>("reference", second ? choices + 2 : 2));
    FlavoursOptions options;
    options.format = "mxfp4";
    options.measure = true;
    options.json = scratch("flavours.json");
    const Ended r =
        of_files([&](std::FILE* out, std::FILE* err) { return run_flavours(options, subjects, out, err); });
    EXPECT_EQ(r.status, 130) << r.out << r.err;
    EXPECT_TRUE(r.says("interrupted: 0 of 1 formats were measured")) << r.out;
    EXPECT_EQ(r.says("fill=normal"), second) << r.out;
    EXPECT_FALSE(r.says("fill=wide")) << r.out;
    const auto file = json::read(options.json);
    ASSERT_TRUE(file);
    EXPECT_TRUE(file->find("cut_short"));
    EXPECT_EQ(file->find("formats")->array()->size(), second ? 1u : 0u);
  }
}

TEST(Interrupt, CoverageReportsWhatWasSearched) {
  for (const size_t searched : {size_t{0}, size_t{1}}) {
    CoverageOptions options;
    options.space.only = "cast e";
    options.space.random_lines = 20;
    options.space.tries = 1;
    options.space.jobs = 1;
    options.whole = searched == 0;
    options.json = scratch("coverage.json");
    options.complete = scratch("rest.cases");
    size_t of = 0;
    options.space.on_progress = [&](size_t done, size_t count) {
      of = count;
      if (done == searched) ::kill(::getpid(), SIGINT);
    };
    const Ended r = of_streams([&](auto& out, auto& err) { return run_coverage(options, out, err); });
    ASSERT_GT(of, 1u);
    EXPECT_EQ(r.status, 130) << r.out << r.err;
    EXPECT_TRUE(r.says(fmt::format("interrupted: {} of {} ops with a format were searched", searched, of)))
        << r.out;
    EXPECT_TRUE(r.says("rest.cases was not written")) << r.out;
    EXPECT_EQ(r.says("pairs of choices"), searched > 0) << r.out;
    const auto file = json::read(options.json);
    ASSERT_TRUE(file);
    EXPECT_TRUE(file->find("cut_short"));
    EXPECT_EQ(file->find("groups")->array()->size(), searched);
  }
}

TEST(Interrupt, RecordKeepsWhatWasRecorded) {
  RecordOptions options;
  for (int seed = 1; seed <= 5; ++seed)
    options.entries.push_back(
        entry_of(fakes::problem("quantize mxfp8 32x32 bf16 dir=row seed=" + std::to_string(seed))));
  options.subject = "interrupting";
  options.output = scratch("pack.safetensors");
  options.jobs = 1;
  std::remove(options.output.c_str());
  const auto record = [&](int n) {
    const Subjects subjects = with_interrupting(n);
    return of_files([&](std::FILE* out, std::FILE* err) { return run_record(options, subjects, out, err); });
  };
  const Ended none = record(1);
  EXPECT_EQ(none.status, 130) << none.out << none.err;
  EXPECT_TRUE(none.says("interrupted: 0 of 5 cases were reached; nothing was written\n0 passed, 0 failed"))
      << none.out;
  EXPECT_FALSE(read_pack(options.output));
  const Ended some = record(3);
  EXPECT_EQ(some.status, 130) << some.out << some.err;
  EXPECT_TRUE(some.says("interrupted: 2 of 5 cases were reached; ")) << some.out;
  EXPECT_TRUE(some.says("\n2 passed, 0 failed, 0 skipped\n")) << some.out;
  const auto pack = read_pack(options.output);
  ASSERT_TRUE(pack) << pack.error().text();
  EXPECT_EQ(pack->cases.size(), 2u);
}

TEST(Interrupt, CountAndModelSayThatNothingWasCounted) {
  const Problem problem = fakes::problem("quantize mxfp8 64x64 bf16 dir=row");
  CountOptions options;
  options.problem = problem;
  options.subject = "counting";
  const Ended count =
      of_streams([&](auto& out, auto& err) { return run_count(options, with_counting(), out, err); });
  EXPECT_EQ(count.status, 130) << count.out << count.err;
  EXPECT_EQ(count.err, "assay: interrupted before the kernel had run to its end: nothing was counted\n");
  ModelCommand command;
  command.problems = {problem, problem};
  command.subject = "counting";
  command.ptxas = command.nvdisasm = "/nonexistent/program";
  const Ended model =
      of_streams([&](auto& out, auto& err) { return run_model(command, with_counting(), out, err); });
  EXPECT_EQ(model.status, 130) << model.out << model.err;
  EXPECT_EQ(model.err, "assay: interrupted: 0 of 2 lines were modelled\n");
}

TEST(Interrupt, TraceSaysThatNothingWasTraced) {
  TraceOptions options;
  options.problem = fakes::problem("quantize mxfp8 64x64 bf16 dir=row");
  options.subject = "interrupting";
  const Ended r =
      of_streams([&](auto& out, auto& err) { return run_trace(options, with_interrupting(1), out, err); });
  EXPECT_EQ(r.status, 130) << r.out << r.err;
  EXPECT_EQ(r.out, "");
  EXPECT_EQ(r.err, "assay: interrupted before both sides had run: nothing was traced\n");
}

// Sends Ctrl-C as soon as a case has been said to be equal.
class AfterTheFirst final : public std::stringbuf {
  std::streamsize xsputn(const char* text, std::streamsize n) override {
    if (std::string(text, static_cast<size_t>(n)).starts_with("passed ")) ::kill(::getpid(), SIGINT);
    return std::stringbuf::xsputn(text, n);
  }
};

TEST(Interrupt, DiffComparesNoFurther) {
  const std::string path = scratch("diff.safetensors");
  RecordOptions options;
  for (int seed = 1; seed <= 3; ++seed)
    options.entries.push_back(
        entry_of(fakes::problem("quantize mxfp8 32x32 bf16 dir=row seed=" + std::to_string(seed))));
  options.subject = "reference";
  options.output = path;
  ASSERT_EQ(of_files([&](std::FILE* out, std::FILE* err) {
              return run_record(options, with_interrupting(0), out, err);
            }).status,
            0);
  AfterTheFirst text;
  std::ostream out(&text);
  std::ostringstream err;
  EXPECT_EQ(run_diff({path, path}, out, err), 130) << text.str();
  EXPECT_NE(text.str().find("interrupted: 1 of 3 cases were judged\n1 passed, 0 failed, 2 skipped\n"),
            std::string::npos)
      << text.str();
}

}  // namespace
}  // namespace assay
