// A man page from the program's own help.
#pragma once
#include <string>

namespace CLI {
class App;
}

namespace assay {

// The page assay(1) in the macros of man(7): the head and the foot of `assay --help`, and each command with
// its options and examples.
std::string manual_page(const CLI::App& program);

}  // namespace assay
