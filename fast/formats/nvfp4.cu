// nvfp4: see docs/numerics.md.
#include <stdexcept>

#include "fast/choose.h"
#include "fast/lane/nvfp4.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

std::string quantize_nvfp4(const Job&) { throw std::runtime_error("no kernel"); }
std::string dequantize_nvfp4(const Job&) { throw std::runtime_error("no kernel"); }

}  // namespace assay::ASSAY_FAST_NAMESPACE
