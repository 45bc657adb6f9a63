// High precision that passes for a quantized tensor (TE tensor/identity_tensor.py,
// tensor/storage/identity_tensor_storage.py).
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
#include "training/formats/storage.h"

namespace assay::training {

class IdentityStorage : public Storage {
 public:
  IdentityStorage() = default;
  // The nominal dtype is the payload's unless another is given.
  explicit IdentityStorage(ArrayPtr payload, std::optional<DType> nominal = std::nullopt);
  ArrayPtr hp_data;  // serves both directions
  static constexpr ClassNames kNames{"IdentityTensor", "IdentityTensorStorage"};
  ClassNames names() const override { return kNames; }
  std::vector<Field> fields() override;
  Usages present() const override { return {hp_data != nullptr, hp_data != nullptr}; }
  Dims size() const override;
  void update_usage(std::optional<bool>, std::optional<bool>) override {}
  ArrayPtr dequantize(Session&, std::optional<DType> to = std::nullopt)
      override;  // the payload itself unless another dtype is asked for
  StoragePtr make_like() const override { return another(*this); }
  StoragePtr view(const Dims& shape) override;
  std::vector<ArrayPtr> get_data_tensors(bool rowwise = true, bool columnwise = true) override;
  std::vector<std::string> fsdp_buffer_fields() const override { return {"_hp_data"}; }
};

// No quantization: an alias of the input, cast where a dtype is configured.
class IdentityQuantizer : public QuantizerOf<IdentityQuantizer> {
 public:
  static constexpr std::string_view kClass = "IdentityQuantizer", kRecipe = "CustomRecipe";
  explicit IdentityQuantizer(std::optional<DType> dtype = std::nullopt) : dtype(dtype) {}
  std::optional<DType> dtype;
  json::Value describe() const override;
  bool is_requantization_safe() const override { return true; }
  void update_quantized(Session&, const ArrayPtr& x, Storage& dst, std::optional<F32Bits> noop) override;
  StoragePtr make_empty(Session&, const Dims& shape, DType dtype) const override;
  std::optional<assay::Quantizer> line(Direction) const override;

 protected:
  StoragePtr quantize_impl(Session&, const ArrayPtr& x) override;

 private:
  std::shared_ptr<IdentityStorage> blank(DType nominal) const;  // without its payload
};

}  // namespace assay::training
