// A file in a temporary folder of this process, for readers that take paths. The folder ends with the
// process; after a crash it stays below TMPDIR, which ci/fuzz and the tests empty.
#pragma once
#include <string>
#include <string_view>

namespace assay::fuzz {

// The path of the file called `name`, which now holds `bytes`.
std::string written(const std::string& name, std::string_view bytes);

}  // namespace assay::fuzz
