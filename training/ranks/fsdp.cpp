#include "training/ranks/fsdp.h"

#include "training/formats/formats.h"
#include "training/formats/parts.h"

namespace assay::training {

namespace {

using std::string;

bool own_columns(const Storage& shard) { return shard.quantizer && shard.quantizer->columnwise_usage; }

Usages usages_of(const Storage& shard, const std::optional<ParamGroup>& group) {
  if (!group)
    fail(ErrorClass::runtime_error,
         "fsdp: expected a module with a parameter group, found none, and so no reshard_after_forward");
  const bool backward = group->state == TrainingState::pre_backward;
  if (group->reshard_after_forward) return {!backward, backward};
  return {true, own_columns(shard)};
}

FsdpSent before(const Float8Storage& s, const std::optional<ParamGroup>& group) {
  FsdpSent out;
  out.usages = usages_of(s, group);
  out.buffers = {s.data};
  out.scale_inv = s.scale_inv;
  return out;
}

FsdpSent before(const MXFP8Storage& s, const std::optional<ParamGroup>& group) {
  FsdpSent out;
  out.usages = usages_of(s, group);
  if (s.with_gemm_swizzled_scales)
    fail(ErrorClass::not_implemented_error,
         "fsdp: expected compact scales of an MXFP8Tensor, found swizzled ones; clear optimize_for_gemm of "
         "its quantizer");
  const int64_t rows = flattened(s.size()).rows;
  const auto cut = [](const ArrayPtr& scale, int64_t n) { return scale ? first_rows(scale, n) : nullptr; };
  if (out.usages.rowwise) out.buffers = {s.rowwise_data, cut(s.rowwise_scale_inv, rows)};
  if (out.usages.columnwise)
    out.buffers.insert(out.buffers.end(), {s.columnwise_data, cut(s.columnwise_scale_inv, rows / 32)});
  return out;
}

FsdpSent before(const Float8BlockwiseStorage& s, const std::optional<ParamGroup>& group) {
  if (!s.is_2d)
    fail(ErrorClass::not_implemented_error,
         "fsdp: expected 2D blocks of a Float8BlockwiseQTensor, found vectors, whose scales have the rows in "
         "their last dimension");
  if (!s.rowwise_data || !s.rowwise_scale_inv)
    fail(ErrorClass::runtime_error,
         "fsdp: expected rowwise data of a Float8BlockwiseQTensor with 2D blocks, found none");
  FsdpSent out;
  out.usages = usages_of(s, group);
  out.buffers = {s.rowwise_data, s.rowwise_scale_inv};
  return out;
}

FsdpSent before(NVFP4Storage& s, const GroupPtr& mesh) {
  if (s.with_gemm_swizzled_scales)
    fail(ErrorClass::not_implemented_error,
         "fsdp: expected compact scales of an NVFP4Tensor, found swizzled ones");
  if (mesh) note_fsdp_group(s, mesh);
  const int64_t rows = flattened(s.size()).rows;
  if (rows % 16 != 0)
    fail(ErrorClass::assertion_error,
         "fsdp: expected a shard of an NVFP4Tensor whose rows are a multiple of 16, found " +
             std::to_string(rows));
  if (!s.rowwise_data)
    fail(ErrorClass::assertion_error,
         "fsdp: expected rowwise data of an NVFP4Tensor, found none; keep the rows");
  if (own_columns(s)) {
    const auto line = s.quantizer->line(Direction::row);
    if (!line || !is_square(line->block))
      fail(ErrorClass::assertion_error,
           "fsdp: expected an NVFP4 quantizer with 2D blocks, from which columnwise data is made, found 1D "
           "ones");
  }
  FsdpSent out;
  out.usages = {true, own_columns(s)};
  out.buffers = {s.rowwise_data, s.rowwise_scale_inv ? slice(s.rowwise_scale_inv, 0, 0, rows) : nullptr};
  out.amax_rowwise = s.amax_rowwise;
  out.amax_columnwise = s.amax_columnwise;
  return out;
}

// The object to write: `out`, or a new one without buffers that keeps a copy of the shard's quantizer.
template <class S> std::shared_ptr<S> target(S& shard, const StoragePtr& out, DType parameter) {
  if (out) return std::dynamic_pointer_cast<S>(out);
  auto made = std::dynamic_pointer_cast<S>(shard.make_like());
  made->prepare_for_saving();
  made->dtype = parameter;
  return made;
}

StoragePtr after(Float8Storage& shard, const FsdpSent& sent, const std::vector<ArrayPtr>& gathered,
                 DType parameter, const StoragePtr& out) {
  const auto to = target(shard, out, parameter);
  if (!out) {
    to->scale_inv = sent.scale_inv;
    to->transpose_invalid = true;
  }
  to->data = gathered.at(0);
  to->quantizer->set_usage(sent.usages.rowwise, sent.usages.columnwise);
  to->update_usage(sent.usages.rowwise, sent.usages.columnwise);
  return to;
}

ArrayPtr padded_rows(const ArrayPtr& scale, int64_t grain) {
  return padded_with_zeros(scale, {round_up(scale->shape[0], grain), scale->shape[1]});
}

StoragePtr after(MXFP8Storage& shard, const FsdpSent& sent, const std::vector<ArrayPtr>& gathered,
                 DType parameter, const StoragePtr& out) {
  const auto to = target(shard, out, parameter);
  to->prepare_for_saving();  // what is not gathered now is absent
  if (sent.usages.rowwise) {
    to->rowwise_data = gathered.at(0);
    to->rowwise_scale_inv = padded_rows(gathered.at(1), 128);
  }
  if (sent.usages.columnwise) {
    to->columnwise_data = gathered.at(gathered.size() - 2);
    to->columnwise_scale_inv = padded_rows(gathered.back(), 4);
  }
  to->quantizer->set_usage(sent.usages.rowwise, sent.usages.columnwise);
  return to;
}

// Columns that are there are stale: they are made from the rows that have just come.
template <class S> void derive_columns(S& s) {
  s.columnwise_data = s.columnwise_scale_inv = nullptr;
  s.update_usage(true, true);
}

StoragePtr after(Float8BlockwiseStorage& shard, const FsdpSent& sent, const std::vector<ArrayPtr>& gathered,
                 DType parameter, const StoragePtr& out) {
  const auto to = target(shard, out, parameter);
  to->rowwise_data = gathered.at(0);
  to->rowwise_scale_inv = gathered.at(1);
  if (sent.usages.columnwise) derive_columns(*to);
  to->update_usage(sent.usages.rowwise, sent.usages.columnwise);
  to->quantizer->set_usage(sent.usages.rowwise, sent.usages.columnwise);
  return to;
}

StoragePtr after(NVFP4Storage& shard, const FsdpSent& sent, const std::vector<ArrayPtr>& gathered,
                 DType parameter, const StoragePtr& out) {
  const auto to = target(shard, out, parameter);
  to->rowwise_data = gathered.at(0);
  to->rowwise_scale_inv = padded_rows(gathered.at(1), 128);
  to->amax_rowwise = sent.amax_rowwise;
  to->amax_columnwise = sent.amax_columnwise;
  if (sent.usages.columnwise) derive_columns(*to);
  to->quantizer->set_usage(true, sent.usages.columnwise);
  return to;
}

}  // namespace

FsdpSent fsdp_pre_all_gather(Storage& shard, const GroupPtr& mesh, const std::optional<ParamGroup>& group) {
  if (auto* hybrid = storage_as<HybridStorage>(shard)) {
    FsdpSent out;
    out.hybrid = fsdp_pre_all_gather(*hybrid, mesh);
    out.buffers = out.hybrid.buffers;
    if (shard.quantizer) out.usages = shard.quantizer->usages();
    return out;
  }
  if (auto* fp4 = storage_as<NVFP4Storage>(shard)) return before(*fp4, mesh);
  if (mesh) note_fsdp_group(shard, mesh);
  if (auto* fp8 = storage_as<Float8Storage>(shard)) return before(*fp8, group);
  if (auto* mx = storage_as<MXFP8Storage>(shard)) return before(*mx, group);
  if (auto* block = storage_as<Float8BlockwiseStorage>(shard)) return before(*block, group);
  FsdpSent out;
  out.buffers = shard.fsdp_extract_buffers().buffers;
  out.usages = shard.quantizer ? shard.quantizer->usages() : Usages{true, true};
  return out;
}

StoragePtr fsdp_post_all_gather(Storage& shard, const FsdpSent& sent, const std::vector<ArrayPtr>& gathered,
                                DType parameter, const StoragePtr& out) {
  if (auto* hybrid = storage_as<HybridStorage>(shard)) {
    const auto made =
        fsdp_post_all_gather(*hybrid, sent.hybrid, gathered, std::dynamic_pointer_cast<HybridStorage>(out));
    if (!out) made->dtype = parameter;
    return made;
  }
  if (auto* identity = storage_as<IdentityStorage>(shard))
    return fsdp_post_all_gather(*identity, gathered, parameter,
                                std::dynamic_pointer_cast<IdentityStorage>(out));
  if (auto* fp8 = storage_as<Float8Storage>(shard)) return after(*fp8, sent, gathered, parameter, out);
  if (auto* mx = storage_as<MXFP8Storage>(shard)) return after(*mx, sent, gathered, parameter, out);
  if (auto* block = storage_as<Float8BlockwiseStorage>(shard))
    return after(*block, sent, gathered, parameter, out);
  return after(dynamic_cast<NVFP4Storage&>(shard), sent, gathered, parameter, out);
}

void clear_columns(Storage& weight) {
  if (auto* fp8 = storage_as<Float8Storage>(weight)) {
    fp8->transpose = nullptr;
    fp8->transpose_invalid = true;
  }
  if (auto* blocks = storage_as<BlockScaledStorage>(weight))
    blocks->columnwise_data = blocks->columnwise_scale_inv = nullptr;
}

}  // namespace assay::training
