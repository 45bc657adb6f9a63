#include "compare/commands/hunt/cause.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <regex>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/commands/explain.h"
#include "compare/commands/hunt/edges.h"
#include "compare/commands/shrink.h"
#include "compare/process/pool.h"
#include "contract/line.h"
#include "contract/words.h"

namespace assay::hunting {

using std::string;

namespace {

// "quantize mxfp8/nvfp4": the first words of the line.
string head_of(const Problem& p) {
  const string line = to_line(p);
  const Words words = words_of(line, ' ');
  return p.as<Gemm>() ? concat({words[0], " ", words[1], " ", words[2]}) : concat({words[0], " ", words[1]});
}

// A run of the subject may take its whole time, and there are up to twelve where two differ; shrinking has
// limits of its own.
double limit_of(const CauseOptions& options) { return 10 * options.budget + 12 * options.timeout; }

// The diagnosis that explain writes; null where it had nothing to say.
json::Value diagnosis_of(const Problem& p, const Subjects& subjects, const CauseOptions& options) {
  std::error_code failed;
  std::filesystem::create_directories(options.folder, failed);
  const string path = (std::filesystem::path(options.folder) / "diagnosis.json").string();
  ExplainOptions explain;
  explain.what = to_line(p);
  explain.subject = options.subject;
  explain.environment = options.environment;
  explain.timeout = options.timeout;
  explain.budget = options.budget;
  explain.json = path;
  explain.reproducer = options.folder;
  explain.jobs = 1;
  const auto work = [&] {
    std::FILE* nowhere = std::fopen("/dev/null", "w");
    const int status = run_explain(explain, subjects, nowhere, nowhere);
    std::fclose(nowhere);
    return std::to_string(status);
  };
  const Result<string> status = in_child(work, limit_of(options));
  if (!status || *status != "1") return {};
  const Result<json::Value> read = json::read(path);
  return read ? *read : json::Value();
}

// The causes of an explanation, as one text.
string ids_of(const json::Value& explanation) {
  const json::Value* ids = explanation.find("ids");
  string out;
  if (ids && ids->array())
    for (const json::Value& id : *ids->array())
      if (id.string()) out += (out.empty() ? "" : "+") + *id.string();
  return out;
}

// Of every explanation, the likeliest first.
std::vector<string> explained_by(const json::Value& diagnosis) {
  const json::Value* list = diagnosis.find("explanations");
  std::vector<string> out;
  if (list && list->array())
    for (const json::Value& one : *list->array()) out.push_back(ids_of(one));
  return out;
}

bool names_a_cause(const json::Value& diagnosis) {
  return diagnosis.text("confidence") == "certain" || diagnosis.text("confidence") == "equivalent";
}

// The diagnosis of another line, where `right` takes it; else null. It is made in a folder of its own first,
// so that a diagnosis that is not taken leaves the finding's reproducer as it was.
json::Value other_diagnosis(const Problem& p, const Subjects& subjects, const CauseOptions& options,
                            const std::function<bool(const json::Value&)>& right) {
  CauseOptions apart = options;
  apart.folder += ".other";
  const bool taken = right(diagnosis_of(p, subjects, apart));
  std::error_code failed;
  std::filesystem::remove_all(apart.folder, failed);
  return taken ? diagnosis_of(p, subjects, options) : json::Value();
}

// Where no cause makes the bytes of a quantize: the diagnosis of the whole tensor under the keys that the
// shrunk line has kept, if that names a cause of the same stage. Another stage is another fault of the
// kernel.
json::Value made_plain(json::Value diagnosis, const Problem& p, const Subjects& subjects,
                       const CauseOptions& options) {
  const Result<Problem> shrunk = parse_line(string(diagnosis.text("reproducer")));
  if (names_a_cause(diagnosis) || !p.as<Quantize>() || !shrunk || !shrunk->as<Quantize>()) return diagnosis;
  Problem plain = *shrunk;
  plain.x.shape = p.x.shape;
  plain.x.fill = p.x.fill;
  if (plain == p) return diagnosis;
  json::Value other = other_diagnosis(plain, subjects, options, [&](const json::Value& d) {
    return names_a_cause(d) && d.text("first_stage") == diagnosis.text("first_stage");
  });
  return other.is_null() ? diagnosis : other;
}

// Where several causes make the bytes of a line: the diagnosis of a line that tells them apart, if that
// leaves one of them. Another cause is another fault of the kernel.
json::Value told_apart(json::Value diagnosis, const Subjects& subjects, const CauseOptions& options) {
  const json::Value* lines = diagnosis.find("separating");
  if (diagnosis.text("confidence") != "equivalent" || !lines || !lines->array()) return diagnosis;
  const std::vector<string> ours = explained_by(diagnosis);
  for (const json::Value& line : *lines->array()) {
    const Result<Problem> p = parse_line(line.string() ? *line.string() : string());
    if (!p) continue;
    json::Value other = other_diagnosis(*p, subjects, options, [&](const json::Value& d) {
      const std::vector<string> theirs = explained_by(d);
      return d.text("confidence") == "certain" && !theirs.empty() &&
             std::find(ours.begin(), ours.end(), theirs.front()) != ours.end();
    });
    if (!other.is_null()) return other;
  }
  return diagnosis;
}

string title_of(const json::Value& diagnosis) {
  const json::Value* list = diagnosis.find("explanations");
  return list && list->array() && !list->array()->empty() ? string(list->array()->front().text("title"))
                                                          : string();
}

// Of a failure of which explain says nothing: the smallest line that fails in the same way, with its
// reproducer. With `failure` that says what fails, and each answer takes a program that is started for it.
std::optional<string> smallest(const Problem& p, const Subjects& subjects, const CauseOptions& options,
                               const ShrinkOptions::Failure& failure = {}) {
  constexpr size_t kMostPrograms = 100;
  ShrinkCommandOptions shrinking;
  shrinking.problem = p;
  shrinking.subject = options.subject;
  shrinking.environment = options.environment;
  shrinking.timeout = options.timeout;
  if (failure) {  // no clock, so that the line is the same on every machine
    shrinking.failure = failure, shrinking.known = true, shrinking.max_runs = kMostPrograms;
  } else {
    shrinking.max_seconds = 3 * options.budget;
  }
  shrinking.reproducer = options.folder;
  const auto work = [&]() -> string {
    const Result<Shrunk> shrunk = shrink(shrinking, subjects);
    if (!shrunk) return {};
    reproduce(shrinking, subjects, shrunk->bad);  // not of a line that is too large
    return to_line(shrunk->bad);
  };
  const Result<string> line = in_child(work, limit_of(options));
  return line && !line->empty() ? std::optional(*line) : std::nullopt;
}

int64_t number_of(const json::Value& object, const char* member) {
  const json::Value* found = object.find(member);
  return found ? found->to_int().value_or(0) : 0;
}

// What the likeliest explanation says, and how many others make the same bytes: "..., or 2 others".
string headline_of_cause(const json::Value& diagnosis) {
  const json::Value* list = diagnosis.find("explanations");
  size_t exact = 0;
  for (const json::Value& one : list && list->array() ? *list->array() : std::vector<json::Value>()) {
    const json::Value* all = one.find("exact");
    exact += all && all->to_bool().value_or(false);
  }
  const string others = exact < 2    ? ""
                        : exact == 2 ? ", or one other that makes the same bytes here"
                                     : fmt::format(", or {} others that make the same bytes here", exact - 1);
  return title_of(diagnosis) + others;
}

// The explanation that comes nearest, with its share of the differences.
string headline_of_nearest(const json::Value& diagnosis) {
  const string none = "no single cause makes all of the bytes", near = title_of(diagnosis);
  if (near.empty()) return none;
  const json::Value& best = diagnosis.find("explanations")->array()->front();
  return fmt::format("{}; the nearest explains {} of {} differences: {}", none, number_of(best, "repaired"),
                     number_of(best, "differ"), near);
}

// What explain says first of two runs that differ.
string headline_of_runs(const json::Value& diagnosis) {
  const json::Value* runs = diagnosis.find("runs");
  if (runs && runs->array() && !runs->array()->empty() && runs->array()->front().string())
    return *runs->array()->front().string();
  return "two runs on the same input differ, or elements are never written";
}

}  // namespace

string kind_of(const Problem& p, const Breach& b) {
  return fmt::format("{} {}{}{}", head_of(p), b.claim, b.plane.empty() ? "" : " " + b.plane,
                     b.in_padding ? " padding" : "");
}

namespace {

// What a sanitizer says of an error, with N for each number that another line may have otherwise:
// "x.cpp:7:3: runtime error: signed integer overflow: 9 + 1", "128 byte(s) leaked in 2 allocation(s)".
string error_of(const string& words) {
  const size_t mark = words.find("runtime error:");
  const bool leak = words.find(" leaked in ") != string::npos;
  if (mark == string::npos && !leak) return words;
  static const std::regex kNumber("-?\\b[0-9][0-9a-fA-Fx.]*");
  const size_t values = leak ? 0 : mark;
  return words.substr(0, values) + std::regex_replace(words.substr(values), kNumber, "N");
}

}  // namespace

Finding finding_of_end(const Problem& p, const string& words) {
  Finding out;
  out.drawn = out.line = to_line(p);
  out.claim = kOfASanitizer;
  out.cause = fmt::format("{} {}", head_of(p), error_of(words));
  out.headline = words;
  return out;
}

bool is_other_end(const Finding& end, const string& words) {
  return words.empty() || error_of(words) != error_of(end.headline);
}

void shrink_end(Finding& end, const Subjects& subjects, const CauseOptions& options,
                const std::function<string(const Problem&)>& said) {
  const auto failure = [&](const Problem& p) -> std::optional<Breach> {
    if (is_other_end(end, said(p))) return {};
    Breach b;
    b.claim = kOfASanitizer, b.message = end.headline;
    return b;
  };
  const Result<Problem> drawn = parse_line(end.drawn);
  // Two programs that say nothing may have ended for different reasons.
  if (drawn && end.headline != kNoWords)
    end.line = smallest(*drawn, subjects, options, failure).value_or(end.line);
}

Finding finding_of_kind(const Problem& p, const Breach& b) {
  Finding out;
  out.drawn = out.line = to_line(p);
  out.claim = b.claim;
  out.plane = b.plane;
  out.cause = kind_of(p, b);
  out.headline = b.message.empty() ? fmt::format("{} differs at {}", b.plane, b.where) : b.message;
  return out;
}

Finding find_cause(const Problem& p, const Breach& b, const Subjects& subjects, const CauseOptions& options) {
  Finding out = finding_of_kind(p, b);
  const json::Value diagnosis =
      told_apart(made_plain(diagnosis_of(p, subjects, options), p, subjects, options), subjects, options);
  const std::string_view confidence = diagnosis.text("confidence");
  if (confidence.empty() || confidence == "equal") {
    out.line = smallest(p, subjects, options).value_or(out.line);
    return out;
  }
  if (const std::string_view smaller = diagnosis.text("reproducer"); !smaller.empty()) out.line = smaller;
  const std::vector<string> causes = explained_by(diagnosis);
  const string ids = causes.empty() ? string() : causes.front();
  out.explained = names_a_cause(diagnosis);
  if (out.explained && !ids.empty()) {
    out.cause = fmt::format("{} {}", op_name(p), ids);
    out.headline = headline_of_cause(diagnosis);
  } else if (confidence == "random") {
    out.cause = fmt::format("{} differs from run to run", head_of(p));
    const string of_first = title_of(diagnosis);
    out.headline = headline_of_runs(diagnosis);
    if (!of_first.empty()) out.headline += "; the first run: " + of_first;
  } else {
    out.cause = fmt::format("{} {} {} unexplained", head_of(p), diagnosis.text("first_stage"),
                            diagnosis.text("direction"));
    out.headline = headline_of_nearest(diagnosis);
  }
  return out;
}

}  // namespace assay::hunting
