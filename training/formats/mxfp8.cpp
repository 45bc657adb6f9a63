// MXFP8 (TE tensor/storage/mxfp8_tensor_storage.py, tensor/mxfp8_tensor.py).
#include "training/formats/mxfp8.h"

#include "training/formats/describe.h"
#include "training/formats/partial_blocks.h"
#include "training/formats/parts.h"
#include "training/formats/shapes.h"

namespace assay::training {

using std::string;

// MXFP8Quantizer

json::Value MXFP8Quantizer::describe() const {
  return described(*this, {{"dtype", shown_dtype(dtype)}, {"with_2d_quantization", with_2d_quantization}});
}

bool MXFP8Quantizer::is_quantizable(const Dims& shape) const { return multiples_of(shape, 32); }

std::optional<assay::Quantizer> MXFP8Quantizer::line(Direction) const {
  assay::Quantizer q;
  q.format = FormatId::mxfp8;
  q.element = dtype;
  q.block = with_2d_quantization ? Block::b32x32 : Block::b1x32;
  q.scales = optimize_for_gemm ? ScaleLayout::gemm : ScaleLayout::compact;
  return q;
}

void MXFP8Quantizer::fill(Session& session, const ArrayPtr& x, MXFP8Storage& s, std::optional<F32Bits> noop) {
  if (is_for_stand_ins(session, *x, 32, noop)) {
    MXFP8Storage padded;
    return fill_from_padded(session, *this, x, 32, s, padded, [&](const ArrayPtr& whole) {
      kernels::fill_blocks(session, *this, whole, padded, std::nullopt);
    });
  }
  if (!multiples_of(x->shape, 32))
    kernels::fail(
        ErrorClass::runtime_error, *this,
        "expected multiples of 32 rows and columns, found " + kernels::text(x->shape) + "; pad the tensor");
  kernels::fill_blocks(session, *this, x, s, noop);
}

// MXFP8Storage

Dims MXFP8Storage::size() const {
  if (rowwise_data) return rowwise_data->shape;
  if (columnwise_data) return columnwise_data->shape;
  nothing_left(ErrorClass::attribute_error, "size");
}

void MXFP8Storage::update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) {
  const Usages wanted = BlockScaledStorage::wanted(rowwise, columnwise);
  const auto settle = [](bool keep, ArrayPtr& data, ArrayPtr& scale, const char* direction) {
    if (keep && (!data || !scale))
      raise_runtime_error(string("update_usage: expected an MXFP8Tensor with ") + direction +
                          " data and scales, found none; quantize it with that usage");
    if (!keep) data = scale = nullptr;
  };
  settle(wanted.rowwise, rowwise_data, rowwise_scale_inv, "row-wise");
  settle(wanted.columnwise, columnwise_data, columnwise_scale_inv, "column-wise");
}

ArrayPtr MXFP8Storage::dequantize(Session& session, std::optional<DType> to) {
  if (!rowwise_data && !columnwise_data) nothing_left(ErrorClass::runtime_error, "dequantize");
  assay::Quantizer q;
  q.format = FormatId::mxfp8;
  q.element = element;
  q.block = Block::b1x32;  // square blocks repeat their scale, so that either kind reads alike
  q.scales = with_gemm_swizzled_scales ? ScaleLayout::gemm : ScaleLayout::compact;
  return decoded(session, q, rowwise_data ? Direction::row : Direction::col, to);
}

StoragePtr MXFP8Storage::view(const Dims& shape) {
  const Dims now = size(), wanted = resolved(shape, count_of(now));
  if (wanted.empty() || wanted.back() != now.back())
    raise_runtime_error("view: expected a shape of an MXFP8Tensor that keeps the inner dimension of " +
                        std::to_string(now.back()));
  auto out = another(*this);
  if (rowwise_data) out->rowwise_data = training::view(rowwise_data, wanted);
  if (columnwise_data) out->columnwise_data = training::view(columnwise_data, wanted);
  return out;
}

void MXFP8Storage::expect_same_settings(const Storage& from) const {
  const auto& other = static_cast<const MXFP8Storage&>(from);
  expect_same(element == other.element, kNames.light, "FP8 dtype");
  expect_same(with_gemm_swizzled_scales == other.with_gemm_swizzled_scales, kNames.light, "scale layout");
}

// Padding at the end of every shard's scales would land between the shards: rows beyond the real ones stay
// behind, padding of dim 1 goes along.
Extracted MXFP8Storage::fsdp_extract_buffers() {
  if (with_gemm_swizzled_scales)
    throw SemanticError(ErrorClass::not_implemented_error,
                        "fsdp: expected compact scales of an MXFP8Tensor, found swizzled ones; clear "
                        "optimize_for_gemm of its quantizer");
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
    const int64_t grain = !name                              ? 0
                          : *name == "_rowwise_scale_inv"    ? 128
                          : *name == "_columnwise_scale_inv" ? 4
                                                             : 0;
    if (grain && whole[i] && whole[i]->shape[0] % grain != 0)
      whole[i] = padded_with_zeros(whole[i], {round_up(whole[i]->shape[0], grain), whole[i]->shape[1]});
  }
  Storage::fsdp_assign_gathered(whole, meta);
}

}  // namespace assay::training
