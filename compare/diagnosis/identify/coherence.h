// Rows against columns of a case, without the tensor that both were made from. Scale and code of a direction
// leave an interval for every element; where those of rows and columns do not meet, the two cannot come from
// one tensor.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compare/arithmetic/places.h"
#include "compare/diagnosis/diagnosis.h"

namespace assay {

// What rows and columns say of each other.
struct Coherence {
  std::string undecidable;    // why nothing was judged; empty: something was
  int64_t of = 0, apart = 0;  // elements that were judged; of those, the ones that no single tensor gives
  int64_t open = 0;           // elements that say nothing: a NaN, a scale without a value
  bool same_bytes = false;  // columns had to be the bytes of the rows: one scale for both (N3.9, N5.8, N9.3)
  std::optional<Place> first;  // the first element of the tensor that is apart; of a split's member `member`
  std::optional<size_t> member;
  std::string first_text;  // "rows leave [1.75, 1.875], columns -0.5"
  std::string verdict;     // "columns stale: 97 % of the elements cannot come from the tensor of the rows";
                           // empty: coherent
  std::vector<Coordinate> where;   // where they are apart
  std::vector<std::string> notes;  // "row.amax and col.amax differ: ..."
  bool coherent() const { return undecidable.empty() && verdict.empty() && notes.empty(); }
};

// `planes`: output planes of a quantize or a split, by name; data and scales of both directions, and of NVFP4
// the amaxes, unless `planes` or the line give them. Rotated columns are held to what the 16 rows leave for
// their sums.
Coherence coherence(const Problem& problem, const std::vector<PlaneData>& planes);

}  // namespace assay
