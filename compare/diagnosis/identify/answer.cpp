#include "compare/diagnosis/identify/answer.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "compare/arithmetic/equal_bytes.h"
#include "compare/diagnosis/identify/tried_choices.h"
#include "compare/diagnosis/patterns/layouts.h"
#include "compare/packs/dump.h"
#include "compare/process/interrupt.h"
#include "compare/process/run_in_child.h"
#include "contract/line.h"

namespace assay::identifying {

using std::string;

namespace {

// The time that runs on the whole of a group may take. A group that was not sampled has as much as it needs.
class Time {
 public:
  Time(double seconds, bool limited) : seconds_(seconds), limited_(limited) {}
  bool is_up() const { return limited_ && std::chrono::steady_clock::now() - start_ > seconds_; }

 private:
  std::chrono::duration<double> seconds_;
  bool limited_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// ---- choices that are equal here --------------------------------------------------------------------------

// Fills on which choices that made equal bytes here differ: the first one, and more while they part further.
std::vector<Parting> tell_apart(const Group& group, const std::vector<Choice>& choices, Subject& reference) {
  std::vector<Parting> out;
  Problem base = group.cases.front().problem;
  base.op = Quantize{};
  base.x.shape = {64, 256};
  size_t parts = 1;
  for (FillKind kind : {FillKind::nonfinite, FillKind::zeros, FillKind::negative_zeros, FillKind::amax_edges,
                        FillKind::ties, FillKind::denormal, FillKind::wide, FillKind::normal}) {
    base.x.fill = Fill{};
    base.x.fill.kind = kind;
    std::map<string, std::vector<string>> by_bytes;
    std::vector<string> order;
    for (const Choice& choice : choices) {
      const auto p =
          group.side ? with_choice(base, choice.keys, *group.side) : with_choice(base, choice.keys);
      const auto inputs = p ? make_inputs(*p, reference) : Result<std::vector<PlaneData>>(Error{});
      if (!inputs) continue;
      const IsolatedRun run = run_isolated(reference, *p, *inputs, Environment{}, 60);
      if (run.status == IsolatedRun::Status::interrupted) return out;
      string bytes;
      for (const PlaneData& plane : run.execution.planes) bytes += digest(plane.bytes);
      if (by_bytes[bytes].empty()) order.push_back(bytes);
      by_bytes[bytes].push_back(choice.name);
    }
    if (order.size() <= parts) continue;
    parts = order.size();
    std::vector<std::vector<string>> split;
    for (const string& bytes : order) split.push_back(by_bytes[bytes]);
    const string line = to_line(base);
    out.assign(1,
               {line.substr(line.find("fill=") == string::npos ? line.size() : line.find("fill=")), split});
    if (out.front().first.empty()) out.front().first = "fill=normal";
    if (parts == choices.size()) break;
  }
  return out;
}

// ---- where no choice is exact -----------------------------------------------------------------------------

// The first choice of the ranking whose every plane that differs is the wanted one in another order, by the
// group's first case.
std::vector<Fit> layouts_of(ChoiceRuns& runs, const std::vector<Class>& ranking, const Time& time) {
  constexpr size_t kOfSample =
      3;  // of a large case, which takes a while: those that are nearest on the sample
  const Group& group = runs.group();
  const Case& c = group.cases.front();
  for (size_t i = 0; i < ranking.size(); ++i) {
    const Class& choice = ranking[i];
    if ((choice.sampled && i == kOfSample) || time.is_up()) break;
    const auto p = runs.problem(c, choice.choices.front().keys);
    const auto want = p ? runs.planes(c, *p) : std::nullopt;
    if (!want) continue;
    std::vector<Fit> found;
    bool explained = true;
    for (const PlaneData& plane : *want) {
      const PackPlane* recorded = c.dump->recorded->find(plane.plane.name);
      if (!recorded || !recorded->tensor || !plane.plane.members.empty() ||
          (group.side && plane.plane.direction != group.side))
        continue;
      const auto got = dump_plane(*recorded->tensor, plane.plane, &plane);
      if (!got || equal_bytes(got->bytes, plane.bytes)) continue;
      const std::vector<LayoutFit> fits = fit_layouts(plane.plane, got->bytes, plane.bytes);
      if (fits.empty() || !fits.front().exact) explained = false;
      else
        found.push_back(
            {choice.choices.front(), plane.plane.name, fits.front().name, fits.front().description});
    }
    if (explained && !found.empty()) return found;
  }
  return {};
}

int64_t elements_of(const Case& c) { return c.tile ? c.tile->shape.count() : c.problem.x.shape.count(); }

// The smallest case that the best choice does not make.
Group smallest_open(const Group& group, const Choice& best, Subject& reference, int jobs, double timeout) {
  Group out = group;
  out.cases.clear();
  for (const Case& c : group.cases) {
    Group one = out;
    one.cases = {c};
    const bool smaller = out.cases.empty() || elements_of(c) < elements_of(out.cases.front());
    if (smaller && !ChoiceRuns(one, reference, jobs, timeout).outcome(best.keys).all()) out.cases = {c};
  }
  return out;
}

// Exact choices that are one more key, or two, away from one of the three best. They are looked for on the
// smallest case that tells, or part of one, and then held to all.
std::vector<Class> one_or_two_keys(ChoiceRuns& runs, const Group& open, const std::vector<Class>& ranking,
                                   Subject& reference, int jobs, double timeout) {
  const Group small = smallest_open(open, ranking.front().choices.front(), reference, jobs, timeout);
  if (small.cases.empty()) return {};
  ChoiceRuns screen(small, reference, jobs, timeout);
  std::vector<Choice> found, next;
  for (size_t i = 0; i < std::min<size_t>(3, ranking.size()); ++i) {
    const Choice& base = ranking[i].choices.front();
    const double before = screen.outcome(base.keys).agreement();
    const std::vector<Class> changed = rank(screen, changes_of(base));
    for (const Class& c : changed)
      if (c.outcome.all()) found.push_back(c.choices.front());
      else if (next.size() < 4 && c.outcome.agreement() > before) next.push_back(c.choices.front());
  }
  if (found.empty())
    for (const Choice& base : next)
      for (const Class& c : rank(screen, changes_of(base)))
        if (c.outcome.all()) found.push_back(c.choices.front());
  std::vector<Class> out = rank(runs, found);
  std::erase_if(out, [](const Class& c) { return !c.outcome.all(); });
  return out;
}

// ---- approximate kernels ----------------------------------------------------------------------------------

// The planes of a case that a pack holds.
std::vector<PlaneData> recorded_planes(const Case& c) {
  std::vector<PlaneData> out;
  for (const Plane& plane : output_planes(c.problem))
    if (const PackPlane* recorded = c.dump->recorded->find(plane.name); recorded && recorded->tensor)
      if (auto data = dump_plane(*recorded->tensor, plane)) out.push_back(std::move(*data));
  return out;
}

// How the bytes of all cases fit one kernel.
Consistency consistency(const Approximate& kernel, const Group& group) {
  Consistency sum;
  sum.decided = true;
  for (const Case& c : group.cases) {
    const Consistency one = consistent(kernel, c.problem, c.inputs, recorded_planes(c));
    sum.decided = sum.decided && one.decided;
    sum.amaxes_outside += one.amaxes_outside;
    sum.scales_outside += one.scales_outside;
    sum.scales_of += one.scales_of;
    sum.codes_outside += one.codes_outside;
    sum.codes_of += one.codes_of;
  }
  return sum;
}

// The ranking by a sample, but what is exact there is judged on the whole, as far as the time allows.
std::vector<Class> rank_by_sample(ChoiceRuns& runs, ChoiceRuns& sample, const std::vector<Choice>& choices,
                                  const Time& time, Answer& answer) {
  std::vector<Class> seen = rank(sample, choices, &answer.tried);
  std::vector<Choice> survivors;
  for (Class& c : seen) {
    c.sampled = true;
    if (c.outcome.all()) survivors.insert(survivors.end(), c.choices.begin(), c.choices.end());
  }
  std::vector<Choice> judged;
  for (const Choice& choice : survivors) {
    if (!judged.empty() && time.is_up()) break;
    if (runs.outcome(choice.keys).cut_short) break;
    judged.push_back(choice);
    if (runs.on_progress) runs.on_progress(judged.size(), survivors.size());
  }
  if (interrupted()) answer.tried -= survivors.size() - judged.size();
  else answer.out_of_time = judged.size() < survivors.size();
  std::vector<Class> out = rank(runs, judged);
  const auto is_judged = [&](const Choice& choice) {
    return std::any_of(judged.begin(), judged.end(), [&](const Choice& j) { return j.keys == choice.keys; });
  };
  for (Class& c : seen) {
    if (c.outcome.all()) std::erase_if(c.choices, is_judged);
    if (!c.choices.empty()) out.push_back(std::move(c));
  }
  std::stable_sort(out.begin(), out.end(), [](const Class& a, const Class& b) {
    return std::tuple(a.exact(), a.outcome.all(), a.outcome.agreement()) >
           std::tuple(b.exact(), b.outcome.all(), b.outcome.agreement());
  });
  return out;
}

}  // namespace

Answer answer(const Group& group, Subject& reference, int jobs, double timeout, const AnswerHooks& hooks) {
  Answer out;
  ChoiceRuns runs(group, reference, jobs, timeout);
  const std::vector<Choice> choices = choices_for(runs);
  out.of = choices.size();
  const std::optional<Group> sample = sample_of(group, hooks.large, reference);
  const Time time(hooks.budget, sample.has_value());
  ChoiceRuns sampled(sample ? *sample : group, reference, jobs, timeout);
  runs.on_progress = sampled.on_progress = hooks.on_progress;
  if (sample)
    for (const Case& c : sample->cases) out.sample += elements_of(c);
  out.ranking = sample ? rank_by_sample(runs, sampled, choices, time, out) : rank(runs, choices, &out.tried);
  runs.on_progress = {};
  out.cut_short = out.tried < out.of;
  if (out.ranking.empty() || out.cut_short) return out;
  const Class& best = out.ranking.front();
  if (best.exact()) {
    if (best.choices.size() > 1) out.apart = tell_apart(group, best.choices, reference);
  } else {
    out.layouts = layouts_of(runs, out.ranking, time);
    if (out.layouts.empty())
      out.changed = one_or_two_keys(runs, best.sampled ? sampled.group() : group, out.ranking, reference,
                                    jobs, timeout);
  }
  for (const Approximate& kernel : approximates()) {
    if (interrupted()) break;
    if (kernel.format != group.format || group.side) continue;
    if (time.is_up()) {
      out.out_of_time = true;
      break;
    }
    const Approximation a{&kernel, consistency(kernel, group)};
    if (a.sum.consistent()) out.approximate.push_back(a);
  }
  out.out_of_time |= time.is_up() && !best.exact();
  out.cut_short = interrupted();
  return out;
}

}  // namespace assay::identifying
