// Which causes a hunt reports, and which it knows already.
#include "compare/commands/hunt/known_causes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compare/commands/hunt/cause.h"

namespace assay::hunting {
namespace {

Finding finding(const std::string& cause, const std::string& line, bool looked = true) {
  Finding f;
  f.cause = cause, f.line = line, f.looked = looked;
  return f;
}

TEST(KnownCauses, ACauseIsNewOnce) {
  KnownCauses known({finding("old", "line 1")});
  EXPECT_TRUE(known.has("old"));
  EXPECT_FALSE(known.add(finding("old", "line 2"), {}));
  EXPECT_FALSE(known.has("new"));
  EXPECT_TRUE(known.add(finding("new", "line 2"), {}));
  EXPECT_TRUE(known.has("new"));
  EXPECT_FALSE(known.add(finding("new", "line 3"), {}));
}

TEST(KnownCauses, ACauseThatNobodyLookedForWaits) {
  KnownCauses known({finding("kind", "line 1", false)});
  EXPECT_FALSE(known.has("kind"));
  EXPECT_TRUE(known.waits("kind"));
  EXPECT_FALSE(known.add(finding("kind", "line 2", false), {})) << "it stands there already";
  EXPECT_TRUE(known.add(finding("kind", "line 1"), {finding("kind", "line 1", false)}))
      << "now it is looked for";
  EXPECT_FALSE(known.waits("kind"));
  EXPECT_FALSE(known.add(finding("kind", "line 3", false), {}));
  EXPECT_FALSE(known.waits("another"));
}

TEST(KnownCauses, ALineUnderAnotherCauseIsNotNew) {
  const Finding first = finding("one name", "line 1");
  EXPECT_FALSE(KnownCauses({first}).add(finding("another name", "line 1"), {first}));
  EXPECT_TRUE(KnownCauses({first}).add(finding("another name", "line 2"), {first}));
  EXPECT_TRUE(KnownCauses({}).add(finding("another name", "line 1"), {first})) << "the first is mended";
  EXPECT_TRUE(KnownCauses({}).add(first, {first})) << "it is mended, and comes back";
  const Finding unlooked = finding("one name", "line 1", false);
  EXPECT_TRUE(KnownCauses({unlooked}).add(finding("another name", "line 1"), {unlooked}));
  Finding end = finding("what a sanitizer says", "line 1");
  end.claim = kOfASanitizer;
  EXPECT_TRUE(KnownCauses({first}).add(end, {first}));
}

Finding explained(const std::string& cause, const std::string& line,
                  const std::vector<std::string>& others = {}) {
  Finding f = finding(cause, line);
  f.explained = true, f.others = others;
  return f;
}

// What makes the same bytes may be what is known, under whichever name.
TEST(KnownCauses, AFindingThatAKnownCauseExplainsTooIsNotNew) {
  const Finding old = explained("known", "line 1");
  EXPECT_FALSE(KnownCauses({old}).add(explained("another", "line 2", {"third", "known"}), {old}));
  EXPECT_TRUE(KnownCauses({old}).add(explained("another", "line 2", {"third"}), {old}));
  EXPECT_TRUE(KnownCauses({}).add(explained("another", "line 2", {"known"}), {}));
  Finding unexplained = finding("another", "line 2");
  unexplained.others = {"known"};
  EXPECT_TRUE(KnownCauses({old}).add(unexplained, {old})) << "its cause is a kind of failure";
  const Finding unlooked = finding("known", "line 1", false);
  EXPECT_TRUE(KnownCauses({unlooked}).add(explained("another", "line 2", {"known"}), {unlooked}));
}

TEST(KnownCauses, ACauseThatIsNotNewStaysUnknown) {
  KnownCauses known({explained("known", "line 1")});
  EXPECT_FALSE(known.add(explained("another", "line 2", {"known"}), {}));
  EXPECT_FALSE(known.has("another"));
  EXPECT_TRUE(known.add(explained("another", "line 3"), {})) << "a line that only it explains";
}

TEST(KnownCauses, ACauseOfOneDirectionIsKnownInTheOther) {
  const char* names[] = {"op scale.up", "op scale.up@row", "op scale.up@col"};
  for (const char* old : names)
    for (const char* now : names) {
      EXPECT_FALSE(KnownCauses({explained(old, "line 1")}).add(explained(now, "line 2"), {})) << old << now;
      EXPECT_FALSE(KnownCauses({explained(old, "line 1")}).add(explained("x", "line 2", {now}), {}))
          << old << now;
    }
  EXPECT_FALSE(KnownCauses({explained("op one@row + two@col", "line 1")})
                   .add(explained("op one@col + two@row", "line 2"), {}));
  EXPECT_TRUE(KnownCauses({explained("op scale.up@row", "line 1")})
                  .add(explained("op scale.down@row", "line 2"), {}));
}

}  // namespace
}  // namespace assay::hunting
