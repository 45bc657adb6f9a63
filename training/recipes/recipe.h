// Recipes: what a user passes to autocast. A built-in recipe names a format and its settings, CustomRecipe a
// factory that is asked for every slot (TE common/recipe/__init__.py). Recipes compare by class and fields.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/encoding.h"
#include "fixtures/json.h"
#include "training/base/errors.h"
#include "training/formats/quantizer.h"
#include "training/recipes/role.h"

namespace assay::training {

// HYBRID: E4M3 forward and E5M2 backward. A byte in lines and records is its name.
enum class Fp8Format : uint8_t { E4M3, E5M2, HYBRID, E2M1 };
std::string_view name_of(Fp8Format);
std::optional<Fp8Format> fp8_format_named(std::string_view);

// How one GEMM of a module multiplies, and what a quantizer of one kind of tensor is given.
struct MMParams {
  bool use_split_accumulator = true;
  bool operator==(const MMParams&) const = default;
};
struct QParams {
  bool power_2_scale = false;
  F32Bits amax_epsilon = 0;
  bool random_hadamard_transform = false, stochastic_rounding = false, fp4_2d_quantization = false;
};
struct QuantizationParameters {
  std::string_view prefix;  // "fp8" or "fp4": the attributes are <prefix>_quant_fwd_inp and so on
  QParams fwd_inp, fwd_weight, bwd_grad;
};

// Asked once per slot. Null role: the producer configured none. Two factories are equal where they are the
// same object.
struct QFactory {
  std::string name;
  std::function<QuantizerLike(const RolePtr&)> call;
};
using QFactoryPtr = std::shared_ptr<const QFactory>;

class Recipe;
using RecipePtr = std::shared_ptr<Recipe>;

// Fields are public and may be assigned later, as in the original; only construction (make_recipe, validate)
// checks them.
class Recipe {
 public:
  virtual ~Recipe() = default;
  Fp8Format fp8_format = Fp8Format::HYBRID;
  bool fp8_dpa = false, fp8_mha = false;         // quantized attention, and its quantized neighbours
  std::optional<std::string> backward_override;  // "high_precision", "dequantized"

  // "MXFP8BlockScaling".
  virtual std::string_view class_name() const = 0;
  // Every field by the original's name; a factory by its own.
  virtual json::Value fields() const = 0;
  virtual bool equals(const Recipe& other) const = 0;  // `other` has this class
  // What the constructor checks; throws SemanticError(ValidationError), which is a ValueError.
  virtual void validate() const {}
  virtual std::optional<QuantizationParameters> quantization_parameters() const { return std::nullopt; }
  // Of fprop, dgrad and wgrad; the defaults are those of a recipe that says nothing (TE module/base.py).
  virtual MMParams fprop() const { return {false}; }
  virtual MMParams dgrad() const { return {true}; }
  virtual MMParams wgrad() const { return {true}; }

