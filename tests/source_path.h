// Where the tests find the files of the sources.
#pragma once
#include <string>
#include <string_view>

namespace assay {

// The whole path of a file or folder, given by its path from the repository root, such as "fixtures/vectors".
std::string source_path(std::string_view below);

}  // namespace assay
