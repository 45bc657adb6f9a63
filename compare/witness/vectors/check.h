// What one expected tensor of a file of third-party vectors, or one element of it, must equal.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

struct VectorCheck {
  std::string tensor;   // "data_rowwise", "amax[3]"
  std::string in_case;  // "c0", or empty
  std::string variant;  // of the row
  std::string source;   // in files whose sources disagree: which one this is ("te_host"), else empty
  Problem problem;
  std::vector<PlaneData> inputs;  // those that the file gives; the rest come from the line
  std::string plane;  // the output plane of `problem` that is compared; "row.data[2]" of a split's member
  std::vector<std::byte> want;   // its meaningful elements, or all of its padded ones
  std::vector<int64_t> at = {};  // the flat indices that `want` is about; none: all of them
  bool padded = false;           // which of the two
};

}  // namespace assay
