// What libFuzzer calls, of the reader that the build names.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/readers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  assay::fuzz::ASSAY_FUZZED({reinterpret_cast<const char*>(data), size});
  return 0;
}
