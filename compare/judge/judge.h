// The judge: compares two sets of planes bit for bit and says where they part first. There is no tolerance
// here (docs/numerics.md); a clause that allows one is judged by its own law in claims.h.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/places.h"
#include "fixtures/inputs.h"

namespace assay {

// How one plane differs.
struct PlaneDifference {
  Plane plane;
  int64_t differ = 0, of = 0;  // elements; of the logical region, or of the padding
  bool in_padding = false;
  int64_t index = 0;  // flat index of the first that differs
  Place place;
  uint32_t got = 0, want = 0;    // the codes there
  std::optional<int64_t> apart;  // codes_apart(got, want)
  int64_t explained = 0;  // of the differing elements, how many lie inside the blocks that the cause affects
};

struct Judgement {
  int64_t compared = 0;                  // logical elements looked at
  std::optional<PlaneDifference> cause;  // the first plane that differs, in causal order
  std::vector<PlaneDifference>
      after;  // later planes of the same chain (row, col, or both where the cause belongs to neither)
  std::vector<PlaneDifference> beside;   // planes of the other direction: they have a cause of their own
  std::vector<PlaneDifference> padding;  // differing padding: a claim of its own
  std::string error;  // the sets could not be compared: a plane missing, another size, nothing to compare
  std::string hint;   // what the pattern suggests; may be empty

  bool equal() const { return !cause && error.empty(); }
};

// Compares got with want, plane by plane in the order of `want`; names, encodings and sizes must agree.
// `problem` may be null (planes of unknown origin): then nothing is attributed to blocks. Nothing at all to
// compare is an error unless the Problem's x is empty. `part`: the planes are a part of larger ones; the hint
// then looks at codes alone, and not at where they stand.
Judgement judge(const Problem* problem, const std::vector<PlaneData>& got, const std::vector<PlaneData>& want,
                bool part = false);

}  // namespace assay
