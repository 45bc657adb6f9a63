// What the differences of one plane look like, before any cause is guessed: how far, where, and under which conditions. Pure functions over planes in the judge's own
// arithmetic (compare/describe.h, compare/scaled.h); neither side's code is used, and the result is the same for any thread count.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "compare/diagnosis/diagnosis.h"

namespace assay {

// In all of these `got` and `want` are one output plane of `problem` (of a split's member: the member's line), of equal geometry. Padding is not looked at.

// Counts and distances. `inputs` and `got_all` are the case's input planes and the observed outputs: from them and compare/scaled.h come the values that were rounded; where they
// cannot be had (no x, a rotation, another plane than data) tie_distance is empty. At most 12 buckets each.
PlaneSummary summarize(const Problem& problem, const PlaneData& got, const PlaneData& want, const std::vector<PlaneData>& inputs, const std::vector<PlaneData>& got_all);

// Where the differences lie in the tensor. Tiles cover powers of two of elements. A scale counts once, in the tile where its block begins.
HeatMap heat_map(const Problem& problem, const PlaneData& got, const PlaneData& want);

// Coordinates that tell where the differences lie, the best first, at most 6: those that explain clearly more than chance would, by the information they give. Empty: uniform.
std::vector<Coordinate> coordinates(const Problem& problem, const PlaneData& got, const PlaneData& want);

// Something that holds for all differences of a plane, and that would hardly hold by chance.
struct Fingerprint {
  std::string id;      // "multiset", "smaller": stable; see kFingerprints
  std::string text;    // "the codes are a permutation of the wanted ones"
};
// The ids in the order in which fingerprints() looks for them.
//   multiset            the plane holds the same codes in another order
//   multiset_rows       every stored row does
//   multiset_columns    every stored column does
//   nan                 only one of the two is NaN, everywhere that they differ
//   zero_got            got is a zero wherever they differ
//   zero_want           only where the wanted value is zero
//   sign                the sign differs and nothing else
//   zero_sign           the sign of zeros and nothing else
//   maximum             only where the wanted code has the largest magnitude
//   smaller, larger     the magnitude of got is below (above) the wanted one, everywhere that they differ
//   scale_up, scale_down  scale codes differ by exactly +1 (-1)
//   scale_factor        F32 scales differ by one factor, a power of two
//   neighbours          got is a neighbour of the wanted code, everywhere that they differ
//   ties                only where the scaled value lies halfway between two codes
//   adjacent            every code of got is the scaled value rounded down or up, and on both sides of the nearest: as a stochastic rounding does
//   amax_index          in every block whose scale differs the largest element stands at one index
//   amax_tail           ... it stands in the last quarter of the block
//   amax_outside        got's scale suits no element of its block: too large
//   constant            got is one code wherever they differ
//   bit                 got and want differ in one bit, the same everywhere
std::vector<Fingerprint> fingerprints(const Problem& problem, const PlaneData& got, const PlaneData& want, const std::vector<PlaneData>& inputs, const std::vector<PlaneData>& got_all);

}  // namespace assay
