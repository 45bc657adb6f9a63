// What a case is said to take of memory before it is begun, against what it takes.
#include "compare/process/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "compare/judge/judge.h"
#include "compare/process/run_in_child.h"
#include "contract/line.h"
#include "fixtures/inputs.h"
#include "reference/subject.h"

namespace assay {
namespace {

int64_t most_bytes(int who) {
  rusage usage{};
  ::getrusage(who, &usage);
  return int64_t{usage.ru_maxrss} << 10;
}

// Bytes that judging the line takes at its peak: of this process and of the one that runs the reference,
// beyond what both held before. Measured in a process of its own, since a peak never falls.
int64_t taken_by(const std::string& text) {
  int ends[2];
  if (::pipe(ends) != 0) return 0;
  const pid_t child = ::fork();
  if (child == 0) {
    const Problem p = *parse_line(text);
    const auto reference = make_reference_subject();
    const int64_t before = most_bytes(RUSAGE_SELF);
    const auto inputs = make_inputs(p, *reference);
    const IsolatedRun run = run_isolated(*reference, p, *inputs, Environment{}, 300);
    const Judgement j = judge(&p, run.execution.planes, run.execution.planes);
    int64_t taken = most_bytes(RUSAGE_SELF) - before + most_bytes(RUSAGE_CHILDREN) - before;
    if (!run.sound() || j.cause) taken = 0;
    const bool written = ::write(ends[1], &taken, sizeof taken) == sizeof taken;
    ::_exit(written ? 0 : 1);
  }
  int64_t taken = 0;
  if (::read(ends[0], &taken, sizeof taken) != sizeof taken) taken = 0;
  ::close(ends[0]);
  ::close(ends[1]);
  ::waitpid(child, nullptr, 0);
  return taken;
}

// The estimate may not be less than what is taken: a machine that has the one and not the other would run
// out.
TEST(Memory, ACaseTakesNoMoreThanItIsSaidToTake) {
  for (const char* line : {"quantize mxfp8 4096x4096 bf16 dir=row", "quantize nvfp4 2048x4096 bf16",
                           "quantize fp8_current 4096x2048 f32"}) {
    const int64_t said = bytes_as_a_whole(*parse_line(line)), taken = taken_by(line);
    EXPECT_GT(taken, said / 5) << line << ": " << gib_text(said) << " said, " << gib_text(taken) << " taken";
    EXPECT_LE(taken, said) << line << ": " << gib_text(said) << " said, " << gib_text(taken) << " taken";
  }
}

TEST(Memory, WhatDoesNotFitIsSaidBeforeItIsBegun) {
  const auto available = bytes_available();
  ASSERT_TRUE(available);
  EXPECT_GT(*available, 0);
  EXPECT_FALSE(lacks_memory(*parse_line("quantize mxfp8 4096x4096 bf16")));
  // The largest line that there is, of which each element takes some bytes at least four times.
  const Problem most = *parse_line("quantize nvfp4 32768x65536 f32");
  const auto lacking = lacks_memory(most);
  EXPECT_EQ(lacking.has_value(), bytes_as_a_whole(most) >= *available);
  EXPECT_NE(lacking.value_or("of memory, and").find("of memory, and"), std::string::npos) << *lacking;
}

}  // namespace
}  // namespace assay
