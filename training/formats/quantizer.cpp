// The contract that all quantizers share, and what each class says about itself. How bytes are made: quantizer_native.cpp.
#include "training/formats/quantizer.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <functional>

#include "training/formats/hybrid.h"
#include "training/formats/storage.h"

namespace assay::training {

namespace {

using enum ErrorClass;

double number(F32Bits bits) { return static_cast<double>(std::bit_cast<float>(bits)); }

// What every class has.
json::Value described(const Quantizer& q) {
  return json::object({{"class", q.class_name()},
                       {"columnwise_usage", q.columnwise_usage},
                       {"internal", q.internal},
                       {"optimize_for_gemm", q.optimize_for_gemm},
                       {"rowwise_usage", q.rowwise_usage}});
}

void describe_reduction(json::Value& out, const AmaxReduction& r) {
  out.set("with_amax_reduction", r.enabled);
  out.set("amax_reduction_group", r.group ? json::Value(r.group->name) : json::Value());
}

std::string upper(std::string_view word) {
  std::string out(word);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return out;
}
json::Value fp8_name(Encoding e) { return upper(info(e).name); }

json::Value shape_and_dtype(const Array& a) {
  json::Value shape = json::array();
  for (int64_t d : a.shape) shape.push(d);
  return json::object({{"tensor_shape", std::move(shape)}, {"dtype", name_of(a.dtype)}});
}

template <class Q>
std::shared_ptr<Q> copy_of(const Q& q) { return std::make_shared<Q>(q); }

bool multiples_of(const Dims& shape, int64_t n) {
  const Shape s = flattened(shape);
  return s.rows % n == 0 && s.cols % n == 0;
}

void refuse_live_group(const Quantizer& q) {
  const AmaxReduction* r = const_cast<Quantizer&>(q).amax_reduction();
  if (r && r->group && !q.value_fields().empty())
    throw SemanticError(type_error, std::string(q.class_name()) + " holds the live process group " + r->group->name + " and so has no value to compare or hash; clear amax_reduction_group first");
}

// The fields by which two quantizers of one class are told apart.
json::Value value_of(const Quantizer& q) {
  json::Value all = q.describe(), out = json::object({{"class", q.class_name()}});
  for (const std::string& field : q.value_fields()) out.set(field, *all.find(field));
  return out;
}

[[noreturn]] void no_reference_arithmetic(const Quantizer& q, std::string_view what) {
  throw SemanticError(not_implemented_error, std::string(what) + ": " + std::string(q.class_name()) + " is a Python reference, whose settings alone are modelled");
}
[[noreturn]] void no_copy(const Quantizer& q) { throw SemanticError(attribute_error, std::string(q.class_name()) + " has no attribute copy"); }
[[noreturn]] void no_recipe(const Quantizer& q) { throw SemanticError(not_implemented_error, std::string(q.class_name()) + " belongs to no recipe"); }

const std::vector<std::string> kCommonFields = {"columnwise_usage", "dtype", "internal", "optimize_for_gemm", "rowwise_usage"};
std::vector<std::string> with_common(std::vector<std::string> own) {
  own.insert(own.end(), kCommonFields.begin(), kCommonFields.end());
  std::sort(own.begin(), own.end());
  return own;
}

}  // namespace

void Quantizer::set_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) {
  rowwise_usage = rowwise.value_or(rowwise_usage);
  columnwise_usage = columnwise.value_or(columnwise_usage);
}

StoragePtr Quantizer::quantize(Session& session, const ArrayPtr& x, const StoragePtr& out) {
  if (out) {
    update_quantized(session, x, *out);
    return out;
  }
  StoragePtr result = quantize_impl(session, x);
  if (!result->quantizer) result->quantizer = copy();
  training::set_amax_reduction_group(*result->quantizer, nullptr);
  return result;
}

bool equal(const Quantizer& a, const Quantizer& b) {
  if (a.class_name() != b.class_name()) return false;
  refuse_live_group(a);
  refuse_live_group(b);
  return a.value_fields().empty() ? &a == &b : value_of(a) == value_of(b);
}

size_t hash(const Quantizer& q) {
  refuse_live_group(q);
  return q.value_fields().empty() ? std::hash<const Quantizer*>{}(&q) : std::hash<std::string>{}(json::dump(value_of(q)));
}

