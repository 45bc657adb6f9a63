// The words of a line that stand before its keys: op, formats, sizes and the source encoding.
#pragma once
#include <string_view>
#include <vector>

#include "contract/problem.h"
#include "contract/result.h"

namespace assay::line {

struct Token {
  std::string_view text;
  size_t column;  // 1-based
};
std::vector<Token> tokens_of(std::string_view text);

// Reads these words into p; `end` is the column behind the line. Returns the index of the first token behind
// them.
Result<size_t> read_positional(const std::vector<Token>& tokens, size_t end, Problem& p);

}  // namespace assay::line
