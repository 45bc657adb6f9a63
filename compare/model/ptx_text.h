// One kernel of a PTX text, made ready for ptxas.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace assay::model {

// The text with this entry alone, every statement of whose body carries `.loc 1 <its line in the whole
// text>`: so each machine instruction that ptxas makes names the PTX line that it came from, which is what
// the interpreter counts by. Lines for debuggers that the text had itself are left out. Nothing where the
// text has no such entry.
std::optional<std::string> one_entry(std::string_view text, std::string_view entry);

}  // namespace assay::model
