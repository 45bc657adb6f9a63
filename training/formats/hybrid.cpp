#include "training/formats/hybrid.h"

#include <memory>
#include <utility>

#include "training/base/errors.h"
#include "training/formats/observer.h"
#include "training/formats/parts.h"
#include "training/formats/storage.h"

namespace assay::training {

namespace {

using enum ErrorClass;

// The quantizer in `given`, which must be one; `direction` is "rowwise" or "columnwise".
QuantizerPtr child(const QuantizerLike& given, const std::string& direction) {
  if (std::holds_alternative<DelayedScalingRequest>(given) || std::holds_alternative<QuantizerRequest>(given))
    throw SemanticError(type_error, "HybridQuantizer: a request cannot serve the " + direction +
                                        " direction, as no recipe state would fulfil it; give a quantizer");
  const QuantizerPtr* q = std::get_if<QuantizerPtr>(&given);
  if (q && *q) return *q;
  const NotAQuantizer* other = std::get_if<NotAQuantizer>(&given);
  throw SemanticError(type_error, "HybridQuantizer: the " + direction +
                                      " argument must be a quantizer, found " +
                                      (other ? other->what : "None"));
}

}  // namespace

HybridQuantizer::HybridQuantizer(const QuantizerLike& rowwise, const QuantizerLike& columnwise,
                                 const std::string& source)
    : rowwise_quantizer(child(rowwise, "rowwise")),
      columnwise_quantizer(child(columnwise, "columnwise")),
      columnwise_source(source) {
  if (rowwise_quantizer == columnwise_quantizer)
    throw SemanticError(value_error,
                        "HybridQuantizer: expected two distinct quantizer objects, found the same for both "
                        "directions, whose usages cannot be pinned to each; give it a copy");
  if (source != "original" && source != "rowwise_dequantized")
    throw SemanticError(
        value_error, "HybridQuantizer: columnwise_source: expected original or rowwise_dequantized, found '" +
                         source + "'");
  rowwise_quantizer->set_usage(true, false);
  columnwise_quantizer->set_usage(false, true);
}

json::Value HybridQuantizer::describe() const {
  return json::object({{"class", class_name()},
                       {"columnwise_quantizer", columnwise_quantizer->describe()},
                       {"columnwise_source", columnwise_source},
                       {"columnwise_usage", columnwise_usage},
                       {"internal", internal},
                       {"optimize_for_gemm", optimize_for_gemm},
                       {"rowwise_quantizer", rowwise_quantizer->describe()},
                       {"rowwise_usage", rowwise_usage}});
}

QuantizerPtr HybridQuantizer::copy() const {
  auto out = std::make_shared<HybridQuantizer>(rowwise_quantizer->copy(), columnwise_quantizer->copy(),
                                               columnwise_source);
  out->set_usage(rowwise_usage, columnwise_usage);
  out->internal = internal;
  out->optimize_for_gemm = optimize_for_gemm;  // not handed to the children: their scales stay compact
  return out;
}

// Columns of NVFP4 alone cannot be dequantized, and a gather dequantizes where it cannot gather codes.
bool HybridQuantizer::supports_only_rowwise_all_gather() const {
  return rowwise_quantizer->supports_only_rowwise_all_gather() ||
         columnwise_quantizer->class_name() == "NVFP4Quantizer";
}

bool HybridQuantizer::is_requantization_safe() const {
  const bool from_rows = columnwise_usage && columnwise_source == "rowwise_dequantized";
  return (!(rowwise_usage || from_rows) || rowwise_quantizer->is_requantization_safe()) &&
         (!columnwise_usage || columnwise_quantizer->is_requantization_safe());
}

bool HybridQuantizer::with_amax_reduction() const {
  for (const QuantizerPtr& q : {rowwise_quantizer, columnwise_quantizer}) {
    const auto* hybrid = dynamic_cast<const HybridQuantizer*>(q.get());
    if (hybrid ? hybrid->with_amax_reduction() : q->amax_reduction() && q->amax_reduction()->enabled)
      return true;
  }
  return false;
}

void HybridQuantizer::set_with_amax_reduction(bool on) {
  for (const QuantizerPtr& q : {rowwise_quantizer, columnwise_quantizer}) {
    if (auto* hybrid = dynamic_cast<HybridQuantizer*>(q.get())) hybrid->set_with_amax_reduction(on);
    else if (AmaxReduction* r = q->amax_reduction()) r->enabled = on;
  }
}

GroupPtr HybridQuantizer::amax_reduction_group() const {
  GroupPtr common;
  for (const QuantizerPtr& q : {rowwise_quantizer, columnwise_quantizer}) {
    const auto* hybrid = dynamic_cast<const HybridQuantizer*>(q.get());
    const GroupPtr group = hybrid                ? hybrid->amax_reduction_group()
                           : q->amax_reduction() ? q->amax_reduction()->group
                                                 : nullptr;
    if (group && common && group != common)
      throw SemanticError(
          runtime_error,
          "HybridQuantizer: amax_reduction_group: expected one group in both directions, found " +
              common->name + " and " + group->name);
    if (group) common = group;
  }
  return common;
}

void HybridQuantizer::set_amax_reduction_group(const GroupPtr& group) {
  for (const QuantizerPtr& q : {rowwise_quantizer, columnwise_quantizer}) {
    if (auto* hybrid = dynamic_cast<HybridQuantizer*>(q.get())) hybrid->set_amax_reduction_group(group);
    else if (AmaxReduction* r = q->amax_reduction()) r->group = group;
  }
}

StoragePtr HybridQuantizer::quantize_impl(Session& session, const ArrayPtr& x) {
  StoragePtr row = rowwise_usage ? rowwise_quantizer->quantize(session, x) : nullptr, col;
  if (columnwise_usage) {
    ArrayPtr source = x;
    if (columnwise_source == "rowwise_dequantized")
      source = (row ? row : rowwise_quantizer->quantize(session, x))->dequantize(session, x->dtype);
    col = columnwise_quantizer->quantize(session, source);
  }
  auto out = std::make_shared<HybridStorage>(std::move(row), std::move(col), shared_from_this(), x->dtype);
  out->is_tensor = !internal;
  return out;
}

void HybridQuantizer::update_quantized(Session& session, const ArrayPtr& x, Storage& dst,
                                       std::optional<F32Bits> noop) {
  auto* hybrid = dynamic_cast<HybridStorage*>(&dst);
  if (!hybrid)
    throw SemanticError(value_error, "HybridQuantizer: update_quantized: expected a hybrid tensor, found " +
                                         std::string(dst.class_name()));
  const bool row = rowwise_usage && hybrid->rowwise_storage,
             col = columnwise_usage && hybrid->columnwise_storage;
  if (row) rowwise_quantizer->update_quantized(session, x, *hybrid->rowwise_storage, noop);
  if (!col) return;
  ArrayPtr source = x;
  if (columnwise_source ==
      "rowwise_dequantized")  // rows that were not refreshed may be stale, so fresh ones are made and dropped
    source = (row ? hybrid->rowwise_storage : rowwise_quantizer->quantize(session, x))
                 ->dequantize(session, x->dtype);
  columnwise_quantizer->update_quantized(session, source, *hybrid->columnwise_storage, noop);
}

StoragePtr HybridQuantizer::make_empty(Session& session, const Dims& shape, DType dtype) const {
  StoragePtr row = rowwise_usage ? rowwise_quantizer->make_empty(session, shape, dtype) : nullptr;
  StoragePtr col = columnwise_usage ? columnwise_quantizer->make_empty(session, shape, dtype) : nullptr;
  auto out = std::make_shared<HybridStorage>(std::move(row), std::move(col), copy(), dtype);
  out->is_tensor = !internal;
  return out;
}

// HybridStorage

HybridStorage::HybridStorage(StoragePtr rowwise, StoragePtr columnwise, const QuantizerPtr& original,
                             DType nominal)
    : rowwise_storage(std::move(rowwise)), columnwise_storage(std::move(columnwise)) {
  if (!std::dynamic_pointer_cast<HybridQuantizer>(original))
    throw SemanticError(ErrorClass::type_error,
                        "HybridQuantizedTensor: expected a HybridQuantizer, found " +
                            (original ? "a " + std::string(original->class_name()) : std::string("none")));
  keep(original);
  dtype = nominal;
}

std::vector<Field> HybridStorage::fields() {
  std::vector<Field> out;
  const auto append = [&](const StoragePtr& child, const std::string& prefix) {
    if (!child) return;
    for (const Field& f : child->fields()) out.push_back({prefix + f.name, f.slot});
  };
  append(rowwise_storage, "_rowwise_storage.");
  append(columnwise_storage, "_columnwise_storage.");
  return out;
}

const Storage& HybridStorage::either() const {
  if (!rowwise_storage && !columnwise_storage)
    raise_runtime_error("HybridQuantizedTensor: expected a direction that is present, found neither");
  return rowwise_storage ? *rowwise_storage : *columnwise_storage;
}

Dims HybridStorage::size() const { return either().size(); }

std::string HybridStorage::device() const { return either().device(); }

void HybridStorage::update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) {
  const auto expect = [](bool wanted, const StoragePtr& child, const char* direction) {
    if (wanted && !child)
      raise_runtime_error(std::string("update_usage: expected a HybridQuantizedTensor with its ") +
                          direction + " storage, found none; it never quantizes again by itself");
  };
  expect(rowwise == true, rowwise_storage, "rowwise");
  expect(columnwise == true, columnwise_storage, "columnwise");
  if (rowwise == false) rowwise_storage = nullptr;
  if (columnwise == false) columnwise_storage = nullptr;
}

