// What the ranks of a case did, as its verdict carries it to the transcript.
#pragma once
#include <string>
#include <vector>

#include "training/base/ranks.h"

namespace assay {

// The runs of a transcript as a JSON array; empty where no ranks ran.
std::string to_text(const std::vector<training::RankRun>& runs);

}  // namespace assay
