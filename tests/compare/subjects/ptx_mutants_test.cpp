// One modifier, constant, selector, predicate, register or label of a kernel's text changed: a case of that
// kernel notices it, or the table says why no case can.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "tests/compare/subjects/ptx_fixtures.h"

namespace assay {
namespace {

using namespace ptx_fixtures;

struct Mutant {
  const char* kernel;
  const char* from;  // stands once in the kernel's text
  const char* to;
  const char* equal = nullptr;  // why no byte can differ; null where a case must notice the change
};
const Mutant kMutants[] = {
#include "tests/compare/subjects/ptx_mutants.inc"
};

// What a case of the kernel says of its changed text, first in the forward order, then in one that finds
// races and values that nobody wrote; "" where none says anything.
std::string noticed_by(const Copy& copy, const std::string& kernel) {
  const auto subject = make_ptx_kernel_subject(copy.write());
  if (!subject) return subject.error().text();
  for (const uint64_t order : {0, 3})
    for (const EqualKernel& k : kEqual) {
      if (kernel != k.name) continue;
      Environment env;
      env.order = order;
      if (order) env.poison = 0x5A;
      for (const std::string& fill : words_of(k.fills))
        if (auto why = difference(**subject, std::string(k.line) + " fill=" + fill, env); !why.empty())
          return why;
    }
  return "";
}

TEST(PtxMutants, AreNoticedOrShownEqual) {
  for (const Mutant& m : kMutants) {
    Copy copy(m.kernel);
    ASSERT_EQ(copy.count(m.from), 1u) << m.kernel << ": '" << m.from << "' must stand in the text once";
    copy.change_text(m.from, m.to);
    const std::string why = noticed_by(copy, m.kernel);
    if (m.equal)
      EXPECT_EQ(why, "") << m.kernel << ": " << m.from << " -> " << m.to << " is in the table as equal";
    else EXPECT_NE(why, "") << m.kernel << ": nothing notices " << m.from << " -> " << m.to;
  }
}

TEST(PtxMutants, EveryKernelHasOne) {
  std::set<std::string> changed;
  size_t equal = 0;
  for (const Mutant& m : kMutants)
    if (m.equal) ++equal;
    else changed.insert(m.kernel);
  for (const EqualKernel& k : kEqual) EXPECT_TRUE(changed.contains(k.name)) << k.name;
  EXPECT_GE(std::size(kMutants) - equal, 60u);
}

}  // namespace
}  // namespace assay
