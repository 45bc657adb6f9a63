// ObserverQuantizer: a wrapper that looks at what is quantized, for statistics and logs, and changes nothing:
// no byte, usage, random draw or amax group (TE debug/pytorch/debug_quantization.py). A module that meets one
// treats it as the quantizer within.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "training/formats/quantizer.h"

namespace assay::training {

// What an observer is told: which call, of which quantizer, on which input.
struct Observation {
  std::string_view call;       // "quantize", "update_quantized", "make_empty", "calibrate"
  const Quantizer* quantizer;  // the one within
  ArrayPtr x;                  // null for make_empty
};

class ObserverQuantizer final : public Quantizer {
 public:
  // Takes over the usages and flags of `inner`, and hands its own to it before every call, as both may be set
  // later.
  ObserverQuantizer(QuantizerPtr inner, std::function<void(const Observation&)> observe);
  QuantizerPtr inner;
  std::function<void(const Observation&)> observe;

  std::string_view class_name() const override { return inner->class_name(); }
  json::Value describe() const override;
  // Wraps a copy of the quantizer within.
  QuantizerPtr copy() const override;
  bool custom() const override { return inner->custom(); }
  std::string_view compatible_recipe() const override { return inner->compatible_recipe(); }
  bool supports_only_rowwise_all_gather() const override { return inner->supports_only_rowwise_all_gather(); }
  bool is_requantization_safe() const override;
  bool is_quantizable(const Dims& shape) const override { return inner->is_quantizable(shape); }
  AmaxReduction* amax_reduction() override { return inner->amax_reduction(); }
  void update_quantized(Session&, const ArrayPtr& x, Storage& dst, std::optional<F32Bits> noop) override;
  StoragePtr make_empty(Session&, const Dims& shape, DType dtype) const override;
  void calibrate(Session&, const ArrayPtr& x) override;
  std::optional<assay::Quantizer> line(Direction d) const override;
  bool compared_by_value() const override { return inner->compared_by_value(); }

 protected:
  // The result keeps a copy of the quantizer within, not of the observer: what was quantized is no longer
  // watched.
  StoragePtr quantize_impl(Session&, const ArrayPtr& x) override;

 private:
  Quantizer& synchronised() const;
};

// The quantizer within all observers around `q`; `q` itself without observers.
Quantizer& unwrapped(Quantizer& q);
const Quantizer& unwrapped(const Quantizer& q);

}  // namespace assay::training
