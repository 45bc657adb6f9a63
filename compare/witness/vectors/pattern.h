// The patterns of the table's rows: which tensors a row is about (compare/witness/vectors/table.h says how
// they read).
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace assay {

// What the names of a pattern stand for.
using Captures = std::map<std::string, std::string, std::less<>>;

// Whether a tensor's name fits a row's pattern; then its captures are added.
bool match_tensor(std::string_view pattern, std::string_view name, Captures&);

// A word of the vectors as a word of a line: "satfinite" is "sat". Other words stay.
std::string line_word(std::string_view word);

}  // namespace assay
