#include "compare/commands/hunt/folder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "compare/choices/draw.h"
#include "compare/debug/reproducer.h"
#include "compare/process/file_lock.h"
#include "compare/text/printable.h"
#include "contract/line.h"
#include "fixtures/files.h"
#include "fixtures/suite.h"

namespace assay::hunting {

namespace fs = std::filesystem;
using std::string;

namespace {

constexpr const char *kRecords = "hunt.jsonl", *kKept = "kept.cases", *kFound = "found.cases",
                     *kLock = "lock", *kLooking = "looking";
constexpr int64_t kMostCounted = int64_t{1} << 53;
constexpr const char* kSchema = "assay.hunt/1";

string text_of(const string& path) {
  const auto mapped = MappedFile::open(path);
  if (!mapped) return {};
  return {reinterpret_cast<const char*>(mapped->bytes().data()), mapped->bytes().size()};
}

// The whole lines of a file; none where it is not there.
std::vector<string> whole_lines(const string& path) {
  std::vector<string> out;
  const string all = text_of(path);
  for (size_t at = 0, end; (end = all.find('\n', at)) != string::npos; at = end + 1)
    out.push_back(all.substr(at, end - at));
  return out;
}

// What found.cases says before the line of a finding. The headline may be what a crashed kernel said last.
string comment_of(size_t number) { return fmt::format("# {}: ", number); }
string found_text(const Finding& f) {
  return fmt::format("{}{} [{}]\n{}", comment_of(f.number), printable(f.headline), printable(f.cause),
                     f.line);
}

// Files that explain and the reproducer write, also those that a kill left under a name for the time of
// writing.
bool is_of_a_pack(const string& name) {
  constexpr const char* kOfAPack[] = {"case.safetensors", "reproduce.cpp", "README", "diagnosis.json"};
  return std::any_of(std::begin(kOfAPack), std::end(kOfAPack),
                     [&](const char* own) { return name.starts_with(own); });
}

// Removes a folder whose files are of a pack. Nothing is done where it is not there; an error where anything
// else stands in it, which a hunt has not made.
std::optional<Error> remove_pack(const fs::path& folder) {
  std::error_code failed;
  if (!fs::exists(fs::symlink_status(folder, failed))) return {};
  const Error in_the_way{fmt::format("{} is in the way: this hunt has not made it", folder.string()), 0,
                         "move it, or name another folder with --to"};
  if (!fs::is_directory(fs::symlink_status(folder, failed))) return in_the_way;
  for (const auto& entry : fs::directory_iterator(folder, failed))
    if (!is_of_a_pack(entry.path().filename().string())) return in_the_way;
  fs::remove_all(folder, failed);
  if (failed) return Error{fmt::format("cannot remove {}: {}", folder.string(), failed.message()), 0, ""};
  return {};
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
  return json::object({{"record", j.kind},
                       {"batch", static_cast<int64_t>(j.batch)},
                       {"lines", j.lines},
                       {"failures", j.failures},
                       {"unsupported", j.unsupported},
                       {"seconds", j.seconds},
                       {"pairs", j.pairs},
                       {"cases", j.cases},
                       {"codes", j.codes},
                       {"whole", j.whole}});
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

Folder::~Folder() {
  if (lock_ >= 0) ::close(lock_);
}

string Folder::file(const char* name) const { return (fs::path(path_) / name).string(); }

Result<std::unique_ptr<Folder>> Folder::open(const string& path, const Head& head) {
  std::error_code failed;
  fs::create_directories(path, failed);
  if (failed) return Error{"--to " + path + ": " + failed.message(), 0, "name a folder that can be written"};
  std::unique_ptr<Folder> out(new Folder(path, head));
  if (auto error = out->lock()) return *error;
  if (auto error = out->read()) return *error;
  if (auto error = out->dropped()) return *error;  // what a kill has left
  return out;
}

std::optional<Error> Folder::lock() {
  lock_ = ::open(file(kLock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) return Error{fmt::format("cannot write {}: {}", file(kLock), std::strerror(errno)), 0, ""};
  const string other = locked_by_another(lock_);
  if (other.empty()) return {};
  return Error{fmt::format("--to {}: {}", path_, other), 0, "wait for its end, or name another folder"};
}

std::optional<Error> Folder::read_record(const json::Value& record) {
  if (record.find("schema")) {
    if (record == to_json(head_)) return {};
    return Error{
        fmt::format("{} holds a hunt of {} with seed {} and at most {} elements, not this one", path_,
                    record.text("subject"), record.text("seed"),
                    record.find("max_elements") ? record.find("max_elements")->to_int().value_or(0) : 0),
        0, "name another folder with --to, or give the same --subject, --seed, --max-elements and --only"};
  }
  // What no hunt writes counts as 0: the file may have been damaged.
  const auto count = [&](const char* key) -> uint64_t {
    const json::Value* v = record.find(key);
    const int64_t n = v ? v->to_int().value_or(0) : 0;
    return n < 0 || n > kMostCounted ? 0 : static_cast<uint64_t>(n);
  };
  const auto seconds = [&] {
    const json::Value* v = record.find("seconds");
    const double n = v ? v->to_double().value_or(0) : 0;
    return n >= 0 && n < 1e12 ? n : 0;
  };
  const auto flag = [&](const char* key, bool otherwise) {
    const json::Value* v = record.find(key);
    return v ? v->to_bool().value_or(otherwise) : otherwise;
  };
  finding_was_last_ = record.text("record") == "finding";
  if (finding_was_last_) {
    findings_.push_back({count("number"), string(record.text("cause")), string(record.text("headline")),
                         string(record.text("line")), string(record.text("drawn")),
                         string(record.text("claim")), string(record.text("plane")), flag("explained", false),
                         seconds(), flag("looked", true)});
    return {};
  }
  if (flag("whole", true)) {
    begun_ = true;
    if (record.text("record") == "batch") before_.batch = count("batch") + 1;
  }
  before_.lines += count("lines");
  before_.failures += count("failures");
  before_.unsupported += count("unsupported");
  before_.seconds = seconds();
  return {};
}

std::optional<Error> Folder::read() {
  for (const char* name : {kRecords, kKept})
    if (auto error = end_line(name)) return error;
  const std::vector<string> records = whole_lines(file(kRecords));
  for (const string& line : records)
    if (const auto record = json::parse(line))
      if (auto error = read_record(*record)) return error;
  for (const string& line : whole_lines(file(kKept)))
    if (const auto p = parse_line(line); p && p->x.shape.count() <= choices::kLarger * head_.max_elements)
      kept_.push_back(*p);
  if (auto error = mend_found()) return error;
  if (records.empty()) return append(kRecords, json::dump(to_json(head_)));
  // A kill between the record of a finding and its line has left the record alone.
  if (finding_was_last_ && text_of(file(kFound)).find(comment_of(findings_.back().number)) == string::npos)
    return append(kFound, found_text(findings_.back()));
  return {};
}

// Ends a last line that was cut short, so that it spoils none of the next.
std::optional<Error> Folder::end_line(const char* name) {
  const string text = text_of(file(name));
  return text.empty() || text.ends_with('\n') ? std::nullopt : append(name, "");
}

// A last line of found.cases without a line end was cut short, or is one that the user has written. One that
// cannot be read becomes a comment.
std::optional<Error> Folder::mend_found() {
  const string text = text_of(file(kFound));
  const size_t last = text.rfind('\n') + 1;
  if (text.empty() || text.ends_with('\n') || text[last] == '#' ||
      parse_suite(text.substr(last), kFound, path_))
    return end_line(kFound);
  return write_file(file(kFound), text.substr(0, last) + "# cut short: " + text.substr(last) + "\n");
}

Result<std::vector<Problem>> Folder::found() const {
  std::vector<Problem> out;
  const std::vector<string> lines = whole_lines(file(kFound));
  if (std::all_of(lines.begin(), lines.end(), [](const string& l) { return l.empty() || l[0] == '#'; }))
    return out;
  Result<Suite> suite = parse_suite(text_of(file(kFound)), file(kFound), path_);
  if (!suite) return suite.error();
  for (const SuiteEntry& e : suite->entries) out.push_back(e.problem);
  return out;
}

string Folder::looking() const { return (fs::path(path_) / kLooking / "pack").string(); }

std::optional<Error> Folder::dropped() {
  const fs::path place = fs::path(path_) / kLooking;
  std::error_code failed;
  for (const char* name : {"pack", "pack.other"})
    if (auto error = remove_pack(place / name)) return error;
  fs::remove(place, failed);  // where it is empty
  return {};
}

std::optional<Error> Folder::taken(size_t number) {
  const fs::path to = fs::path(path_) / std::to_string(number);
  std::error_code failed;
  if (!fs::exists(looking(), failed) || fs::is_empty(looking(), failed)) return dropped();
  if (auto error = remove_pack(to)) return error;  // a kill has left it before its finding was written
  fs::rename(looking(), to, failed);
  if (failed) return Error{fmt::format("cannot write {}: {}", to.string(), failed.message()), 0, ""};
  return dropped();
}

std::optional<Error> Folder::no_room() const {
  const string path = (fs::path(looking()) / "README").string();
  std::error_code failed;
  const bool there = fs::exists(path, failed);
  fs::create_directories(looking(), failed);
  const auto error = write_file(there ? path + ".room" : path, string(kMaxReproducerBytes, ' '));
  fs::remove(there ? path + ".room" : path, failed);
  return error;
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
  if (auto error = append(kRecords, json::dump(to_json(f)))) return error;
  return append(kFound, found_text(f));
}

std::optional<Error> Folder::ended(const Judged& judged) {
  return append(kRecords, json::dump(to_json(judged)));
}

}  // namespace assay::hunting
