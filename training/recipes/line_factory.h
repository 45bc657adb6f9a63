// factory= of a line: a registered factory is asked for the tensor that role= names, and its answer is
// written out as format words and keys, so that whatever reads the line needs no factory.
//
//   quantize auto 64x256 bf16 role=grouped_linear/input factory=nvfp4_row_scaled_fwd_mxfp8_bwd_factory
//   fill=wide
//   quantize nvfp4/mxfp8 64x256 bf16 col_source=row_dequantized row.row_scaled=1 fill=wide
//
// With factory= the role is whatever a producer may say: any words for module, tensor and name
// (linear/output, //core.dpa_output), or `none`, a slot without a role.
#pragma once
#include <string>
#include <string_view>

#include "contract/problem.h"
#include "contract/result.h"
#include "training/recipes/recipe.h"

namespace assay::training {

// The registered factory of that name; an error with the nearest one, or with all.
Result<QFactoryPtr> find_factory(std::string_view name);
// The line with factory= resolved; any other line as it is. Keys that the line has win over the factory's;
// dir= chooses among the directions that its quantizer makes, without it all of them are made. Errors: an
// unknown factory with the nearest word, a role of another form, a format other than auto, an answer that no
// line can say (nothing, a request for delayed scaling, a quantizer in Python), and whatever the factory
// raises.
Result<std::string> resolve_factory(std::string_view line);
// parse_line of it (contract/line.h). An error in what was written out shows that line.
Result<Problem> read_line(std::string_view line);

}  // namespace assay::training
