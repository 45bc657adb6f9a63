// What an H100 gives for the approximate functions of binary32 whose results the ISA bounds alone (9.7.3).
// Its unit adds three terms of a polynomial for a segment of the operand's fraction, of which it cuts the
// square off (hopper_functions.cpp). Recordings of whole binades hold every bit
// (tests/fast/ptx/hopper_functions_test.cpp); what lies in other binades follows from the exponent.
#pragma once
#include <cstdint>
#include <optional>

namespace assay::ptx {

enum class HopperFunction : uint8_t { rcp, ex2, rsqrt, sqrt };

// The pattern of rcp.approx.ftz.f32 and so on for the pattern of an operand, subnormal ones, zeros,
// infinities and NaN among them. Assumed, for want of a recording: ex2 of what is negative and above -2^-23
// is 1.
uint32_t hopper(HopperFunction f, uint32_t operand);

// The same without .ftz, where the operand and the result are normal numbers: ptxas scales the others.
std::optional<uint32_t> hopper_without_ftz(HopperFunction f, uint32_t operand);

}  // namespace assay::ptx
