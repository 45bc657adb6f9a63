// Which bits of an instruction's sources the bits of its result come from, in one lane and with the values at
// hand. Of a maximum, a minimum or a selection it is the operand that was taken; what moves bits as they are
// moves this too; of all other arithmetic it is every operand as a whole.
#pragma once
#include <array>
#include <cstdint>

#include "fast/ptx/kernel.h"

namespace assay::ptx {

// The operands and results of one lane. Predicates are 0 or 1, as the instruction reads them.
struct LaneValues {
  std::array<uint64_t, kMostSources> s = {};
  std::array<uint64_t, kMostDestinations> d = {};
};

// The bits of each source; of a predicate bit 0.
using SourceBits = std::array<uint64_t, kMostSources>;

// Adds what the bits `wanted` of destination n come from. Not for loads, stores, atomics and what the lanes
// of a warp carry out together.
void add_sources_of(const Instruction&, const Opcode&, const LaneValues&, unsigned n, uint64_t wanted,
                    SourceBits& needed);

// The lowest n bits.
constexpr uint64_t low_bits_mask(unsigned n) { return n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1; }

}  // namespace assay::ptx
