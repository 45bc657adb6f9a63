#include "training/recipes/recipe.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <utility>

#include "training/recipes/delayed.h"
#include "training/recipes/factories.h"
#include "training/recipes/format_table.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

constexpr string_view kFormats[] = {"E4M3", "E5M2", "HYBRID", "E2M1"};

// Every field with its name, once: what is shown, compared and read from text.
template <class V> void visit_common(auto& r, V&& v) {
  v("fp8_dpa", r.fp8_dpa);
  v("fp8_mha", r.fp8_mha);
  v("backward_override", r.backward_override);
  v("fp8_format", r.fp8_format);
}
template <class R, class V> void visit_gemms(R& r, V&& v) {
  v("fp8_gemm_fprop", r.fp8_gemm_fprop);
  v("fp8_gemm_dgrad", r.fp8_gemm_dgrad);
  v("fp8_gemm_wgrad", r.fp8_gemm_wgrad);
}
template <class R, class V> void visit_fields(R& r, V&& v) {
  using T = std::remove_const_t<R>;
  visit_common(r, v);
  if constexpr (std::is_same_v<T, DelayedScaling>) {
    v("margin", r.margin);
    v("amax_history_len", r.amax_history_len);
    v("amax_compute_algo", r.amax_compute_algo);
    v("scaling_factor_compute_algo", r.scaling_factor_compute_algo);
    v("reduce_amax", r.reduce_amax);
  } else if constexpr (std::is_same_v<T, Float8CurrentScaling>) {
    v("use_power_2_scales", r.use_power_2_scales);
    visit_gemms(r, v);
  } else if constexpr (std::is_same_v<T, MXFP8BlockScaling>) {
    v("margin", r.margin);
    v("enable_2d_quantization", r.enable_2d_quantization);
  } else if constexpr (std::is_same_v<T, Float8BlockScaling>) {
    v("use_f32_scales", r.use_f32_scales);
    v("x_block_scaling_dim", r.x_block_scaling_dim);
    v("w_block_scaling_dim", r.w_block_scaling_dim);
    v("grad_block_scaling_dim", r.grad_block_scaling_dim);
    visit_gemms(r, v);
  } else if constexpr (std::is_same_v<T, NVFP4BlockScaling>) {
    v("disable_rht", r.disable_rht);
    v("disable_stochastic_rounding", r.disable_stochastic_rounding);
    v("disable_2d_quantization", r.disable_2d_quantization);
    v("row_scaled_activation", r.row_scaled_activation);
    v("nvfp4_4over6", r.nvfp4_4over6);
    v("nvfp4_4over6_e4m3_use_256", r.nvfp4_4over6_e4m3_use_256);
    v("nvfp4_4over6_err_mode", r.nvfp4_4over6_err_mode);
    v("fp4_format", r.fp4_format);
  } else {
    static_assert(std::is_same_v<T, CustomRecipe>);
    v("qfactory", r.qfactory);
    v("quantization_alignment", r.quantization_alignment);
  }
}

json::Value shown(bool v) { return v; }
json::Value shown(int64_t v) { return v; }
json::Value shown(const string& v) { return v; }
json::Value shown(const std::optional<string>& v) { return v ? json::Value(*v) : json::Value(); }
json::Value shown(Fp8Format v) { return name_of(v); }
json::Value shown(MMParams v) { return json::object({{"use_split_accumulator", v.use_split_accumulator}}); }
json::Value shown(const QFactoryPtr& v) { return v ? json::Value(v->name) : json::Value(); }

