// The program of the preset `mpi`: under a launcher its processes are the ranks (docs/ranks.md). What is not
// about ranks the first process does alone.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "compare/program.h"
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

}  // namespace

int main(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  rank_library() = mpi_library() + (nccl_library().empty() ? "" : ", " + nccl_library());
  std::unique_ptr<RankEngine> engine = make_mpi_ranks();
  const int process = engine ? engine->process() : 0;
  if (!carried_as_asked(engine)) return 2;  // the engine's end ends MPI
  // Other commands, such as `vectors`, have virtual ranks.
  if (command == "run" || command == "doctor") set_rank_engine(std::move(engine));
  const int status = process > 0 && command != "run" ? 0 : assay::program_main(argc, argv);
  set_rank_engine(nullptr);  // ends MPI
  return status;
}
