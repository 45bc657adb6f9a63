#include "compare/report/github.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "compare/text/html.h"
#include "compare/text/shell.h"
#include "contract/line.h"

namespace assay {

namespace {

using std::string;
namespace fs = std::filesystem;

constexpr size_t kMostErrors = 10;       // that the service keeps for one step
constexpr size_t kMostRows = 100;        // of the summary, which may have 1 MiB
constexpr size_t kMostCharacters = 400;  // of one of its cells

// A value of a workflow command; a property's also ends at ':' and ','.
string command_value(std::string_view text, bool property) {
  string out;
  for (const char c : text) {
    if (c == '%') out += "%25";
    else if (c == '\r') out += "%0D";
    else if (c == '\n') out += "%0A";
    else if (property && c == ':') out += "%3A";
    else if (property && c == ',') out += "%2C";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
      out += fmt::format("\\x{:02x}", static_cast<int>(c));
    else out += c;
  }
  return out;
}

// The longest beginning of a label that is a file, cut before '#' or ':'.
string file_of(const string& label) {
  std::error_code error;
  for (size_t end = label.size(); end != string::npos && end > 0; end = label.find_last_of("#:", end - 1))
    if (fs::is_regular_file(label.substr(0, end), error)) return label.substr(0, end);
  return {};
}

// What to type for one case.
string again(const SuiteEntry& e, const Verdict& v) {
  if (const string file = file_of(e.file); v.argument.empty() && !file.empty()) {  // a case of a pack
    if (v.subject != "pack") return "assay replay " + shell_quoted(file);
    return fmt::format("assay explain {} --case {}", shell_quoted(file),
                       shell_quoted(e.file.substr(std::min(file.size() + 1, e.file.size()))));
  }
  const bool line = v.about.empty() && v.outcome == Outcome::failed && op_name(e.problem) == "quantize";
  return fmt::format("assay {} {}{}", line ? "explain" : "run", shell_quoted(e.text),
                     v.argument.empty() ? "" : " " + v.argument);
}

string cause(const Verdict& v) {
  if (v.breaches.empty()) return v.reason;
  const Breach& b = v.breaches[0];
  if (b.plane.empty()) return fmt::format("{}{}{}", b.claim, b.claim.empty() ? "" : ": ", b.message);
  return fmt::format("{} ({}): {} of {} differ, first at {}{}", b.plane, b.encoding, b.differ, b.of, b.where,
                     b.hint.empty() ? "" : "; " + b.hint);
}

class GithubReport final : public Report {
 public:
  explicit GithubReport(std::function<void(const string&)> print) : print_(std::move(print)) {}

  void result(const SuiteEntry& e, const Verdict& v) override {
    if (!is_red(v.outcome)) return;
    ++red_;
    const string plane = v.breaches.empty() ? "" : v.breaches[0].plane;
    if (shown_.size() < kMostErrors - 1 &&
        shown_.insert({e.line ? fmt::format("{}:{}", e.file, e.line) : e.text, v.subject, plane})
            .second) {  // of a sweep, one
      Annotation a;
      a.title = fmt::format("{} {}{}", v.subject, name_of(v.outcome), plane.empty() ? "" : " at " + plane);
      a.message = fmt::format("{}\n{}\n{}", e.text, cause(v), again(e, v));
      a.file = repository_path(e.file);
      a.line = a.file.empty() ? 0 : e.line;
      print_(workflow_command(a));
    }
    if (red_ <= kMostRows)
      rows_ += fmt::format("| {} | {} | {}{} | {} | {} |\n", name_of(v.outcome), markdown_text(v.subject),
                           markdown_text(e.file), e.line ? fmt::format("&#58;{}", e.line) : "",
                           markdown_code(e.text), markdown_text(cause(v)));
  }

  void finish(const Totals& t) override {
    if (red_ > shown_.size())
      print_(workflow_command(
          {"error", "assay",
           fmt::format("{} more failed; the log and the summary have them", red_ - shown_.size()), "", 0}));
    if (t.exit_status() == 3)
      print_(workflow_command({"error", "assay", "nothing was judged: " + t.last_line(), "", 0}));
    else print_(workflow_command({"notice", "assay", t.last_line(), "", 0}));
    string summary = fmt::format("### assay: {}\n\n", t.last_line());
    if (!rows_.empty())
      summary +=
          "| outcome | subject | from | line | cause |\n| --- | --- | --- | --- | --- |\n" + rows_ + "\n";
    if (red_ > kMostRows) summary += fmt::format("{} more failed.\n\n", red_ - kMostRows);
    if (!t.skip_reasons.empty()) {
      summary += "<details><summary>skipped</summary>\n\n";
      for (const auto& [reason, count] : t.skip_reasons)
        summary += fmt::format("- {}: {}\n", count, markdown_text(reason));
      summary += "\n</details>\n\n";
    }
    append_step_summary(summary);
  }

 private:
  std::function<void(const string&)> print_;
  std::set<std::tuple<string, string, string>> shown_;  // places, subjects, planes
  size_t red_ = 0;
  string rows_;
};

}  // namespace

string markdown_text(std::string_view text) {
  string out;
  const string cut =
      text.size() > kMostCharacters ? string(text.substr(0, kMostCharacters)) + "..." : string(text);
  for (const char c : cut) {
    const bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                      c == ' ' || c == '.' || static_cast<unsigned char>(c) >= 0x80;
    if (word) out += c;
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) out += ' ';
    else out += fmt::format("&#{};", static_cast<int>(c));
  }
  return out;
}
string markdown_code(std::string_view text) { return "<code>" + markdown_text(text) + "</code>"; }

void append_step_summary(const string& markdown) {
  const char* path = std::getenv("GITHUB_STEP_SUMMARY");
  if (!path || !*path) return;
  std::ofstream file(path, std::ios::app);
  file << markdown;
  file.close();
  if (!file) fmt::print(stderr, "assay: cannot write the summary that GITHUB_STEP_SUMMARY names: {}\n", path);
}

string workflow_command(const Annotation& a) {
  string properties;
  auto property = [&](std::string_view name, const string& value) {
    if (!value.empty())
      properties += fmt::format("{}{}={}", properties.empty() ? " " : ",", name, command_value(value, true));
  };
  property("title", a.title);
  property("file", a.file);
  property("line", a.line ? std::to_string(a.line) : "");
  return fmt::format("::{}{}::{}\n", a.level, properties, command_value(a.message, false));
}

string repository_path(const string& label) {
  string file = file_of(label);
  if (file.empty() && label.find('/') == string::npos) file = file_of("fixtures/suites/" + label);
  if (file.empty()) return {};
  // Annotations name files from the root of the repository, wherever the program runs.
  const char* root = std::getenv("GITHUB_WORKSPACE");
  std::error_code error;
  const fs::path path = fs::weakly_canonical(file, error)
                            .lexically_relative(fs::weakly_canonical(root && *root ? root : ".", error));
  return path.empty() || *path.begin() == ".." ? string() : path.generic_string();
}

std::unique_ptr<Report> make_github_report(std::function<void(const string&)> print) {
  return std::make_unique<GithubReport>(std::move(print));
}

void report_check(Report& report, Totals& totals, const string& where, const string& line,
                  const std::optional<Breach>& breach) {
  SuiteEntry e;
  e.file = where;
  const auto problem = parse_line(line);
  e.text = problem ? to_line(*problem) : line.empty() ? "(no line)" : line;
  Verdict v;
  v.subject = "pack";
  if (breach) {
    v.outcome = Outcome::failed;
    v.breaches = {*breach};
  }
  totals.add(v);
  report.result(e, v);
}

}  // namespace assay
