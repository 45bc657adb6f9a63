#include "compare/commands/shell_word.h"

#include "compare/report/report.h"
#include "compare/text/printable.h"

namespace assay {

std::string shell_word(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_of(" '\"\\$`*?!&|;<>()[]{}#~") == std::string::npos &&
                     printable(text) == text;
  return plain ? text : shell_quoted(text);
}

}  // namespace assay
