// MXFP8 (TE tensor/storage/mxfp8_tensor_storage.py).
#include "training/formats/parts.h"
#include "training/formats/shapes.h"

namespace assay::training {

namespace {

using std::string;

[[noreturn]] void fail(const string& what) { throw SemanticError(ErrorClass::runtime_error, what); }

}  // namespace

Dims MXFP8Storage::size() const {
  if (rowwise_data) return rowwise_data->shape;
  if (columnwise_data) return columnwise_data->shape;
  throw SemanticError(ErrorClass::attribute_error, "size: expected an MXFP8Tensor with data, found none left");
}

void MXFP8Storage::update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) {
  const Usages wanted{rowwise.value_or(rowwise_data != nullptr), columnwise.value_or(columnwise_data != nullptr)};
  const auto settle = [](bool keep, ArrayPtr& data, ArrayPtr& scale, const char* direction) {
    if (keep && (!data || !scale))
      fail(string("update_usage: expected an MXFP8Tensor with ") + direction + " data and scales, found none; quantize it with that usage");
    if (!keep) data = scale = nullptr;
  };
  settle(wanted.rowwise, rowwise_data, rowwise_scale_inv, "row-wise");
  settle(wanted.columnwise, columnwise_data, columnwise_scale_inv, "column-wise");
}

ArrayPtr MXFP8Storage::dequantize(Session& session, std::optional<DType> to) {
  if (!rowwise_data && !columnwise_data) fail("dequantize: expected an MXFP8Tensor with data, found none left");
  assay::Quantizer q;
  q.format = FormatId::mxfp8;
  q.element = element;
  q.block = Block::b1x32;   // square blocks repeat their scale, so that either kind reads alike
  q.scales = with_gemm_swizzled_scales ? ScaleLayout::gemm : ScaleLayout::compact;
  const bool rows = rowwise_data != nullptr;
  return dequantized(session, q, rows ? Direction::row : Direction::col, size(), to.value_or(dtype),
                     {rows ? rowwise_data : columnwise_data, rows ? rowwise_scale_inv : columnwise_scale_inv, nullptr});
}

StoragePtr MXFP8Storage::view(const Dims& shape) {
  const Dims now = size(), wanted = resolved(shape, count_of(now));
  if (wanted.empty() || wanted.back() != now.back())
    fail("view: expected a shape of an MXFP8Tensor that keeps the inner dimension of " + std::to_string(now.back()));
  auto out = another(*this);
  if (rowwise_data) out->rowwise_data = training::view(rowwise_data, wanted);
  if (columnwise_data) out->columnwise_data = training::view(columnwise_data, wanted);
  return out;
}

void MXFP8Storage::copy_from_storage(const Storage& from) {
  const auto* src = dynamic_cast<const MXFP8Storage*>(&from);
  if (!src) throw SemanticError(ErrorClass::type_error, "copy_from_storage: expected an MXFP8TensorStorage, found a " + string(from.class_name()));
  expect_same(element == src->element, "MXFP8TensorStorage", "FP8 dtype");
  expect_same(with_gemm_swizzled_scales == src->with_gemm_swizzled_scales, "MXFP8TensorStorage", "scale layout");
  copy_optional(src->rowwise_data, rowwise_data);
  copy_optional(src->columnwise_data, columnwise_data);
  copy_optional(src->rowwise_scale_inv, rowwise_scale_inv);
  copy_optional(src->columnwise_scale_inv, columnwise_scale_inv);
}

std::vector<string> MXFP8Storage::fsdp_buffer_fields() const {
  std::vector<string> out;
  if (rowwise_data) out.insert(out.end(), {"_rowwise_data", "_rowwise_scale_inv"});
  if (columnwise_data) out.insert(out.end(), {"_columnwise_data", "_columnwise_scale_inv"});
  return out;
}

// Padding at the end of every shard's scales would land between the shards: rows beyond the real ones stay behind, padding of dim 1 goes along.
Extracted MXFP8Storage::fsdp_extract_buffers() {
  if (with_gemm_swizzled_scales)
    throw SemanticError(ErrorClass::not_implemented_error,
                        "fsdp: expected compact scales of an MXFP8Tensor, found swizzled ones; clear optimize_for_gemm of its quantizer");
  const int64_t rows = flattened(size()).rows;
  Extracted out = Storage::fsdp_extract_buffers();
  size_t i = 0;
  if (rowwise_data) out.buffers[i + 1] = first_rows(rowwise_scale_inv, rows), i += 2;
  if (columnwise_data) out.buffers[i + 1] = first_rows(columnwise_scale_inv, ceil_div(rows, 32));
  return out;
}

void MXFP8Storage::fsdp_assign_gathered(const std::vector<ArrayPtr>& buffers, const json::Value& meta) {
  std::vector<ArrayPtr> whole = buffers;
  const json::Value* names = meta.find("field_names");
  for (size_t i = 0; names && names->array() && i < names->array()->size() && i < whole.size(); ++i) {
    const string* name = (*names->array())[i].string();
    const int64_t grain = !name ? 0 : *name == "_rowwise_scale_inv" ? 128 : *name == "_columnwise_scale_inv" ? 4 : 0;
    if (grain && whole[i] && whole[i]->shape[0] % grain != 0) whole[i] = padded_with_zeros(whole[i], {round_up(whole[i]->shape[0], grain), whole[i]->shape[1]});
  }
  Storage::fsdp_assign_gathered(whole, meta);
}

}  // namespace assay::training