// Reads a field; false where the value has another type.
bool read(const json::Value& v, bool& to) { return v.to_bool() ? (to = *v.to_bool(), true) : false; }
bool read(const json::Value& v, int64_t& to) { return v.to_int() ? (to = *v.to_int(), true) : false; }
bool read(const json::Value& v, string& to) { return v.string() ? (to = *v.string(), true) : false; }
bool read(const json::Value& v, std::optional<string>& to) {
  if (v.is_null()) return to.reset(), true;
  return v.string() ? (to = *v.string(), true) : false;
}
bool read(const json::Value& v, Fp8Format& to) {
  const auto f = v.string() ? fp8_format_named(*v.string()) : std::nullopt;
  return f ? (to = *f, true) : false;
}
bool read(const json::Value& v, MMParams& to) {
  const json::Value* on = v.find("use_split_accumulator");
  return on && read(*on, to.use_split_accumulator);
}
bool read(const json::Value& v, QFactoryPtr& to) {
  QFactoryPtr found = v.string() ? factory_named(*v.string()) : nullptr;
  return found ? (to = std::move(found), true) : false;
}

template <class R> json::Value fields_of(const R& r) {
  json::Value out = json::object();
  visit_fields(r, [&](string_view name, const auto& value) { out.set(name, shown(value)); });
  return out;
}

template <class R> bool equal_fields(const R& a, const Recipe& other) {
  const R& b = static_cast<const R&>(other);
  bool same = true;
  // A factory is compared as an object: two may share a name.
  if constexpr (std::is_same_v<R, CustomRecipe>) same = a.qfactory == b.qfactory;
  return same && fields_of(a) == fields_of(b);
}

[[noreturn]] void invalid(const Recipe& r, string_view field, const string& expected, const string& found) {
  throw SemanticError(ErrorClass::validation_error, string(r.class_name()) + "." + string(field) +
                                                        ": expected " + expected + ", found " + found);
}
string quoted(const string& s) { return "'" + s + "'"; }
string quoted(Fp8Format f) { return string(name_of(f)); }

// The values that a field may have.
template <class T>
void expect_one_of(const Recipe& r, string_view field, const T& value, std::initializer_list<T> allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  string list;
  for (const T& a : allowed) {
    if (!list.empty()) list += ", ";
    if constexpr (std::is_integral_v<T>) list += std::to_string(a);
    else list += quoted(a);
  }
  if constexpr (std::is_integral_v<T>) invalid(r, field, "one of " + list, std::to_string(value));
  else invalid(r, field, "one of " + list, quoted(value));
}

void expect_override(const Recipe& r) {
  if (r.backward_override)
    expect_one_of<string>(r, "backward_override", *r.backward_override, {"high_precision", "dequantized"});
}
// E5M2 alone has too few bits for forward tensors.
void expect_not_e5m2(const Recipe& r) {
  if (r.fp8_format == Fp8Format::E5M2) invalid(r, "fp8_format", "E4M3 or HYBRID", "E5M2");
}

template <class R> RecipePtr made(const json::Value& fields) {
  auto r = std::make_shared<R>();
  if (!fields.object()) invalid(*r, "fields", "an object", fields.describe());
  for (const auto& [key, value] : *fields.object()) {
    bool known = false;
    visit_fields(*r, [&, &key = key, &value = value](string_view name, auto& field) {
      if (name != key) return;
      known = true;
      if (!read(value, field))
        invalid(*r, name, "a value such as " + json::dump(shown(field)), value.describe());
    });
    if (!known) invalid(*r, key, "one of the fields " + json::dump(r->fields()), "no such field");
  }
  r->validate();
  return r;
}

}  // namespace

string_view name_of(Fp8Format f) { return kFormats[static_cast<size_t>(f)]; }
std::optional<Fp8Format> fp8_format_named(string_view name) {
  const auto at = std::find(std::begin(kFormats), std::end(kFormats), name);
  if (at == std::end(kFormats)) return std::nullopt;
  return static_cast<Fp8Format>(at - std::begin(kFormats));
}

bool Recipe::delayed() const { return dynamic_cast<const DelayedScaling*>(this); }
bool Recipe::mxfp8() const { return dynamic_cast<const MXFP8BlockScaling*>(this); }
bool Recipe::float8_current_scaling() const { return dynamic_cast<const Float8CurrentScaling*>(this); }
bool Recipe::float8_per_tensor_scaling() const { return delayed() || float8_current_scaling(); }
bool Recipe::float8_block_scaling() const { return dynamic_cast<const Float8BlockScaling*>(this); }
bool Recipe::nvfp4() const { return dynamic_cast<const NVFP4BlockScaling*>(this); }
bool Recipe::custom() const { return dynamic_cast<const CustomRecipe*>(this); }

