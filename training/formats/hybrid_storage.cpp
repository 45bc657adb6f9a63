// Two storages, one for each direction (TE tensor/storage/hybrid_tensor_storage.py).
#include "training/formats/hybrid.h"
#include "training/formats/parts.h"

namespace assay::training {

namespace {

using std::string;

[[noreturn]] void fail(const string& what) { throw SemanticError(ErrorClass::runtime_error, what); }

}  // namespace

HybridStorage::HybridStorage(StoragePtr rowwise, StoragePtr columnwise, const QuantizerPtr& original, DType nominal)
    : rowwise_storage(std::move(rowwise)), columnwise_storage(std::move(columnwise)) {
  if (!std::dynamic_pointer_cast<HybridQuantizer>(original))
    throw SemanticError(ErrorClass::type_error,
                        "HybridQuantizedTensor: expected a HybridQuantizer, found " + (original ? "a " + string(original->class_name()) : string("none")));
  keep(original);
  dtype = nominal;
}

std::vector<Field> HybridStorage::fields() {
  std::vector<Field> out;
  const auto append = [&](const StoragePtr& child, const string& prefix) {
    if (!child) return;
    for (const Field& f : child->fields()) out.push_back({prefix + f.name, f.slot});
  };
  append(rowwise_storage, "_rowwise_storage.");
  append(columnwise_storage, "_columnwise_storage.");
  return out;
}

const Storage& HybridStorage::either() const {
  if (!rowwise_storage && !columnwise_storage) fail("HybridQuantizedTensor: expected a direction that is present, found neither");
  return rowwise_storage ? *rowwise_storage : *columnwise_storage;
}

Dims HybridStorage::size() const { return either().size(); }

string HybridStorage::device() const { return either().device(); }

void HybridStorage::update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) {
  const auto expect = [](bool wanted, const StoragePtr& child, const char* direction) {
    if (wanted && !child)
      fail(string("update_usage: expected a HybridQuantizedTensor with its ") + direction + " storage, found none; it never quantizes again by itself");
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
  if (!src) throw SemanticError(ErrorClass::type_error, "copy_from_storage: expected a HybridQuantizedTensorStorage, found a " + string(from.class_name()));
  if (present() != src->present())
    throw SemanticError(ErrorClass::not_implemented_error, "copy_from_storage: expected a HybridQuantizedTensor with the same directions, found another");
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

std::vector<string> HybridStorage::fsdp_buffer_fields() const {
  throw SemanticError(ErrorClass::not_implemented_error, "fsdp: expected a storage with buffers of its own, found a hybrid, whose children gather for it");
}

}  // namespace assay::training
