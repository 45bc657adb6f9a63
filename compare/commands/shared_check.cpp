#include "compare/commands/shared_check.h"

#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "compare/commands/kept_results.h"
#include "compare/commands/sharing.h"
#include "compare/judge/verdict.h"
#include "compare/process/answer.h"
#include "compare/process/crew.h"
#include "compare/process/pool.h"
#include "fixtures/files.h"
#include "fixtures/json.h"
#include "fixtures/sha256.h"

namespace assay {

namespace {

using std::string;

json::Value list_of(const std::vector<string>& words) {
  json::Value out = json::array();
  for (const string& w : words) out.push(w);
  return out;
}

CheckedCase breached(const string& why) {
  CheckedCase out;
  out.report.breach = message_breach(why);
  return out;
}

CheckedCase unreadable() { return breached("the worker sent a result that cannot be read"); }

string digest_of_text(const string& text) { return sha256(std::as_bytes(std::span(text))); }

// What decides the results, but for the bytes of the tensors: all processes must find that.
string tasks_text(const Dump& dump, const CheckOptions& options, const Acceptor* acceptor) {
  string all = fmt::format("check {}", acceptor ? acceptor->target() : "");
  for (const DumpCase& c : dump.cases) all += fmt::format("\n{} {}", c.where(), c.recorded->line);
  return digest_of_text(options.kept.digest + all);
}

// With the bytes, which may be others when a later run goes on.
Result<string> kept_text(const Dump& dump, const string& tasks) {
  string all = tasks;
  for (const auto& pack : dump.packs) {
    const auto file = MappedFile::open(pack->path);
    if (!file) return file.error();
    all += sha256(file->bytes());
  }
  return digest_of_text(all);
}

}  // namespace

string to_text(const CheckedCase& c) {
  Verdict breach;
  if (c.report.breach) breach.breaches.push_back(*c.report.breach);
  json::Value blocks;
  if (c.blocks)
    blocks = json::object(
        {{"simd", c.blocks->accepted}, {"reference", c.blocks->referred}, {"counted", c.blocks->counted}});
  return json::dump(json::object({{"judged", list_of(c.report.judged)},
                                  {"missing", list_of(c.report.missing)},
                                  {"notes", list_of(c.report.notes)},
                                  {"judges", c.report.judges},
                                  {"breach", to_json(breach)},
                                  {"blocks", std::move(blocks)},
                                  {"early", c.early},
                                  {"explainable", c.explainable}}));
}

CheckedCase checked_from(const string& text) {
  const Result<json::Value> v = json::parse(text);
  if (!v) return unreadable();
  Answer said(*v);
  CheckedCase c;
  c.report.judged = said.texts("judged");
  c.report.missing = said.texts("missing");
  c.report.notes = said.texts("notes");
  c.report.judges = said.text("judges");
  const auto breach = verdict_from_json(said.member("breach"));
  if (const json::Value& found = said.member("blocks"); !found.is_null()) {
    Answer blocks(found);
    c.blocks = JudgedBlocks{blocks.count("simd"), blocks.count("reference"), blocks.count("counted")};
    if (!blocks.whole()) return unreadable();
  }
  c.early = said.text("early");
  c.explainable = said.truth("explainable");
  if (!said.whole() || !breach) return unreadable();
  if (!breach->breaches.empty()) c.report.breach = breach->breaches.front();
  c.elsewhere = true;
  return c;
}

std::optional<Error> share_cases(const Dump& dump, const CheckOptions& options, const Acceptor* acceptor,
                                 const std::function<CheckedCase(const DumpCase&)>& judge,
                                 const std::function<bool(const DumpCase&, CheckedCase)>& result) {
  constexpr double kLongest = 24 * 3600;  // of processor time: each run of the reference has its own limit
  const string tasks = tasks_text(dump, options, acceptor);
  TaskHooks hooks;
  hooks.task = [&](size_t i) { return to_text(judge(dump.cases[i])); };
  if (serves()) {
    crew()->serve(hooks.task, options.jobs, kLongest, tasks);
    return {};
  }
  if (crew()) crew()->agree_on(tasks);
  KeptResults kept = options.kept;
  if (!kept.folder.empty()) {
    Result<string> digest = kept_text(dump, tasks);
    if (!digest) throw Refusal{digest.error().text()};
    kept.digest = std::move(*digest);
  }
  Result<std::unique_ptr<Journal>> journal = journal_of(kept, stderr);
  if (!journal) throw Refusal{journal.error().text()};
  hooks.numbered = NumberedTasks{0, journal->get()};
  hooks.crashed = [](const string& why) { return to_text(breached("crashed: " + why)); };
  hooks.result = [&](size_t i, const string& text) { return result(dump.cases[i], checked_from(text)); };
  run_tasks(dump.cases.size(), options.jobs, kLongest, std::move(hooks));
  return *journal ? (*journal)->trouble() : std::nullopt;
}

}  // namespace assay
