#include "training/formats/observer.h"

#include <utility>

#include "training/formats/storage.h"

namespace assay::training {

ObserverQuantizer::ObserverQuantizer(QuantizerPtr inner_quantizer,
                                     std::function<void(const Observation&)> observe)
    : inner(std::move(inner_quantizer)), observe(std::move(observe)) {
  rowwise_usage = inner->rowwise_usage;
  columnwise_usage = inner->columnwise_usage;
  internal = inner->internal;
  optimize_for_gemm = inner->optimize_for_gemm;
}

Quantizer& ObserverQuantizer::synchronised() const {
  inner->set_usage(rowwise_usage, columnwise_usage);
  inner->internal = internal;
  inner->optimize_for_gemm = optimize_for_gemm;
  return *inner;
}

json::Value ObserverQuantizer::describe() const { return synchronised().describe(); }
QuantizerPtr ObserverQuantizer::copy() const {
  return std::make_shared<ObserverQuantizer>(synchronised().copy(), observe);
}
bool ObserverQuantizer::is_requantization_safe() const { return synchronised().is_requantization_safe(); }
std::optional<assay::Quantizer> ObserverQuantizer::line(Direction d) const { return synchronised().line(d); }

void ObserverQuantizer::update_quantized(Session& session, const ArrayPtr& x, Storage& dst,
                                         std::optional<F32Bits> noop) {
  observe({"update_quantized", inner.get(), x});
  synchronised().update_quantized(session, x, dst, noop);
}

StoragePtr ObserverQuantizer::make_empty(Session& session, const Dims& shape, DType dtype) const {
  observe({"make_empty", inner.get(), nullptr});
  return synchronised().make_empty(session, shape, dtype);
}

void ObserverQuantizer::calibrate(Session& session, const ArrayPtr& x) {
  observe({"calibrate", inner.get(), x});
  synchronised().calibrate(session, x);
}

StoragePtr ObserverQuantizer::quantize_impl(Session& session, const ArrayPtr& x) {
  observe({"quantize", inner.get(), x});
  return synchronised().quantize(session, x);
}

Quantizer& unwrapped(Quantizer& q) {
  auto* observer = dynamic_cast<ObserverQuantizer*>(&q);
  return observer ? unwrapped(*observer->inner) : q;
}
const Quantizer& unwrapped(const Quantizer& q) { return unwrapped(const_cast<Quantizer&>(q)); }

}  // namespace assay::training
