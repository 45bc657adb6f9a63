// assay list: what it says of a line is what a run does with it.
#include <gtest/gtest.h>

#include <string>

#include "tests/compare/commands/called.h"

namespace assay {
namespace {

TEST(List, SupportIsWhatARunWouldSay) {
  const std::string why = "TransformerEngine has no single kernel for a pair of formats";
  const std::string line = "quantize fp8_current/fp8_block 1x256 bf16 ";
  for (const bool te : {false, true}) {
    const std::string asked = line + (te ? "flavour=te" : "");
    const Said listed = assay_called({"list", asked, "--support", "--subject", "host"});
    EXPECT_EQ(listed.status, 0) << listed.err;
    EXPECT_NE(listed.out.find(te ? "host: no, " + why : "host: yes"), std::string::npos) << listed.out;
    const Said ran = assay_called({"run", asked, "--subject", "host", "-v"});
    EXPECT_EQ(ran.out.find(why) != std::string::npos, te) << ran.out;
  }
}

}  // namespace
}  // namespace assay
