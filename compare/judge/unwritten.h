// Elements that a subject never writes: in one run they hold its poison, and in another run that one's.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compare/process/guarded_run.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

// Of one plane, or of one member's part of a grouped one ("row.data[2]").
struct Unwritten {
  std::string plane;
  std::vector<int64_t> elements;  // flat indices of the logical region, ascending
  int64_t of = 0;                 // logical elements
  std::string where;              // "all in column 69", in coordinates of x
};

// What neither of two runs wrote, under two poisons of which one is not the other. An element whose poison
// looks alike in both is not counted. Padding is not looked at.
std::vector<Unwritten> unwritten(const Problem& problem, const std::vector<PlaneData>& first, uint8_t poison,
                                 const std::vector<PlaneData>& again, uint8_t other_poison);

// "33 elements of row.data still hold the poison: never written, all in column 69".
std::string unwritten_text(const Unwritten& u);

}  // namespace assay