ArrayPtr HybridStorage::dequantize(Session& session, std::optional<DType> to) {
  either();
  return (rowwise_storage ? rowwise_storage : columnwise_storage)->dequantize(session, to.value_or(dtype));
}

StoragePtr HybridStorage::make_like() const {
  auto out = another(*this);
  if (rowwise_storage) out->rowwise_storage = rowwise_storage->make_like();
  if (columnwise_storage) out->columnwise_storage = columnwise_storage->make_like();
  return out;
}

StoragePtr HybridStorage::view(const Dims& shape) {
  // The same shape is no request to the children: one that holds a transpose alone may refuse every view.
  if ((rowwise_storage || columnwise_storage) && shape == size()) return make_like();
  auto out = another(*this);
  if (rowwise_storage) out->rowwise_storage = rowwise_storage->view(shape);
  if (columnwise_storage) out->columnwise_storage = columnwise_storage->view(shape);
  return out;
}

void HybridStorage::clear() {
  if (rowwise_storage) rowwise_storage->clear();
  if (columnwise_storage) columnwise_storage->clear();
}

void HybridStorage::copy_from_storage(const Storage& from) {
  const auto* src = dynamic_cast<const HybridStorage*>(&from);
  if (!src)
    throw SemanticError(ErrorClass::type_error,
                        "copy_from_storage: expected a HybridQuantizedTensorStorage, found a " +
                            std::string(from.class_name()));
  if (present() != src->present())
    throw SemanticError(
        ErrorClass::not_implemented_error,
        "copy_from_storage: expected a HybridQuantizedTensor with the same directions, found another");
  if (rowwise_storage) rowwise_storage->copy_from_storage(*src->rowwise_storage);
  if (columnwise_storage) columnwise_storage->copy_from_storage(*src->columnwise_storage);
}

