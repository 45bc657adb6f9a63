// Blockwise FP8 (TE tensor/float8_blockwise_tensor.py, tensor/storage/float8_blockwise_tensor_storage.py).
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
#include "training/base/session.h"
#include "training/formats/block_scaled.h"
#include "training/formats/kernel_quantizer.h"

namespace assay::training {

class Float8BlockwiseStorage final : public BlockScaledStorage {
 public:
  bool is_2d = false;
  static constexpr ClassNames kNames{"Float8BlockwiseQTensor", "Float8BlockwiseQTensorStorage"};
  ClassNames names() const override { return kNames; }
  Dims size() const override;
  void update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise)
      override;  // AssertionError; 2-D scales yield columns from rows
  ArrayPtr dequantize(Session&, std::optional<DType> to = std::nullopt) override;
  StoragePtr make_like() const override { return another(*this); }
  StoragePtr view(const Dims& shape) override;
  std::vector<std::string> fsdp_buffer_fields() const override;
  Extracted fsdp_extract_buffers() override;
  void fsdp_assign_gathered(const std::vector<ArrayPtr>& buffers, const json::Value& meta) override;

 protected:
  void expect_same_settings(const Storage& from) const override;

 private:
  void create_columnwise();
};

class Float8BlockQuantizer final : public KernelQuantizer<Float8BlockQuantizer, Float8BlockwiseStorage> {
 public:
  static constexpr std::string_view kClass = "Float8BlockQuantizer", kRecipe = "Float8BlockScaling";
  explicit Float8BlockQuantizer(Encoding dtype = Encoding::e4m3, int block_scaling_dim = 1)
      : dtype(dtype), block_scaling_dim(block_scaling_dim) {}
  Encoding dtype;
  int block_len = 128;
  int block_scaling_dim;  // 1: 1x128, 2: 128x128
  F32Bits amax_epsilon = 0;
  bool force_pow_2_scales = true;
  json::Value describe() const override;
  bool is_requantization_safe() const override { return true; }
  bool is_quantizable(const Dims&) const override;
  std::optional<assay::Quantizer> line(Direction) const override;
  bool compared_by_value() const override { return true; }

 private:
  friend KernelQuantizer;
  std::shared_ptr<Float8BlockwiseStorage> blank(const Session&) const;
  void stamp(Float8BlockwiseStorage& s) const {
    s.element = dtype;
  }  // a refresh leaves the kind of blocks alone
  void fill(Session&, const ArrayPtr& x, Float8BlockwiseStorage&, std::optional<F32Bits> noop);
};

}  // namespace assay::training
