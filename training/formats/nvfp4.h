// NVFP4 (TE tensor/nvfp4_tensor.py, tensor/storage/nvfp4_tensor_storage.py).
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

class NVFP4Storage final : public BlockScaledStorage {
 public:
  NVFP4Storage() { element = Encoding::e2m1; }
  ArrayPtr amax_rowwise, amax_columnwise;
  bool row_scaled = false, use_4over6 = false;
  int e4m3_max = 448;  // 256 only under four over six
  // A bound other than 448 counts only with four over six.
  void set_four_over_six(bool use, int max) { use_4over6 = use, e4m3_max = use ? max : 448; }
  static constexpr ClassNames kNames{"NVFP4Tensor", "NVFP4TensorStorage"};
  ClassNames names() const override { return kNames; }
  std::vector<Field> fields() override;
  Usages get_usages() const override;
  Dims size() const override;
  void update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise)
      override;  // not atomic; columns from rows with 2-D blocks, by the quantizer
  ArrayPtr dequantize(Session&, std::optional<DType> to = std::nullopt)
      override;  // rows only: NotImplementedError for columns, ValueError for nothing
  StoragePtr make_like() const override { return another(*this); }
  StoragePtr view(const Dims& shape) override;
  std::vector<std::string> fsdp_buffer_fields() const override;

 protected:
  void expect_same_settings(const Storage& from) const override;

 private:
  void create_columnwise();
};

class NVFP4Quantizer final : public KernelQuantizer<NVFP4Quantizer, NVFP4Storage> {
 public:
  static constexpr std::string_view kClass = "NVFP4Quantizer", kRecipe = "NVFP4BlockScaling";
  // As the original's constructor takes them: the mode in any case, "MAE" or "MSE"; the maximum 448 or 256,
  // and 448 where four-over-six is off whatever was asked for. ValueError for others.
  void set_4over6(bool use, const std::string& err_mode, int e4m3_max);
  void set_random_sign_mask(bool on) { rht_matrix_random_sign_mask_t = on ? kRhtSignMask : 0; }
  bool with_rht = false, with_post_rht_amax = false, with_2d_quantization = false,
       stochastic_rounding = false, row_scaled_nvfp4 = false;
  bool nvfp4_use_4over6 = false;
  std::string nvfp4_4over6_err_mode = "MAE";
  int nvfp4_e4m3_max = 448;
  uint16_t rht_matrix_random_sign_mask_t = kRhtSignMask;
  AmaxReduction reduction;
  json::Value describe() const override;
  bool is_requantization_safe() const override { return !stochastic_rounding; }
  bool is_quantizable(const Dims&) const override;
  AmaxReduction* amax_reduction() override { return &reduction; }
  std::optional<assay::Quantizer> line(Direction) const override;
  bool compared_by_value() const override { return true; }

 private:
  friend KernelQuantizer;
  void stamp(NVFP4Storage&) const;
  void fill(Session&, const ArrayPtr& x, NVFP4Storage&, std::optional<F32Bits> noop);
};

}  // namespace assay::training
