#include "compare/commands/hunt/cause.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iterator>
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

// The diagnosis that explain writes; null where it had nothing to say. `closer`: with a smaller line.
json::Value diagnosis_of(const Problem& p, const Subjects& subjects, const CauseOptions& options,
                         bool closer = true) {
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
  explain.look_closer = closer;
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

const std::vector<json::Value>& explanations_of(const json::Value& diagnosis) {
  static const std::vector<json::Value> kNone;
  const json::Value* list = diagnosis.find("explanations");
  return list && list->array() ? *list->array() : kNone;
}

// Of the explanations that make every byte, the likeliest first.
std::vector<string> exact_causes(const json::Value& diagnosis) {
  std::vector<string> out;
  for (const json::Value& one : explanations_of(diagnosis))
    if (const json::Value* exact = one.find("exact"); exact && exact->to_bool().value_or(false))
      out.push_back(ids_of(one));
  return out;
}

bool names_a_cause(const json::Value& diagnosis) {
  return diagnosis.text("confidence") == "certain" || diagnosis.text("confidence") == "equivalent";
}

// The diagnosis of a line beside the finding's, without a smaller line. It is made in a folder of its own, so
// that the finding's reproducer stays as it was.
json::Value diagnosis_beside(const Problem& p, const Subjects& subjects, const CauseOptions& options) {
  CauseOptions apart = options;
  apart.folder += ".other";
  json::Value out = diagnosis_of(p, subjects, apart, false);
  std::error_code failed;
  std::filesystem::remove_all(apart.folder, failed);
  return out;
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
  const json::Value other = diagnosis_beside(plain, subjects, options);
  const bool right = names_a_cause(other) && other.text("first_stage") == diagnosis.text("first_stage");
  return right ? diagnosis_of(plain, subjects, options) : diagnosis;
}

// A diagnosis, and which causes make the bytes of every line that was looked at.
struct Told {
  json::Value diagnosis;
  std::vector<string> causes;
};

// The line with other values; of a gemm also with sums of many products.
std::vector<Problem> varied(const Problem& p) {
  std::vector<Problem> out;
  if (p.as<Gemm>())
    for (const int64_t k : {80, 160}) {
      out.push_back(p);
      out.back().x.shape = {16, 16};
      out.back().as<Gemm>()->k = k;
    }
  for (const FillKind kind : {FillKind::outliers, FillKind::normal, FillKind::wide, FillKind::amax_edges}) {
    Problem other = p;
    std::vector<Fill*> fills = {&other.x.fill};
    if (Gemm* g = other.as<Gemm>()) fills = {&g->a.fill, &g->b.fill};
    for (Fill* fill : fills) fill->kind = kind, fill->payload.clear(), ++fill->seed;
    out.push_back(std::move(other));
  }
  return out;
}

// Where several causes make the bytes of a line: those of them that make the bytes of others too, which are
// the lines that tell them apart, lines that failed alike (`also`), and the line with other values. The
// diagnosis is that of the line that left the fewest. A line with none of the causes shows another fault of
// the kernel, and says nothing.
Told told_apart(json::Value diagnosis, const Problem& first, const std::vector<Problem>& also,
                const Subjects& subjects, const CauseOptions& options) {
  Told out{std::move(diagnosis), {}};
  out.causes = exact_causes(out.diagnosis);
  if (out.diagnosis.text("confidence") != "equivalent") return out;
  std::vector<Problem> lines;
  if (const json::Value* separating = out.diagnosis.find("separating"); separating && separating->array())
    for (const json::Value& line : *separating->array())
      if (auto p = parse_line(line.string() ? *line.string() : string())) lines.push_back(*std::move(p));
  lines.insert(lines.end(), also.begin(), also.end());
  for (Problem& p : varied(first)) lines.push_back(std::move(p));
  const Problem* best = nullptr;
  for (const Problem& p : lines) {
    if (out.causes.size() == 1 || (options.over && options.over())) break;
    const json::Value other = diagnosis_beside(p, subjects, options);
    if (!names_a_cause(other)) continue;
    const std::vector<string> theirs = exact_causes(other);
    std::vector<string> left;
    std::copy_if(out.causes.begin(), out.causes.end(), std::back_inserter(left), [&](const string& cause) {
      return std::find(theirs.begin(), theirs.end(), cause) != theirs.end();
    });
    if (!left.empty() && left.size() < out.causes.size()) out.causes = std::move(left), best = &p;
  }
  if (best)
    if (json::Value other = diagnosis_of(*best, subjects, options); names_a_cause(other))
      out.diagnosis = std::move(other);
  return out;
}

// What the explanation with these causes says; of the likeliest one where none has them.
string title_of(const json::Value& diagnosis, const string& ids = {}) {
  const std::vector<json::Value>& all = explanations_of(diagnosis);
  const auto one = std::find_if(all.begin(), all.end(), [&](const auto& e) { return ids_of(e) == ids; });
  return all.empty() ? string() : string((one == all.end() ? all.front() : *one).text("title"));
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

// What the likeliest cause is, and how many others make the same bytes: "..., or 2 others".
string headline_of_cause(const Told& told) {
  const size_t others = told.causes.size() - 1;
  const string rest = others == 0   ? ""
                      : others == 1 ? ", or one other that makes the same bytes here"
                                    : fmt::format(", or {} others that make the same bytes here", others);
  return title_of(told.diagnosis, told.causes.front()) + rest;
}

// The explanation that comes nearest, with its share of the differences.
string headline_of_nearest(const json::Value& diagnosis) {
  const string none = "no single cause makes all of the bytes", near = title_of(diagnosis);
  if (near.empty()) return none;
  const json::Value& best = explanations_of(diagnosis).front();
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

Finding find_cause(const Problem& p, const Breach& b, const Subjects& subjects, const CauseOptions& options,
                   const std::vector<Problem>& also) {
  Finding out = finding_of_kind(p, b);
  const Told told = told_apart(made_plain(diagnosis_of(p, subjects, options), p, subjects, options), p, also,
                               subjects, options);
  const json::Value& diagnosis = told.diagnosis;
  const std::string_view confidence = diagnosis.text("confidence");
  if (confidence.empty() || confidence == "equal") {
    out.line = smallest(p, subjects, options).value_or(out.line);
    return out;
  }
  if (const std::string_view smaller = diagnosis.text("reproducer"); !smaller.empty()) out.line = smaller;
  out.explained = names_a_cause(diagnosis);
  if (out.explained && !told.causes.empty() && !told.causes.front().empty()) {
    const auto cause = [&](const string& ids) { return fmt::format("{} {}", op_name(p), ids); };
    out.cause = cause(told.causes.front());
    std::transform(told.causes.begin() + 1, told.causes.end(), std::back_inserter(out.others), cause);
    out.headline = headline_of_cause(told);
  } else if (confidence == "random") {
    out.cause = fmt::format("{} differs from run to run", head_of(p));
    const string of_first = title_of(diagnosis);
    out.headline = headline_of_runs(diagnosis);
    if (!of_first.empty()) out.headline += "; the first run: " + of_first;
  } else {
    out.cause = fmt::format("{} {} {} unexplained", head_of(p), diagnosis.text("first_stage"),
                            diagnosis.text("direction"));
    out.headline = headline_of_nearest(diagnosis);
    if (!b.hint.empty()) out.headline += "; hint: " + b.hint;
  }
  return out;
}

}  // namespace assay::hunting
