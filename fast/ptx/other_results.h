// Results that a GPU may give in place of the nearest number where the ISA gives a bound alone
// (RunOptions::perturb).
#pragma once

namespace assay::ptx {

struct Instruction;
struct Kernel;
struct Warp;

// Whether an H100's results of an approximate function are known (kAsHopper).
bool known_of_hopper(const Kernel&, const Instruction&);

// Carries out an instruction for the lanes that are active, with other results.
void carry_out_otherwise(Warp& w, const Instruction& i);

}  // namespace assay::ptx
