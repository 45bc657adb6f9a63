// A recorded case judged against outputs that are made here.
#pragma once
#include <string>

#include "compare/judge/verdict.h"
#include "compare/packs/pack.h"
#include "compare/process/guarded_run.h"
#include "contract/subject.h"

namespace assay {

// The claim `replay`: by bytes where they are recorded and by digest otherwise. Bits that are not pinned are
// judged by the bound (judge_unpinned); a digest that differs then says nothing, and the case counts as
// unsupported. `kernels`: hash of this program's kernels, empty where there are none. The verdict is stale
// when the recorded line reads as another Problem, was written under another kLineVersion, or the recording
// names other kernels.
Verdict judge_replay(const Pack& pack, const PackCase& recorded, const Subjects& subjects,
                     const std::string& kernels, const Environment& environment);

}  // namespace assay
