#include "compare/commands/hunt/records.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "compare/choices/draw.h"
#include "compare/text/printable.h"
#include "contract/line.h"
#include "fixtures/suite.h"

namespace assay::hunting {

namespace {

using std::string;

constexpr int64_t kMostCounted = int64_t{1} << 53;
constexpr const char* kSchema = "assay.hunt/1";

// The whole lines of a text.
std::vector<string> whole_lines(const string& text) {
  std::vector<string> out;
  for (size_t at = 0, end; (end = text.find('\n', at)) != string::npos; at = end + 1)
    out.push_back(text.substr(at, end - at));
  return out;
}

// Before the line of a finding.
string comment_of(size_t number) { return fmt::format("# {}: ", number); }

// What no hunt writes counts as 0: the file may have been damaged.
uint64_t count_of(const json::Value& record, const char* key) {
  const json::Value* v = record.find(key);
  const int64_t n = v ? v->to_int().value_or(0) : 0;
  return n < 0 || n > kMostCounted ? 0 : static_cast<uint64_t>(n);
}

double seconds_of(const json::Value& record) {
  const json::Value* v = record.find("seconds");
  const double n = v ? v->to_double().value_or(0) : 0;
  return n >= 0 && n < 1e12 ? n : 0;
}

bool flag_of(const json::Value& record, const char* key, bool otherwise) {
  const json::Value* v = record.find(key);
  return v ? v->to_bool().value_or(otherwise) : otherwise;
}

bool is_finding(const json::Value& record) { return record.text("record") == "finding"; }

std::optional<Error> other_head(const string& path, const Head& head, const json::Value& record) {
  if (record == to_json(head)) return {};
  const json::Value* most = record.find("max_elements");
  const std::string_view only = record.text("only");
  return Error{
      fmt::format("{} holds a hunt of {} with seed {} and at most {} elements, {}, not this one", path,
                  record.text("subject"), record.text("seed"), most ? most->to_int().value_or(0) : 0,
                  only.empty() ? "without --only" : fmt::format("--only '{}'", only)),
      0, "name another folder with --to, or give the same --subject, --seed, --max-elements and --only"};
}

// Adds a record that is no head.
void add_record(const json::Value& record, Earlier& to) {
  if (is_finding(record)) {
    to.findings.push_back({count_of(record, "number"), string(record.text("cause")),
                           string(record.text("headline")), string(record.text("line")),
                           string(record.text("drawn")), string(record.text("claim")),
                           string(record.text("plane")), flag_of(record, "explained", false),
                           seconds_of(record), flag_of(record, "looked", true)});
    return;
  }
  if (flag_of(record, "whole", true)) {
    to.begun = true;
    if (const std::string_view given = record.text("given"); !given.empty()) to.given.emplace(given);
    if (record.text("record") == "batch") to.judged.batch = count_of(record, "batch") + 1;
  }
  to.judged.lines += count_of(record, "lines");
  to.judged.failures += count_of(record, "failures");
  to.judged.unsupported += count_of(record, "unsupported");
  to.judged.seconds = seconds_of(record);
}

// Whether the text has the comment of this finding, and below it a whole line.
bool has_finding(const string& text, size_t number) {
  const std::vector<string> lines = whole_lines(text);
  for (size_t i = 0; i + 1 < lines.size(); ++i)
    if (lines[i].starts_with(comment_of(number)) && !lines[i + 1].starts_with("#")) return true;
  return false;
}

// Ends a last line that was cut short, so that it spoils none of the next.
void end_line(string& text) {
  if (!text.empty() && !text.ends_with('\n')) text += '\n';
}

// Removes a last record that a kill cut short: what it counted is judged again. Where only the line end is
// missing, the record is kept.
void mend_records(string& text) {
  const size_t last = text.rfind('\n') + 1;
  if (last < text.size() && !json::parse(text.substr(last))) text.resize(last);
  end_line(text);
}

// A last line of found.cases without a line end was cut short, or is one that the user has written. One that
// cannot be read becomes a comment.
void mend_found(const string& path, string& text) {
  const size_t last = text.rfind('\n') + 1;
  if (last < text.size() && text[last] != '#' && !parse_suite(text.substr(last), kFound, path))
    text.insert(last, "# cut short: ");
  end_line(text);
}

}  // namespace

json::Value to_json(const Head& head) {
  return json::object({{"schema", kSchema},
                       {"subject", head.subject},
                       {"seed", std::to_string(head.seed)},
                       {"max_elements", head.max_elements},
                       {"only", head.only}});
}

json::Value to_json(const Judged& j) {
  json::Value out = json::object({{"record", j.kind},
                                  {"batch", static_cast<int64_t>(j.batch)},
                                  {"lines", j.lines},
                                  {"failures", j.failures},
                                  {"unsupported", j.unsupported},
                                  {"seconds", j.seconds},
                                  {"pairs", j.pairs},
                                  {"cases", j.cases},
                                  {"codes", j.codes},
                                  {"whole", j.whole}});
  if (!j.given.empty()) out.set("given", j.given);
  return out;
}

json::Value to_json(const Finding& f) {
  return json::object({{"record", "finding"},
                       {"number", f.number},
                       {"cause", f.cause},
                       {"headline", f.headline},
                       {"line", f.line},
                       {"drawn", f.drawn},
                       {"claim", f.claim},
                       {"plane", f.plane},
                       {"explained", f.explained},
                       {"looked", f.looked},
                       {"seconds", f.seconds}});
}

string found_text(const Finding& f) {
  // The headline may be what a crashed kernel said last.
  return fmt::format("{}{} [{}]\n{}", comment_of(f.number), printable(f.headline), printable(f.cause),
                     f.line);
}

Result<Earlier> read_texts(const string& path, const Head& head, Texts& texts) {
  Earlier out;
  bool finding_was_last = false, has_head = false;
  mend_records(texts.records);
  end_line(texts.kept);
  for (const string& line : whole_lines(texts.records)) {
    const auto record = json::parse(line);
    if (record && record->find("schema")) {
      if (const auto error = other_head(path, head, *record)) return *error;
      has_head = true;
      continue;
    }
    if (!has_head)
      return Error{fmt::format("{} has a {} that does not begin as that of a hunt does", path, kRecords), 0,
                   "name another folder with --to, or move that file"};
    if (!record) continue;
    add_record(*record, out);
    finding_was_last = is_finding(*record);
  }
  for (const string& line : whole_lines(texts.kept))
    if (const auto p = parse_line(line); p && p->x.shape.count() <= choices::kLarger * head.max_elements)
      out.kept.push_back(*p);
  mend_found(path, texts.found);
  if (texts.records.empty()) texts.records = json::dump(to_json(head)) + "\n";
  // A kill between the record of a finding and its line has left the record alone, or a part of the rest.
  if (finding_was_last && parse_line(out.findings.back().line) &&
      !has_finding(texts.found, out.findings.back().number))
    texts.found += found_text(out.findings.back()) + "\n";
  return out;
}

Result<std::vector<Problem>> found_lines(const string& path, const string& found) {
  std::vector<Problem> out;
  const std::vector<string> lines = whole_lines(found);
  if (std::all_of(lines.begin(), lines.end(), [](const string& l) { return l.empty() || l[0] == '#'; }))
    return out;
  Result<Suite> suite = parse_suite(found, (std::filesystem::path(path) / kFound).string(), path);
  if (!suite) return suite.error();
  for (const SuiteEntry& e : suite->entries) out.push_back(e.problem);
  return out;
}

}  // namespace assay::hunting
