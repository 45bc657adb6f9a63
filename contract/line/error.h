// Errors of a line.
#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

#include "contract/result.h"

namespace assay::line {

using MaybeError = std::optional<Error>;

Error error_at(size_t column, std::string_view message, std::string_view hint = {});
// The same where the column is not known yet.
MaybeError fail(std::string_view message, std::string_view hint = {});

}  // namespace assay::line
