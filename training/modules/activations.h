// Activations of LayerNormMLP, forward and backward, in binary32. Inputs are widened exactly; results are
// float32 and not rounded: delayed scaling's fused kernels quantize these, current scaling takes its amax
// from them, everything else first rounds them to the module's dtype (Session's cast). Formulas: TE
// common/util/math.h, without contraction; exp and tanh are binary64 narrowed once, since a GPU's libm is not
// reproducible: shared code, docs/independence.md.
#pragma once
#include <optional>
#include <string_view>

#include "training/base/array.h"
#include "training/base/session.h"

namespace assay::training {

enum class Activation : uint8_t { gelu, qgelu, relu, srelu, silu, glu, geglu, qgeglu, reglu, sreglu, swiglu };
std::string_view name_of(Activation);
std::optional<Activation> activation_named(std::string_view);
// Gated ones take [..., 2K] as [act | gate] halves and give [..., K].
bool is_gated(Activation);

// act(a), or act(a) * gate.
ArrayPtr activation_forward(Session&, Activation, const ArrayPtr& x);
// The gradient of x for the gradient `d` of the output: (act'(a) * d), or [(act'(a) * d) * gate | d *
// act(a)].
ArrayPtr activation_backward(Session&, Activation, const ArrayPtr& d, const ArrayPtr& x);

}  // namespace assay::training
