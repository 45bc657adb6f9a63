#include "compare/commands/hunt/folder.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "compare/debug/reproducer.h"
#include "compare/process/file_lock.h"
#include "fixtures/files.h"

namespace assay::hunting {

namespace fs = std::filesystem;
using std::string;

namespace {

constexpr const char *kLock = "lock", *kLooking = "looking";
constexpr const char* kFiles[] = {kRecords, kKept, kFound, kLock};
constexpr const char* kRoom = "README.room";  // asks whether there is room for a pack

string text_of(const string& path) {
  const auto mapped = MappedFile::open(path);
  if (!mapped) return {};
  return {reinterpret_cast<const char*>(mapped->bytes().data()), mapped->bytes().size()};
}

// Files that explain and the reproducer write first, and those that they write beside them.
constexpr std::string_view kFirst[] = {"case.safetensors", "diagnosis.json", kRoom};
constexpr std::string_view kBeside[] = {"reproduce.cpp", "README"};

// Whether a file is one of these, also under the name that it has while it is written (write_file).
bool is_one_of(std::span<const std::string_view> names, const fs::directory_entry& entry) {
  constexpr size_t kMarks = 7;  // of mkstemp: a full stop and six letters or digits
  std::error_code failed;
  if (!entry.is_regular_file(failed) || entry.is_symlink(failed)) return false;
  const string name = entry.path().filename().string();
  return std::any_of(names.begin(), names.end(), [&](std::string_view own) {
    if (!name.starts_with(own)) return false;
    const std::string_view rest = std::string_view(name).substr(own.size());
    return rest.empty() ||
           (rest.size() == kMarks && rest.starts_with('.') &&
            std::all_of(rest.begin() + 1, rest.end(), [](unsigned char c) { return std::isalnum(c); }));
  });
}

// Removes a folder whose files are of a pack. Nothing is done where it is not there; an error where a hunt
// has not made it: anything else stands in it, or files that are written beside others stand alone.
std::optional<Error> remove_pack(const fs::path& folder) {
  std::error_code failed;
  if (!fs::exists(fs::symlink_status(folder, failed))) return {};
  const Error in_the_way{fmt::format("{} is in the way: this hunt has not made it", folder.string()), 0,
                         "move it, or name another folder with --to"};
  if (!fs::is_directory(fs::symlink_status(folder, failed))) return in_the_way;
  std::vector<fs::path> beside;
  bool has_first = false;
  for (const auto& entry : fs::directory_iterator(folder, failed)) {
    if (is_one_of(kFirst, entry)) has_first = true;
    else if (is_one_of(kBeside, entry)) beside.push_back(entry.path());
    else return in_the_way;
  }
  if (!beside.empty() && !has_first) return in_the_way;
  for (const fs::path& path : beside) fs::remove(path, failed);  // before the first: a kill may come between
  fs::remove_all(folder, failed);
  if (failed) return Error{fmt::format("cannot remove {}: {}", folder.string(), failed.message()), 0, ""};
  return {};
}

}  // namespace

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

bool Folder::is_own(const string& folder, const string& path) {
  std::error_code failed;
  const fs::path asked = fs::weakly_canonical(path, failed);
  return std::any_of(std::begin(kFiles), std::end(kFiles), [&](const char* name) {
    return fs::weakly_canonical(fs::path(folder) / name, failed) == asked;
  });
}

std::optional<Error> Folder::lock() {
  lock_ = ::open(file(kLock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) return Error{fmt::format("cannot write {}: {}", file(kLock), std::strerror(errno)), 0, ""};
  const string other = locked_by_another(lock_);
  if (other.empty()) return {};
  return Error{fmt::format("--to {}: {}", path_, other), 0, "wait for its end, or name another folder"};
}

std::optional<Error> Folder::read() {
  const Texts before{text_of(file(kRecords)), text_of(file(kKept)), text_of(file(kFound))};
  Texts now = before;
  Result<Earlier> earlier = read_texts(path_, head_, now);
  if (!earlier) return earlier.error();
  earlier_ = std::move(*earlier);
  findings_ = earlier_.findings;
  if (auto error = rewrite(kRecords, before.records, now.records)) return error;
  if (auto error = rewrite(kKept, before.kept, now.kept)) return error;
  return rewrite(kFound, before.found, now.found);
}

// Appends where that is enough, as every other change of these files does.
std::optional<Error> Folder::rewrite(const char* name, const string& before, const string& now) {
  if (now == before) return {};
  if (!now.starts_with(before)) return write_file(file(name), now);
  return append(name, now.substr(before.size(), now.size() - before.size() - 1));
}

Result<std::vector<Problem>> Folder::found() const { return found_lines(path_, text_of(file(kFound))); }

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
  const string path = (fs::path(looking()) / kRoom).string();
  std::error_code failed;
  fs::create_directories(looking(), failed);
  const auto error = write_file(path, string(kMaxReproducerBytes, ' '));
  fs::remove(path, failed);
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
