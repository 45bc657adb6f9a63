// What an explanation says of other inputs.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/arithmetic/attention_core.h"
#include "compare/diagnosis/diagnosis.h"
#include "contract/problem.h"
#include "contract/result.h"
#include "contract/subject.h"
#include "fixtures/inputs.h"

namespace assay {

// The id of the cause that is a key of the whole line, which a direction alone has not, and that line.
inline constexpr std::string_view kColumnsOfRows = "line.col_source=row_dequantized";
std::optional<Problem> columns_of_rows(const Problem& problem);

// Runs of the reference, for causes that are made of them.
RunLine run_by(Subject& reference);

// The output planes (of output_planes(problem), in that order) that a subject with this explanation would
// make of other inputs, of a problem of the same kind: what the explanation says beyond the bytes that it was
// found on. Errors: a problem that it does not apply to, or that the reference does not run.
Result<std::vector<PlaneData>> predict(const Explanation&, const Problem&,
                                       const std::vector<PlaneData>& inputs, Subject& reference);

// A subject that makes these bytes of any input: for shrinking what only a pack has shown. `name` is what it
// is called.
std::unique_ptr<Subject> make_explained_subject(Explanation, std::string name, Subject& reference);

}  // namespace assay
