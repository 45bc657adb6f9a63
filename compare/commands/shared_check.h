// The cases of `assay check` as tasks: of workers that several processes have (--mpi), and whose results
// outlive a run (--resume). docs/scale.md says which commands have them.
#pragma once
#include <cstdio>
#include <functional>
#include <string>

#include "compare/commands/check.h"
#include "compare/commands/checked_case.h"
#include "contract/result.h"

namespace assay {

// What a worker says of a case, and back: what is printed of it. The tiling and the window stay behind; a
// search for the cause judges the case once more. Text that cannot be read is a breach.
std::string to_text(const CheckedCase&);
CheckedCase checked_from(const std::string& text);

// Judges the cases as tasks and hands them over in their order, until that returns false. In a process that
// serves another, runs what that one hands out. Throws Refusal where the folder of results cannot be used.
// Error: it could not be written later.
std::optional<Error> share_cases(const Dump&, const CheckOptions&, const Acceptor*,
                                 const std::function<CheckedCase(const DumpCase&)>& judge,
                                 const std::function<bool(const DumpCase&, CheckedCase)>& result);

}  // namespace assay
