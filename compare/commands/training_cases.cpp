#include "compare/commands/training_cases.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "compare/process/pool.h"
#include "training/parity/cells.h"
#include "training/parity/judge.h"
#include "training/scenarios/scenario.h"

namespace assay {

namespace {

using std::string;
using training::Scenario;
using training::ScenarioRun;

// Passes everything on and counts what ran, for the report.
class Counted final : public Subject {
 public:
  explicit Counted(Subject& subject) : subject_(subject) {}
  std::string_view name() const override { return subject_.name(); }
  string argument() const override { return subject_.argument(); }
  Support present() const override { return subject_.present(); }
  Support supports(const Problem& p) const override { return subject_.supports(p); }
  std::optional<string> unpinned(const Problem& p) const override { return subject_.unpinned(p); }
  Served run(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs, const Environment& environment) override {
    const Served served = subject_.run(p, inputs, outputs, environment);
    ++problems_;
    launches_ += served.launches;
    return served;
  }
  // Into the verdict's statistics.
  void report(Verdict& v) const {
    v.launches = launches_;
    v.witness += fmt::format(", {} Problems", problems_);
  }

 private:
  Subject& subject_;
  int problems_ = 0, launches_ = 0;
};

Verdict judge_scenario(const Scenario& s, Subject& judged, Subject& reference, const Environment& environment) {
  Counted subject(judged);
  Verdict v;
  v.claims = {"scenario"};
  if (!s.run) {
    v.outcome = Outcome::unsupported;
    v.reason = s.unsupported;
    return v;
  }
  ScenarioRun run(subject, reference, environment);
  const auto start = std::chrono::steady_clock::now();
  string ended;
  try {
    s.run(run);
  } catch (const std::exception& e) {
    ended = e.what();
  }
  v.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const training::Unmet& u : run.unmet()) {
    Breach b;
    b.claim = "scenario";
    b.got = subject.name();
    b.message = fmt::format("{}\nexpected {}\nfound    {}", u.what, u.expected, u.found);
    v.breaches.push_back(std::move(b));
  }
  if (!ended.empty()) {
    Breach b;
    b.claim = "scenario";
    b.got = subject.name();
    b.message = "ended early: " + ended;
    v.breaches.push_back(std::move(b));
  }
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

Story story_of(const Scenario& s) {
  Story story;
  story.entry.file = "scenarios";
  story.entry.text = s.id;
  story.about = {string(s.title), "given " + string(s.given), "when  " + string(s.when), "then  " + string(s.then)};
  story.judge = [&s](Subject& subject, Subject& reference, const Environment& environment) { return judge_scenario(s, subject, reference, environment); };
  return story;
}

Verdict judge_parity(const training::Cell& cell, Subject& judged, const Environment& environment) {
  Counted subject(judged);
  Verdict v;
  v.claims = {"roles"};
  const auto start = std::chrono::steady_clock::now();
  training::CellResult r;
  try {
    r = training::judge_cell(cell, subject, environment);
  } catch (const std::exception& e) {
    r.first = "vanilla's step";
    r.expected = "a step";
    r.found = e.what();
  }
  v.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  v.witness = fmt::format("{} bytes compared", r.compared);
  subject.report(v);
  using enum training::CellResult::Outcome;
  if (r.outcome == excluded) {
    v.excluded = r.exclusions;
    v.reason = fmt::format("excluded by {}: {}; differed at {}", r.exclusions, r.reason, r.first);
  } else if (r.outcome == failed) {
    v.outcome = Outcome::failed;
    Breach b;
    b.claim = "roles";
    b.got = subject.name();
    b.message = fmt::format("{}\nexpected {} (vanilla)\nfound    {} (hybrid)\n{}", r.first, r.expected, r.found, r.reason);
    v.breaches.push_back(std::move(b));
  }
  return v;
}

Story story_of(const training::Cell& cell) {
  Story story;
  story.entry.file = "roles";
  story.entry.text = training::to_text(cell);
  story.about = {"hybrid against vanilla, bit for bit"};
  if (cell.factory.empty()) {
    story.row = fmt::format("{} {}", cell.module, cell.roles);
    story.column = training::to_text(cell.formats);
    if (!cell.backward_override.empty()) story.column += fmt::format(" {}", cell.backward_override);
  } else {
    story.row = fmt::format("{} factory={}", cell.module, cell.factory);
    story.column = training::circumstances(cell);
    if (story.column.empty()) story.column = training::name_of(cell.phase);
    if (!cell.formats.fprop.empty()) story.about.push_back(fmt::format("{} is {} here: fprop|dgrad|wgrad, equal ones said once", cell.factory, training::to_text(cell.formats)));
  }
  story.judge = [cell](Subject& subject, Subject&, const Environment& environment) { return judge_parity(cell, subject, environment); };
  return story;
}

Story story_of(const training::FactoryCell& f) {
  Story story = story_of(f.cell);
  if (f.refused.empty()) return story;
  story.judge = [reason = f.refused](Subject&, Subject&, const Environment&) {
    Verdict v;
    v.claims = {"roles"};
    v.outcome = Outcome::unsupported;
    v.reason = reason;
    return v;
  };
  return story;
}

bool looks_like_scenario(const string& word) { return word.starts_with("S-"); }

}  // namespace

Result<std::vector<Story>> take_stories(std::vector<string>& what, const string& filter) {
  std::vector<Story> stories;
  std::vector<string> rest;
  for (string& word : what) {
    if (word == "scenarios") {
      for (const Scenario& s : training::scenarios()) stories.push_back(story_of(s));
    } else if (word == "roles") {
      for (const training::Cell& c : training::parity_cells()) stories.push_back(story_of(c));
    } else if (word.starts_with("roles ")) {
      constexpr std::string_view kForm = "roles factory=";
      if (!word.starts_with(kForm) || word.find(' ', kForm.size()) != word.npos) return Error{fmt::format("expected roles, or 'roles factory=<name>', found '{}'", word), 0, "--filter chooses among the cells"};
      const auto cells = training::factory_cells(std::string_view(word).substr(kForm.size()));
      if (!cells) return cells.error();
      for (const training::FactoryCell& f : *cells) stories.push_back(story_of(f));
    } else if (word.starts_with("parity ")) {
      const auto cell = training::parity_cell(word);
      if (!cell) return cell.error();
      stories.push_back(story_of(*cell));
    } else if (looks_like_scenario(word)) {
      const Scenario* s = training::find_scenario(word);
      if (!s) return Error{fmt::format("there is no scenario '{}'", word), 0, "assay list scenarios prints them"};
      stories.push_back(story_of(*s));
    } else {
      rest.push_back(std::move(word));
    }
  }
  what = std::move(rest);
  std::erase_if(stories, [&](const Story& s) {
    string all = s.entry.text;
    for (const string& line : s.about) all += "\n" + line;
    return all.find(filter) == string::npos;
  });
  return stories;
}

void run_stories(const std::vector<Story>& stories, const Subjects& subjects, const RunSettings& settings, const std::function<bool(const Story&, const Verdict&)>& on_result) {
  const std::vector<string>& names = settings.subjects;
  const auto story_at = [&](size_t i) -> const Story& { return stories[i / names.size()]; };
  const auto subject_at = [&](size_t i) -> Subject& { return *subjects.find(names[i % names.size()]); };
  const auto judge = [&](size_t i) { return story_at(i).judge(subject_at(i), subjects.reference(), settings.claims.environment); };
  const auto done = [&](size_t i, Verdict v) {
    v.subject = subject_at(i).name();
    v.argument = subject_at(i).argument();
    v.about = story_at(i).about;
    return on_result(story_at(i), v);
  };
  const size_t count = stories.size() * names.size();
  if (settings.in_process) {
    for (size_t i = 0; i < count; ++i)
      if (!done(i, judge(i))) return;
    return;
  }
  const auto crashed = [](string why) {
    Verdict v;
    v.outcome = Outcome::crashed;
    v.reason = std::move(why);
    return v;
  };
  TaskHooks hooks;
  hooks.task = [&](size_t i) { return json::dump(to_json(judge(i))); };
  hooks.crashed = [&](const string& why) { return json::dump(to_json(crashed(why))); };
  hooks.result = [&](size_t i, string text) {
    const Result<json::Value> value = json::parse(text);
    const Result<Verdict> v = value ? verdict_from_json(*value) : Result<Verdict>(value.error());
    return done(i, v ? *v : crashed(v.error().text()));
  };
  run_tasks(count, settings.jobs, settings.timeout, std::move(hooks));
}

}  // namespace assay
