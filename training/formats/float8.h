// Per-tensor FP8: the quantizers of delayed and of current scaling, and the storage that both write (TE
// tensor/float8_tensor.py, tensor/storage/float8_tensor_storage.py).
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/encoding.h"
#include "contract/problem.h"
#include "fixtures/json.h"
#include "training/base/array.h"
#include "training/base/errors.h"
#include "training/base/session.h"
#include "training/formats/kernel_quantizer.h"
#include "training/formats/storage.h"

namespace assay::training {

// Per-tensor FP8. One scale_inv for both planes. What may exist depends on the architecture
// (Session::tn_only), which each object remembers.
class Float8Storage final : public Storage {
 public:
  explicit Float8Storage(bool tn_only) : tn_only(tn_only) {}
  bool tn_only;
  Encoding fp8_dtype = Encoding::e4m3;
  ArrayPtr data, transpose, scale_inv;
  bool transpose_invalid = true;  // true: the plane must not be read
  bool has_transpose() const { return transpose && !transpose_invalid; }
  static constexpr ClassNames kNames{"Float8Tensor", "Float8TensorStorage"};
  ClassNames names() const override { return kNames; }
  std::vector<Field> fields() override;
  Usages present() const override { return {data != nullptr, tn_only ? has_transpose() : data != nullptr}; }
  Dims size() const override;
  void update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) override;
  ArrayPtr dequantize(Session&, std::optional<DType> to = std::nullopt) override;
  StoragePtr make_like() const override { return another(*this); }
  StoragePtr view(const Dims& shape) override;
  void clear() override;  // keeps scale_inv, which tensors share
  std::vector<ArrayPtr> get_data_tensors(bool rowwise = true, bool columnwise = true) override;
  std::vector<std::string> fsdp_buffer_fields() const override;
  Extracted fsdp_extract_buffers() override;
  void fsdp_assign_gathered(const std::vector<ArrayPtr>& buffers, const json::Value& meta) override;

 protected:
  void expect_same_settings(const Storage& from) const override;
};

// Per-tensor FP8 with a given scale. scale is a scalar, amax has shape [1]; both may be views of a recipe
// state's arrays.
class Float8Quantizer final : public KernelQuantizer<Float8Quantizer, Float8Storage> {
 public:
  static constexpr std::string_view kClass = "Float8Quantizer", kRecipe = "DelayedScaling";
  Float8Quantizer(ArrayPtr scale, ArrayPtr amax, Encoding dtype, bool rowwise = true, bool columnwise = true);
  ArrayPtr scale, amax;
  Encoding dtype;
  json::Value describe() const override;
  QuantizerPtr copy() const override;
  bool supports_only_rowwise_all_gather() const override { return true; }
  void calibrate(Session&, const ArrayPtr&) override;
  std::optional<assay::Quantizer> line(Direction) const override;

 private:
  friend KernelQuantizer;
  static constexpr ErrorClass kWrongTensor = ErrorClass::value_error;
  std::shared_ptr<Float8Storage> blank(const Session& session) const {
    return std::make_shared<Float8Storage>(session.tn_only());
  }
  void stamp(Float8Storage& s) const { s.fp8_dtype = dtype; }
  void fill(Session&, const ArrayPtr& x, Float8Storage&, std::optional<F32Bits> noop);
};

class Float8CurrentScalingQuantizer final
    : public KernelQuantizer<Float8CurrentScalingQuantizer, Float8Storage> {
 public:
  static constexpr std::string_view kClass = "Float8CurrentScalingQuantizer",
                                    kRecipe = "Float8CurrentScaling";
  explicit Float8CurrentScalingQuantizer(Encoding dtype = Encoding::e4m3) : dtype(dtype) {}
  Encoding dtype;
  F32Bits amax_epsilon = 0;
  bool force_pow_2_scales = false;
  AmaxReduction reduction;
  json::Value describe() const override;
  bool supports_only_rowwise_all_gather() const override { return true; }
  bool is_requantization_safe() const override { return true; }
  AmaxReduction* amax_reduction() override { return &reduction; }
  std::optional<assay::Quantizer> line(Direction) const override;
  bool compared_by_value() const override { return true; }

 private:
  friend KernelQuantizer;
  static constexpr ErrorClass kWrongTensor = ErrorClass::value_error;
  std::shared_ptr<Float8Storage> blank(const Session& session) const {
    return std::make_shared<Float8Storage>(session.tn_only());
  }
  void stamp(Float8Storage& s) const { s.fp8_dtype = dtype; }
  void fill(Session&, const ArrayPtr& x, Float8Storage&, std::optional<F32Bits> noop);
};

}  // namespace assay::training
