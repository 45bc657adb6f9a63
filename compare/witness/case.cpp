#include "compare/witness/case.h"

#include <algorithm>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/equal_bytes.h"
#include "compare/arithmetic/places.h"
#include "compare/judge/judge.h"
#include "compare/judge/parity.h"
#include "compare/process/run_in_child.h"

namespace assay {

using std::string;

namespace {

bool same_given(const std::vector<PlaneData>& a, const std::vector<PlaneData>& b) {
  auto same = [](const PlaneData& x, const PlaneData& y) {
    return x.plane.name == y.plane.name && equal_bytes(x.bytes, y.bytes);
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

// What the vectors say the plane is: padding that they leave out is taken as it came.
PlaneData wanted(const VectorCheck& check, const PlaneData& got) {
  PlaneData want = got;
  if (check.padded) {
    want.bytes = check.want;
    return want;
  }
  auto code = [&](int64_t i) { return code_at(want.plane.encoding, check.want, i); };
  for (size_t i = 0; i < check.at.size(); ++i)
    set_code(want.plane, want.bytes, check.at[i], code(static_cast<int64_t>(i)));
  if (!check.at.empty()) return want;
  const int64_t rows = want.plane.logical.rows, cols = want.plane.logical.cols;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      set_code(want.plane, want.bytes, index_of(want.plane, r, c), code(r * cols + c));
  return want;
}

// The breach of the planes that the first source gives, in causal order: what one screen is about.
std::optional<Breach> breach_of(const VectorCase& c, const std::vector<PlaneData>& made,
                                const Subject& subject) {
  std::vector<PlaneData> got, want;
  for (const PlaneData& plane : made)
    for (const VectorCheck& check : c.checks)
      if (check.plane == plane.plane.name && check.source == c.checks.front().source &&
          !find_plane(got, check.plane)) {
        got.push_back(plane);
        want.push_back(wanted(check, plane));
      }
  return parity_breach(c.problem, judge(&c.problem, got, want), subject.name(), "vectors");
}

}  // namespace

void add_check(std::vector<VectorCase>& cases, VectorCheck check) {
  for (VectorCase& c : cases)
    if (c.problem == check.problem && same_given(c.given, check.inputs)) {
      c.checks.push_back(std::move(check));
      return;
    }
  VectorCase c{check.problem, check.inputs, {}};
  c.checks.push_back(std::move(check));
  cases.push_back(std::move(c));
}

VectorAnswer judge_vectors(const VectorCase& c, Subject& subject, const Subjects& subjects,
                           const Environment& environment, double timeout) {
  VectorAnswer answer;
  auto failed = [&](string message) {
    answer.equal.clear();
    answer.breach.emplace();
    answer.breach->message = std::move(message);
    return answer;
  };
  const auto inputs = inputs_with(c.problem, c.given, subjects.reference());
  if (!inputs) return failed(inputs.error().text());
  const IsolatedRun run = run_isolated(subject, c.problem, *inputs, environment, timeout);
  if (run.status == IsolatedRun::Status::interrupted) return answer.interrupted = true, answer;
  if (run.status == IsolatedRun::Status::unsupported) return answer.unsupported = run.why, answer;
  if (!run.sound()) return failed(run.trouble());

  std::vector<PlaneData> made;  // the members of a split one by one, as the checks name them
  for (const PlaneData& plane : run.execution.planes)
    for (PlaneData& one : members_of(plane)) made.push_back(std::move(one));
  for (const VectorCheck& check : c.checks) {
    const PlaneData& plane = *find_plane(made, check.plane);
    if (plane.plane.logical.count() == 0 &&
        check.want.empty()) {  // a member without elements has nothing to compare
      answer.equal.push_back(true);
      continue;
    }
    const Judgement one = judge(&c.problem, {plane}, {wanted(check, plane)});
    if (!one.error.empty()) return failed(one.error);
    answer.equal.push_back(one.equal() && one.padding.empty());
  }
  if (std::find(answer.equal.begin(), answer.equal.end(), false) != answer.equal.end())
    answer.breach = breach_of(c, made, subject);
  return answer;
}

}  // namespace assay