QuantizerPtr exported(const Quantizer& q) {
  QuantizerPtr out = q.copy();
  if (AmaxReduction* r = out->amax_reduction()) r->group = nullptr;
  if (auto* hybrid = dynamic_cast<HybridQuantizer*>(out.get())) {
    hybrid->rowwise_quantizer = exported(*hybrid->rowwise_quantizer);
    hybrid->columnwise_quantizer = exported(*hybrid->columnwise_quantizer);
  }
  return out;
}

// Float8Quantizer

Float8Quantizer::Float8Quantizer(ArrayPtr scale, ArrayPtr amax, Encoding dtype, bool rowwise, bool columnwise) : scale(std::move(scale)), amax(std::move(amax)), dtype(dtype) {
  set_usage(rowwise, columnwise);
}
json::Value Float8Quantizer::describe() const {
  json::Value out = described(*this);
  out.set("dtype", fp8_name(dtype));
  out.set("scale", shape_and_dtype(*scale));
  out.set("amax", shape_and_dtype(*amax));
  return out;
}
QuantizerPtr Float8Quantizer::copy() const {
  auto out = copy_of(*this);
  out->optimize_for_gemm = false;   // the original's copy forgets it, alone of all classes
  return out;
}

// Float8CurrentScalingQuantizer

json::Value Float8CurrentScalingQuantizer::describe() const {
  json::Value out = described(*this);
  out.set("dtype", fp8_name(dtype));
  out.set("amax_epsilon", number(amax_epsilon));
  out.set("force_pow_2_scales", force_pow_2_scales);
  describe_reduction(out, reduction);
  return out;
}
QuantizerPtr Float8CurrentScalingQuantizer::copy() const { return copy_of(*this); }
std::vector<std::string> Float8CurrentScalingQuantizer::value_fields() const { return with_common({"amax_epsilon", "force_pow_2_scales", "with_amax_reduction"}); }

// Float8BlockQuantizer

json::Value Float8BlockQuantizer::describe() const {
  json::Value out = described(*this);
  out.set("dtype", fp8_name(dtype));
  out.set("amax_epsilon", number(amax_epsilon));
  out.set("block_len", block_len);
  out.set("block_scaling_dim", block_scaling_dim);
  out.set("force_pow_2_scales", force_pow_2_scales);
  return out;
}
QuantizerPtr Float8BlockQuantizer::copy() const { return copy_of(*this); }
bool Float8BlockQuantizer::is_quantizable(const Dims& shape) const { return multiples_of(shape, block_len); }
std::vector<std::string> Float8BlockQuantizer::value_fields() const { return with_common({"amax_epsilon", "block_len", "block_scaling_dim", "force_pow_2_scales"}); }

// MXFP8Quantizer

json::Value MXFP8Quantizer::describe() const {
  json::Value out = described(*this);
  out.set("dtype", fp8_name(dtype));
  out.set("with_2d_quantization", with_2d_quantization);
  return out;
}
QuantizerPtr MXFP8Quantizer::copy() const { return copy_of(*this); }
bool MXFP8Quantizer::is_quantizable(const Dims& shape) const { return multiples_of(shape, 32); }
std::vector<std::string> MXFP8Quantizer::value_fields() const { return with_common({"with_2d_quantization"}); }

// NVFP4Quantizer

void NVFP4Quantizer::set_4over6(bool use, std::string err_mode, int e4m3_max) {
  const std::string mode = upper(err_mode);
  if (mode != "MAE" && mode != "MSE") throw SemanticError(value_error, "nvfp4_4over6_err_mode: expected MAE or MSE, found " + err_mode);
  if (use && e4m3_max != 448 && e4m3_max != 256) throw SemanticError(value_error, "nvfp4_e4m3_max: expected 448 or 256, found " + std::to_string(e4m3_max));
  nvfp4_use_4over6 = use;
  nvfp4_4over6_err_mode = mode;
  nvfp4_e4m3_max = use ? e4m3_max : 448;
}
json::Value NVFP4Quantizer::describe() const {
  json::Value out = described(*this);
  out.set("dtype", "E2M1");
  out.set("nvfp4_4over6_err_mode", nvfp4_4over6_err_mode);
  out.set("nvfp4_e4m3_max", nvfp4_e4m3_max);
  out.set("nvfp4_use_4over6", nvfp4_use_4over6);
  out.set("rht_matrix_random_sign_mask_t", int64_t{rht_matrix_random_sign_mask_t});
  out.set("row_scaled_nvfp4", row_scaled_nvfp4);
  out.set("stochastic_rounding", stochastic_rounding);
  out.set("with_2d_quantization", with_2d_quantization);
  out.set("with_post_rht_amax", with_post_rht_amax);
  out.set("with_rht", with_rht);
  describe_reduction(out, reduction);
  return out;
}
QuantizerPtr NVFP4Quantizer::copy() const { return copy_of(*this); }
bool NVFP4Quantizer::is_quantizable(const Dims& shape) const { return !row_scaled_nvfp4 && multiples_of(shape, 16); }
std::vector<std::string> NVFP4Quantizer::value_fields() const {
  return with_common({"nvfp4_4over6_err_mode", "nvfp4_e4m3_max", "nvfp4_use_4over6", "rht_matrix_random_sign_mask_t", "row_scaled_nvfp4", "stochastic_rounding", "with_2d_quantization",
                      "with_amax_reduction", "with_post_rht_amax", "with_rht"});
}

