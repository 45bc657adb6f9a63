// What a hunt has covered and found, as a table for people.
#pragma once
#include <string>
#include <vector>

#include "compare/commands/hunt/lines.h"
#include "compare/commands/hunt/records.h"

namespace assay::hunting {

// A row for each op with a format of which a line ran, below a heading. Empty where there is no row.
std::string table_of(const std::vector<Lines::Covered>&, const std::vector<Finding>&);

}  // namespace assay::hunting
