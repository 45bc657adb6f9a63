// The screen of one failure.
#pragma once
#include <string>
#include <string_view>

#include "compare/judge/claims.h"

namespace assay {

// Foreign text of several lines: each is printable (compare/text/printable.h), and the line ends stay.
std::string printable_lines(std::string_view text);

// The lines of a failure's screen from "cause" to "hint", each ended, as text that may be shown.
std::string cause_text(const Breach& breach);

}  // namespace assay
