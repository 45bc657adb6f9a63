// What all quantizers share: usages, quantizing, comparison by value.
#include "training/formats/quantizer.h"

#include <algorithm>
#include <functional>
#include <string>

#include "training/base/errors.h"
#include "training/formats/hybrid.h"
#include "training/formats/storage.h"

namespace assay::training {

namespace {

using enum ErrorClass;

void refuse_live_group(const Quantizer& q) {
  const AmaxReduction* r = const_cast<Quantizer&>(q).amax_reduction();
  if (r && r->group && q.compared_by_value())
    throw SemanticError(type_error,
                        std::string(q.class_name()) + " holds the live process group " + r->group->name +
                            " and so has no value to compare or hash; clear amax_reduction_group first");
}

}  // namespace

void Quantizer::set_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) {
  rowwise_usage = rowwise.value_or(rowwise_usage);
  columnwise_usage = columnwise.value_or(columnwise_usage);
}

std::vector<std::string> Quantizer::value_fields() const {
  std::vector<std::string> out;
  if (!compared_by_value()) return out;
  const json::Value all = describe();
  for (const auto& [name, value] : *all.object())
    if (name != "class" && name != "amax_reduction_group") out.push_back(name);
  std::sort(out.begin(), out.end());
  return out;
}

StoragePtr Quantizer::quantize(Session& session, const ArrayPtr& x, const StoragePtr& out) {
  if (out) {
    update_quantized(session, x, *out);
    return out;
  }
  StoragePtr result = quantize_impl(session, x);
  if (!result->quantizer) result->quantizer = copy();
  training::set_amax_reduction_group(*result->quantizer, nullptr);
  return result;
}

std::vector<StoragePtr> Quantizer::multi_quantize(Session& session, const std::vector<ArrayPtr>& list) {
  std::vector<StoragePtr> out;
  for (const ArrayPtr& x : list) out.push_back(quantize(session, x));
  return out;
}

bool equal(const Quantizer& a, const Quantizer& b) {
  if (a.class_name() != b.class_name()) return false;
  refuse_live_group(a);
  refuse_live_group(b);
  return a.compared_by_value() ? a.describe() == b.describe() : &a == &b;
}

size_t hash(const Quantizer& q) {
  refuse_live_group(q);
  return q.compared_by_value() ? std::hash<std::string>{}(json::dump(q.describe()))
                               : std::hash<const Quantizer*>{}(&q);
}

QuantizerPtr exported(const Quantizer& q) {
  QuantizerPtr out = q.copy();
  if (AmaxReduction* r = out->amax_reduction()) r->group = nullptr;
  if (auto* hybrid = dynamic_cast<HybridQuantizer*>(out.get())) {
    hybrid->rowwise_quantizer = exported(*hybrid->rowwise_quantizer);
    hybrid->columnwise_quantizer = exported(*hybrid->columnwise_quantizer);
  }
  return out;
}

json::Value describe(const DelayedScalingRequest& r) {
  return json::object(
      {{"request", "DelayedScalingRequest"},
       {"fp8_format", r.fp8_format},
       {"margin", r.margin},
       {"amax_history_len", r.amax_history_len},
       {"amax_compute_algo", r.amax_compute_algo},
       {"scaling_factor_compute_algo",
        r.scaling_factor_compute_algo ? json::Value(*r.scaling_factor_compute_algo) : json::Value()},
       {"reduce_amax", r.reduce_amax}});
}

}  // namespace assay::training
