#include "training/formats/wire.h"

#include <stdexcept>

#include "training/formats/formats.h"

namespace assay::training {

namespace {

using std::string;

[[noreturn]] void cannot_travel(const string& class_name) {
  throw std::logic_error("between ranks: expected a built-in quantizer or tensor, found a " + class_name +
                         "; leave its buffers behind instead");
}

void common(Wire& w, Quantizer& q) {
  w(q.rowwise_usage, q.columnwise_usage, q.internal, q.optimize_for_gemm);
}

void members(Wire& w, Float8Quantizer& q) { w(q.scale, q.amax, q.dtype); }
void members(Wire& w, Float8CurrentScalingQuantizer& q) {
  w(q.dtype, q.amax_epsilon, q.force_pow_2_scales, q.reduction);
}
void members(Wire& w, MXFP8Quantizer& q) { w(q.dtype, q.with_2d_quantization); }
void members(Wire& w, Float8BlockQuantizer& q) {
  w(q.dtype, q.block_len, q.block_scaling_dim, q.amax_epsilon, q.force_pow_2_scales);
}
void members(Wire& w, NVFP4Quantizer& q) {
  w(q.with_rht, q.with_post_rht_amax, q.with_2d_quantization, q.stochastic_rounding, q.row_scaled_nvfp4,
    q.nvfp4_use_4over6, q.nvfp4_4over6_err_mode, q.nvfp4_e4m3_max, q.rht_matrix_random_sign_mask_t,
    q.reduction);
}
void members(Wire& w, IdentityQuantizer& q) { w(q.dtype); }
template <FormatId F> void members(Wire& w, MxQuantizer<F>& q) { w(q.settings.dtype, q.settings.packing); }

// Writes or reads `q` where it is, or shall be, a Q; `made` makes the object to read into.
template <class Q, class Make> bool as_quantizer(Wire& w, QuantizerPtr& q, const string& name, Make made) {
  if (name != Q::kClass) return false;
  if (w.reading()) q = made();
  auto* own = dynamic_cast<Q*>(q.get());
  if (!own) cannot_travel("quantizer that calls itself " + name);
  common(w, *own);
  members(w, *own);
  return true;
}

void hybrid_quantizer(Wire& w, QuantizerPtr& q) {
  auto* own = dynamic_cast<HybridQuantizer*>(q.get());
  QuantizerPtr row = own ? own->rowwise_quantizer : nullptr, col = own ? own->columnwise_quantizer : nullptr;
  string source = own ? own->columnwise_source : "";
  w(row, col, source);
  if (w.reading()) q = std::make_shared<HybridQuantizer>(row, col, source);
  common(w, *q);
}

void buffers(Wire& w, BlockScaledStorage& s) {
  w(s.element, s.with_gemm_swizzled_scales, s.rowwise_data, s.rowwise_scale_inv, s.columnwise_data,
    s.columnwise_scale_inv);
}
void members(Wire& w, Float8Storage& s) {
  w(s.tn_only, s.fp8_dtype, s.data, s.transpose, s.scale_inv, s.transpose_invalid);
}
void members(Wire& w, MXFP8Storage& s) { buffers(w, s); }
void members(Wire& w, Float8BlockwiseStorage& s) {
  buffers(w, s);
  w(s.is_2d);
}
void members(Wire& w, NVFP4Storage& s) {
  buffers(w, s);
  w(s.amax_rowwise, s.amax_columnwise, s.row_scaled, s.use_4over6, s.e4m3_max);
}
void members(Wire& w, IdentityStorage& s) { w(s.hp_data); }
template <FormatId F> void members(Wire& w, MxTensor<F>& s) {
  buffers(w, s);
  w(s.settings.dtype, s.settings.packing);
}

template <class S, class Make> bool as_storage(Wire& w, StoragePtr& s, const string& name, Make made) {
  if (name != S::kNames.tensor) return false;
  if (w.reading()) s = made();
  auto* own = dynamic_cast<S*>(s.get());
  if (!own) cannot_travel("tensor that calls itself " + name);
  w(own->quantizer);
  members(w, *own);
  return true;
}

void hybrid_storage(Wire& w, StoragePtr& s) {
  auto* own = dynamic_cast<HybridStorage*>(s.get());
  StoragePtr row = own ? own->rowwise_storage : nullptr, col = own ? own->columnwise_storage : nullptr;
  QuantizerPtr q = own ? own->quantizer : nullptr;
  w(row, col, q);
  if (!w.reading()) return;
  s = std::make_shared<HybridStorage>(row, col, q);
  s->quantizer = q;
}

}  // namespace

void wire(Wire& w, GroupPtr& group) {
  string name = group ? group->name : "";
  int size = group ? group->size : 0, rank = group ? group->rank : 0;
  w(name, size, rank);
  if (!w.reading()) return;
  group = size == 0 ? nullptr : std::make_shared<ProcessGroup>();
  if (group) group->name = name, group->size = size, group->rank = rank;
}

void wire(Wire& w, QuantizerPtr& q) {
  string name(q ? q->class_name() : "");
  w(name);
  if (name.empty()) {
    q = nullptr;
    return;
  }
  if (name == "HybridQuantizer") return hybrid_quantizer(w, q);
  bool known =
      as_quantizer<Float8Quantizer>(
          w, q, name, [] { return std::make_shared<Float8Quantizer>(nullptr, nullptr, Encoding::e4m3); }) ||
      as_quantizer<Float8CurrentScalingQuantizer>(
          w, q, name, [] { return std::make_shared<Float8CurrentScalingQuantizer>(); }) ||
      as_quantizer<MXFP8Quantizer>(w, q, name, [] { return std::make_shared<MXFP8Quantizer>(); }) ||
      as_quantizer<Float8BlockQuantizer>(w, q, name,
                                         [] { return std::make_shared<Float8BlockQuantizer>(); }) ||
      as_quantizer<NVFP4Quantizer>(w, q, name, [] { return std::make_shared<NVFP4Quantizer>(); }) ||
      as_quantizer<IdentityQuantizer>(w, q, name, [] { return std::make_shared<IdentityQuantizer>(); });
  for_each_mx_format([&]<FormatId F>() {
    known |= as_quantizer<MxQuantizer<F>>(w, q, name, [] { return std::make_shared<MxQuantizer<F>>(); });
  });
  if (!known) cannot_travel(name);
}

void wire(Wire& w, StoragePtr& s) {
  string name(s ? s->names().tensor : "");
  w(name);
  if (name.empty()) {
    s = nullptr;
    return;
  }
  bool known = as_storage<Float8Storage>(w, s, name, [] { return std::make_shared<Float8Storage>(false); }) ||
               as_storage<MXFP8Storage>(w, s, name, [] { return std::make_shared<MXFP8Storage>(); }) ||
               as_storage<Float8BlockwiseStorage>(
                   w, s, name, [] { return std::make_shared<Float8BlockwiseStorage>(); }) ||
               as_storage<NVFP4Storage>(w, s, name, [] { return std::make_shared<NVFP4Storage>(); }) ||
               as_storage<IdentityStorage>(w, s, name, [] { return std::make_shared<IdentityStorage>(); });
  for_each_mx_format([&]<FormatId F>() {
    known |= as_storage<MxTensor<F>>(w, s, name, [] { return std::make_shared<MxTensor<F>>(); });
  });
  if (name == HybridStorage::kNames.tensor) hybrid_storage(w, s);
  else if (!known) cannot_travel(name);
  w(s->dtype, s->is_tensor, s->amax_reduction_group, s->init_value);
}

void wire(Wire& w, AmaxReduction& r) { w(r.enabled, r.group, r.local); }
void wire(Wire& w, Usages& u) { w(u.rowwise, u.columnwise); }
void wire(Wire& w, Warning& warning) { w(warning.category, warning.text); }

}  // namespace assay::training
