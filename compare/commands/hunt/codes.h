// Which codes the small lines of a hunt have read, and produced on the reference.
#pragma once
#include <bitset>
#include <cstddef>
#include <map>
#include <string>

#include "contract/problem.h"
#include "contract/subject.h"
#include "fixtures/inputs.h"

namespace assay::hunting {

// Codes of 8 bits and fewer, elements and scales alike. They are counted apart for each op with a format,
// plane and encoding, because a kernel may have code of its own for each. The planes of both directions of a
// line of two formats count for the first of them.
class Codes {
 public:
  explicit Codes(Subject& reference) : reference_(reference) {}
  // Looks at a line, and returns how many codes it is the first to have: 0 where it is large
  // (RoundingCases::kMostTraced), has no such plane, writes nothing, or where the reference cannot run
  // it.
  size_t look(const Problem&);
  size_t count() const;
  // Of the lines of one op with a format: "quantize mxfp8".
  size_t count(const std::string& group) const;

 private:
  static constexpr size_t kMostCodes = 256;
  // By op with a format, then by plane and encoding: "row.data e4m3".
  using Planes = std::map<std::string, std::bitset<kMostCodes>>;
  static size_t count(const Planes&);
  static void add(const PlaneData&, Planes&);

  Subject& reference_;
  std::map<std::string, Planes> seen_;
};

}  // namespace assay::hunting
