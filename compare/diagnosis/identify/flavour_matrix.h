// How far the choices of a format lie apart, measured on stated tensors.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compare/diagnosis/identify/choices.h"
#include "contract/result.h"
#include "contract/subject.h"

namespace assay {

// How much two choices' bytes differ over the same tensors.
struct Apart {
  int64_t scales = 0, scales_of = 0, codes = 0, codes_of = 0;
};
struct FillMatrix {
  std::string fill;  // "normal"
  std::string line;  // "quantize mxfp8 1024x1024 bf16 dir=row fill=normal seed=1"; of many tensors with
                     // "seed={1..256}"
  std::vector<std::vector<Apart>> apart;  // [choice][choice]
};
struct FlavourMatrix {
  FormatId format;
  std::vector<Choice> choices;
  std::vector<FillMatrix> fills;  // fewer than `of` where an interrupt ended it
  size_t of = 0;
};
// Runs every choice of the format on stated tensors of about a million elements each. Errors: a reference
// that does not run one. An interrupt (compare/process/interrupt.h) ends it with the fills that are complete.
Result<FlavourMatrix> measure_flavours(FormatId, Subject& reference, int jobs);

}  // namespace assay
