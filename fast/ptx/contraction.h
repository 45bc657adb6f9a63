// What ptxas may make of a kernel after its PTX: a product and a sum that name no rounding may become one fma
// (PTX ISA 9.7.3.3 to 9.7.3.5). Both are run, so that a verdict can say whether it depends on that.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fast/ptx/kernel.h"

namespace assay::ptx {

// A product and the sum that takes it, as indices of instructions.
struct Contraction {
  uint32_t product = 0, sum = 0;
  unsigned operand = 0;  // the source of the sum that is the product
  bool negated = false;  // by instructions between the two
};

// Every product without a rounding that nothing takes but sums without one in the same stretch of code, by
// itself or by way of registers that it is copied to and, of binary32 and binary64, of negations. Of a sum of
// two products the first. Of packed and of 16-bit elements sums alone, no differences.
std::vector<Contraction> contractions(const Kernel&);
// The other products without a rounding whose register some sum without one reads, as indices of
// instructions: ptxas may fuse these too, where the register still holds the product.
std::vector<uint32_t> untried(const Kernel&, std::span<const Contraction> tried);
// The kernel with these pairs fused.
Kernel contracted(const Kernel&, std::span<const Contraction>);
// "PTX line 41 (mul.f32) and 44 (add.f32)", with the line of the source where it is known.
std::string to_text(const Kernel&, const Contraction&);

}  // namespace assay::ptx
