// The kernels of FusedAdam as Problems of the Subject (N19): a step in place, a parameter in per-tensor FP8,
// and states stored beside a scale.
#pragma once
#include <cstdint>

#include "training/formats/float8.h"
#include "training/state/fused_adam.h"

namespace assay::training {

struct AdamSettings {
  const AdamOptions& options;
  int64_t step;
};
// p, m and v in place, contiguous; the gradient in f32, bf16 or f16; m and v both in f32 or both in bf16, or
// each of its own where only one of them is (they are then widened, and rounded back).
void adam_step(Session&, const AdamSettings&, const Array& grad, Array& p, Array& m, Array& v);

// The bytes of a per-tensor FP8 parameter from its new master, by the present scale; the amax is raised, and
// scale_inv written anew. A transpose stays as it is and stays valid, as in the original.
void cast_parameter(Session&, const Array& master, Float8Storage&);

struct ScaledState {
  ArrayPtr scale, multiplier, state;  // f32 [1] and [1]; f16, or FP8 codes
};
// N19.6. `values` f32.
ScaledState scaled_state(Session&, const Array& values, Encoding to);
// N19.7.
ArrayPtr unscaled_state(Session&, const Array& state, const Array& scale);

}  // namespace assay::training
