// The memory of a large case, told before it is taken.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "contract/problem.h"

namespace assay {

// About what judging a case as a whole takes, in bytes: its planes on both sides of a pipe and between guard
// bytes, and the reference's own values.
int64_t bytes_as_a_whole(const Problem& problem);

// What this machine can still give out, in bytes; nothing where it does not say.
std::optional<int64_t> bytes_available();

// Why a case of this size is not begun; nothing where there is room, or where the free memory is not known.
std::optional<std::string> lacks_memory(const Problem& problem);

// "5.6 GiB".
std::string gib_text(int64_t bytes);

}  // namespace assay
