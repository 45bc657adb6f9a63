// The op gemm: two quantized operands multiplied, summed in one of six ways, and the epilogue (N16).
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "reference/tensor.h"

namespace assay::reference {

// How one direction of a quantized tensor is dequantized: Format::dequantize of its format.
using Dequantizer = std::function<void(const Run&, Direction)>;

// Writes d.
void gemm(const Run&, const Dequantizer&);

// What leads to each d(row, col): the sum, the factors, the epilogue.
Tracer trace_gemm(const Run&, const Dequantizer&);

}  // namespace assay::reference
