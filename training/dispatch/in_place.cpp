#include "training/dispatch/in_place.h"

#include "training/formats/formats.h"
#include "training/formats/parts.h"

namespace assay::training::dispatch {

namespace {

using std::string;

// The bytes of `from` into `to`, whatever either means.
void copy_buffer(const ArrayPtr& from, const ArrayPtr& to) {
  if (from && to) training::copy_into(*from, *to);
}

void copy_float8(Float8Storage& src, Float8Storage& dst) {
  if (dst.data) {
    if (!src.data)
      fail(ErrorClass::attribute_error, "copy_: expected the byte plane of a Float8Tensor, found none");
    copy_buffer(src.data, dst.data);
  }
  copy_buffer(src.scale_inv, dst.scale_inv);
  if (!dst.has_transpose()) return;
  if (src.has_transpose()) copy_buffer(src.transpose, dst.transpose);
  else copy_buffer(last_to_front(dst.data), dst.transpose);
}

void copy_nvfp4(NVFP4Storage& src, NVFP4Storage& dst) {
  if (dst.rowwise_data && src.rowwise_data) {
    copy_buffer(src.rowwise_data, dst.rowwise_data);
    copy_buffer(src.rowwise_scale_inv, dst.rowwise_scale_inv);
  }
  if (dst.columnwise_data && src.columnwise_data) {
    copy_buffer(src.columnwise_data, dst.columnwise_data);
    copy_buffer(src.columnwise_scale_inv, dst.columnwise_scale_inv);
  }
  copy_buffer(src.amax_rowwise, dst.amax_rowwise);
  copy_buffer(src.amax_columnwise, dst.amax_columnwise);
}

void copy_all(Storage& src, Storage& dst) {
  const std::vector<Field> from = src.fields(), to = dst.fields();
  for (size_t i = 0; i < to.size(); ++i) copy_buffer(*from[i].slot, *to[i].slot);
}

// Whether src has every direction of dst, as MXFP8 asks before it copies bytes.
bool covers(const MXFP8Storage& src, const MXFP8Storage& dst) {
  return (src.rowwise_data || !dst.rowwise_data) && (src.columnwise_data || !dst.columnwise_data) &&
         src.with_gemm_swizzled_scales == dst.with_gemm_swizzled_scales;
}

void copy_hybrid(Session& session, HybridStorage& src, HybridStorage& dst) {
  if (src.present() != dst.present())
    fail(ErrorClass::not_implemented_error,
         "copy_: expected a HybridQuantizedTensor with the same directions, found another; copy from a plain "
         "tensor");
  if (dst.rowwise_storage) copy_(session, src.rowwise_storage, dst.rowwise_storage);
  if (dst.columnwise_storage) copy_(session, src.columnwise_storage, dst.columnwise_storage);
}

// Of the original's classes. What a user brings passes the flag on, as the base class does.
bool forgets_flag(const Storage& dst) {
  return dynamic_cast<const BlockScaledStorage*>(&dst) && !dynamic_cast<const MxStorage*>(&dst);
}

// A hybrid hands a quantized source to its children as it is, and the kernel of one casts it.
bool casts_its_source(const Storage& dst) {
  const auto* h = dynamic_cast<const HybridStorage*>(&dst);
  const auto kernel = [](const StoragePtr& child) { return child && !storage_as<IdentityStorage>(child); };
  return h && (kernel(h->rowwise_storage) || kernel(h->columnwise_storage));
}

// Whether the framework's own copy applies: quantizers of one class and the same directions.
bool alike(const Storage& a, const Storage& b) {
  const auto *mx = dynamic_cast<const MxStorage*>(&a), *to_mx = dynamic_cast<const MxStorage*>(&b);
  if (mx && to_mx && mx->settings != to_mx->settings) return false;  // codes of E3M2 mean nothing in E2M3
  return a.quantizer && b.quantizer && a.quantizer->class_name() == b.quantizer->class_name() &&
         a.present() == b.present();
}

}  // namespace

void quantize_(Session& session, const Piece& source, Storage& dst, std::optional<F32Bits> noop) {
  const StoragePtr* quantized = std::get_if<StoragePtr>(&source);
  if (!dst.quantizer)
    fail(ErrorClass::value_error, "quantize_: expected a " + string(dst.class_name()) +
                                      " with its quantizer, found none; quantize it anew");
  if (quantized && storage_as<Float8Storage>(*quantized) && casts_its_source(dst))
    session.warn("UserWarning",
                 "A function call on a Float8Tensor may not return a Float8Tensor: its class may be lost");
  const ArrayPtr plain = quantized ? (*quantized)->dequantize(session) : std::get<ArrayPtr>(source);
  refresh(session, plain, dst, quantized && forgets_flag(dst) ? std::nullopt : noop);
}

void apply(Session& session, Storage& dst, const std::function<ArrayPtr(const ArrayPtr&)>& act,
           bool is_zero) {
  if (is_zero && storage_as<NVFP4Storage>(dst)) return;
  quantize_(session, act(dst.dequantize(session)), dst);
}

void copy_(Session& session, const Piece& source, const StoragePtr& dst) {
  const StoragePtr* quantized = std::get_if<StoragePtr>(&source);
  if (auto* identity = storage_as<IdentityStorage>(*dst)) {
    const ArrayPtr plain =
        quantized ? (*quantized)->dequantize(session, identity->hp_data->dtype) : std::get<ArrayPtr>(source);
    return training::copy_into(*cast(session, plain, identity->hp_data->dtype), *identity->hp_data);
  }
  if (quantized) {
    Storage& src = **quantized;
    auto *f8 = storage_as<Float8Storage>(src), *to_f8 = storage_as<Float8Storage>(*dst);
    if (f8 && to_f8) return copy_float8(*f8, *to_f8);
    auto *mx = storage_as<MXFP8Storage>(src), *to_mx = storage_as<MXFP8Storage>(*dst);
    if (mx && to_mx && covers(*mx, *to_mx)) return copy_all(src, *dst);
    auto *fp4 = storage_as<NVFP4Storage>(src), *to_fp4 = storage_as<NVFP4Storage>(*dst);
    if (fp4 && to_fp4) return copy_nvfp4(*fp4, *to_fp4);
    auto *hybrid = storage_as<HybridStorage>(src), *to_hybrid = storage_as<HybridStorage>(*dst);
    if (hybrid && to_hybrid) return copy_hybrid(session, *hybrid, *to_hybrid);
    if (alike(src, *dst)) return copy_all(src, *dst);
    return quantize_(session, src.dequantize(session), *dst);
  }
  quantize_(session, source, *dst);
}

void set_data(Session& session, const ArrayPtr& plain, Storage& dst) {
  if (storage_as<HybridStorage>(dst) || storage_as<IdentityStorage>(dst)) return;
  if (!dst.quantizer)
    fail(ErrorClass::assertion_error, "data: expected a " + string(dst.class_name()) +
                                          " with its quantizer, found none; quantize it anew");
  if (storage_as<Float8BlockwiseStorage>(dst)) return dst.quantizer->update_quantized(session, plain, dst);
  if (storage_as<NVFP4Storage>(dst)) return refresh(session, plain, dst);
  for (const Field& f : dst.fields())  // new buffers, not the old ones refreshed
    if (*f.slot) *f.slot = training::clone(*f.slot);
  if (auto* fp8 = storage_as<Float8Storage>(dst)) return refresh(session, plain, *fp8);
  dst.quantizer->update_quantized(session, plain, dst);
}

}  // namespace assay::training::dispatch
