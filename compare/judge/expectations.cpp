#include "compare/judge/expectations.h"

#include <string>
#include <utility>

#include <fmt/format.h>

namespace assay {

void apply_expectation(const Expectation& expect, Verdict& v) {
  auto turn_red = [&](std::string message) {
    v.outcome = Outcome::failed;
    v.breaches.insert(v.breaches.begin(), complaint("expect", v.subject, std::move(message)));
  };
  if (expect.unsupported) {
    if (v.outcome == Outcome::unsupported) {
      v.outcome = Outcome::passed;
      v.reason = "unsupported, as expected: " + v.reason;
    } else if (v.outcome != Outcome::skipped) {
      turn_red("expected to be unsupported, but " + v.subject + " ran it: remove the annotation");
    }
    return;
  }
  if (expect.fail) {
    const std::string expected =
        fmt::format("expected to fail{} because {}",
                    expect.fail->plane.empty() ? "" : " at " + expect.fail->plane, expect.fail->because);
    if (v.outcome == Outcome::passed || v.outcome == Outcome::mistrusted) {
      turn_red(expected + ", but it passes: remove the annotation");
    } else if (v.outcome == Outcome::failed) {
      if (expect.fail->plane.empty() || (!v.breaches.empty() && v.breaches[0].plane == expect.fail->plane)) {
        v.outcome = Outcome::passed;
        v.reason = "fails as " + expected;
        v.breaches.clear();
      } else {
        turn_red(expected + ", but it fails first at " +
                 (v.breaches.empty() || v.breaches[0].plane.empty() ? "no plane" : v.breaches[0].plane));
      }
    }
    return;
  }
  if (expect.trust && v.outcome == Outcome::mistrusted) {
    v.outcome = Outcome::passed;
    v.reason = "trusted because " + *expect.trust;
    v.breaches.clear();
  }
}

}  // namespace assay
