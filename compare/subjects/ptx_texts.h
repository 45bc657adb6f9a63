// The texts of PTX that launches name, read and held against what the launches say of them.
#pragma once
#include <map>
#include <string>

#include "compare/subjects/ptx_launch_file.h"
#include "contract/result.h"

namespace assay {

// Texts by their paths.
using Texts = std::map<std::string, std::string>;

// The texts of a launch file, `path`; a launch without an entry gets the only one of its text. Error: a text
// that cannot be read or has a form of an instruction that is not understood, an entry that is not there, an
// argument that does not fit its parameter.
Result<Texts> read_texts(const std::string& path, PtxLaunchFile&);

}  // namespace assay
