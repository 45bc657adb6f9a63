// The environment's text form.
#include <gtest/gtest.h>

#include "contract/subject.h"

namespace assay {
namespace {

TEST(Environment, ParseOfPrintIsTheSame) {
  for (const char* text :
       {"", "threads=2", "order=reverse", "order=17,poison=ff", "threads=2,order=17,poison=0a,alignment=2",
        "arch=sm_120a", "alignment=2,arch=sm_100a"}) {
    const auto env = parse_environment(text);
    ASSERT_TRUE(env) << text << ": " << env.error().text();
  }
  const auto env = parse_environment("order=17,poison=7e,threads=2");
  EXPECT_EQ(to_text(*env), "threads=2,order=17,poison=7e");
  EXPECT_EQ(*parse_environment(to_text(*env)), *env);
  EXPECT_EQ(to_text(Environment{}), "");
  EXPECT_EQ(*parse_environment("order=forward"), Environment{});
}

// A byte that a kernel forgets is seen wherever a maximum reads it
// (BrokenKernels.MissingBarrierInAReduction).
TEST(Environment, ThePoisonIsLarge) { EXPECT_EQ(Environment{}.poison, 0x7F); }

TEST(Environment, ErrorsSayWhatIsExpected) {
  EXPECT_EQ(parse_environment("threads=0").error().text(),
            "column 1: expected threads=<1..1024>, found 'threads=0'");
  EXPECT_EQ(parse_environment("order=1,poson=3").error().text(),
            "column 9: unknown environment key 'poson' (did you mean 'poison'?)");
  for (const char* bad : {"threads", "poison=123", "poison=zz", "alignment=0", "alignment=3",
                          "alignment=8192", "order=-1", "x", "arch=sm_80", "arch="})
    EXPECT_FALSE(parse_environment(bad)) << bad;
}

}  // namespace
}  // namespace assay
