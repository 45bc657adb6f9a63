#include "compare/commands/sharing.h"

#include <span>

#include <fmt/format.h>

#include "compare/process/crew.h"
#include "fixtures/files.h"
#include "fixtures/sha256.h"
#include "training/base/rank_engine.h"

namespace assay {

void add_mpi(Command& c, Sharing& s) {
  c.flag("--mpi", s.mpi, "the processes that mpirun or srun started share the work (docs/scale.md)");
}

void add_resume(Command& c, Sharing& s) {
  c.option(
      "--resume", s.resume,
      "keep every result in this folder as soon as it is there; the same command does only what is missing");
}

void settle(const Sharing& s, Program& program) {
  if (s.mpi && training::rank_library().empty())
    throw Refusal{
        "--mpi: this program does not link MPI; type  ci/setup --mpi && ci/build mpi assay  and start "
        "build/mpi/bin/assay by mpirun or srun"};
  if (!crew()) return;
  if (program.common.jobs == 0) program.common.jobs = 1;
  program.colour = program.progress = false;
}

std::string digest_of(const Sharing& s, const CommonOptions& common, const std::string& tasks) {
  if (!crew() && s.resume.empty()) return {};
  if (!common.python.empty() && !s.resume.empty())
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
  all += fmt::format("\n{} {} {} {}", common.python, common.python_spec, common.environment,
                     to_options(common.ptx));
  return sha256(std::as_bytes(std::span(all)));
}

bool serves() { return crew() && crew()->process() > 0; }

Result<std::unique_ptr<Journal>> journal_of(const Sharing& s) {
  if (s.resume.empty()) return std::unique_ptr<Journal>();
  return Journal::open(s.resume, s.digest);
}

}  // namespace assay
