// Laws of optimizer steps: what any step of Adam keeps to, whichever way it rounds, and any scaled state.
#pragma once
#include "compare/judge/laws/record.h"

namespace assay {

void check_adam(LawRecord& laws);
void check_scale_state(LawRecord& laws);

}  // namespace assay
