// Words of a command that is printed for a shell.
#pragma once
#include <string>
#include <string_view>

namespace assay {

// One word for a shell, always in quotes. What a terminal would act on is written as bash's $'\x1b'.
std::string shell_quoted(std::string_view text);

// In quotes only where a shell would read it otherwise.
std::string shell_word(std::string_view text);

// The text that shell_quoted or shell_word made one word of.
std::string shell_unquoted(std::string_view word);

}  // namespace assay
