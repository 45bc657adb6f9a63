// Text that came from a foreign file: ids of cases, names of planes, lines.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace assay {

// Foreign text for one line of a terminal or a log. Control characters, signs that turn the direction of
// writing, and bytes that are no UTF-8 are written as \n, \x1b; what begins a workflow command of GitHub
// ("::" at the start, "##[") is broken.
std::string printable(std::string_view text);

// Length of the UTF-8 sequence at `at`, or 0 where no sequence begins. Overlong forms, surrogates, U+FFFE and
// U+FFFF (which XML forbids), codes beyond U+10FFFF, and the signs that turn the direction of the text after
// them (U+202A..202E, U+2066..2069) do not count as sequences.
size_t utf8_sequence(std::string_view text, size_t at);

}  // namespace assay
