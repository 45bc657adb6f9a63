// Tasks of one command that several processes of a launcher share (--mpi), and that a later run of the same
// command takes over (--resume). docs/scale.md says which commands have it.
#pragma once
#include <memory>
#include <string>

#include "compare/commands/options.h"
#include "compare/process/journal.h"
#include "contract/result.h"

namespace assay {

struct Sharing {
  bool mpi = false;
  std::string resume;  // a folder; empty: nothing is kept
  std::string digest;  // of the tasks, the program and the files that it was given; see settle()
};

void add_mpi(Command&, Sharing&);
void add_resume(Command&, Sharing&);

// Refuses --mpi where this program has no MPI. Of several processes each has one worker unless --jobs says
// otherwise, and none colours or shows progress: their output goes through the launcher.
void settle(const Sharing&, Program&);

// The digest of what `tasks` names: equal where the program, its options and the files that it loads are.
// Empty where nothing is shared.
std::string digest_of(const Sharing&, const CommonOptions&, const std::string& tasks);

// Whether this process runs what another hands out.
bool serves();

// The journal of --resume; null without it.
Result<std::unique_ptr<Journal>> journal_of(const Sharing&);

}  // namespace assay
