#include "compare/commands/common_cause.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "compare/diagnosis/search/predict.h"
#include "compare/judge/judge.h"
#include "compare/process/interrupt.h"
#include "compare/process/run_in_child.h"

namespace assay {

CommonCause::Line CommonCause::look(const Failure& failure) const {
  Line out;
  const Verdict& v = failure.verdict;
  Subject* const subject = subjects_.find(v.subject);
  const Breach* const breach = v.breaches.empty() ? nullptr : &v.breaches.front();
  if (!subject || !breach || breach->claim != "parity" || breach->plane.empty() || breach->in_padding ||
      !v.unpinned.empty())
    return out;
  const Problem& problem = failure.entry.problem;
  auto inputs = make_inputs(problem, subjects_.reference());
  if (!inputs) return out;
  IsolatedRun run = run_isolated(*subject, problem, *inputs, environment_, timeout_);
  if (!run.sound()) return out;
  out.seen = Observation{problem, v.subject, std::move(*inputs), std::move(run.execution.planes)};
  constexpr double kLongest = 2;
  DiagnoseOptions search;
  search.jobs = jobs_;
  search.pairs = false;
  search.budget = std::min(left_, kLongest);
  if (const auto found = diagnose(*out.seen, subjects_.reference(), search))
    for (const Explanation& e : found->explanations)
      if (e.exact() && e.ids.size() == 1) out.exact.push_back(e);
  return out;
}

bool CommonCause::predicts(const Explanation& e, const Line& line) const {
  const auto made = predict(e, line.seen->problem, line.seen->inputs, subjects_.reference());
  return made && judge(&line.seen->problem, line.seen->got, *made).equal();
}

std::optional<std::string> CommonCause::of(const std::vector<Failure>& failures) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<const Line*> lines;
  for (const Failure& f : failures) {
    if (left_ <= 0 || interrupted()) return {};
    const std::string key = f.verdict.subject + " " + f.entry.text;
    auto known = lines_.find(key);
    if (known == lines_.end()) known = lines_.emplace(key, look(f)).first;
    const auto now = std::chrono::steady_clock::now();
    if (!known->second.seen) return {};
    lines.push_back(&known->second);
    if (std::chrono::duration<double>(now - start).count() > left_) break;
  }
  std::optional<std::string> out;
  for (const Line* of : lines)
    for (const Explanation& e : of->exact)
      if (!out && lines.size() == failures.size() &&
          std::all_of(lines.begin(), lines.end(), [&](const Line* line) { return predicts(e, *line); }))
        out = fmt::format("{}   [{}]", e.title, e.ids.front());
  left_ -= std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

}  // namespace assay
