// `assay explain --hypotheses [format]`: what can be named, as a page (docs/causes.md). The rows are those
// of this folder; nothing is written twice.
#pragma once
#include <optional>
#include <string>

#include "contract/format.h"

namespace assay {

// Tables in Markdown, one for each stage: name, title, formats and clause of every row that `explain` tries
// on a quantize. Rows that differ by a number alone stand once, with the number of them. With `only`: those
// of this format.
std::string causes_page(std::optional<FormatId> only = {});

}  // namespace assay
