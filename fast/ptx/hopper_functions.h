// What an H100 gives for instructions of binary32 whose results the ISA bounds alone (9.7.3). Its unit for
// special functions evaluates c0 + c1 x + c2 x^2, with coefficients for the segment in which the operand's
// fraction lies; of x^2 it has the leading bits alone. Recordings of whole binades with .ftz hold every bit
// (tests/fast/ptx/hopper_functions_test.cpp). Other binades follow from the exponent, and quotients and what
// has no .ftz from the machine code of ptxas: these were not compared with a GPU.
#pragma once
#include <cstdint>

namespace assay::ptx {

// rcp.approx, ex2.approx, rsqrt.approx, sqrt.approx, div.approx and div.full.
enum class HopperFunction : uint8_t { rcp, ex2, rsqrt, sqrt, div_approx, div_full };

// The pattern of the result for patterns of one or two operands, subnormal numbers, zeros, infinities and NaN
// among them, with or without .ftz: what the instructions give that ptxas 13.0 makes of it for sm_90a.
// Assumed, for want of a recording: ex2 of what is negative and above -2^-23 is 1.
uint32_t hopper(HopperFunction f, bool ftz, uint32_t a, uint32_t b = 0);

}  // namespace assay::ptx
