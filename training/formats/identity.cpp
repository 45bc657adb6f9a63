// High precision that passes for a quantized tensor (TE tensor/storage/identity_tensor_storage.py,
// tensor/identity_tensor.py).
#include "training/formats/identity.h"

#include <utility>

#include "training/base/errors.h"
#include "training/formats/describe.h"
#include "training/formats/kernel_quantizer.h"
#include "training/formats/parts.h"

namespace assay::training {

using std::string;

// IdentityQuantizer

json::Value IdentityQuantizer::describe() const {
  return described(*this, {{"dtype", dtype ? json::Value(name_of(*dtype)) : json::Value()}});
}

std::optional<assay::Quantizer> IdentityQuantizer::line(Direction) const {
  assay::Quantizer q;
  q.format = FormatId::identity;
  q.element = encoding_of(dtype.value_or(DType::bfloat16));
  return q;
}

std::shared_ptr<IdentityStorage> IdentityQuantizer::blank(DType nominal) const {
  auto s = std::make_shared<IdentityStorage>();
  s->dtype = dtype.value_or(nominal);
  s->is_tensor = !internal;
  return s;
}

StoragePtr IdentityQuantizer::make_empty(Session& session, const Dims& shape, DType nominal) const {
  return kernels::allocate(session, *this, blank(nominal), shape, nominal);
}

StoragePtr IdentityQuantizer::quantize_impl(Session& session, const ArrayPtr& x) {
  auto s = blank(x->dtype);
  s->hp_data = std::make_shared<Array>(
      *cast(session, x, s->dtype));  // another handle to the same memory, as detach gives
  return s;
}

void IdentityQuantizer::update_quantized(Session& session, const ArrayPtr& x, Storage& dst,
                                         std::optional<F32Bits> noop) {
  auto* s = dynamic_cast<IdentityStorage*>(&dst);
  if (!s)
    kernels::fail(ErrorClass::value_error, *this,
                  "update_quantized: expected an identity tensor, found a " + string(dst.class_name()));
  const ArrayPtr source = cast(session, x, dtype.value_or(x->dtype));
  const bool frozen = noop && (*noop & 0x7FFFFFFF) != 0;  // any flag but zero, unlike the kernels
  if (!frozen) {
    if (s->hp_data && s->hp_data->shape == source->shape && s->hp_data->dtype == source->dtype)
      copy_into(*source, *s->hp_data);
    else s->hp_data = std::make_shared<Array>(*source);
  }
  if (s->hp_data) s->dtype = s->hp_data->dtype;
}

// IdentityStorage

IdentityStorage::IdentityStorage(ArrayPtr payload, std::optional<DType> nominal)
    : hp_data(std::move(payload)) {
  dtype = nominal.value_or(hp_data ? hp_data->dtype : dtype);
}

std::vector<Field> IdentityStorage::fields() { return {{"_hp_data", &hp_data}}; }

Dims IdentityStorage::size() const {
  if (!hp_data) nothing_left(ErrorClass::runtime_error, "size", "its payload");
  return hp_data->shape;
}

ArrayPtr IdentityStorage::dequantize(Session& session, std::optional<DType> to) {
  if (!hp_data) nothing_left(ErrorClass::runtime_error, "dequantize", "its payload");
  return cast(session, hp_data, to.value_or(hp_data->dtype));
}

StoragePtr IdentityStorage::view(const Dims& shape) {
  auto out = another(*this);
  if (hp_data) out->hp_data = training::view(hp_data, resolved(shape, hp_data->count()));
  return out;
}

std::vector<ArrayPtr> IdentityStorage::get_data_tensors(bool rowwise, bool columnwise) {
  return chosen(hp_data, rowwise && columnwise ? nullptr : hp_data, rowwise, columnwise);
}

}  // namespace assay::training
