// What a factory gave that is neither a quantizer nor a request that a state fulfils. The original looks for
// None alone and keeps everything else in the slot, where the first use of it fails (TE quantization.py,
// CustomRecipeState).
#pragma once
#include <string>
#include <string_view>

#include "training/formats/quantizer.h"

namespace assay::training {

// Every use throws AttributeError with the class and what was asked of it.
class ForeignAnswer final : public Quantizer {
 public:
  explicit ForeignAnswer(std::string answer_class) : class_(std::move(answer_class)) {}
  std::string_view class_name() const override { return class_; }
  json::Value describe() const override { return json::object({{"class", class_name()}}); }
  QuantizerPtr copy() const override { refuse("copy"); }
  std::string_view compatible_recipe() const override { refuse("_get_compatible_recipe"); }
  void update_quantized(Session&, const ArrayPtr&, Storage&, std::optional<F32Bits>) override {
    refuse("update_quantized");
  }
  StoragePtr make_empty(Session&, const Dims&, DType) const override { refuse("make_empty"); }

 protected:
  StoragePtr quantize_impl(Session&, const ArrayPtr&) override { refuse("quantize"); }

 private:
  [[noreturn]] void refuse(std::string_view attribute) const;
  std::string class_;
};

}  // namespace assay::training
