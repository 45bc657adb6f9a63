// What holds for every difference of one plane: "one code apart", "only where NaN is wanted".
#pragma once
#include <string>
#include <vector>

#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

// Something that holds for all differences of a plane, and that would hardly hold by chance.
struct Fingerprint {
  std::string id;    // stable, see below
  std::string text;  // "the codes are a permutation of the wanted ones"
};
// In the order in which they are looked for; several may hold.
//   multiset               the plane holds the same codes in another order
//   multiset_rows          every stored row does
//   multiset_columns       every stored column does
//   nan_got, nan_want      only got (want) is NaN, wherever they differ
//   zero_got, zero_want    got (want) is a zero wherever they differ
//   zero_sign              the sign of zeros and nothing else
//   sign                   the sign differs and nothing else
//   constant               got is one code wherever they differ
//   bit                    got and want differ in the same one bit everywhere
//   maximum                only where the wanted code has the largest magnitude
//   smaller, larger        the magnitude of got is below (above) the wanted one, wherever they differ
//   scale_up, scale_down   scale codes differ by exactly +1 (-1)
//   scale_factor           F32 values differ by one factor
//   neighbours             got is a neighbour of the wanted code, wherever they differ
//   ties                   only where the scaled value lies halfway between two codes
//   adjacent               got is the scaled value rounded down or up, wherever they differ, and both occur
//   amax_index             in every block whose scale differs the largest element stands at one index
//   amax_first_half, amax_second_half, amax_last_quarter   ... in this part of the block
//   amax_negative          ... is negative
std::vector<Fingerprint> fingerprints(const Problem& problem, const PlaneData& got, const PlaneData& want,
                                      const std::vector<PlaneData>& inputs,
                                      const std::vector<PlaneData>& got_all);

}  // namespace assay