// IdentityQuantizer

json::Value IdentityQuantizer::describe() const {
  json::Value out = described(*this);
  out.set("dtype", dtype ? json::Value(name_of(*dtype)) : json::Value());
  return out;
}
QuantizerPtr IdentityQuantizer::copy() const { return copy_of(*this); }

// Reference quantizers

json::Value CurrentScalingQuantizerRef::describe() const {
  json::Value out = described(*this);
  out.set("custom", true);
  out.set("dtype", dtype == Encoding::e5m2 ? "float8_e5m2" : "float8_e4m3fn");
  out.set("eps", number(eps));
  out.set("pow_2_scales", pow_2_scales);
  describe_reduction(out, reduction);
  return out;
}
QuantizerPtr CurrentScalingQuantizerRef::copy() const { no_copy(*this); }
std::string_view CurrentScalingQuantizerRef::compatible_recipe() const { no_recipe(*this); }
void CurrentScalingQuantizerRef::update_quantized(Session&, const ArrayPtr&, Storage&, std::optional<F32Bits>) { no_reference_arithmetic(*this, "update_quantized"); }
StoragePtr CurrentScalingQuantizerRef::make_empty(Session&, const Dims&, DType) const { no_reference_arithmetic(*this, "make_empty"); }
StoragePtr CurrentScalingQuantizerRef::quantize_impl(Session&, const ArrayPtr&) { no_reference_arithmetic(*this, "quantize"); }

json::Value NVFP4QuantizerRef::describe() const {
  json::Value out = described(*this), tile = json::array();
  for (int64_t d : quant_tile_shape) tile.push(d);
  out.set("custom", true);
  out.set("dtype", "E2M1");
  out.set("eps", number(eps));
  out.set("nvfp4_4over6_err_mode", nvfp4_4over6_err_mode);
  out.set("nvfp4_4over6_err_use_fast_math", nvfp4_4over6_err_use_fast_math);
  out.set("nvfp4_e4m3_max", nvfp4_e4m3_max);
  out.set("nvfp4_use_4over6", nvfp4_use_4over6);
  out.set("pow_2_scales", pow_2_scales);
  out.set("quant_tile_shape", std::move(tile));
  out.set("row_scaled_nvfp4", row_scaled_nvfp4);
  out.set("with_random_sign_mask", with_random_sign_mask);
  out.set("with_rht", with_rht);
  return out;
}
QuantizerPtr NVFP4QuantizerRef::copy() const { no_copy(*this); }
std::string_view NVFP4QuantizerRef::compatible_recipe() const { no_recipe(*this); }
void NVFP4QuantizerRef::update_quantized(Session&, const ArrayPtr&, Storage&, std::optional<F32Bits>) { no_reference_arithmetic(*this, "update_quantized"); }
StoragePtr NVFP4QuantizerRef::make_empty(Session&, const Dims&, DType) const { no_reference_arithmetic(*this, "make_empty"); }
StoragePtr NVFP4QuantizerRef::quantize_impl(Session&, const ArrayPtr&) { no_reference_arithmetic(*this, "quantize"); }

json::Value describe(const DelayedScalingRequest& r) {
  return json::object({{"request", "DelayedScalingRequest"},
                       {"fp8_format", r.fp8_format},
                       {"margin", r.margin},
                       {"amax_history_len", r.amax_history_len},
                       {"amax_compute_algo", r.amax_compute_algo},
                       {"scaling_factor_compute_algo", r.scaling_factor_compute_algo ? json::Value(*r.scaling_factor_compute_algo) : json::Value()},
                       {"reduce_amax", r.reduce_amax}});
}

}  // namespace assay::training
