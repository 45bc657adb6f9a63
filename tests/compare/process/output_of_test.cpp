#include "compare/process/output_of.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>

namespace assay {
namespace {

// What a script prints that writes the file `begun` once its trap is set, and is told to end after that.
Result<Output> told_to_end(const std::string& script) {
  const std::string begun =
      testing::TempDir() + "assay_output_of_" + testing::UnitTest::GetInstance()->current_test_info()->name();
  const auto output =
      run_program({"sh", "-c", script, "sh", begun}, [&] { return std::filesystem::exists(begun); });
  std::filesystem::remove(begun);
  return output;
}

TEST(OutputOf, AProgramIsAskedToEnd) {
  const auto output = told_to_end("trap 'echo told; exit 72' INT; : >$1; while :; do sleep 0.1; done");
  ASSERT_TRUE(output);
  EXPECT_EQ(output->text, "told\n");
  EXPECT_EQ(output->status, 72);
}

// Its own child ignores the signal too, and holds the pipe.
TEST(OutputOf, AProgramThatIgnoresItIsKilled) {
  const auto begin = std::chrono::steady_clock::now();
  const auto output = told_to_end("trap '' INT; : >$1; sleep 20; sleep 20");
  ASSERT_TRUE(output);
  EXPECT_EQ(output->status, -SIGKILL);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
}

}  // namespace
}  // namespace assay
