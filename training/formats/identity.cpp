// High precision that passes for a quantized tensor (TE tensor/storage/identity_tensor_storage.py).
#include "training/formats/parts.h"

namespace assay::training {

using std::string;

IdentityStorage::IdentityStorage(ArrayPtr payload, std::optional<DType> nominal) : hp_data(std::move(payload)) {
  dtype = nominal.value_or(hp_data ? hp_data->dtype : dtype);
}

std::vector<Field> IdentityStorage::fields() { return {{"_hp_data", &hp_data}}; }

Dims IdentityStorage::size() const {
  if (!hp_data) throw SemanticError(ErrorClass::runtime_error, "size: expected an IdentityTensor with its payload, found none left");
  return hp_data->shape;
}

ArrayPtr IdentityStorage::dequantize(Session& session, std::optional<DType> to) {
  if (!hp_data) throw SemanticError(ErrorClass::runtime_error, "dequantize: expected an IdentityTensor with its payload, found none left");
  return cast(session, hp_data, to.value_or(hp_data->dtype));
}

StoragePtr IdentityStorage::view(const Dims& shape) {
  auto out = another(*this);
  if (hp_data) out->hp_data = training::view(hp_data, resolved(shape, hp_data->count()));
  return out;
}

void IdentityStorage::copy_from_storage(const Storage& from) {
  const auto* src = dynamic_cast<const IdentityStorage*>(&from);
  if (!src) throw SemanticError(ErrorClass::type_error, "copy_from_storage: expected an IdentityTensorStorage, found a " + string(from.class_name()));
  copy_optional(src->hp_data, hp_data);
}

std::vector<ArrayPtr> IdentityStorage::get_data_tensors(bool rowwise, bool columnwise) {
  if (!rowwise && !columnwise) throw SemanticError(ErrorClass::value_error, "get_data_tensors: expected a direction, found neither asked for");
  if (rowwise && columnwise) return {hp_data, nullptr};
  return {hp_data};
}

}  // namespace assay::training
