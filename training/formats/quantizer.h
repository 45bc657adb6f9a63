// Quantizers: the objects that a factory returns and a module keeps, one per slot. A quantizer holds settings and wishes (usages), no data; quantize()
// turns a plain Array into a Storage with the directions that are wanted. The bytes come from the Session's Subject: vanilla formats write both directions in
// one launch, a HybridQuantizer runs its two children apart, exactly as the original dispatches (TE quantized_tensor.py, tensor/*.py).
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/problem.h"
#include "fixtures/json.h"
#include "training/base/array.h"
#include "training/base/session.h"

namespace assay::training {

class Storage;
using StoragePtr = std::shared_ptr<Storage>;
class Quantizer;
using QuantizerPtr = std::shared_ptr<Quantizer>;

// Whether a quantizer takes the maximum of its amax over a group before it scales. Part of the call, not of the format: modules set it right before quantizing.
struct AmaxReduction {
  bool enabled = false;
  GroupPtr group;
  std::optional<F32Bits> local = std::nullopt;   // this rank's amax where the tensor's producer took it (quantize_with_amax of TE's activations); nothing: the quantizer's business
};

struct Usages {
  bool rowwise = false, columnwise = false;
  bool operator==(const Usages&) const = default;
};

class Quantizer : public std::enable_shared_from_this<Quantizer> {
 public:
  bool rowwise_usage = true, columnwise_usage = true;   // what the next quantize or make_empty yields
  bool internal = false;                                // produce the light storage object instead of a tensor
  bool optimize_for_gemm = false;                       // scales may come out swizzled

  virtual ~Quantizer() = default;
  // "MXFP8Quantizer": the original's class.
  virtual std::string_view class_name() const = 0;
  // Every public attribute, by the original's names, with the class under "class"; children of a hybrid recursively.
  virtual json::Value describe() const = 0;
  // A new object with the same settings. Delayed scaling shares its scale and amax.
  virtual QuantizerPtr copy() const = 0;
  // Python reference quantizers: their tensors go to a Python GEMM.
  virtual bool custom() const { return false; }
  // The built-in recipe class that this quantizer belongs to, or "CustomRecipe"; throws NotImplementedError for reference quantizers.
  virtual std::string_view compatible_recipe() const = 0;
  virtual bool supports_only_rowwise_all_gather() const { return false; }
  // Quantizing the same input again gives the same bytes, for the directions wanted now.
  virtual bool is_requantization_safe() const { return false; }
  virtual bool is_quantizable(const Dims&) const { return true; }
  // The switch and group of amax reduction, or null where the class has none.
  virtual AmaxReduction* amax_reduction() { return nullptr; }

  // Nothing keeps the current value. Never touches existing tensors.
  void set_usage(std::optional<bool> rowwise, std::optional<bool> columnwise);
  Usages usages() const { return {rowwise_usage, columnwise_usage}; }

  // x in the directions that are wanted. The result keeps a copy of this quantizer, stripped of its amax group (rule R2 of docs/training.md). With `out` that one is
  // refreshed by update_quantized and returned.
  StoragePtr quantize(Session&, const ArrayPtr& x, const StoragePtr& out = nullptr);
  // Refreshes dst in place, honouring this quantizer's usages: missing buffers are allocated, buffers that are not wanted removed. A noop flag of exactly 1.0 changes nothing.
  // Throws ValueError or AssertionError, by class, where dst is of another class.
  virtual void update_quantized(Session&, const ArrayPtr& x, Storage& dst, std::optional<F32Bits> noop = std::nullopt) = 0;
  // Uninitialised buffers (they read as the Environment's poison) for the directions that are wanted now. Reference quantizers throw NotImplementedError.
  virtual StoragePtr make_empty(Session&, const Dims& shape, DType dtype) const = 0;
  // Delayed scaling notes the largest magnitude of x; others do nothing.
  virtual void calibrate(Session&, const ArrayPtr&) {}

  // The settings of one direction as the line has them; nothing for hybrids and reference quantizers.
  virtual std::optional<assay::Quantizer> line(Direction) const { return std::nullopt; }
  // Fields by which registered classes compare and hash; empty: compared by identity.
  virtual std::vector<std::string> value_fields() const { return {}; }

