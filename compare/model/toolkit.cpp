#include "compare/model/toolkit.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "compare/process/output_of.h"
#include "contract/words.h"
#include "fast/ptx/one_entry.h"
#include "fixtures/files.h"

namespace assay::model {

namespace {

namespace fs = std::filesystem;

std::vector<std::string> toolkit_folders() {
  std::vector<std::string> out;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* home = std::getenv(name); home && *home) out.push_back(std::string(home) + "/bin");
  out.emplace_back("/usr/local/cuda/bin");
  return out;
}

// The first number, with points or without, that stands between these two texts; empty where none does.
std::string number_between(std::string_view text, std::string_view before, std::string_view after) {
  constexpr std::string_view kDigits = "0123456789", kNumber = "0123456789.";
  for (size_t at = text.find_first_of(kDigits); at != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_not_of(kNumber, at), text.size());
    if (text.substr(0, at).ends_with(before) && text.substr(end).starts_with(after))
      return std::string(text.substr(at, end - at));
    at = text.find_first_of(kDigits, end);
  }
  return "";
}

// "13.0.88" of "Cuda compilation tools, release 13.0, V13.0.88".
std::string version_of(const std::string& program) {
  if (program.empty()) return "";
  const auto text = output_of({program, "--version"});
  return text ? number_between(*text, ", V", "\n") : "";
}

// The text with the newest .version that this ptxas says that it takes; empty where it complains of something
// else. The number only says which instructions a text may have: one that an older ptxas lacks is refused.
std::string with_version_taken(std::string text, const std::string& complaint) {
  const std::string newest = number_between(complaint, "current version is '", "'");
  if (complaint.find("Unsupported .version ") == std::string::npos || newest.empty()) return "";
  const size_t at = text.find(".version "), end = text.find('\n', at);
  if (at == std::string::npos || end == std::string::npos) return "";
  return text.replace(at, end - at, ".version " + newest);
}

std::string on_one_line(std::string text) {
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 2))
    text.replace(at, 1, "; ");
  return text;
}

// A folder that is removed with what it holds.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (fs::temp_directory_path() / "assay-model-XXXXXX").string();
    if (::mkdtemp(pattern.data())) path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string file(const char* name) const { return path_ + "/" + name; }
  bool made() const { return !path_.empty(); }

 private:
  std::string path_;
};

}  // namespace

Toolkit::Toolkit(const std::string& ptxas, const std::string& nvdisasm)
    : ptxas_(program_path("ptxas", ptxas, toolkit_folders())),
      nvdisasm_(program_path("nvdisasm", nvdisasm, toolkit_folders())),
      ptxas_version_(version_of(ptxas_)),
      nvdisasm_version_(version_of(nvdisasm_)) {
  if (ptxas_version_.empty())
    missing_ = ptxas_.empty() ? "no ptxas in PATH or in a CUDA toolkit: install nvcc, or give --ptxas FILE"
                              : ptxas_ + " does not say its version: no ptxas";
}

const Result<Machine>& Toolkit::machine(const std::string& path, const std::string& entry, Architecture a) {
  const std::pair key{path + "\n" + entry, a};
  const auto found = known_.find(key);
  return found != known_.end() ? found->second : known_.emplace(key, compile(path, entry, a)).first->second;
}

Result<Machine> Toolkit::compile(const std::string& path, const std::string& entry, Architecture a) const {
  if (!missing_.empty()) return Error{missing_, 0, ""};
  const auto file = MappedFile::open(path);
  if (!file) return file.error();
  const auto bytes = file->bytes();
  const auto text = ptx::one_entry({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, entry,
                                   ptx::Lines::numbered);
  if (!text) return Error{path + " has no entry " + entry, 0, ""};
  const ScratchFolder folder;
  if (!folder.made()) return Error{"no folder can be made in " + fs::temp_directory_path().string(), 0, ""};
  const auto assemble = [&](const std::string& source) -> Result<std::string> {
    if (const auto e = write_file(folder.file("kernel.ptx"), source)) return *e;
    return output_of({ptxas_, "-v", "-arch=" + std::string(name(a)), "--generate-line-info", "-o",
                      folder.file("kernel.cubin"), folder.file("kernel.ptx")});
  };
  auto said = assemble(*text);
  if (!said)
    if (const std::string older = with_version_taken(*text, said.error().message); !older.empty())
      said = assemble(older);
  if (!said) return Error{on_one_line(said.error().text()), 0, ""};
  const auto compiled = read_resources(*said);
  if (!compiled) return compiled.error();
  Machine out{*compiled, {}, {}};
  if (nvdisasm_version_.empty()) {
    out.no_sass = "no nvdisasm in PATH or in a CUDA toolkit: pip install " + std::string(kNvdisasmRelease) +
                  ", and give --nvdisasm FILE";
    return out;
  }
  const auto listing = output_of({nvdisasm_, "-c", "-g", folder.file("kernel.cubin")});
  if (listing) out.sass = read_sass(*listing);
  else out.no_sass = listing.error().text();
  return out;
}

Result<Compiled> read_resources(const std::string& text) {
  std::string wrong;  // the first number that no kernel has
  const auto number = [&](std::string_view before, std::string_view after) {
    const std::string found = number_between(text, before, after);
    if (found.empty()) return 0;
    const auto n = parse_integer<int>(found);
    if (!n && wrong.empty()) wrong = concat({before, found, after});
    return n.value_or(0);
  };
  Compiled c;
  c.registers = number("Used ", " registers");
  c.stack = number("", " bytes stack frame");
  c.spill_stores = number("", " bytes spill stores");
  c.spill_loads = number("", " bytes spill loads");
  c.static_shared = static_cast<uint64_t>(number("", " bytes smem"));
  if (!wrong.empty())
    return Error{"ptxas -v says '" + wrong + "', which is no number from 0 to 2147483647", 0, ""};
  if (c.registers == 0) return Error{"ptxas -v says nothing of registers: " + text.substr(0, 300), 0, ""};
  return c;
}

}  // namespace assay::model
