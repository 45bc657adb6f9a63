#include "compare/commands/hunt/folder.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "contract/line.h"
#include "fixtures/files.h"
#include "fixtures/suite.h"

namespace assay::hunting {

namespace fs = std::filesystem;
using std::string;

namespace {

constexpr const char *kRecords = "hunt.jsonl", *kKept = "kept.cases", *kFound = "found.cases";
constexpr const char* kSchema = "assay.hunt/1";

// The whole lines of a file; none where it is not there.
std::vector<string> whole_lines(const string& path) {
  std::vector<string> out;
  const auto mapped = MappedFile::open(path);
  if (!mapped) return out;
  const std::string_view all(reinterpret_cast<const char*>(mapped->bytes().data()), mapped->bytes().size());
  for (size_t at = 0, end; (end = all.find('\n', at)) != string::npos; at = end + 1)
    out.emplace_back(all.substr(at, end - at));
  return out;
}

json::Value to_json(const Head& head) {
  return json::object({{"schema", kSchema},
                       {"subject", head.subject},
                       {"seed", std::to_string(head.seed)},
                       {"max_elements", head.max_elements},
                       {"only", head.only}});
}

}  // namespace

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
                       {"seconds", f.seconds}});
}

string Folder::file(const char* name) const { return (fs::path(path_) / name).string(); }
string Folder::finding_folder(size_t number) const {
  return (fs::path(path_) / std::to_string(number)).string();
}

Result<std::unique_ptr<Folder>> Folder::open(const string& path, const Head& head) {
  std::error_code failed;
  fs::create_directories(path, failed);
  if (failed) return Error{"--to " + path + ": " + failed.message(), 0, "name a folder that can be written"};
  std::unique_ptr<Folder> out(new Folder(path));
  if (auto error = out->read(head)) return *error;
  return out;
}

std::optional<Error> Folder::read_record(const json::Value& record, const Head& head) {
  if (record.find("schema")) {
    if (record == to_json(head)) return {};
    return Error{
        fmt::format("{} holds a hunt of {} with seed {} and at most {} elements, not this one", path_,
                    record.text("subject"), record.text("seed"),
                    record.find("max_elements") ? record.find("max_elements")->to_int().value_or(0) : 0),
        0, "name another folder with --to, or give the same --subject, --seed, --max-elements and --only"};
  }
  const auto number = [&](const char* key) {
    const json::Value* v = record.find(key);
    return v ? v->to_double().value_or(0) : 0;
  };
  if (record.text("record") == "batch") {
    batches_ = static_cast<uint64_t>(number("batch")) + 1;
    lines_ += static_cast<size_t>(number("lines"));
    seconds_ = number("seconds");
  } else if (record.text("record") == "finding") {
    const json::Value* explained = record.find("explained");
    findings_.push_back(
        {static_cast<size_t>(number("number")), string(record.text("cause")), string(record.text("headline")),
         string(record.text("line")), string(record.text("drawn")), string(record.text("claim")),
         string(record.text("plane")), explained && explained->to_bool().value_or(false), number("seconds")});
  }
  return {};
}

std::optional<Error> Folder::read(const Head& head) {
  const std::vector<string> records = whole_lines(file(kRecords));
  for (const string& line : records)
    if (const auto record = json::parse(line))
      if (auto error = read_record(*record, head)) return error;
  for (const string& line : whole_lines(file(kKept)))
    if (const auto p = parse_line(line)) kept_.push_back(*p);
  // A line end before the first record, so that one that was cut short spoils none of the next.
  if (records.empty()) return append(kRecords, json::dump(to_json(head)));
  for (const char* name : {kRecords, kKept})
    if (auto error = append(name, "")) return error;
  return {};
}

Result<std::vector<Problem>> Folder::found() const {
  std::vector<Problem> out;
  if (std::error_code none; !fs::exists(file(kFound), none)) return out;
  const Result<Suite> suite = load_suite(file(kFound));
  if (!suite) return suite.error();
  for (const SuiteEntry& e : suite->entries) out.push_back(e.problem);
  return out;
}

std::optional<Error> Folder::append(const char* name, const string& text) {
  std::FILE* out = std::fopen(file(name).c_str(), "a");
  const bool written = out && std::fwrite(text.data(), 1, text.size(), out) == text.size() &&
                       std::fputc('\n', out) != EOF && std::fflush(out) == 0;
  const int reason = errno;
  if (out) std::fclose(out);
  if (written) return {};
  return Error{fmt::format("cannot write {}: {}", file(name), std::strerror(reason)), 0, ""};
}

std::optional<Error> Folder::keep(const string& line) { return append(kKept, line); }

std::optional<Error> Folder::add(const Finding& f) {
  findings_.push_back(f);
  if (auto error = append(kFound, fmt::format("# {}: {} [{}]\n{}", f.number, f.headline, f.cause, f.line)))
    return error;
  return append(kRecords, json::dump(to_json(f)));
}

std::optional<Error> Folder::ended(uint64_t batch, size_t lines, double seconds, size_t pairs) {
  return append(kRecords, json::dump(json::object({{"record", "batch"},
                                                   {"batch", static_cast<int64_t>(batch)},
                                                   {"lines", lines},
                                                   {"seconds", seconds},
                                                   {"pairs", pairs}})));
}

}  // namespace assay::hunting
