#include "compare/commands/training_cases.h"

#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "compare/commands/selection.h"
#include "compare/commands/training_cases/parity.h"
#include "compare/commands/training_cases/processes.h"
#include "compare/commands/training_cases/scenario.h"
#include "compare/commands/worker_verdict.h"
#include "compare/process/no_exit.h"
#include "compare/process/pool.h"
#include "fixtures/json.h"
#include "training/base/rank_engine.h"
#include "training/parity/cells.h"
#include "training/parity/judge.h"
#include "training/scenarios/scenario.h"

namespace assay {

using std::string;

namespace {

using Cases = std::vector<TrainingCase>;

Result<Cases> factory_matrix(const string& word) {
  constexpr std::string_view kForm = "roles factory=";
  if (!word.starts_with(kForm) || word.find(' ', kForm.size()) != word.npos)
    return Error{
        fmt::format("expected roles, 'roles all', 'roles left-out' or 'roles factory=<name>', found '{}'",
                    word),
        0, "--filter chooses among the cells"};
  const auto cells = training::factory_cells(std::string_view(word).substr(kForm.size()));
  if (!cells) return cells.error();
  Cases out;
  for (const training::FactoryCell& f : *cells) out.push_back(case_of(f));
  return out;
}

Result<Cases> one_cell(const string& word) {
  const auto cell = training::parity_cell(word);
  if (!cell) return cell.error();
  return Cases{case_of(*cell)};
}

Result<Cases> one_scenario(const string& word) {
  const training::Scenario* s = training::find_scenario(word);
  if (!s) return Error{fmt::format("there is no scenario '{}'", word), 0, "assay list scenarios prints them"};
  return Cases{case_of(*s)};
}

// The cases that a word stands for; nothing for a word that is a suite or a line.
std::optional<Result<Cases>> cases_of(const string& word) {
  Cases out;
  if (word == "scenarios") {
    for (const training::Scenario& s : training::scenarios()) out.push_back(case_of(s));
    return out;
  }
  if (word == "ranks") {
    for (const training::Scenario& s : training::scenarios())
      if (s.ranks > 1) out.push_back(case_of(s));
    for (const training::Cell& c : training::parity_cells())
      if (c.ranks > 1) out.push_back(case_of(c));
    return out;
  }
  if (word == "roles" || word == "roles all")
    for (const training::Cell& c : training::parity_cells()) out.push_back(case_of(c));
  if (word == "roles left-out" || word == "roles all")
    for (const training::Cell& c : training::left_out_cells()) out.push_back(case_of(c));
  if (!out.empty()) return out;
  if (word.starts_with("roles ")) return factory_matrix(word);
  if (word.starts_with("parity ")) return one_cell(word);
  if (word.starts_with("S-")) return one_scenario(word);
  return std::nullopt;
}

// What a filter looks at.
string searched(const TrainingCase& c) {
  string all = c.entry.text;
  for (const string& line : c.about) all += "\n" + line;
  return all;
}

}  // namespace

Result<Cases> take_training_cases(std::vector<string>& what, const string& filter, const string& shard) {
  Result<CaseChoice> choice = CaseChoice::of(filter, shard);
  if (!choice) return choice.error();
  Cases out;
  std::vector<string> rest;
  for (string& word : what) {
    auto cases = cases_of(word);
    if (!cases) {
      rest.push_back(std::move(word));
      continue;
    }
    if (!*cases) return cases->error();
    for (TrainingCase& c : **cases) out.push_back(std::move(c));
  }
  what = std::move(rest);
  std::erase_if(
      out, [&](const TrainingCase& c) { return !choice->passes_filter(searched(c)) || !choice->in_shard(); });
  return out;
}

bool run_training_cases(const Cases& cases, const Subjects& subjects, const RunSettings& settings,
                        const std::function<bool(const TrainingCase&, const Verdict&)>& on_result) {
  if (training::rank_engine().processes() > 1) return run_in_processes(cases, subjects, settings, on_result);
  const std::vector<string>& names = settings.subjects;
  const auto case_at = [&](size_t i) -> const TrainingCase& { return cases[i / names.size()]; };
  const auto subject_at = [&](size_t i) -> Subject& { return *subjects.find(names[i % names.size()]); };
  const auto judge = [&](size_t i) {
    return case_at(i).judge(subject_at(i), subjects.reference(), settings.claims.environment);
  };
  const auto done = [&](size_t i, Verdict v) {
    v.subject = subject_at(i).name();
    v.argument = subject_at(i).argument();
    v.about = case_at(i).about;
    return on_result(case_at(i), v);
  };
  const size_t count = cases.size() * names.size();
  if (settings.in_process) {
    for (size_t i = 0; i < count; ++i) {
      std::optional<NoExit> no_exit(case_at(i).entry.text);
      Verdict v = judge(i);
      no_exit.reset();
      if (!done(i, std::move(v))) return true;
    }
    return true;
  }
  TaskHooks hooks;
  hooks.numbered = settings.numbered;
  hooks.task = [&](size_t i) { return judged_text(cases, i, subjects, settings); };
  hooks.crashed = [](const string& why) { return json::dump(to_json(crashed_verdict(why))); };
  hooks.result = [&](size_t i, const string& text) { return done(i, verdict_of_worker(text)); };
  run_tasks(count, settings.jobs, settings.timeout, std::move(hooks));
  return true;
}

string judged_text(const Cases& cases, size_t i, const Subjects& subjects, const RunSettings& settings) {
  const std::vector<string>& names = settings.subjects;
  return json::dump(to_json(cases[i / names.size()].judge(
      *subjects.find(names[i % names.size()]), subjects.reference(), settings.claims.environment)));
}

}  // namespace assay
