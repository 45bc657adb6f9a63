#include "compare/commands/kept_results.h"

#include <span>

#include <fmt/format.h>

#include "compare/process/crew.h"
#include "fixtures/files.h"
#include "fixtures/sha256.h"

namespace assay {

void add_resume(Command& c, KeptResults& kept) {
  c.option(
      "--resume", kept.folder,
      "keep every result in this folder as soon as it is there; the same command does only what is missing");
}

std::string digest_of(const KeptResults& kept, const CommonOptions& common, const std::string& tasks) {
  if (kept.folder.empty() && !crew()) return {};
  if (!common.python.empty() && !kept.folder.empty())
    throw Refusal{
        "--resume: nobody can tell whether a Python function is the same as before; judge it without "
        "--resume"};
  std::string all = tasks;
  for (const std::string& path :
       {std::string("/proc/self/exe"), common.plugin, common.ptx_kernel, common.ptx.ptx, common.pack}) {
    if (path.empty()) continue;
    const auto file = MappedFile::open(path);
    if (!file) throw Refusal{file.error().text()};
    all += fmt::format("\n{} {}", path, sha256(file->bytes()));
  }
  all += fmt::format("\n{} {} {} {}", common.environment, to_options(common.ptx), common.python,
                     common.python_spec);
  return sha256(std::as_bytes(std::span(all)));
}

Result<std::unique_ptr<Journal>> journal_of(const KeptResults& kept, std::FILE* err) {
  if (kept.folder.empty()) return std::unique_ptr<Journal>();
  auto journal = Journal::open(kept.folder, kept.digest);
  if (journal && !(*journal)->found().empty()) fmt::print(err, "assay: --resume {}\n", (*journal)->found());
  return journal;
}

}  // namespace assay
