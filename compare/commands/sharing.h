// Tasks of one command that several processes of a launcher share (--mpi). docs/scale.md says which commands
// have it.
#pragma once
#include "compare/commands/options.h"

namespace assay {

void add_mpi(Command&, bool& mpi);

// Refuses --mpi where this program has no MPI. Of several processes each has one worker unless --jobs says
// otherwise, and none colours or shows progress: their output goes through the launcher.
void settle(bool mpi, Program&);

// Whether this process runs what another hands out.
bool serves();

}  // namespace assay
