#include "training/dispatch/copies.h"

#include "training/formats/formats.h"

namespace assay::training::dispatch {

namespace {

using std::string;

bool is_scale(const string& field) {
  return field.find("scale_inv") != string::npos || field.find("amax") != string::npos;
}

StoragePtr cloned_child(Session& session, const StoragePtr& child) {
  if (!child) return nullptr;
  const Piece p = clone(session, child);
  if (const StoragePtr* s = std::get_if<StoragePtr>(&p)) return *s;
  fail(ErrorClass::attribute_error, "clone: expected a quantized clone of a " + string(child->class_name()) +
                                        " inside a hybrid, found a plain tensor, which has no storage");
}

// Zeros in the planes of per-tensor FP8 that exist, beside a copy of the scale.
StoragePtr zeros_of(const Float8Storage& s, const Dims& shape, std::optional<DType> dtype) {
  auto out = std::dynamic_pointer_cast<Float8Storage>(s.make_like());
  Dims turned = shape;
  if (!turned.empty()) turned.insert(turned.begin(), turned.back()), turned.pop_back();
  out->data = s.data ? zeros(shape, DType::uint8) : nullptr;
  out->transpose = s.has_transpose() ? zeros(turned, DType::uint8) : nullptr;
  if (!out->data && !out->transpose)
    fail(ErrorClass::runtime_error, "new_zeros: expected a Float8Tensor with a plane, found none");
  out->transpose_invalid = !out->transpose;
  out->scale_inv = training::clone(s.scale_inv);
  out->dtype = dtype.value_or(s.dtype);
  return out;
}

StoragePtr zeros_of(const MXFP8Storage& s, const Dims& shape, std::optional<DType> dtype) {
  auto out = std::dynamic_pointer_cast<MXFP8Storage>(s.make_like());
  const Shape m = flattened(shape);
  const DType buffers = dtype.value_or(DType::uint8);  // the dtype that was meant for the tensor
  if (s.rowwise_data) {
    out->rowwise_data = zeros(shape, buffers);
    out->rowwise_scale_inv = zeros({m.rows, m.cols / 32}, buffers);
  }
  if (s.columnwise_data) {
    out->columnwise_data = zeros(shape, buffers);
    out->columnwise_scale_inv = zeros({m.rows / 32, m.cols}, buffers);
  }
  return out;
}

}  // namespace

StoragePtr method_clone(Session& session, const StoragePtr& s) {
  if (const auto* h = storage_as<HybridStorage>(s))
    return std::make_shared<HybridStorage>(cloned_child(session, h->rowwise_storage),
                                           cloned_child(session, h->columnwise_storage), h->quantizer,
                                           h->dtype);
  if (const auto* fp4 = storage_as<NVFP4Storage>(s); fp4 && !fp4->rowwise_data)
    fail(ErrorClass::assertion_error,
         "clone: expected row-wise data of an NVFP4Tensor, found none; keep the rows");
  const StoragePtr out = s->make_like();
  for (const Field& f : out->fields())
    if (*f.slot && !is_scale(f.name)) *f.slot = training::clone(*f.slot);
  return out;
}

Piece clone(Session& session, const StoragePtr& s) {
  if (storage_as<Float8BlockwiseStorage>(s) || storage_as<NVFP4Storage>(s)) return s->dequantize(session);
  return method_clone(session, s);
}

StoragePtr deep_copy(Session& session, const StoragePtr& s) {
  // Of a hybrid the clone's children are replaced by copies of the tensor's own, so only an error counts.
  if (const auto* h = storage_as<HybridStorage>(s)) {
    for (const StoragePtr& child : {h->rowwise_storage, h->columnwise_storage})
      if (child) clone(session, child);
  } else {
    method_clone(session, s);
  }
  const StoragePtr out = s->make_like();
  for (const Field& f : out->fields())
    if (*f.slot) *f.slot = training::clone(*f.slot);
  return out;
}

Piece to(Session& session, const StoragePtr& s, DType dtype) {
  if (dtype == s->dtype) return s;
  if (storage_as<Float8Storage>(s))
    session.warn("UserWarning",
                 "A function call on a Float8Tensor may not return a Float8Tensor: its class may be lost");
  return cast(session, s->dequantize(session), dtype);
}

StoragePtr to_dtype(const StoragePtr& s, DType dtype) {
  const StoragePtr out = s->make_like();
  out->dtype = dtype;
  return out;
}

Piece new_zeros(Session& session, const StoragePtr& s, const Dims& shape, std::optional<DType> dtype) {
  if (const auto* fp8 = storage_as<Float8Storage>(s)) return zeros_of(*fp8, shape, dtype);
  const Shape m = flattened(shape);
  if (const auto* mx = storage_as<MXFP8Storage>(s); mx && m.rows % 32 == 0 && m.cols % 32 == 0)
    return zeros_of(*mx, shape, dtype);
  if (storage_as<HybridStorage>(s) || storage_as<IdentityStorage>(s))
    return training::new_zeros(session, *s, shape, dtype);
  s->dequantize(session);  // the framework's own, on the dequantized tensor
  return zeros(shape, dtype.value_or(s->dtype));
}

StoragePtr new_empty(Session& session, const Storage& s, const Dims& shape) {
  if (!s.quantizer)
    fail(ErrorClass::runtime_error,
         "new_empty: expected a " + string(s.class_name()) + " with its quantizer, found none");
  return s.quantizer->make_empty(session, shape, s.dtype);
}

StoragePtr empty_like(Session& session, const Storage& s, std::optional<DType> dtype) {
  if (dynamic_cast<const NVFP4Storage*>(&s)) {
    const StoragePtr out = s.make_like();
    for (const Field& f : out->fields())
      if (ArrayPtr& a = *f.slot) {
        const bool amax = f.name.find("amax") != string::npos;
        a = amax ? zeros(a->shape, dtype.value_or(a->dtype))
                 : empty(a->shape, dtype.value_or(a->dtype), std::byte{session.environment.poison});
      }
    return out;
  }
  if (!s.quantizer)
    fail(ErrorClass::attribute_error,
         "empty_like: expected a " + string(s.class_name()) + " with its quantizer, found none");
  const Usages had = s.quantizer->usages(), present = s.present();
  s.quantizer->set_usage(present.rowwise, present.columnwise);
  const StoragePtr out = s.quantizer->make_empty(session, s.size(), s.dtype);
  s.quantizer->set_usage(had.rowwise, had.columnwise);
  return out;
}

}  // namespace assay::training::dispatch
