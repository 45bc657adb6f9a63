#include "compare/judge/cases.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "compare/process/guarded_memory.h"
#include "compare/process/no_exit.h"
#include "contract/line.h"

namespace assay {

namespace {

std::string to_text(const std::vector<Verdict>& verdicts) {
  json::Value list = json::array();
  for (const Verdict& v : verdicts) list.push(to_json(v));
  return json::dump(list);
}

std::vector<Verdict> all_crashed(const std::vector<std::string>& subjects, const std::string& why) {
  std::vector<Verdict> out;
  for (const std::string& name : subjects) {
    Verdict v;
    v.subject = name;
    v.outcome = Outcome::crashed;
    v.reason = why;
    v.breaches.push_back(complaint("crash", name, "crashed: " + why));
    out.push_back(std::move(v));
  }
  return out;
}

std::vector<Verdict> verdicts_from(const std::string& text, const std::vector<std::string>& subjects) {
  std::vector<Verdict> out;
  const Result<json::Value> list = json::parse(text);
  if (list && list->array())
    for (const json::Value& v : *list->array())
      if (Result<Verdict> verdict = verdict_from_json(v)) out.push_back(std::move(*verdict));
  return out.size() == subjects.size()
             ? out
             : all_crashed(subjects, "the worker sent a result that cannot be read");
}

bool any_red(const std::vector<Verdict>& verdicts) {
  return std::any_of(verdicts.begin(), verdicts.end(), [](const Verdict& v) { return is_red(v.outcome); });
}

}  // namespace

size_t run_cases(std::span<const SuiteEntry> entries, const Subjects& subjects, const RunSettings& settings,
                 const std::function<void(const CaseResult&)>& on_result) {
  auto report = [&](size_t i, std::vector<Verdict> verdicts) {
    for (Verdict& v : verdicts)
      if (const Subject* s = subjects.find(v.subject)) v.argument = s->argument();
    const bool stop = settings.stop_at_first && any_red(verdicts);
    on_result({i, std::move(verdicts)});
    return !stop && !(settings.over && settings.over());
  };
  auto start = [&](size_t i) {
    if (settings.on_start) settings.on_start(entries[i]);
  };
  if (settings.in_process) {
    tell_far_writes();
    for (size_t i = 0; i < entries.size(); ++i) {
      start(i);
      std::optional<NoExit> no_exit(entries[i].text);
      std::vector<Verdict> verdicts = judge_case(entries[i], subjects, settings.subjects, settings.claims);
      no_exit.reset();
      if (!report(i, std::move(verdicts))) return i + 1;
    }
    return entries.size();
  }
  TaskHooks hooks;
  hooks.numbered = settings.numbered;
  hooks.task = [&](size_t i) { return judged_text(entries[i], subjects, settings); };
  hooks.crashed = [&](const std::string& why) { return to_text(all_crashed(settings.subjects, why)); };
  hooks.started = start;
  hooks.waiting = settings.on_wait;
  hooks.result = [&](size_t i, const std::string& v) {
    return report(i, verdicts_from(v, settings.subjects));
  };
  return run_tasks(entries.size(), settings.jobs, settings.timeout, std::move(hooks));
}

std::string judged_text(const SuiteEntry& entry, const Subjects& subjects, const RunSettings& settings) {
  return to_text(judge_case(entry, subjects, settings.subjects, settings.claims));
}

SuiteEntry entry_of(const Problem& problem) {
  SuiteEntry e;
  e.file = "line";
  e.text = to_line(problem);
  e.problem = problem;
  return e;
}

std::vector<Verdict> run_one(const Problem& problem, const Subjects& subjects, const RunSettings& settings) {
  const SuiteEntry entry = entry_of(problem);
  std::vector<Verdict> out;
  run_cases({&entry, 1}, subjects, settings, [&](const CaseResult& r) { out = r.verdicts; });
  return out;
}

}  // namespace assay
