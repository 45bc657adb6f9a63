#include "compare/commands/training_cases/scenario.h"

#include <chrono>

#include <fmt/format.h>

#include "compare/commands/training_cases/counting_subject.h"
#include "compare/commands/training_cases/rank_runs.h"
#include "training/base/rank_engine.h"
#include "training/base/ranks.h"

namespace assay {

using std::string;
using training::Scenario;
using training::ScenarioRun;

namespace {

// Runs the scenario. Returns what ended it early, or an empty string. Ranks that lost one another end more
// than the scenario.
string run_scenario(const Scenario& s, ScenarioRun& run) {
  try {
    s.run(run);
  } catch (const training::RankError& e) {
    if (training::rank_engine().lost) throw;
    return e.what();
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

Verdict judge_scenario(const Scenario& s, Subject& judged, Subject& reference,
                       const Environment& environment) {
  CountingSubject subject(judged);
  Verdict v;
  v.claims = {"scenario"};
  if (!s.run) {
    v.outcome = Outcome::unsupported;
    v.reason = s.unsupported;
    return v;
  }
  ScenarioRun run(subject, reference, environment);
  const training::RankTranscript ranks;
  const auto start = std::chrono::steady_clock::now();
  const string ended = run_scenario(s, run);
  v.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  v.ranks = to_text(ranks.runs);
  for (const training::Unmet& u : run.unmet())
    v.breaches.push_back(complaint("scenario", subject.name(),
                                   fmt::format("{}\nexpected {}\nfound    {}", u.what, u.expected, u.found)));
  if (ended.empty() && ranks.most() != s.ranks)
    v.breaches.push_back(complaint(
        "scenario", subject.name(),
        fmt::format("its row says that it runs {} rank(s) at once, found {}", s.ranks, ranks.most())));
  if (!ended.empty()) v.breaches.push_back(complaint("scenario", subject.name(), "ended early: " + ended));
  v.witness = fmt::format("{} expectations, {} bytes compared", run.expectations(), run.bytes_compared());
  subject.report(v);
  if (!v.breaches.empty()) {
    v.outcome = Outcome::failed;
  } else if (run.expectations() == 0) {
    v.outcome = Outcome::mistrusted;
    v.reason = "it expected nothing";
  }
  return v;
}

}  // namespace

TrainingCase case_of(const Scenario& s) {
  TrainingCase out;
  out.entry.file = "scenarios";
  out.entry.text = s.id;
  out.ranks = s.ranks;
  out.about = {string(s.title), "given " + string(s.given), "when  " + string(s.when),
               "then  " + string(s.then)};
  out.judge = [&s](Subject& subject, Subject& reference, const Environment& e) {
    return judge_scenario(s, subject, reference, e);
  };
  return out;
}

}  // namespace assay
