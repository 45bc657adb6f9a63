#include "training/formats/reference_quantizers.h"

#include <string>
#include <utility>

#include "training/base/errors.h"
#include "training/formats/describe.h"

namespace assay::training {

using enum ErrorClass;
using std::string;

namespace {

[[noreturn]] void no_reference_arithmetic(const Quantizer& q, std::string_view what) {
  throw SemanticError(not_implemented_error, string(what) + ": " + string(q.class_name()) +
                                                 " is a Python reference; only its settings are modelled");
}

}  // namespace

QuantizerPtr ReferenceQuantizer::copy() const {
  throw SemanticError(attribute_error, string(class_name()) + " has no attribute copy");
}
std::string_view ReferenceQuantizer::compatible_recipe() const {
  throw SemanticError(not_implemented_error, string(class_name()) + " belongs to no recipe");
}
void ReferenceQuantizer::update_quantized(Session&, const ArrayPtr&, Storage&, std::optional<F32Bits>) {
  no_reference_arithmetic(*this, "update_quantized");
}
StoragePtr ReferenceQuantizer::make_empty(Session&, const Dims&, DType) const {
  no_reference_arithmetic(*this, "make_empty");
}
StoragePtr ReferenceQuantizer::quantize_impl(Session&, const ArrayPtr&) {
  no_reference_arithmetic(*this, "quantize");
}

json::Value CurrentScalingQuantizerRef::describe() const {
  return described(*this, {{"custom", true},
                           {"dtype", dtype == Encoding::e5m2 ? "float8_e5m2" : "float8_e4m3fn"},
                           {"eps", shown_f32(eps)},
                           {"pow_2_scales", pow_2_scales},
                           {"with_amax_reduction", reduction.enabled},
                           {"amax_reduction_group", shown_group(reduction.group)}});
}

json::Value NVFP4QuantizerRef::describe() const {
  json::Value tile = json::array();
  for (int64_t d : quant_tile_shape) tile.push(d);
  return described(*this, {{"custom", true},
                           {"dtype", "E2M1"},
                           {"eps", shown_f32(eps)},
                           {"nvfp4_4over6_err_mode", nvfp4_4over6_err_mode},
                           {"nvfp4_4over6_err_use_fast_math", nvfp4_4over6_err_use_fast_math},
                           {"nvfp4_e4m3_max", nvfp4_e4m3_max},
                           {"nvfp4_use_4over6", nvfp4_use_4over6},
                           {"pow_2_scales", pow_2_scales},
                           {"quant_tile_shape", tile},
                           {"row_scaled_nvfp4", row_scaled_nvfp4},
                           {"with_random_sign_mask", with_random_sign_mask},
                           {"with_rht", with_rht}});
}

}  // namespace assay::training
