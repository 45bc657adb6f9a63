// The program of the preset `mpi`: under a launcher its processes are the ranks (docs/ranks.md). What is not
// about ranks the first process does alone.
#include <memory>
#include <string_view>
#include <utility>

#include "compare/program.h"
#include "training/mpi/mpi_ranks.h"

int main(int argc, char** argv) {
  using namespace assay::training;
  const std::string_view command = argc > 1 ? argv[1] : "";
  rank_library() = mpi_library();
  std::unique_ptr<RankEngine> engine = make_mpi_ranks();
  const int process = engine ? engine->process() : 0;
  // Other commands, such as `vectors`, have virtual ranks.
  if (command == "run" || command == "doctor") set_rank_engine(std::move(engine));
  const int status = process > 0 && command != "run" ? 0 : assay::program_main(argc, argv);
  set_rank_engine(nullptr);  // ends MPI
  return status;
}
