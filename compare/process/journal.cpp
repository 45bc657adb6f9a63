#include "compare/process/journal.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "fixtures/files.h"
#include "fixtures/sha256.h"

namespace assay {

namespace {

constexpr std::string_view kFirstLine = "assay journal 1 ";

std::string check_of(std::string_view text) { return sha256(std::as_bytes(std::span(text))).substr(0, 16); }

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
  if (rest[kCheck + 1 + *bytes] != '\n' || rest.substr(0, kCheck) != check_of(result)) return false;
  results.insert_or_assign(*number, std::string(result));
  text = rest.substr(kCheck + 2 + *bytes);
  return true;
}

}  // namespace

Result<JournalText> read_journal(std::span<const std::byte> bytes, const std::string& digest) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string first = fmt::format("{}{}\n", kFirstLine, digest);
  JournalText out;
  if (all.size() < first.size() && first.starts_with(all)) return out;  // killed before it had begun
  if (!all.starts_with(kFirstLine)) return Error{"it is no journal of results", 0, "give another folder"};
  if (!all.starts_with(first))
    return Error{
        "it holds the results of another command, of another build, or of files that have changed since", 0,
        "give another folder"};
  std::string_view rest = all.substr(first.size());
  while (take_record(rest, out.results)) {}
  out.whole = all.size() - rest.size();
  return out;
}

Result<std::unique_ptr<Journal>> Journal::open(const std::string& folder, const std::string& digest) {
  const std::string path = (std::filesystem::path(folder) / "results.journal").string();
  const auto cannot = [&](const std::string& why) {
    return Error{fmt::format("--resume {}: cannot use {}: {}", folder, path, why), 0, ""};
  };
  std::error_code trouble;
  std::filesystem::create_directories(folder, trouble);
  if (trouble) return cannot(trouble.message());
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) return cannot(std::strerror(errno));
  std::unique_ptr<Journal> out(new Journal(path, file));
  // A file system without locks has none to offer.
  if (::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return cannot("another run has it open");
  const auto mapped = MappedFile::open(path);
  if (!mapped) return mapped.error();
  auto known = read_journal(mapped->bytes(), digest);
  if (!known) return cannot(known.error().message);
  out->known_ = std::move(*known);
  if (::ftruncate(file, static_cast<off_t>(out->known_.whole)) != 0) return cannot(std::strerror(errno));
  if (out->known_.whole == 0) out->write(fmt::format("{}{}\n", kFirstLine, digest));
  if (out->trouble_) return *out->trouble_;
  return out;
}

Journal::~Journal() { ::close(file_); }

const std::string* Journal::find(size_t number) const {
  const auto it = known_.results.find(number);
  return it == known_.results.end() ? nullptr : &it->second;
}

void Journal::add(size_t number, const std::string& result) {
  write(fmt::format("{} {} {}\n{}\n", number, result.size(), check_of(result), result));
}

void Journal::write(const std::string& text) {
  for (size_t at = 0; at < text.size() && !trouble_;) {
    const ssize_t n = ::write(file_, text.data() + at, text.size() - at);
    if (n > 0) at += static_cast<size_t>(n);
    else if (errno != EINTR)
      trouble_ = Error{fmt::format("cannot write {}: {}", path_, std::strerror(errno)), 0, ""};
  }
}

}  // namespace assay
