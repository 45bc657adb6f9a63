// What a line of progress says while one case runs.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "compare/commands/reports.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

TEST(Progress, ACaseThatTakesLongSaysHowLong) {
  const Subjects subjects = fakes::with("fake", nullptr);
  std::FILE *out = std::tmpfile(), *err = std::tmpfile();
  ReportOptions options;
  options.progress = true;
  Reports reports(options, Environment{}, subjects, out, err);
  reports.waiting(0, 3, "quantize mxfp8 8x8 bf16", 1);
  EXPECT_EQ(std::ftell(err), 0) << "what takes a second needs no word";
  reports.waiting(0, 3, "quantize mxfp8 8x8 bf16", 12);
  std::string said;
  std::rewind(err);
  for (int c; (c = std::fgetc(err)) != EOF;) said += static_cast<char>(c);
  EXPECT_NE(said.find("0/3  12 s at quantize mxfp8 8x8 bf16"), std::string::npos) << said;
  std::fclose(out);
  std::fclose(err);
}

}  // namespace
}  // namespace assay
