// fp8_block: see docs/numerics.md.
#include <stdexcept>

#include "fast/choose.h"
#include "fast/lane/fp8_block.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

std::string quantize_fp8_block(const Job&) { throw std::runtime_error("no kernel"); }
std::string dequantize_fp8_block(const Job&) { throw std::runtime_error("no kernel"); }

}  // namespace assay::ASSAY_FAST_NAMESPACE
