// The quantizers that the original has in Python, to compare its kernels with.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/encoding.h"
#include "fixtures/json.h"
#include "training/base/array.h"
#include "training/base/session.h"
#include "training/formats/quantizer.h"

namespace assay::training {

// Quantizers written in Python as references. Only their settings and predicates are modelled; asking them
// for bytes is an error.
class ReferenceQuantizer : public Quantizer {
 public:
  ReferenceQuantizer() { internal = true; }
  QuantizerPtr copy() const override;  // AttributeError: the classes have no copy
  bool custom() const override { return true; }
  std::string_view compatible_recipe() const override;  // NotImplementedError, as for the rest
  void update_quantized(Session&, const ArrayPtr&, Storage&, std::optional<F32Bits>) override;
  StoragePtr make_empty(Session&, const Dims&, DType) const override;

 protected:
  StoragePtr quantize_impl(Session&, const ArrayPtr&) override;
};

class CurrentScalingQuantizerRef final : public ReferenceQuantizer {
 public:
  Encoding dtype = Encoding::e4m3;
  F32Bits eps = 0;
  bool pow_2_scales = false;
  AmaxReduction reduction;
  std::string_view class_name() const override { return "CurrentScalingQuantizerRef"; }
  json::Value describe() const override;
  AmaxReduction* amax_reduction() override { return &reduction; }
};

class NVFP4QuantizerRef final : public ReferenceQuantizer {
 public:
  F32Bits eps = 0;
  std::string nvfp4_4over6_err_mode = "MAE";
  bool nvfp4_4over6_err_use_fast_math = false, nvfp4_use_4over6 = false, pow_2_scales = false,
       row_scaled_nvfp4 = false, with_random_sign_mask = true, with_rht = false;
  int nvfp4_e4m3_max = 448;
  Dims quant_tile_shape = {1, 16};
  std::string_view class_name() const override { return "NVFP4QuantizerRef"; }
  json::Value describe() const override;
};

}  // namespace assay::training
