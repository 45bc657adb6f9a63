// The screen of one failure.
#pragma once
#include <string>

#include "compare/judge/claims.h"

namespace assay {

// The lines of a failure's screen from "cause" to "hint", each ended.
std::string cause_text(const Breach& breach);

}  // namespace assay
