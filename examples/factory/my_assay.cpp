// The program `assay` with two factories more: my_hybrid multiplies forward in MXFP8 and both gradients in
// NVFP4; my_mistake is the same with one slip, to see it found.
#include <memory>

#include "compare/program.h"
#include "training/factories.h"
#include "training/hybrid.h"

using namespace assay::training;

namespace {

// NVFP4 as the built-in recipe sets it for each tensor: weights in 16x16 blocks, columns of all others
// rotated, gradients rounded stochastically.
QuantizerPtr nvfp4(const RolePtr& role) {
  auto q = std::make_shared<NVFP4Quantizer>();
  const bool weight = role && role->tensor_type == "weight";
  q->with_2d_quantization = weight;
  q->with_rht = q->with_post_rht_amax = !weight;
  q->stochastic_rounding = role && role->tensor_type == "grad_output";
  return q;
}

// Asked once for every slot of every module; `role` is null where the caller does not say what the slot is
// for.
QuantizerLike my_hybrid(const RolePtr& role) {
  if (role && role->tensor_type == "grad_output") return nvfp4(role);  // rows: dgrad; columns: wgrad
  return std::make_shared<HybridQuantizer>(std::make_shared<MXFP8Quantizer>(),
                                           nvfp4(role));  // rows: fprop; columns: the gradients
}

// A weight's rows in E5M2: two bits of mantissa where the recipe has three.
QuantizerLike my_mistake(const RolePtr& role) {
  if (role && role->tensor_type == "weight")
    return std::make_shared<HybridQuantizer>(std::make_shared<MXFP8Quantizer>(assay::Encoding::e5m2),
                                             nvfp4(role));
  return my_hybrid(role);
}

}  // namespace

int main(int argc, char** argv) {
  register_factory("my_hybrid", my_hybrid);
  register_factory("my_mistake", my_mistake);
  return assay::program_main(argc, argv);
}
