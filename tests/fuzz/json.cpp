// JSON text: what can be read is printed, and reads back as the same value.
#include "fixtures/json.h"

#include <stdexcept>

#include "tests/fuzz/readers.h"

void assay::fuzz::json(std::string_view bytes) {
  const auto value = assay::json::parse(bytes);
  if (!value) return;
  for (const int indent : {0, 2}) {
    const auto again = assay::json::parse(assay::json::dump(*value, indent));
    if (!again || !(*again == *value)) throw std::logic_error("not read back: " + assay::json::dump(*value));
  }
}
