// A piece of the certificate that failed: what differs, and a line of a few elements that fails by itself.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compare/commands/certify/part.h"
#include "fixtures/json.h"

namespace assay {

// Elements or rows [first, first + count) of a part, with what both sides made of them.
struct CertifyPiece {
  Problem problem;  // of `count` elements
  int64_t first = 0, count = 0;
  std::vector<PlaneData> inputs, want, got;
};

bool same_bytes(const std::vector<PlaneData>& a, const std::vector<PlaneData>& b);

struct PieceDifference {
  int64_t differ = 0;  // elements of output planes
  int64_t unit = 0;    // the element or row of the piece that the first difference belongs to
  std::string cause;   // lines of a screen
};
PieceDifference difference_of(const CertifyPart&, const CertifySide&, const CertifyPiece&);

// {"line", "verdict"} of a few elements that fail by themselves as the piece does, or {"text"} where no such
// line is found.
json::Value failure_of(const CertifyPart&, const CertifySide&, const CertifyPiece&, const PieceDifference&,
                       const Subjects&);

}  // namespace assay
