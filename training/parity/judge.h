// One cell, judged: the two routes, and the least set of causes whose removal makes them equal.
#pragma once
#include <cstdint>
#include <string>

#include "contract/subject.h"
#include "training/parity/cell.h"

namespace assay::training {

struct CellResult {
  enum class Outcome : uint8_t { bitwise, excluded, failed } outcome = Outcome::failed;
  std::string exclusions;       // "E1", "E1 E13": the least set of causes whose removal made it equal
  std::string reason;           // excluded: what the causes are; failed: what removal was tried
  std::string first;            // the first thing that differs: "fprop: b.data", "output"; empty when bitwise
  std::string expected, found;  // vanilla's and hybrid's, on one line each
  int64_t compared = 0;         // bytes
};
CellResult judge_cell(const Cell&, Subject&, const Environment&);

}  // namespace assay::training
