// The program of the preset `mpi`: under a launcher its processes are the ranks (docs/ranks.md), or with
// --mpi share the tasks of one command (docs/scale.md). What is not about either the first process does
// alone.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compare/process/crew.h"
#include "compare/process/crew_sockets.h"
#include "compare/program.h"
#include "training/mpi/mpi_meeting.h"
#include "training/mpi/mpi_ranks.h"
#include "training/mpi/nccl_ranks.h"

namespace {

using namespace assay::training;

// What ASSAY_RANKS says carries messages: mpi, which it is without, or nccl. False where that cannot be,
// which the first process says.
bool carried_as_asked(std::unique_ptr<RankEngine>& engine) {
  const char* given = std::getenv("ASSAY_RANKS");
  const std::string_view by = given ? given : "";
  if (!engine || by.empty() || by == "mpi") return true;
  const int process = engine->process();
  const auto refuse = [&](const char* why) {
    if (process == 0) std::fprintf(stderr, "assay: %s\n", why);
    return false;
  };
  if (by != "nccl") return refuse("ASSAY_RANKS: expected mpi or nccl, found another word");
  try {
    auto made = over_nccl(engine);
    if (!made) return refuse(made.error().text().c_str());
    engine = std::move(*made);
    return true;
  } catch (const RankError& e) {
    if (engine) engine->lost = true;
    return refuse(e.what());
  }
}

constexpr double kPatience = 60;  // seconds in which all processes must find the first

// The end of what was written to the file.
std::string tail_of(int file) {
  constexpr off_t kShown = 1500;
  struct stat s {};
  if (::fstat(file, &s) != 0) return {};
  std::string text(static_cast<size_t>(std::min(s.st_size, kShown)), '\0');
  const ssize_t n = ::pread(file, text.data(), text.size(), std::max<off_t>(0, s.st_size - kShown));
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// A process after the first prints nothing: what it would say on standard error, the first one is told where
// it ends with that. Its exit status is 0 all the same, so that the launcher leaves the word to the first.
int run_another(int argc, char** argv, int process, const std::string& word) {
  assay::set_crew(std::make_unique<assay::Crew>(
      process, std::vector<assay::Connection>{assay::enter(word, process, kPatience)}));
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  const int errors = ::memfd_create("assay-stderr", MFD_CLOEXEC);
  ::dup2(nowhere, STDOUT_FILENO);
  ::dup2(errors, STDERR_FILENO);
  const int status = assay::program_main(argc, argv);
  std::fflush(stderr);
  if (status != 0) assay::crew()->leave("exit status " + std::to_string(status) + "; " + tail_of(errors));
  assay::set_crew(nullptr);
  return 0;
}

// One process of a launcher whose processes share the tasks of a command. It forks workers, so it never calls
// MPI itself.
int crew_member(int argc, char** argv) try {
  const assay::Door door;  // of each: which is the first, MPI says
  const MpiPlace place = meet_by_mpi(door.word(), assay::kLongestWord);
  if (place.process > 0) return run_another(argc, argv, place.process, place.word);
  assay::set_crew(std::make_unique<assay::Crew>(0, door.let_in(place.processes, kPatience)));
  const int status = assay::program_main(argc, argv);
  assay::set_crew(nullptr);  // the others end
  return status;
} catch (const std::exception& e) {
  std::fprintf(stderr, "assay: %s\n", e.what());
  return 2;
}

bool asks_for_crew(int argc, char** argv) {
  return std::any_of(argv + std::min(argc, 2), argv + argc,
                     [](const char* word) { return std::string_view(word) == "--mpi"; });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  rank_library() = mpi_library() + (nccl_library().empty() ? "" : ", " + nccl_library());
  if (asks_for_crew(argc, argv) && launched()) return crew_member(argc, argv);
  std::unique_ptr<RankEngine> engine = make_mpi_ranks();
  const int process = engine ? engine->process() : 0;
  if (!carried_as_asked(engine)) return 2;  // the engine's end ends MPI
  // Other commands, such as `vectors`, have virtual ranks.
  if (command == "run" || command == "doctor") set_rank_engine(std::move(engine));
  const int status = process > 0 && command != "run" ? 0 : assay::program_main(argc, argv);
  set_rank_engine(nullptr);  // ends MPI
  return status;
}
