// What a launch file says of arguments, held against the parameters of an entry; tensor maps of planes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compare/subjects/ptx_expression.h"
#include "compare/subjects/ptx_launch_file.h"
#include "contract/planes.h"
#include "fast/ptx/module.h"

namespace assay {

// Error: a number of arguments, an argument or a block that does not fit the entry, whose signature it
// prints.
std::optional<Error> check_arguments(const ptx::Entry&, const PtxLaunch&);
// Holds a launch against its text; a launch without an entry gets the only one. Error: a form of an
// instruction that is not understood, an entry that is not there, and those of check_arguments. `path` is
// what the user named.
std::optional<Error> check_text(const std::string& path, const std::string& text, PtxLaunch&);

// Sizes that a GPU takes, by their place among the three (ptx::kMostBlocks, ptx::kWidestBlock).
Bounds grid_bounds(size_t place);
Bounds block_bounds(size_t place);

// The 128 bytes of the map of a plane, or of memory that launches share (the plane is then not read), that
// lies at this address: "tensormap:x,box=32x64,swizzle=128". Throws std::runtime_error: a word that is not
// understood, and what a tensor map may not have.
std::vector<std::byte> tensor_map_of(const PtxArgument&, const Plane&, uint64_t address,
                                     const std::function<int64_t(const std::string&)>& integer);

}  // namespace assay
