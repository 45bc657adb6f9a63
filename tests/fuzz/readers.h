// What reads bytes that anyone may have written: one function for each row of readers.def, in a file of its
// name.
#pragma once
#include <string_view>

namespace assay::fuzz {

// Each gives `bytes` to its reader as a file or an answer would bring them, and uses what was read as the
// program does. An error that the reader reports is a good end, and so is none; anything else (a crash, an
// exception of another kind, undefined behaviour, memory or time without a bound) is a finding.
#define ASSAY_READER(name) void name(std::string_view bytes);
#include "tests/fuzz/readers.def"
#undef ASSAY_READER

}  // namespace assay::fuzz
