// Which sources a subject agrees with, where the sources of a file disagree among themselves.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "compare/witness/index.h"

namespace assay {

// Tensors that are equal, of how many; by source, per case and variant: {"c1", ""}: {"te_host": {3, 4}}.
using Agreement = std::map<std::pair<std::string, std::string>, std::map<std::string, std::pair<int, int>>>;

// A line per case and variant; empty where nothing was judged.
std::string agreement_text(const Agreement&, const IndexFile&, std::string_view subject);

}  // namespace assay
