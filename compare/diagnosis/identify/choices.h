// Lines under the choices of other quantizers.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "compare/process/guarded_run.h"
#include "contract/format.h"
#include "contract/problem.h"
#include "contract/result.h"

namespace assay {

// One way to quantize: Assay's defaults, TransformerEngine's kernels, or a row of flavours.def.
struct Choice {
  std::string name;  // "defaults", "te", "te arch=sm120", "torchao.rceil", "pow2=0"
  std::string keys;  // of the line: "", "flavour=te arch=sm120", "flavour=torchao.rceil"
  std::string called =
      {};  // by the library that a pack names, if it has another name for it: "torchao.floor" of ocp
};
// The choices for a format, defaults first, then te, then the rows in their order. te of other architectures
// counts where the line's kernels differ: see with_choice.
std::vector<Choice> choices_of(FormatId);

// The line of `base` made by `keys`: its flavour, arch, dispatch and Numerics, and whatever else the keys or
// their flavour set, are taken off first. What a tensor is (shape, element, directions, layout, rng) stays.
// With a direction the keys are of that direction alone, and the other keeps what it has. Errors: keys that
// do not fit the line.
Result<Problem> with_choice(const Problem& base, std::string_view keys);
Result<Problem> with_choice(const Problem& base, std::string_view keys, Direction);

}  // namespace assay