std::vector<ArrayPtr> HybridStorage::get_data_tensors(bool rowwise, bool columnwise) {
  std::vector<ArrayPtr> out;
  const auto append = [&](const StoragePtr& child) {
    for (const ArrayPtr& a : child->get_data_tensors()) out.push_back(a);
  };
  if (rowwise && rowwise_storage) append(rowwise_storage);
  if (columnwise && columnwise_storage) append(columnwise_storage);
  return out;
}

std::vector<std::string> HybridStorage::fsdp_buffer_fields() const {
  throw SemanticError(
      ErrorClass::not_implemented_error,
      "fsdp: expected a storage with its own buffers, found a hybrid, whose children gather for it");
}

// Helper decisions of the modules

void set_amax_reduction_group(Quantizer& given, const GroupPtr& group) {
  Quantizer& q = unwrapped(given);
  if (auto* hybrid = dynamic_cast<HybridQuantizer*>(&q)) {
    hybrid->set_with_amax_reduction(group != nullptr);
    hybrid->set_amax_reduction_group(group);
  } else if (AmaxReduction* r = q.amax_reduction()) {
    *r = {group != nullptr, group};
  }
}

bool can_rebuild_wgrad_input(const Quantizer& given) {
  const Quantizer& q = unwrapped(given);
  const auto* hybrid = dynamic_cast<const HybridQuantizer*>(&q);
  if (!hybrid) return q.is_requantization_safe();
  return hybrid->columnwise_source == "original" || hybrid->rowwise_quantizer->is_requantization_safe();
}

Usages wgrad_gather_usages(const Quantizer& given) {
  const Quantizer& q = unwrapped(given);
  const bool rows = q.supports_only_rowwise_all_gather() && !dynamic_cast<const HybridQuantizer*>(&q);
  return {rows, !rows};
}

void update_quantizer(Session& session, Storage& storage, QuantizerPtr quantizer) {
  if (!storage.quantizer)
    throw SemanticError(runtime_error, "update_quantizer: expected a tensor with a quantizer, found a " +
                                           std::string(storage.class_name()) + " without one");
  if (storage.quantizer != quantizer)
    session.warn("UserWarning", "update_quantizer: a " + std::string(storage.class_name()) + " changes its " +
                                    std::string(storage.quantizer->class_name()) +
                                    " for another object of class " + std::string(quantizer->class_name()));
  storage.quantizer = std::move(quantizer);
}

}  // namespace assay::training
