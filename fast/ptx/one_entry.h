// One kernel of a PTX text, made ready for a compiler of PTX: ptxas, or the driver of a GPU.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace assay::ptx {

enum class Lines : uint8_t {
  left_out,
  // Every statement of the body carries `.loc 1 <its line in the whole text>`: each machine instruction that
  // ptxas makes then names the PTX line that it came from, by which the interpreter counts.
  numbered,
};

// The text with this entry alone, without lines and sections for debuggers. Nothing where the text has no
// such entry.
std::optional<std::string> one_entry(std::string_view text, std::string_view entry, Lines lines);

}  // namespace assay::ptx
