// The page of `assay count --html`: the lines of the PTX that were carried out, with their numbers, hot lines
// shaded.
#pragma once
#include <string>
#include <vector>

#include "contract/subject.h"

namespace assay {

std::string counts_page(const std::string& line, const std::string& subject,
                        const std::vector<LaunchCounts>&);

}  // namespace assay
