// Repeats every launch of the interpreter on the GPU of this machine. The program goes on with what the
// interpreter made; a file of JSON lines says how the GPU's bytes compare. The linker puts run_twice in place
// of ptx::run (CMakeLists.txt).
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "fast/ptx/run.h"
#include "fast/silicon/device_launch.h"

namespace assay::silicon {

ptx::Counters interpreted(ptx::Module&, std::string_view, const ptx::Launch&, const ptx::Memory&,
                          const ptx::RunOptions&) asm(ASSAY_REAL_RUN);
ptx::Counters run_twice(ptx::Module&, std::string_view, const ptx::Launch&, const ptx::Memory&,
                        const ptx::RunOptions&) asm(ASSAY_WRAPPED_RUN);

namespace {

// The folder for results, from the environment. Without it no launch is repeated.
const char* folder() {
  static const char* const set = std::getenv("ASSAY_SECOND_RUN");
  return set;
}

void write(const std::string& name, const std::string& text, int flags) {
  const std::string path = std::string(folder()) + "/" + name;
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | flags, 0644);
  if (file < 0 || ::write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    std::fprintf(stderr, "assay: %s cannot be written\n", path.c_str());
  if (file >= 0) close(file);
}

std::string hex(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte b : bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(b));
    out += two;
  }
  return out;
}

// A string of JSON.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out.append(1, '\\').append(1, c);
    else if (c == '\n') out += "\\n";
    else if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + "\"";
}
std::string member(const char* name, const std::string& text) { return quoted(name) + ": " + quoted(text); }
std::string member(const char* name, size_t number) { return quoted(name) + ": " + std::to_string(number); }

// How many bytes of an allocation differ, and the first words that do, as JSON; empty if all are equal. Words
// that hold addresses are not compared.
std::string difference(const Contents& interpreter, const Contents& device) {
  constexpr size_t kWord = 8, kShown = 24;
  const std::set<size_t> addresses(device.addresses.begin(), device.addresses.end());
  size_t count = 0, shown = 0;
  std::string words;
  for (size_t first = 0; first < interpreter.bytes.size(); first += kWord) {
    const size_t bytes = std::min(kWord, interpreter.bytes.size() - first);
    const auto part = [&](const Contents& c) { return std::span(c.bytes).subspan(first, bytes); };
    const auto differs = [&](size_t n) {
      return interpreter.bytes[n] != device.bytes[n] &&
             !addresses.contains(n - std::min<size_t>(n, (n + interpreter.base) % 8));
    };
    size_t here = 0;
    for (size_t n = first; n < first + bytes; ++n) here += differs(n);
    count += here;
    if (here && shown++ < kShown)
      words += (words.empty() ? "[" : ", [") + std::to_string(first) + ", " + quoted(hex(part(interpreter))) +
               ", " + quoted(hex(part(device))) + "]";
  }
  if (!count) return {};
  return "{" + member("memory", interpreter.name) + ", " + member("bytes", interpreter.bytes.size()) + ", " +
         member("differ", count) + ", \"words\": [" + words + "]}";
}

// The report of one launch. Its line is written at once, because a later launch may end the process.
class Told {
 public:
  Told(const ptx::Module& module, std::string_view entry, const ptx::Launch& l)
      : module_(module), text_(std::to_string(std::hash<std::string>{}(module.text()))) {
    row_ = member("entry", std::string(entry)) + ", " + member("text", text_) + ", " +
           member("grid", size(l.grid)) + ", " + member("block", size(l.block));
  }
  void as(const char* outcome, const std::string& more = "") const {
    const std::string line = "{" + row_ + ", " + member("outcome", std::string(outcome)) + more + "}\n";
    write(std::to_string(getpid()) + ".jsonl", line, O_APPEND);
    if (outcome != std::string_view("equal")) write(text_ + ".ptx", module_.text(), O_TRUNC);
  }
  void as(const char* outcome, const char* why_name, const std::string& why) const {
    as(outcome, ", " + member(why_name, why));
  }
  void compare(const std::vector<Contents>& interpreter, const std::vector<Contents>& device) const {
    std::string differences;
    for (size_t n = 0; n < interpreter.size(); ++n)
      if (const std::string one = difference(interpreter[n], device[n]); !one.empty())
        differences += (differences.empty() ? "" : ", ") + one;
    if (differences.empty()) as("equal");
    else as("differs", ", \"differences\": [" + differences + "]");
  }

 private:
  static std::string size(const ptx::Dim& d) {
    return std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z);
  }
  const ptx::Module& module_;
  std::string text_, row_;
};

void repeat(ptx::Module& module, std::string_view entry, const ptx::Launch& launch,
            const std::vector<Contents>& before, const std::vector<Contents>& after) {
  const Told told(module, entry, launch);
  try {
    told.compare(after,
                 launch_on_device(module, std::string(entry), launch, before, [&] { told.as("hangs"); }));
  } catch (const Refused& r) {
    told.as("refused", "why", r.why);
  } catch (const Ended& e) {
    told.as("ended", "why", e.why);
  } catch (const std::runtime_error& e) {
    told.as("not launched", "why", e.what());
  }
}

}  // namespace

ptx::Counters run_twice(ptx::Module& module, std::string_view entry, const ptx::Launch& launch,
                        const ptx::Memory& memory, const ptx::RunOptions& options) {
  // A run that is perturbed, or of a kernel that was changed after it was read, is not what a GPU does.
  if (!folder() || options.perturb || options.in_place)
    return interpreted(module, entry, launch, memory, options);
  const std::vector<Contents> before = contents_of(module, memory);
  const ptx::Counters counters = interpreted(module, entry, launch, memory, options);
  repeat(module, entry, launch, before, contents_of(module, memory));
  return counters;
}

}  // namespace assay::silicon
