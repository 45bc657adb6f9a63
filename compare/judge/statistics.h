// What a case could have shown: statistics of its planes, and whether they make it worth trusting.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "contract/planes.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

// What a set of planes could show: the witness of a case. Looks at the planes that hold codes of many
// elements (data, y, scale planes).
struct PlaneWitness {
  std::string plane;
  Encoding encoding = Encoding::f32;
  int64_t elements = 0;
  int64_t distinct = 0;  // codes seen; counted up to 65536
  int64_t zeros = 0, saturated = 0, nans = 0;
};
std::vector<PlaneWitness> witness(const std::vector<PlaneData>& planes);
// Why a case with these outputs could hardly have failed, or an empty string.
std::string mistrust(const Problem& problem, const std::vector<PlaneWitness>& seen);
// "16 of 16 codes seen, 0.4 % zeros, 12 scales" for the data plane of the first direction.
std::string to_text(const std::vector<PlaneWitness>& seen);

}  // namespace assay
