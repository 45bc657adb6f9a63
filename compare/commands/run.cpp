#include "compare/commands/run.h"

#include <fstream>
#include <memory>

#include <fmt/format.h>

#include "compare/report/doctor.h"
#include "compare/report/parity_table.h"
#include "compare/text/printable.h"
#include "compare/report/report.h"
#include "compare/packs/replay.h"
#include "compare/process/pool.h"
#include "compare/report/github.h"
#include "contract/line.h"

namespace assay {

namespace {

class Reports {
 public:
  Reports(const ReportOptions& options, const Environment& environment, const Subjects& subjects, std::FILE* out, std::FILE* err) : options_(options), out_(out), err_(err) {
    if (!options.jsonl.empty()) {
      auto jsonl = make_jsonl_report(options.jsonl, doctor_facts_in_child(subjects), environment);
      if (!jsonl) error_ = jsonl.error();
      else reports_.push_back(std::move(*jsonl));
    }
    if (!options.junit.empty() && !error_) {
      auto junit = make_junit_report(options.junit);
      if (!junit) error_ = junit.error();
      else reports_.push_back(std::move(*junit));
    }
    if (options.github)
      reports_.push_back(make_github_report([out](const std::string& lines) {
        fmt::print(out, "{}", lines);
        std::fflush(out);
      }));
    TextOptions text;
    text.verbose = options.verbose;
    text.colour = options.colour;
    text.environment = environment;
    reports_.push_back(make_text_report(out, text));   // last: its last line ends the output
  }
  const std::optional<Error>& error() const { return error_; }

  void result(const SuiteEntry& e, const Verdict& v) {
    if (is_red(v.outcome)) wipe();
    totals_.add(v);
    for (auto& r : reports_) r->result(e, v);
  }
  void progress(size_t done, size_t count, const std::string& line) {
    if (!options_.progress) return;
    fmt::print(err_, "\r\033[K{}/{}  {}", done, count, line.substr(0, 100));
    std::fflush(err_);
    shown_ = true;
  }
  // Counts a cell of the parity matrix, which is printed before the totals.
  void cell(const Story& story, const Verdict& v) {
    if (!story.row.empty()) matrix_.add(story.row, story.column, story.entry.text, v);
  }
  // The reports of files, after finish(): writes the matrix as a page, and says what could not be written.
  std::optional<Error> written() const {
    for (const auto& r : reports_)
      if (const auto trouble = r->trouble()) return trouble;
    if (std::fflush(out_) != 0 || std::ferror(out_)) return Error{"cannot write all of the report to standard output", 0, ""};
    if (options_.html.empty()) return std::nullopt;
    std::ofstream file(options_.html);
    file << matrix_.html();
    file.close();
    if (!file) return Error{"cannot write " + options_.html, 0, "--html takes a file in a folder that exists"};
    return std::nullopt;
  }
  const Totals& finish() {
    wipe();
    if (!matrix_.empty()) fmt::print(out_, "{}\n", matrix_.text());
    for (auto& r : reports_) r->finish(totals_);
    return totals_;
  }

 private:
  void wipe() {
    if (shown_) fmt::print(err_, "\r\033[K");
    std::fflush(err_);
    shown_ = false;
  }
  const ReportOptions& options_;
  std::FILE *out_, *err_;
  Matrix matrix_;
  std::vector<std::unique_ptr<Report>> reports_;
  std::optional<Error> error_;
  Totals totals_;
  bool shown_ = false;
};

}  // namespace

int run_run(const RunOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err) {
  for (const std::string& name : options.require) {
    Subject* s = subjects.find(name);
    const Support p = s ? present_in_child(*s) : Support{false, "there is no subject of this name"};
    if (p.yes) continue;
    fmt::print(err, "assay: the required subject {} is absent: {}\n", name, p.why);
    fmt::print(out, "0 passed, 0 failed, {} skipped\n", options.entries.size() + options.stories.size());
    return 3;
  }
  Reports reports(options.report, options.settings.claims.environment, subjects, out, err);
  if (reports.error()) {
    fmt::print(err, "assay: {}\n", reports.error()->text());
    return 2;
  }
  RunSettings settings = options.settings;
  if (options.report.verbose)
    settings.on_start = [&](const SuiteEntry& e) {
      fmt::print(err, "running     {}\n", e.text);
      std::fflush(err);
    };
  size_t done = 0;
  bool red = false;
  const size_t count = options.entries.size() + options.stories.size() * settings.subjects.size();
  run_cases(options.entries, subjects, settings, [&](const CaseResult& r) {
    for (const Verdict& v : r.verdicts) {
      reports.result(options.entries[r.index], v);
      red |= is_red(v.outcome);
    }
    reports.progress(++done, count, options.entries[r.index].text);
  });
  if (!(red && settings.stop_at_first))
    run_stories(options.stories, subjects, settings, [&](const Story& s, const Verdict& v) {
      reports.result(s.entry, v);
      reports.cell(s, v);
      reports.progress(++done, count, s.entry.text);
      return !(settings.stop_at_first && is_red(v.outcome));
    });
  const int status = reports.finish().exit_status();
  if (const auto error = reports.written()) {
    fmt::print(err, "assay: {}\n", error->text());
    return 2;
  }
  if (status == 3) fmt::print(err, "assay: nothing was judged{}\n", options.entries.empty() && options.stories.empty() ? ": no line is left of what was asked for" : "");
  return status;
}

int run_replay(const ReplayOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err) {
  std::vector<Pack> packs;
  struct Task {
    const Pack* pack;
    const PackCase* recorded;
    SuiteEntry entry;
  };
  std::vector<Task> tasks;
  for (const std::string& path : options.packs) {
    Result<Pack> pack = read_pack(path);
    if (!pack) {
      fmt::print(err, "assay: {}\n", printable(pack.error().text()));
      return 2;
    }
    packs.push_back(std::move(*pack));
  }
  for (const Pack& pack : packs)
    for (const PackCase& c : pack.cases) {
      SuiteEntry e;
      e.file = pack.path + "#" + c.id;
      e.text = c.line;
      if (const Result<Problem> p = parse_line(c.line)) {
        e.problem = *p;
        e.text = to_line(*p);
      }
      tasks.push_back({&pack, &c, std::move(e)});
    }
  Reports reports(options.report, options.environment, subjects, out, err);
  if (reports.error()) {
    fmt::print(err, "assay: {}\n", reports.error()->text());
    return 2;
  }
  TaskHooks hooks;
  hooks.task = [&](size_t i) { return json::dump(to_json(judge_replay(*tasks[i].pack, *tasks[i].recorded, subjects, options.kernels, options.environment))); };
  hooks.crashed = [&](const std::string& why) {
    Verdict v;
    v.outcome = Outcome::crashed;
    v.subject = "reference";
    v.reason = why;
    return json::dump(to_json(v));
  };
  hooks.result = [&](size_t i, std::string text) {
    const Result<json::Value> value = json::parse(text);
    Result<Verdict> v = value ? verdict_from_json(*value) : Result<Verdict>(value.error());
    if (!v) {
      Verdict unreadable;
      unreadable.outcome = Outcome::crashed;
      unreadable.reason = v.error().text();
      v = std::move(unreadable);
    }
    reports.result(tasks[i].entry, *v);
    reports.progress(i + 1, tasks.size(), tasks[i].entry.text);
    return true;
  };
  run_tasks(tasks.size(), options.jobs, options.timeout, std::move(hooks));
  const int status = reports.finish().exit_status();
  if (const auto error = reports.written()) {
    fmt::print(err, "assay: {}\n", error->text());
    return 2;
  }
  return status;
}

}  // namespace assay
