// Machine instructions as nvdisasm prints them, and how often each ran.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compare/model/gpus.h"

namespace assay::model {

struct SassInstruction {
  std::string text;      // "LOP3.LUT R1, R2, 0x7f, RZ, 0xc0, !PT", without its guard
  uint32_t line = 0;     // of the PTX, by the .loc lines of ptx::one_entry(); 0: none
  uint32_t block = 0;    // basic block
  uint32_t routine = 0;  // 0: the kernel; else the number of a subroutine of ptxas
};

struct Sass {
  std::vector<SassInstruction> code;
  std::vector<std::string> routines;  // names, the first of them of routine 1
};

// Reads what `nvdisasm -c -g` prints. Padding behind a routine, and the branch to itself
// that stands before it, are left out.
Sass read_sass(std::string_view listing);

// Executed instructions of warps by pipe, and those that reach local memory. A basic block ran as often as
// the middle one of its instructions' PTX lines; `warps` has the counts of the interpreter by PTX line. A
// subroutine of whole numbers (64-bit division) ran as often as it is called; one for the rare operands of a
// float operation, and the block that calls it, are taken not to have run.
struct SassCounts {
  std::array<double, kPipes.size()> by_pipe{};
  double all = 0, local = 0;
  std::vector<std::string> unknown;  // opcodes that pipes.def does not know, among those that ran
};
SassCounts count_sass(const Sass&, const std::unordered_map<uint32_t, uint64_t>& warps);

}  // namespace assay::model
