// Lines under somebody's choices, and how far the choices lie apart. What identify, the list of flavours and its measured matrix share.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compare/process/guarded_run.h"
#include "contract/flavours.h"
#include "contract/result.h"

namespace assay {

// One way to quantize: Assay's defaults, TransformerEngine's kernels, or a row of flavours.def.
struct Choice {
  std::string name;        // "defaults", "te", "te arch=sm120", "torchao.rceil", "pow2=0"
  std::string keys;        // of the line: "", "flavour=te arch=sm120", "flavour=torchao.rceil"
};
// The choices for a format, defaults first, then te, then the rows in their order. te of other architectures counts where the line's kernels differ: see with_choice.
std::vector<Choice> choices_of(FormatId);

// The line of `base` made by `keys`: its flavour, arch, dispatch and Numerics, and whatever else the keys or their flavour set, are taken off first. What a tensor is (shape, element,
// directions, layout, rng) stays. With a direction the keys are of that direction alone, and the other keeps what it has. Errors: keys that do not fit the line.
Result<Problem> with_choice(const Problem& base, std::string_view keys);
Result<Problem> with_choice(const Problem& base, std::string_view keys, Direction);

// How much two choices' bytes differ over the same tensors.
struct Apart {
  int64_t scales = 0, scales_of = 0, codes = 0, codes_of = 0;
};
struct FillMatrix {
  std::string fill;                        // "normal"
  std::string line;                        // "quantize mxfp8 1024x1024 bf16 dir=row fill=normal seed=1"; of many tensors with "seed={1..256}"
  std::vector<std::vector<Apart>> apart;   // [choice][choice]
};
struct FlavourMatrix {
  FormatId format;
  std::vector<Choice> choices;
  std::vector<FillMatrix> fills;
};
// Runs every choice of the format on stated tensors of about a million elements each. Errors: a reference that does not run one.
Result<FlavourMatrix> measure_flavours(FormatId, Subject& reference, int jobs);

}  // namespace assay
