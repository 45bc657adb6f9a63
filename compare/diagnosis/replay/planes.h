// Small things about planes that the steps of a replay share.
#pragma once
#include <string>
#include <vector>

#include "contract/encoding.h"
#include "contract/planes.h"
#include "fixtures/inputs.h"

namespace assay {

// A value as binary32; NaN becomes the encoding's own.
F32Bits bits_of(double v);

// A plane of one F32 value.
PlaneData scalar_plane(std::string name, Direction d, F32Bits bits);
float scalar_of(const PlaneData& plane);

// Writes the codes of a plane in the order of another's; `turned`: as those of its transpose. False where
// they do not fit.
bool take_codes(const PlaneData& from, PlaneData& to, bool turned);

inline Direction other_than(Direction d) { return d == Direction::row ? Direction::col : Direction::row; }

}  // namespace assay
