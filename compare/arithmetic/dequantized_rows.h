// Columns that are made of the dequantized rows (N13.1): the line that dequantizes the rows of a pair, and
// what it reads. Who runs it is for the caller to say.
#pragma once
#include <vector>

#include "contract/problem.h"
#include "contract/result.h"
#include "fixtures/inputs.h"

namespace assay {

// The line that dequantizes the rows of `pair` to the encoding of x. Its fill says nothing, for its inputs
// are given.
Problem row_dequantize(const Problem& pair);

// The inputs of `back`, a line of row_dequantize: planes of `rows`, and the amax from `given` where no output
// has it (N10.15). Errors: a plane is lacking.
Result<std::vector<PlaneData>> row_dequantize_inputs(const Problem& back, const std::vector<PlaneData>& rows,
                                                     const std::vector<PlaneData>& given);

}  // namespace assay
