#include "compare/process/journal.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compare/process/file_lock.h"
#include "fixtures/sha256.h"

namespace assay {

namespace {

constexpr std::string_view kFirstLine = "assay journal 1 ";

// Of the number too: a result of another task is as wrong as another result.
std::string check_of(size_t number, std::string_view result) {
  const std::string all = fmt::format("{} {}", number, result);
  return sha256(std::as_bytes(std::span(all))).substr(0, 16);
}

// A number and the character after it, at the front of the text, which loses them.
std::optional<size_t> take_number(std::string_view& text, char after) {
  size_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end == text.data() + text.size() || *end != after) return {};
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return n;
}

// "<number> <bytes> <check>\n<result>\n" at the front of the text, which loses it; false where that is not
// all there.
bool take_record(std::string_view& text, std::map<size_t, std::string>& results) {
  constexpr size_t kCheck = 16;
  std::string_view rest = text;
  const auto number = take_number(rest, ' ');
  const auto bytes = number ? take_number(rest, ' ') : std::nullopt;
  if (!bytes || rest.size() < kCheck + 2 || rest.size() - kCheck - 2 < *bytes || rest[kCheck] != '\n')
    return false;
  const std::string_view result = rest.substr(kCheck + 1, *bytes);
  if (rest[kCheck + 1 + *bytes] != '\n' || rest.substr(0, kCheck) != check_of(*number, result)) return false;
  results.insert_or_assign(*number, std::string(result));
  text = rest.substr(kCheck + 2 + *bytes);
  return true;
}

// The bytes of an open file, mapped. MappedFile would open the file again, and the lock goes when any
// descriptor of a file is closed.
class Mapping {
 public:
  explicit Mapping(int file) {
    struct stat s {};
    if (::fstat(file, &s) != 0 || s.st_size == 0) return;
    void* const at = ::mmap(nullptr, static_cast<size_t>(s.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    if (at != MAP_FAILED) bytes_ = {static_cast<const std::byte*>(at), static_cast<size_t>(s.st_size)};
    else trouble_ = std::strerror(errno);
  }
  ~Mapping() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& trouble() const { return trouble_; }

 private:
  std::span<const std::byte> bytes_;
  std::string trouble_;
};

}  // namespace

Result<JournalText> read_journal(std::span<const std::byte> bytes, const std::string& digest) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string first = fmt::format("{}{}\n", kFirstLine, digest);
  JournalText out;
  if (all.size() < first.size() && first.starts_with(all)) return out;  // killed before it had begun
  if (!all.starts_with(kFirstLine)) return Error{"it is no journal of results", 0, ""};
  if (!all.starts_with(first))
    return Error{
        "it holds the results of another command or of another build, or a file that the command names has "
        "changed since",
        0, ""};
  std::string_view rest = all.substr(first.size());
  while (take_record(rest, out.results)) {}
  out.whole = all.size() - rest.size();
  return out;
}

Result<std::unique_ptr<Journal>> Journal::open(const std::string& folder, const std::string& digest) {
  const std::string path = (std::filesystem::path(folder) / "results.journal").string();
  const auto cannot = [&](const std::string& why, const std::string& hint = "") {
    return Error{fmt::format("--resume {}: cannot use {}: {}", folder, path, why), 0, hint};
  };
  std::error_code trouble;
  std::filesystem::create_directories(folder, trouble);
  if (trouble) return cannot(trouble.message());
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) return cannot(std::strerror(errno));
  std::unique_ptr<Journal> out(new Journal(path, file));
  if (const std::string other = locked_by_another(file); !other.empty()) return cannot(other);
  if (const auto error = out->take_over(digest)) return cannot(error->message, "give another folder");
  if (out->trouble_) return *out->trouble_;
  return out;
}

// Reads the file and cuts off what is not whole.
std::optional<Error> Journal::take_over(const std::string& digest) {
  const Mapping file(file_);
  if (!file.trouble().empty()) return Error{file.trouble(), 0, ""};
  auto known = read_journal(file.bytes(), digest);
  if (!known) return known.error();
  known_ = std::move(*known);
  damaged_ = file.bytes().size() - known_.whole;
  if (damaged_ && ::ftruncate(file_, static_cast<off_t>(known_.whole)) != 0)
    return Error{std::strerror(errno), 0, ""};
  if (known_.whole == 0) write(fmt::format("{}{}\n", kFirstLine, digest));
  return {};
}

Journal::~Journal() { ::close(file_); }

const std::string* Journal::find(size_t number) const {
  const auto it = known_.results.find(number);
  return it == known_.results.end() ? nullptr : &it->second;
}

std::string Journal::found() const {
  std::string text;
  if (const size_t n = known_.results.size())
    text = fmt::format("takes over {} result{} of earlier runs from {}", n, n == 1 ? "" : "s", path_);
  if (damaged_)
    text += fmt::format("{}{} bytes at the end of {} are not whole results; what they were of is done again",
                        text.empty() ? "" : "; ", damaged_, path_);
  return text;
}

void Journal::add(size_t number, const std::string& result) {
  write(fmt::format("{} {} {}\n{}\n", number, result.size(), check_of(number, result), result));
}

void Journal::write(const std::string& text) {
  for (size_t at = 0; at < text.size() && !trouble_;) {
    const ssize_t n = ::write(file_, text.data() + at, text.size() - at);
    if (n > 0) at += static_cast<size_t>(n);
    else if (errno != EINTR)
      trouble_ = Error{fmt::format("cannot write {}: {}", path_, std::strerror(errno)), 0, ""};
  }
}

void Journal::remove() {
  std::error_code absent;
  std::filesystem::remove(path_, absent);
  std::filesystem::remove(std::filesystem::path(path_).parent_path(), absent);
}

}  // namespace assay
