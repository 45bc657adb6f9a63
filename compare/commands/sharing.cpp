#include "compare/commands/sharing.h"

#include "compare/process/crew.h"
#include "training/base/rank_engine.h"

namespace assay {

void add_mpi(Command& c, bool& mpi) {
  c.flag("--mpi", mpi, "the processes that mpirun or srun started share the work (docs/scale.md)");
}

void settle(bool mpi, Program& program) {
  if (mpi && training::rank_library().empty())
    throw Refusal{
        "--mpi: this program does not link MPI; type  ci/setup --mpi && ci/build mpi assay  and start "
        "build/mpi/bin/assay by mpirun or srun"};
  if (!crew()) return;
  if (program.common.jobs == 0) program.common.jobs = 1;
  program.colour = program.progress = false;
}

bool serves() { return crew() && crew()->process() > 0; }

}  // namespace assay
