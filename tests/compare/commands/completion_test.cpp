// What the shell completes, and the man page: a script that bash reads and that knows commands, words of
// options and keys of a line.
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/compare/commands/called.h"

namespace assay {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string printed_by(const std::vector<std::string>& words) {
  const Said said = assay_called(words);
  EXPECT_EQ(said.status, 0) << said.err;
  return said.out;
}

// What bash offers for the last of the words after `assay`, one candidate a line.
std::string offered(const std::string& words) {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "assay_completion_test.bash";
  std::ofstream(file)
      << printed_by({"completion", "bash"}) << "assay() { echo smoke; }\ncompopt() { :; }\nCOMP_WORDS=(assay "
      << words << ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_assay\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
  std::FILE* bash = ::popen(("bash " + file.string()).c_str(), "r");
  std::string out;
  std::array<char, 4096> part;
  while (const size_t n = std::fread(part.data(), 1, part.size(), bash)) out.append(part.data(), n);
  EXPECT_EQ(::pclose(bash), 0);
  std::filesystem::remove(file);
  return out;
}

TEST(Completion, OffersCommandsOptionsAndTheirWords) {
  EXPECT_EQ(offered("exp"), "explain\n");
  EXPECT_EQ(offered("run --subj"), "--subject\n");
  EXPECT_THAT(offered("run smo"), HasSubstr("smoke\n"));
  EXPECT_THAT(offered("--ver"), HasSubstr("--version\n"));
}

TEST(Completion, GoesOnInAQuotedLine) {
  EXPECT_EQ(offered("run \"'quant\""), "quantize\n");
  EXPECT_EQ(offered("run \"'quantize mxfp8\""), "quantize mxfp8\n");
  EXPECT_EQ(offered("run \"'quantize mxfp8 64x64 bf16 elem\""),
            "quantize mxfp8 64x64 bf16 element=\nquantize mxfp8 64x64 bf16 element_ties=\n"
            "quantize mxfp8 64x64 bf16 element_overflow=\n");
  EXPECT_EQ(offered("run \"'quantize mxfp8 64x64 bf16 row.element=e5\""),
            "quantize mxfp8 64x64 bf16 row.element=e5m2\n");
}

TEST(Completion, ZshAndTheManPageKnowEveryCommand) {
  const std::string zsh = printed_by({"completion", "zsh"}), page = printed_by({"manual"});
  for (const char* command : {"run", "check", "explain", "certify", "completion"}) {
    EXPECT_THAT(zsh, HasSubstr("    '" + std::string(command) + ":"));
    EXPECT_THAT(page, HasSubstr(".SS " + std::string(command) + "\n"));
  }
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-subject\\fR \\fIvalue\\fR"));
  EXPECT_THAT(page, Not(HasSubstr("\\fB\\-\\-help\\fR, \\fB\\-h\\fR \\fIvalue")));
  EXPECT_THAT(page, Not(HasSubstr("\n'")));
}

}  // namespace
}  // namespace assay
