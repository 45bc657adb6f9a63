// The quantized layers of a checkpoint beside the weights that they were made from, as cases of a pack.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compare/packs/checkpoint.h"
#include "compare/packs/pack.h"
#include "contract/result.h"

namespace assay {

// One quantized weight: what its tensors are called in the checkpoint, and how they say what it is.
struct CheckpointLayer {
  std::string name;                         // "model.layers.0.mlp.down_proj"
  std::string original;                     // the weight among the 16-bit ones: "....weight"
  std::string codes, scales, tensor_scale;  // tensors; tensor_scale of NVFP4, or empty
  std::string format;                       // "mxfp8", "mxfp4", "nvfp4", "fp8_block", "fp8_current"
  std::string keys;                         // of the line: "element=e4m3 block=128x128 pow2=0"
  bool divides = false;                     // NVFP4: tensor_scale is 2688 / amax, and not amax / 2688
  std::string why_not;                      // not judged, because; then format is empty
};

// The layers of a checkpoint in the order of their names, numbers by value. Weights that are not quantized
// are none; a quantized one whose form is not known says so.
std::vector<CheckpointLayer> layers_of(const Checkpoint& quantized);

// A layer as a case: planes lie in the checkpoints, or in `owned` where they are stored in another form.
struct LayerCase {
  PackCase recorded;
  std::vector<std::vector<std::byte>> owned;
  std::vector<std::string> notes;
};
// A layer, or its first `rows` rows (a multiple of 128; 0: all). Where rows are left out, and where NVFP4's
// scale of the tensor is not that of the weight's amax, the line says the amax. Errors: no original of that
// name, one that is not bf16, f16 or f32, shapes that do not fit.
Result<LayerCase> case_of_layer(const CheckpointLayer& layer, const Checkpoint& quantized,
                                const Checkpoint& originals, int64_t rows = 0);

}  // namespace assay