  bool delayed() const;
  bool mxfp8() const;
  bool float8_current_scaling() const;
  bool float8_per_tensor_scaling() const;  // delayed or current
  bool float8_block_scaling() const;
  bool nvfp4() const;
  bool custom() const;
};
bool operator==(const Recipe& a, const Recipe& b);
// Predicates by name, as {"delayed": true, ...}.
json::Value predicates(const Recipe&);

struct DelayedScaling final : Recipe {
  int64_t margin = 0, amax_history_len = 1024;
  std::string amax_compute_algo =
      "max";  // "max", "most_recent", or a callable's name (training/recipes/delayed.h)
  std::optional<std::string> scaling_factor_compute_algo;  // a callable's name; nothing: the formula
  bool reduce_amax = true;
  std::string_view class_name() const override { return "DelayedScaling"; }
  json::Value fields() const override;
  bool equals(const Recipe&) const override;
  void validate() const override;
};

struct Float8CurrentScaling final : Recipe {
  bool use_power_2_scales = false;  // of the quantizers; quantization_parameters do not follow it
  MMParams fp8_gemm_fprop{false}, fp8_gemm_dgrad{true}, fp8_gemm_wgrad{true};
  std::string_view class_name() const override { return "Float8CurrentScaling"; }
  json::Value fields() const override;
  bool equals(const Recipe&) const override;
  void validate() const override;
  std::optional<QuantizationParameters> quantization_parameters() const override;
  MMParams fprop() const override { return fp8_gemm_fprop; }
  MMParams dgrad() const override { return fp8_gemm_dgrad; }
  MMParams wgrad() const override { return fp8_gemm_wgrad; }
};

struct MXFP8BlockScaling final : Recipe {
  MXFP8BlockScaling() { fp8_format = Fp8Format::E4M3; }
  int64_t margin = 0;                   // without effect
  bool enable_2d_quantization = false;  // of weights of linear modules
  std::string_view class_name() const override { return "MXFP8BlockScaling"; }
  json::Value fields() const override;
  bool equals(const Recipe&) const override;
  void validate() const override;
};

struct Float8BlockScaling final : Recipe {
  Float8BlockScaling() { fp8_format = Fp8Format::E4M3; }
  bool use_f32_scales =
      false;  // without effect once the class exists: quantization_parameters do not follow it
  int64_t x_block_scaling_dim = 1, w_block_scaling_dim = 2,
          grad_block_scaling_dim = 1;  // 1: 1x128, 2: 128x128
  MMParams fp8_gemm_fprop, fp8_gemm_dgrad, fp8_gemm_wgrad;
  std::string_view class_name() const override { return "Float8BlockScaling"; }
  json::Value fields() const override;
  bool equals(const Recipe&) const override;
  void validate() const override;
  std::optional<QuantizationParameters> quantization_parameters() const override;
  MMParams fprop() const override { return fp8_gemm_fprop; }
  MMParams dgrad() const override { return fp8_gemm_dgrad; }
  MMParams wgrad() const override { return fp8_gemm_wgrad; }
};

struct NVFP4BlockScaling final : Recipe {
  NVFP4BlockScaling() { fp8_format = Fp8Format::E4M3; }  // of the block scales
  bool disable_rht = false, disable_stochastic_rounding = false, disable_2d_quantization = false,
       row_scaled_activation = false;
  std::string nvfp4_4over6 = "none",
              nvfp4_4over6_e4m3_use_256 = "all";  // of "none", "weights", "activations", "all"
  std::string nvfp4_4over6_err_mode = "MAE";      // or "MSE"
  Fp8Format fp4_format = Fp8Format::E2M1;
  std::string_view class_name() const override { return "NVFP4BlockScaling"; }
  json::Value fields() const override;
  bool equals(const Recipe&) const override;
  void validate() const override;
  std::optional<QuantizationParameters> quantization_parameters() const override;
};

struct CustomRecipe final : Recipe {
  QFactoryPtr qfactory;
  int64_t quantization_alignment = 128;  // rows that padded splits are a multiple of
  std::string_view class_name() const override { return "CustomRecipe"; }
  json::Value fields() const override;
  bool equals(const Recipe&) const override;
  void validate() const override;
};

// A recipe by class and fields, checked. A qfactory is the name of a registered one
// (training/recipes/factories.h). ValueError of an unknown class, ValidationError of a field that does not
// exist, has another type, or that validate refuses.
RecipePtr make_recipe(std::string_view class_name, const json::Value& fields = json::object());
// A custom recipe around a registered factory.
std::shared_ptr<CustomRecipe> custom_recipe(std::string_view factory);

// The FP8 encoding of forward or backward tensors, of every format but E2M1.
Encoding fp8_dtype(const Recipe&, bool forward);
// Its largest value: 448 or 57344.
int fp8_max(const Recipe&, bool forward);
// Rows that padded splits of grouped modules are a multiple of. Never calls a factory (TE quantization.py).
int64_t align_size(const Recipe&);

}  // namespace assay::training
