#include "compare/commands/hunt/edges.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "compare/process/output_of.h"
#include "contract/line.h"
#include "fixtures/files.h"

namespace assay::hunting {

namespace fs = std::filesystem;
using std::string;

namespace {

// What libFuzzer puts before the names of inputs that ended it.
constexpr const char* kEnds[] = {"crash-", "timeout-", "oom-", "leak-"};
constexpr const char* kFailed[] = {"failed-"};  // what assay_edges puts before those of lines that failed
constexpr int kRefused = 2;                     // assay_edges's exit status where it does not take its words
constexpr int kSlowLine = 60, kMostMiB = 4096;  // seconds; of the program

std::vector<fs::path> files_of(const string& folder) {
  std::vector<fs::path> out;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed)) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

std::optional<Problem> line_of(const fs::path& file) {
  const auto mapped = MappedFile::open(file.string());
  if (!mapped) return {};
  const auto problem =
      parse_line({reinterpret_cast<const char*>(mapped->bytes().data()), mapped->bytes().size()});
  return problem ? std::optional(*problem) : std::nullopt;
}

bool begins_with_one(const fs::path& file, std::span<const char* const> begins) {
  const string name = file.filename().string();
  return std::any_of(begins.begin(), begins.end(),
                     [&](const char* begin) { return name.starts_with(begin); });
}
bool ended_the_program(const fs::path& file) { return begins_with_one(file, kEnds); }
bool failed_in_it(const fs::path& file) { return begins_with_one(file, kFailed); }

// The line of the output that says what happened: a sanitizer's before libFuzzer's own.
string said(std::string_view text) {
  for (const char* mark : {"runtime error: ", "SUMMARY: "})
    if (const size_t at = text.find(mark); at != std::string_view::npos) {
      const bool summary = std::string_view(mark).starts_with("SUMMARY");
      const size_t begin = summary ? at + std::string_view(mark).size() : text.rfind('\n', at) + 1;
      return string(text.substr(begin, text.find('\n', at) - begin));
    }
  return string(kNoWords);
}

}  // namespace

string Edges::path(const char* name) const { return (fs::path(options_.folder) / "edges" / name).string(); }

std::optional<Error> Edges::make_folders() const {
  std::error_code failed;
  for (const char* name : {"new", "kept"}) fs::create_directories(path(name), failed);
  if (failed) return Error{path("new") + ": " + failed.message(), 0, ""};
  return {};
}

fs::path Edges::aside(const fs::path& file) const {
  return fs::path(options_.folder) / "edges" / file.filename();
}

std::optional<Error> Edges::know(const Problem& p) {
  if (auto error = make_folders()) return error;
  const string line = to_line(p);
  return write_file(path("kept") + fmt::format("/drawn-{:016x}", std::hash<string>()(line)), line);
}

// The program with the words that say what it runs, and its limits.
std::vector<string> Edges::command() const {
  std::vector<string> out = {options_.program,
                             "--subject=" + options_.subject,
                             fmt::format("--most={}", options_.max_elements),
                             "-max_len=4096",
                             fmt::format("-timeout={}", kSlowLine),
                             fmt::format("-rss_limit_mb={}", kMostMiB)};
  if (!options_.plugin.empty()) out.push_back("--plugin=" + options_.plugin);
  return out;
}

std::optional<Error> Edges::cannot_start() const {
  const auto refused = [&](const string& why) {
    return Error{"--edges " + options_.program + ": " + why, 0,
                 "build it:  ci/setup --fuzz && ci/build fuzz assay_edges"};
  };
  if (::access(options_.program.c_str(), X_OK) != 0) return refused(std::strerror(errno));
  std::vector<string> words = command();
  words.push_back("-runs=0");
  const Result<Output> output = run_program(words);
  if (!output) return refused(output.error().message);
  if (output->status == kRefused) return Error{output->ending(options_.program), 0, ""};
  if (output->text.find("INFO: ") == string::npos)  // libFuzzer's first word
    return refused("expected the program assay_edges, found one without libFuzzer");
  return {};
}

Result<string> Edges::said_of(const Problem& p) const {
  if (auto error = make_folders()) return *error;
  if (auto error = write_file(path("trial"), to_line(p))) return *error;
  std::vector<string> words = command();
  words.push_back(path("trial"));
  const Result<Output> output = run_program(words);
  drop_trial();
  if (!output) return output.error();
  if (output->status == kRefused) return Error{output->ending(options_.program), 0, ""};
  return output->status != 0 ? said(output->text) : string();
}

void Edges::drop_trial() const {
  std::error_code ignored;
  fs::remove(path("trial"), ignored);
}

Result<Edges::Found> Edges::search(uint64_t round, int64_t runs, const std::function<bool()>& over) {
  if (auto error = make_folders()) return *error;
  std::error_code failed;
  kept_ = files_of(path("kept")).size();
  std::vector<string> words = command();
  words.insert(words.end(), {"--only=" + options_.only, "--new=" + path("new"), "-entropic=0",
                             fmt::format("-seed={}", (options_.seed * 65537 + round) % 0x7FFFFFFF + 1),
                             fmt::format("-runs={}", static_cast<int64_t>(kept_) + runs),
                             "-artifact_prefix=" + path("new") + "/", path("new"), path("kept")});
  const Result<Output> output = run_program(words, over);
  if (!output) return output.error();
  Found out;
  for (const fs::path& file : files_of(path("new"))) {
    if (failed_in_it(file) && fs::exists(aside(file), failed)) continue;  // as in an earlier round
    std::optional<Problem> p = line_of(file);
    if (p && ended_the_program(file)) out.ended = p, out.words = said(output->text);
    if (p && std::find(out.lines.begin(), out.lines.end(), *p) == out.lines.end())
      out.lines.push_back(std::move(*p));
  }
  const bool cut = over && over();
  if (output->status != 0 && !cut && !out.ended) return Error{output->ending(options_.program), 0, ""};
  return out;
}

std::optional<Error> Edges::taken() {
  for (const fs::path& file : files_of(path("new"))) {
    std::error_code failed;
    // A line on which the program ended would end the next round before it begins.
    const bool stays_out = ended_the_program(file) || failed_in_it(file);
    fs::rename(file, stays_out ? aside(file) : fs::path(path("kept")) / file.filename(), failed);
    if (failed) return Error{file.string() + ": " + failed.message(), 0, ""};
  }
  return {};
}

}  // namespace assay::hunting
