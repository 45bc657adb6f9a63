// Results of one command that a later run of the same command takes over (--resume). docs/scale.md says which
// commands have it.
#pragma once
#include <cstdio>
#include <memory>
#include <string>

#include "compare/commands/options.h"
#include "compare/process/journal.h"
#include "contract/result.h"

namespace assay {

struct KeptResults {
  std::string folder;  // empty: nothing is kept
  std::string digest;  // of the tasks, the program and the files that it was given; digest_of()
};

void add_resume(Command&, KeptResults&);

// The digest of what `tasks` names: equal where the program, its options and the files that it loads are.
// Empty where nothing is kept, and no other process shares the tasks.
std::string digest_of(const KeptResults&, const CommonOptions&, const std::string& tasks);

// The journal of the results; null where nothing is kept. Says on `err` what it takes over.
Result<std::unique_ptr<Journal>> journal_of(const KeptResults&, std::FILE* err);

}  // namespace assay
