// Which codes a value may be rounded to. Each rule says what is wrong with a code, or gives an empty string.
#pragma once
#include <cstdint>
#include <string>

#include "contract/problem.h"

namespace assay {

// How values become codes.
struct Rounding {
  bool saturates = true;
  ElementTies ties = ElementTies::even;  // N17.1
  NegZero zeros = NegZero::keep;         // N17.4
  NanCode nan = NanCode::positive;       // N17.16
};
Rounding rounding_of(const Quantizer& q);
// Whether a cast keeps a value that is too large at the largest finite one (N2.3).
bool saturates(Encoding to, Overflow overflow);

// Whether `got` is v rounded to nearest: within half a step, ties as `rule` says, the sign kept. `slack` says
// how far v may be off; where it is 0, v stands as it is because no step before has rounded it.
std::string nearest(Encoding e, uint32_t got, double v, double slack, const Rounding& rule);
// Whether `got` is one of the neighbours that the rounding mode allows.
std::string directed(Encoding e, uint32_t got, double v, Round round, bool saturate);
// Whether `got` is one of the two codes that v lies between; a value that has a code keeps it (N12.3).
std::string between(Encoding e, uint32_t got, double v, double slack, NegZero zeros = NegZero::keep);

}  // namespace assay
