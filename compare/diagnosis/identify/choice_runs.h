// What the choices of a format make of the cases of a group, and how much of it came.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compare/diagnosis/identify/choices.h"
#include "compare/diagnosis/identify/groups.h"
#include "contract/result.h"
#include "contract/subject.h"

namespace assay::identifying {

struct Share {
  int64_t agree = 0, of = 0;
  double value() const { return of ? static_cast<double>(agree) / static_cast<double>(of) : 1; }
  bool all() const { return agree == of; }
};
struct Outcome {
  std::map<std::string, Share> planes;  // in causal order of `order`
  std::string bytes;       // digest of what the choice makes: equal ones cannot be told apart here
  std::string trouble;     // it cannot be run
  bool cut_short = false;  // an interrupt ended its run: nothing is known of it
  bool all() const {
    return trouble.empty() && !planes.empty() &&
           std::all_of(planes.begin(), planes.end(), [](const auto& p) { return p.second.all(); });
  }
  double agreement() const {
    double sum = 0;
    for (const auto& [name, share] : planes) sum += share.value();
    return planes.empty() ? 0 : sum / static_cast<double>(planes.size());
  }
};
// Choices that make the same bytes of this group.
struct Class {
  std::vector<Choice> choices;
  Outcome outcome;
  bool sampled = false;  // seen on a sample alone
  bool exact() const { return !sampled && outcome.all(); }
};

// Runs choices on the reference, on all cases of one group. Each is run once.
class ChoiceRuns {
 public:
  // `jobs`: threads, 0: the cores of this machine; `timeout`: seconds for one run.
  ChoiceRuns(const Group& group, Subject& reference, int jobs, double timeout);

  // The line of a case under a choice's keys.
  Result<Problem> problem(const Case& c, const std::string& keys) const;
  // A key that is unknown to the line is trouble of the choice, not of the case.
  const Outcome& outcome(const std::string& keys);
  // The planes of one choice for one case, or nothing.
  std::optional<std::vector<PlaneData>> planes(const Case& c, const Problem& p);

  const Group& group() const { return group_; }
  // Told after every choice that rank() has run, with the number of those that it was given.
  std::function<void(size_t done, size_t of)> on_progress;

 private:
  void judge(const Case& c, const Problem& p, Outcome& out, std::string& made);
  Result<F32Bits> amax_of_whole(const Case& c, const Tiling& tiling, Direction d) const;

  const Group& group_;
  Subject& reference_;
  double timeout_;
  Environment environment_;
  std::string trouble_;
  bool cut_short_ = false;
  std::map<std::string, Outcome> outcomes_;
  mutable std::map<std::pair<const Case*, std::string>, F32Bits> amaxes_;  // of samples, by their lines
};

// Classes by what they make, the best first; in a class those whose library the pack names come first, and
// else the order is that of the choices. An interrupt ends it with the choices that were run until then;
// `tried` is told how many that were.
std::vector<Class> rank(ChoiceRuns& runs, const std::vector<Choice>& choices, size_t* tried = nullptr);

}  // namespace assay::identifying