 protected:
  virtual StoragePtr quantize_impl(Session&, const ArrayPtr& x) = 0;
};

// Value equality: TypeError where a live process group stands in the way, identity for Identity, delayed and hybrid quantizers.
bool equal(const Quantizer& a, const Quantizer& b);
// Equal quantizers hash alike. TypeError as for equal().
size_t hash(const Quantizer&);
// What is serialised: a copy that holds no process group.
QuantizerPtr exported(const Quantizer&);

// Per-tensor FP8 with a given scale. scale is a scalar, amax has shape [1]; both may be views of a recipe state's arrays.
class Float8Quantizer final : public Quantizer {
 public:
  Float8Quantizer(ArrayPtr scale, ArrayPtr amax, Encoding dtype, bool rowwise = true, bool columnwise = true);
  ArrayPtr scale, amax;
  Encoding dtype;
  std::string_view class_name() const override { return "Float8Quantizer"; }
  json::Value describe() const override;
  QuantizerPtr copy() const override;
  std::string_view compatible_recipe() const override { return "DelayedScaling"; }
  bool supports_only_rowwise_all_gather() const override { return true; }
  void update_quantized(Session&, const ArrayPtr& x, Storage& dst, std::optional<F32Bits> noop) override;
  StoragePtr make_empty(Session&, const Dims& shape, DType dtype) const override;
  void calibrate(Session&, const ArrayPtr&) override;
  std::optional<assay::Quantizer> line(Direction) const override;

 protected:
  StoragePtr quantize_impl(Session&, const ArrayPtr& x) override;
};

class Float8CurrentScalingQuantizer final : public Quantizer {
 public:
  explicit Float8CurrentScalingQuantizer(Encoding dtype = Encoding::e4m3) : dtype(dtype) {}
  Encoding dtype;
  F32Bits amax_epsilon = 0;
  bool force_pow_2_scales = false;
  AmaxReduction reduction;
  std::string_view class_name() const override { return "Float8CurrentScalingQuantizer"; }
  json::Value describe() const override;
  QuantizerPtr copy() const override;
  std::string_view compatible_recipe() const override { return "Float8CurrentScaling"; }
  bool supports_only_rowwise_all_gather() const override { return true; }
  bool is_requantization_safe() const override { return true; }
  AmaxReduction* amax_reduction() override { return &reduction; }
  void update_quantized(Session&, const ArrayPtr& x, Storage& dst, std::optional<F32Bits> noop) override;
  StoragePtr make_empty(Session&, const Dims& shape, DType dtype) const override;
  std::optional<assay::Quantizer> line(Direction) const override;
  std::vector<std::string> value_fields() const override;

 protected:
  StoragePtr quantize_impl(Session&, const ArrayPtr& x) override;
};

class Float8BlockQuantizer final : public Quantizer {
 public:
  explicit Float8BlockQuantizer(Encoding dtype = Encoding::e4m3, int block_scaling_dim = 1) : dtype(dtype), block_scaling_dim(block_scaling_dim) {}
  Encoding dtype;
  int block_len = 128;
  int block_scaling_dim;             // 1: 1x128, 2: 128x128
  F32Bits amax_epsilon = 0;
  bool force_pow_2_scales = true;
  std::string_view class_name() const override { return "Float8BlockQuantizer"; }
  json::Value describe() const override;
  QuantizerPtr copy() const override;
  std::string_view compatible_recipe() const override { return "Float8BlockScaling"; }
  bool is_requantization_safe() const override { return true; }
  bool is_quantizable(const Dims&) const override;
  void update_quantized(Session&, const ArrayPtr& x, Storage& dst, std::optional<F32Bits> noop) override;
  StoragePtr make_empty(Session&, const Dims& shape, DType dtype) const override;
  std::optional<assay::Quantizer> line(Direction) const override;
  std::vector<std::string> value_fields() const override;

 protected:
  StoragePtr quantize_impl(Session&, const ArrayPtr& x) override;
};

class MXFP8Quantizer final : public Quantizer {
 public:
  explicit MXFP8Quantizer(Encoding dtype = Encoding::e4m3) : dtype(dtype) {}
  Encoding dtype;
  bool with_2d_quantization = false;
  std::string_view class_name() const override { return "MXFP8Quantizer"; }
  json::Value describe() const override;
  QuantizerPtr copy() const override;
  std::string_view compatible_recipe() const override { return "MXFP8BlockScaling"; }
  bool is_requantization_safe() const override { return true; }
  bool is_quantizable(const Dims&) const override;
  void update_quantized(Session&, const ArrayPtr& x, Storage& dst, std::optional<F32Bits> noop) override;
  StoragePtr make_empty(Session&, const Dims& shape, DType dtype) const override;
  std::optional<assay::Quantizer> line(Direction) const override;
  std::vector<std::string> value_fields() const override;

