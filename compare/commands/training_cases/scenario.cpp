#include "compare/commands/training_cases/scenario.h"

#include <chrono>

#include <fmt/format.h>

#include "compare/commands/training_cases/counting_subject.h"

namespace assay {

using std::string;
using training::Scenario;
using training::ScenarioRun;

namespace {

// Runs the scenario. Returns what ended it early, or an empty string.
string run_scenario(const Scenario& s, ScenarioRun& run) {
  try {
    s.run(run);
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
  const auto start = std::chrono::steady_clock::now();
  const string ended = run_scenario(s, run);
  v.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const training::Unmet& u : run.unmet())
    v.breaches.push_back(complaint("scenario", subject.name(),
                                   fmt::format("{}\nexpected {}\nfound    {}", u.what, u.expected, u.found)));
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
  out.about = {string(s.title), "given " + string(s.given), "when  " + string(s.when),
               "then  " + string(s.then)};
  out.judge = [&s](Subject& subject, Subject& reference, const Environment& e) {
    return judge_scenario(s, subject, reference, e);
  };
  return out;
}

}  // namespace assay
