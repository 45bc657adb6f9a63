#include "contract/line/error.h"

#include <string>

namespace assay::line {

Error error_at(size_t column, std::string_view message, std::string_view hint) {
  return {std::string(message), column, std::string(hint)};
}

MaybeError fail(std::string_view message, std::string_view hint) { return error_at(0, message, hint); }

}  // namespace assay::line
