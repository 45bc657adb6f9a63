#include "compare/commands/training_cases/processes.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "compare/commands/worker_verdict.h"
#include "fixtures/json.h"
#include "training/base/rank_engine.h"
#include "training/base/ranks.h"

namespace assay {

using std::string;
using training::rank_engine;
using training::RankError;
using training::texts_of_processes;

namespace {

// How long the first process waits for what the others said when they gave up. Open MPI's mpirun kills a
// second after it has asked to end.
constexpr std::chrono::milliseconds kLastWords{400};

// Why the case does not run here, in which no process may differ; empty where it runs.
string reason_to_skip(const TrainingCase& c) {
  const int processes = rank_engine().processes();
  if (c.ranks == 1) return "one rank: run it without a launcher";
  if (c.ranks > processes)
    return fmt::format("needs {} processes, found {}: mpirun -n {}", c.ranks, processes, c.ranks);
  return {};
}

Verdict skipped(const string& reason) {
  Verdict v;
  v.claims = {"ranks"};
  v.outcome = Outcome::skipped;
  v.reason = reason;
  return v;
}

// This process's verdict, with what the others found wrong.
Verdict merged(Verdict mine) {
  const std::vector<string> all = texts_of_processes("the verdict", json::dump(to_json(mine)));
  for (size_t p = 1; p < all.size(); ++p) {
    const Verdict other = verdict_of_worker(all[p]);
    mine.launches += other.launches;
    if (!is_red(other.outcome) || is_red(mine.outcome)) continue;
    mine.outcome = other.outcome;
    mine.breaches = other.breaches;
    mine.reason = fmt::format("rank {}: {}", p, other.reason);
    if (mine.breaches.empty()) mine.breaches.push_back(complaint("ranks", mine.subject, mine.reason));
    else mine.breaches.front().message = fmt::format("rank {}: {}", p, mine.breaches.front().message);
  }
  return mine;
}

// What this process makes of losing the others. In the first one a verdict; the others give it time to
// report, and end the run themselves where it does not.
Verdict lost(const string& why, const Subject& subject) {
  if (rank_engine().process() != 0) {
    // The first reports within kLastWords, where it is there and waits itself. A launcher kills after a
    // second.
    const std::chrono::milliseconds patience(rank_engine().told_to_end() ? 100 : 5000);
    std::this_thread::sleep_for(kLastWords + patience +
                                rank_engine().process() * std::chrono::milliseconds(50));
    rank_engine().abort(1, fmt::format("assay: {}", why));
  }
  Verdict v;
  v.outcome = Outcome::failed;
  v.claims = {"ranks"};
  string all = why;
  for (const string& words : rank_engine().last_words(kLastWords)) all += "\n" + words;
  v.breaches.push_back(complaint("ranks", subject.name(), all));
  return v;
}

}  // namespace

string disagreement_of_processes(const std::vector<TrainingCase>& cases, const RunSettings& settings) {
  string mine = fmt::format("{} case(s) on {}:", cases.size(), fmt::join(settings.subjects, ","));
  for (const TrainingCase& c : cases) mine += " " + c.entry.text;
  const std::vector<string> all = texts_of_processes("what to judge", mine);
  for (size_t p = 1; p < all.size(); ++p)
    if (all[p] != all[0])
      return fmt::format(
          "the ranks disagree about what to judge: rank 0 has {:.60}, rank {} has {:.60}; start "
          "every process with the same arguments",
          all[0], p, all[p]);
  return {};
}

bool run_in_processes(const std::vector<TrainingCase>& cases, const Subjects& subjects,
                      const RunSettings& settings,
                      const std::function<bool(const TrainingCase&, Verdict)>& on_result) {
  const bool first = rank_engine().process() == 0;
  for (const TrainingCase& c : cases)
    for (const string& name : settings.subjects) {
      Subject& subject = *subjects.find(name);
      const auto tell = [&](Verdict v) {
        v.subject = subject.name();
        v.argument = subject.argument();
        v.about = c.about;
        return !first || on_result(c, std::move(v));
      };
      const string reason = reason_to_skip(c);
      if (!reason.empty()) {
        if (!tell(skipped(reason))) return true;
        continue;
      }
      string ended;
      Verdict verdict;
      try {
        verdict = c.judge(subject, subjects.reference(), settings.claims.environment);
        verdict = merged(std::move(verdict));
      } catch (const RankError& e) {
        ended = e.what();
        rank_engine().lost = true;
      }
      const bool go_on = tell(ended.empty() ? std::move(verdict) : lost(ended, subject));
      if (rank_engine().lost) return false;
      if (settings.stop_at_first && texts_of_processes("the next case", go_on ? "" : "end").front() == "end")
        return true;
    }
  return true;
}

}  // namespace assay
