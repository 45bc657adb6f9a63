// Words of printed commands: bash reads back the text that was quoted, and so does shell_unquoted.
#include "compare/text/shell.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <vector>

#include <fmt/format.h>

namespace assay {
namespace {

// The texts for which a shell and shell_word may differ: each kind of quoting, alone and together.
const std::vector<std::string> kTexts = {
    "plain/lib.so", "",         "two words",        "it's",     "'",           "''",        "a\\b",
    "\\",           "\\'",      "$HOME `id` \"x\"", "* ?",      "~",           "#x",        "a#b",
    "a\nb",         "\x1b[31m", "\x1b it's \\ #1",  "\xff\x80", "caf\xc3\xa9", "::warning",
    "\0011",  // the byte 1, then the digit 1
    "tab\there",
};

// What bash makes of one word. popen starts sh, which may know no $'...', so bash reads the command from a
// file.
std::string as_bash_reads(const std::string& word) {
  const std::string script = fmt::format("{}/assay_word_{}.sh", testing::TempDir(), getpid());
  std::ofstream(script) << "printf %s " << word;
  std::FILE* pipe = popen(("bash " + script).c_str(), "r");
  std::string out;
  for (int c; (c = std::fgetc(pipe)) != EOF;) out += static_cast<char>(c);
  EXPECT_EQ(pclose(pipe), 0) << word;
  std::remove(script.c_str());
  return out;
}

TEST(Shell, BashReadsTheTextBack) {
  for (const std::string& text : kTexts) {
    EXPECT_EQ(as_bash_reads(shell_quoted(text)), text) << shell_quoted(text);
    EXPECT_EQ(as_bash_reads(shell_word(text)), text) << shell_word(text);
  }
}

TEST(Shell, UnquotedIsTheText) {
  for (const std::string& text : kTexts) {
    EXPECT_EQ(shell_unquoted(shell_quoted(text)), text) << shell_quoted(text);
    EXPECT_EQ(shell_unquoted(shell_word(text)), text) << shell_word(text);
  }
}

TEST(Shell, QuotesOnlyWhereOneIsNeeded) {
  EXPECT_EQ(shell_word("plain/lib.so"), "plain/lib.so");
  EXPECT_EQ(shell_word("two words"), "'two words'");
  EXPECT_EQ(shell_quoted("plain"), "'plain'");
}

}  // namespace
}  // namespace assay
