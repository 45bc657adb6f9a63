// The cases that an expected tensor of a file of third-party vectors must pass.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "compare/witness/vectors/check.h"
#include "contract/result.h"
#include "fixtures/json.h"
#include "fixtures/safetensors.h"

namespace assay {

// True where a row of the table, the recordings of tensor cores or the training layer judge `family`.
bool known_family(std::string_view family);

// The checks of one expected tensor. `params` is the file's, `path` goes into
// fill=pack:<path>#<tensor>@<sha256>, which makes the line reproducible. Errors: no row fits the name, a
// placeholder has no value, a size does not fit the plane. `family` must be known.
Result<std::vector<VectorCheck>> checks_of(std::string_view family, const safetensors::File& file,
                                           const json::Value& params, std::string_view tensor,
                                           const std::string& path, const std::string& sha256);

}  // namespace assay