bool operator==(const Recipe& a, const Recipe& b) { return a.class_name() == b.class_name() && a.equals(b); }

json::Value predicates(const Recipe& r) {
  return json::object({{"delayed", r.delayed()},
                       {"mxfp8", r.mxfp8()},
                       {"float8_current_scaling", r.float8_current_scaling()},
                       {"float8_per_tensor_scaling", r.float8_per_tensor_scaling()},
                       {"float8_block_scaling", r.float8_block_scaling()},
                       {"nvfp4", r.nvfp4()},
                       {"custom", r.custom()}});
}

json::Value DelayedScaling::fields() const { return fields_of(*this); }
json::Value Float8CurrentScaling::fields() const { return fields_of(*this); }
json::Value MXFP8BlockScaling::fields() const { return fields_of(*this); }
json::Value Float8BlockScaling::fields() const { return fields_of(*this); }
json::Value NVFP4BlockScaling::fields() const { return fields_of(*this); }
json::Value CustomRecipe::fields() const { return fields_of(*this); }

bool DelayedScaling::equals(const Recipe& o) const { return equal_fields(*this, o); }
bool Float8CurrentScaling::equals(const Recipe& o) const { return equal_fields(*this, o); }
bool MXFP8BlockScaling::equals(const Recipe& o) const { return equal_fields(*this, o); }
bool Float8BlockScaling::equals(const Recipe& o) const { return equal_fields(*this, o); }
bool NVFP4BlockScaling::equals(const Recipe& o) const { return equal_fields(*this, o); }
bool CustomRecipe::equals(const Recipe& o) const { return equal_fields(*this, o); }

void DelayedScaling::validate() const {
  expect_not_e5m2(*this);
  if (backward_override)
    invalid(*this, "backward_override", "None: delayed scaling has no other backward",
            quoted(*backward_override));
  if (amax_compute_algo != "max" && amax_compute_algo != "most_recent" &&
      !is_amax_algorithm(amax_compute_algo))
    invalid(*this, "amax_compute_algo", "'max', 'most_recent' or the name of a registered algorithm",
            quoted(amax_compute_algo));
  if (scaling_factor_compute_algo && !is_scale_algorithm(*scaling_factor_compute_algo))
    invalid(*this, "scaling_factor_compute_algo", "the name of a registered algorithm",
            quoted(*scaling_factor_compute_algo));
}

void Float8CurrentScaling::validate() const {
  expect_not_e5m2(*this);
  expect_override(*this);
}

void MXFP8BlockScaling::validate() const {
  expect_not_e5m2(*this);
  expect_override(*this);
}

void Float8BlockScaling::validate() const {
  expect_not_e5m2(*this);
  expect_override(*this);
  expect_one_of<int64_t>(*this, "x_block_scaling_dim", x_block_scaling_dim, {1, 2});
  expect_one_of<int64_t>(*this, "w_block_scaling_dim", w_block_scaling_dim, {1, 2});
  expect_one_of<int64_t>(*this, "grad_block_scaling_dim", grad_block_scaling_dim, {1, 2});
  // The GEMM takes square blocks of one operand alone; every two of the three meet in one GEMM.
  if ((x_block_scaling_dim == 2) + (w_block_scaling_dim == 2) + (grad_block_scaling_dim == 2) > 1)
    invalid(*this, "block_scaling_dim", "2 for one of x, w and grad at most", json::dump(fields()));
  for (const auto& [name, gemm] : {std::pair{"fp8_gemm_fprop", fp8_gemm_fprop},
                                   {"fp8_gemm_dgrad", fp8_gemm_dgrad},
                                   {"fp8_gemm_wgrad", fp8_gemm_wgrad}})
    if (!gemm.use_split_accumulator)
      invalid(*this, name, "a split accumulator, without which blockwise scales cannot be applied", "none");
  if (fp8_dpa || fp8_mha)
    invalid(*this, "fp8_dpa, fp8_mha", "false: there is no blockwise attention", "true");
}

