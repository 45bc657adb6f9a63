// The program of the preset `mpi`: under a launcher its processes are the ranks (docs/ranks.md). What is not
// about ranks the first process does alone.
#include <string_view>

#include "compare/program.h"
#include "training/mpi/mpi_ranks.h"

int main(int argc, char** argv) {
  using namespace assay::training;
  rank_library() = mpi_library();
  set_rank_engine(make_mpi_ranks());
  const bool alone = argc < 2 || std::string_view(argv[1]) != "run";
  const int status = alone && rank_engine().process() > 0 ? 0 : assay::program_main(argc, argv);
  set_rank_engine(nullptr);  // ends MPI
  return status;
}
