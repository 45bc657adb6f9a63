// MXFP8 (TE tensor/mxfp8_tensor.py, tensor/storage/mxfp8_tensor_storage.py).
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

class MXFP8Storage final : public BlockScaledStorage {
 public:
  static constexpr ClassNames kNames{"MXFP8Tensor", "MXFP8TensorStorage"};
  ClassNames names() const override { return kNames; }
  Dims size() const override;
  void update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise)
      override;  // not atomic: rows go before columns are missed
  ArrayPtr dequantize(Session&, std::optional<DType> to = std::nullopt) override;
  StoragePtr make_like() const override { return another(*this); }
  StoragePtr view(const Dims& shape) override;
  Extracted fsdp_extract_buffers() override;
  void fsdp_assign_gathered(const std::vector<ArrayPtr>& buffers, const json::Value& meta) override;

 protected:
  void expect_same_settings(const Storage& from) const override;
};

class MXFP8Quantizer final : public KernelQuantizer<MXFP8Quantizer, MXFP8Storage> {
 public:
  static constexpr std::string_view kClass = "MXFP8Quantizer", kRecipe = "MXFP8BlockScaling";
  explicit MXFP8Quantizer(Encoding dtype = Encoding::e4m3) : dtype(dtype) {}
  Encoding dtype;
  bool with_2d_quantization = false;
  json::Value describe() const override;
  bool is_requantization_safe() const override { return true; }
  bool is_quantizable(const Dims&) const override;
  std::optional<assay::Quantizer> line(Direction) const override;
  bool compared_by_value() const override { return true; }

 private:
  friend KernelQuantizer;
  void stamp(MXFP8Storage& s) const { s.element = dtype, s.with_gemm_swizzled_scales = optimize_for_gemm; }
  void fill(Session&, const ArrayPtr& x, MXFP8Storage&, std::optional<F32Bits> noop);
};

}  // namespace assay::training