 protected:
  StoragePtr quantize_impl(Session&, const ArrayPtr& x) override;
};

class NVFP4Quantizer final : public Quantizer {
 public:
  // As the original's constructor takes them: the mode in any case, "MAE" or "MSE"; the maximum 448 or 256, and 448 where four-over-six is off whatever was asked for.
  // ValueError for others.
  void set_4over6(bool use, std::string err_mode, int e4m3_max);
  void set_random_sign_mask(bool on) { rht_matrix_random_sign_mask_t = on ? kRhtSignMask : 0; }
  bool with_rht = false, with_post_rht_amax = false, with_2d_quantization = false, stochastic_rounding = false, row_scaled_nvfp4 = false;
  bool nvfp4_use_4over6 = false;
  std::string nvfp4_4over6_err_mode = "MAE";
  int nvfp4_e4m3_max = 448;
  uint16_t rht_matrix_random_sign_mask_t = kRhtSignMask;
  AmaxReduction reduction;
  std::string_view class_name() const override { return "NVFP4Quantizer"; }
  json::Value describe() const override;
  QuantizerPtr copy() const override;
  std::string_view compatible_recipe() const override { return "NVFP4BlockScaling"; }
  bool is_requantization_safe() const override { return !stochastic_rounding; }
  bool is_quantizable(const Dims&) const override;
  AmaxReduction* amax_reduction() override { return &reduction; }
  void update_quantized(Session&, const ArrayPtr& x, Storage& dst, std::optional<F32Bits> noop) override;
  StoragePtr make_empty(Session&, const Dims& shape, DType dtype) const override;
  std::optional<assay::Quantizer> line(Direction) const override;
  std::vector<std::string> value_fields() const override;

 protected:
  StoragePtr quantize_impl(Session&, const ArrayPtr& x) override;
};

// No quantization: an alias of the input, cast where a dtype is configured.
class IdentityQuantizer : public Quantizer {
 public:
  explicit IdentityQuantizer(std::optional<DType> dtype = std::nullopt) : dtype(dtype) {}
  std::optional<DType> dtype;
  std::string_view class_name() const override { return "IdentityQuantizer"; }
  json::Value describe() const override;
  QuantizerPtr copy() const override;
  std::string_view compatible_recipe() const override { return "CustomRecipe"; }
  bool is_requantization_safe() const override { return true; }
  void update_quantized(Session&, const ArrayPtr& x, Storage& dst, std::optional<F32Bits> noop) override;
  StoragePtr make_empty(Session&, const Dims& shape, DType dtype) const override;
  std::optional<assay::Quantizer> line(Direction) const override;

 protected:
  StoragePtr quantize_impl(Session&, const ArrayPtr& x) override;
};

// Quantizers written in Python as references. Only their settings and predicates are modelled: their arithmetic is the reference's own business.
class CurrentScalingQuantizerRef final : public Quantizer {
 public:
  Encoding dtype = Encoding::e4m3;
  F32Bits eps = 0;
  bool pow_2_scales = false;
  AmaxReduction reduction;
  CurrentScalingQuantizerRef() { internal = true; }
  std::string_view class_name() const override { return "CurrentScalingQuantizerRef"; }
  json::Value describe() const override;
  QuantizerPtr copy() const override;           // AttributeError: the class has no copy
  bool custom() const override { return true; }
  std::string_view compatible_recipe() const override;
  AmaxReduction* amax_reduction() override { return &reduction; }
  void update_quantized(Session&, const ArrayPtr&, Storage&, std::optional<F32Bits>) override;
  StoragePtr make_empty(Session&, const Dims&, DType) const override;

 protected:
  StoragePtr quantize_impl(Session&, const ArrayPtr&) override;
};

class NVFP4QuantizerRef final : public Quantizer {
 public:
  F32Bits eps = 0;
  std::string nvfp4_4over6_err_mode = "MAE";
  bool nvfp4_4over6_err_use_fast_math = false, nvfp4_use_4over6 = false, pow_2_scales = false, row_scaled_nvfp4 = false, with_random_sign_mask = true, with_rht = false;
  int nvfp4_e4m3_max = 448;
  Dims quant_tile_shape = {1, 16};
  NVFP4QuantizerRef() { internal = true; }
  std::string_view class_name() const override { return "NVFP4QuantizerRef"; }
  json::Value describe() const override;
  QuantizerPtr copy() const override;
  bool custom() const override { return true; }
  std::string_view compatible_recipe() const override;
  void update_quantized(Session&, const ArrayPtr&, Storage&, std::optional<F32Bits>) override;
  StoragePtr make_empty(Session&, const Dims&, DType) const override;

 protected:
  StoragePtr quantize_impl(Session&, const ArrayPtr&) override;
};

// What a factory may return instead of a quantizer: a wish that the recipe state fulfils.
struct QuantizerRequest {};   // the base class, which no state knows how to fulfil
struct DelayedScalingRequest {
  std::string fp8_format = "HYBRID";
  int margin = 0;
  int amax_history_len = 1024;
  std::string amax_compute_algo = "max";
  std::optional<std::string> scaling_factor_compute_algo;   // a callable has no text form
  bool reduce_amax = true;
  bool operator==(const DelayedScalingRequest&) const = default;
};
json::Value describe(const DelayedScalingRequest&);
// None, a quantizer or a request; the last three stand for what else a caller may pass by mistake.
struct NotAQuantizer {
  std::string what;   // "a number", "a quantizer class"
};
using QuantizerLike = std::variant<std::monostate, QuantizerPtr, DelayedScalingRequest, QuantizerRequest, NotAQuantizer>;

}  // namespace assay::training
