// A word of a command that is printed for a shell.
#pragma once
#include <string>

namespace assay {

// In quotes where a shell would read it otherwise.
std::string shell_word(const std::string& text);

}  // namespace assay
