// Data as a part of a line: a few elements changed, and the tensor written as fill=literal.
#pragma once
#include <optional>

#include "compare/choices/dice.h"
#include "contract/problem.h"

namespace assay::choices {

// The most elements that a tensor may have whose data are changed.
inline constexpr int64_t kMostChanged = 256;

// The line with one to four elements of its x, or of an operand of a gemm, changed: a bit, the code above or
// below, the sign, a special value of the source's encoding, the value of another element, a value halfway
// between two codes of a narrower encoding, or next to it. What the tensor held is now a literal of the line.
// It has at most kMaxLiteral elements (fixtures/fill.h): of a tensor with more that are not 0 the others
// become 0. Nothing where the tensor is empty or too large, the data are in a file, or the op's other tensors
// do not take the literal.
std::optional<Problem> with_other_data(const Problem&, Dice&);

// Whether the literals of a line fit the tensors that they fill. The parser does not look at them.
bool data_fit(const Problem&);

}  // namespace assay::choices