void NVFP4BlockScaling::validate() const {
  expect_one_of<Fp8Format>(*this, "fp4_format", fp4_format, {Fp8Format::E2M1});
  expect_one_of<Fp8Format>(*this, "fp8_format", fp8_format, {Fp8Format::E4M3});
  expect_override(*this);
  expect_one_of<string>(*this, "nvfp4_4over6", nvfp4_4over6, {"none", "weights", "activations", "all"});
  expect_one_of<string>(*this, "nvfp4_4over6_e4m3_use_256", nvfp4_4over6_e4m3_use_256,
                        {"none", "weights", "activations", "all"});
  expect_one_of<string>(*this, "nvfp4_4over6_err_mode", nvfp4_4over6_err_mode, {"MAE", "MSE"});
}

void CustomRecipe::validate() const {
  if (!qfactory) invalid(*this, "qfactory", "a factory", "none");
  expect_override(*this);
  if (quantization_alignment <= 0)
    invalid(*this, "quantization_alignment", "a positive number of rows",
            std::to_string(quantization_alignment));
}

std::optional<QuantizationParameters> Float8CurrentScaling::quantization_parameters() const {
  return QuantizationParameters{"fp8", {}, {}, {}};
}

std::optional<QuantizationParameters> Float8BlockScaling::quantization_parameters() const {
  QParams pow2;
  pow2.power_2_scale = true;
  return QuantizationParameters{"fp8", pow2, pow2, pow2};
}

std::optional<QuantizationParameters> NVFP4BlockScaling::quantization_parameters() const {
  QuantizationParameters p{"fp4", {}, {}, {}};
  p.fwd_inp.random_hadamard_transform = p.bwd_grad.random_hadamard_transform = !disable_rht;
  p.fwd_weight.fp4_2d_quantization = !disable_2d_quantization;
  p.bwd_grad.stochastic_rounding = !disable_stochastic_rounding;
  return p;
}

RecipePtr make_recipe(string_view class_name, const json::Value& fields) {
  if (class_name == "DelayedScaling") return made<DelayedScaling>(fields);
  if (class_name == "Float8CurrentScaling") return made<Float8CurrentScaling>(fields);
  if (class_name == "MXFP8BlockScaling") return made<MXFP8BlockScaling>(fields);
  if (class_name == "Float8BlockScaling") return made<Float8BlockScaling>(fields);
  if (class_name == "NVFP4BlockScaling") return made<NVFP4BlockScaling>(fields);
  if (class_name == "CustomRecipe") return made<CustomRecipe>(fields);
  string known;
  for (const FormatRow& row : recipe_rows()) known += (known.empty() ? "" : ", ") + string(row.recipe);
  throw SemanticError(ErrorClass::value_error,
                      "expected a recipe class (" + known + "), found " + quoted(string(class_name)));
}

std::shared_ptr<CustomRecipe> custom_recipe(string_view factory) {
  return std::static_pointer_cast<CustomRecipe>(
      make_recipe("CustomRecipe", json::object({{"qfactory", factory}})));
}

Encoding fp8_dtype(const Recipe& r, bool forward) {
  return r.fp8_format == Fp8Format::E4M3 || (r.fp8_format == Fp8Format::HYBRID && forward) ? Encoding::e4m3
                                                                                           : Encoding::e5m2;
}
int fp8_max(const Recipe& r, bool forward) { return fp8_dtype(r, forward) == Encoding::e4m3 ? 448 : 57344; }

int64_t align_size(const Recipe& r) {
  if (const auto* custom = dynamic_cast<const CustomRecipe*>(&r)) return custom->quantization_alignment;
  return r.mxfp8() ? 32 : r.nvfp4() ? 128 : 16;
}

}  // namespace assay::training
