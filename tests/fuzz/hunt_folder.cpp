// The folder of a hunt, which a kill or its user has changed: hunt.jsonl, kept.cases and found.cases, apart
// by bytes of 0.
#include "compare/commands/hunt/folder.h"

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include "fixtures/json.h"
#include "tests/fuzz/readers.h"
#include "tests/fuzz/scratch.h"

namespace {

namespace fs = std::filesystem;
using namespace assay;

// Everything that a hunt knows after it has opened the folder.
std::string state_of(const hunting::Folder& folder) {
  std::string out = folder.begun() ? "begun" : "new";
  const hunting::Judged& before = folder.before();
  for (const uint64_t n : {before.batch, uint64_t{before.lines}, uint64_t{before.failures},
                           uint64_t{before.unsupported}, uint64_t{folder.kept().size()}})
    out += " " + std::to_string(n);
  for (const hunting::Finding& f : folder.findings()) out += json::dump(to_json(f));
  return out;
}

}  // namespace

void assay::fuzz::hunt_folder(std::string_view bytes) {
  static const fs::path base = fs::path(written("hunt", "")).parent_path() / "folder";
  std::error_code failed;
  fs::remove_all(base, failed);
  fs::create_directories(base, failed);
  for (const char* name : {"hunt.jsonl", "kept.cases", "found.cases"}) {
    const size_t end = bytes.find('\0');
    written(std::string("folder/") + name, bytes.substr(0, end));
    bytes = end == std::string_view::npos ? std::string_view() : bytes.substr(end + 1);
  }
  const hunting::Head head{"host", 1, 4096, ""};
  std::string first;
  {
    const auto folder = hunting::Folder::open(base.string(), head);
    if (!folder) return;
    if (const auto found = (*folder)->found(); !found) found.error().text();
    first = state_of(**folder);
  }
  // What opening has mended is read as before.
  const auto again = hunting::Folder::open(base.string(), head);
  if (!again || state_of(**again) != first) throw std::logic_error("a folder is not read back: " + first);
}
