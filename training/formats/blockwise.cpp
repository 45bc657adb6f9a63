// Blockwise FP8 (TE tensor/storage/float8_blockwise_tensor_storage.py, tensor/float8_blockwise_tensor.py).
#include <algorithm>

#include "training/formats/parts.h"
#include "training/formats/shapes.h"

namespace assay::training {

namespace {

using std::string;

constexpr int64_t kTile = 128;

[[noreturn]] void fail(const string& what) { throw SemanticError(ErrorClass::runtime_error, what); }

assay::Quantizer settings(const Float8BlockwiseStorage& s) {
  assay::Quantizer q;
  q.format = FormatId::fp8_block;
  q.element = s.element;
  q.block = s.is_2d ? Block::b128x128 : Block::b1x128;
  return q;
}

}  // namespace

Dims Float8BlockwiseStorage::size() const {
  if (rowwise_data) return rowwise_data->shape;
  if (columnwise_data) return turned_back(columnwise_data->shape);
  throw SemanticError(ErrorClass::attribute_error, "size: expected a Float8BlockwiseQTensor with data, found none left");
}

void Float8BlockwiseStorage::update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) {
  const Usages wanted{rowwise.value_or(rowwise_data != nullptr), columnwise.value_or(columnwise_data != nullptr)};
  const auto expect = [](bool holds, const string& what) {
    if (!holds) throw SemanticError(ErrorClass::assertion_error, "update_usage: " + what + "; quantize it with that usage");
  };
  expect(wanted.rowwise || wanted.columnwise, "expected a Float8BlockwiseQTensor to keep rowwise or columnwise data, found neither wanted");
  const bool has_rows = rowwise_data && rowwise_scale_inv;
  if (wanted.rowwise && wanted.columnwise) {
    if (is_2d && has_rows && !(columnwise_data && columnwise_scale_inv)) create_columnwise();   // square blocks share their scales between directions
    expect(has_rows && columnwise_data && columnwise_scale_inv, "expected both rowwise and columnwise data of a Float8BlockwiseQTensor, found one missing");
  } else if (wanted.rowwise) {
    expect(has_rows, "expected rowwise data and scales of a Float8BlockwiseQTensor, found them missing");
    columnwise_data = columnwise_scale_inv = nullptr;
  } else {
    expect(columnwise_data && columnwise_scale_inv, "expected columnwise data and scales of a Float8BlockwiseQTensor, found them missing");
    rowwise_data = rowwise_scale_inv = nullptr;
  }
}

void Float8BlockwiseStorage::create_columnwise() {
  if (!columnwise_scale_inv && !quantizer)
    throw SemanticError(ErrorClass::assertion_error, "update_usage: expected the quantizer of a Float8BlockwiseQTensor, which shapes its scales, found none");
  const ArrayPtr made = last_to_front(rowwise_data);
  if (columnwise_data && columnwise_data->shape == made->shape) copy_into(*made, *columnwise_data);
  else columnwise_data = made;
  const ArrayPtr tiles = swapped(rowwise_scale_inv);
  if (!columnwise_scale_inv) {
    columnwise_scale_inv = padded_with_zeros(tiles, scale_shape(settings(*this), rowwise_data->shape, Direction::col));
    return;
  }
  const int64_t rows = std::min(tiles->shape[0], columnwise_scale_inv->shape[0]), cols = std::min(tiles->shape[1], columnwise_scale_inv->shape[1]);
  copy_into(*slice(slice(tiles, 0, 0, rows), 1, 0, cols), *slice(slice(columnwise_scale_inv, 0, 0, rows), 1, 0, cols));
}

ArrayPtr Float8BlockwiseStorage::dequantize(Session& session, std::optional<DType> to) {
  if (!rowwise_data && !columnwise_data)
    throw SemanticError(ErrorClass::assertion_error, "dequantize: expected a Float8BlockwiseQTensor with data, found none left");
  const bool rows = rowwise_data != nullptr;
  return dequantized(session, settings(*this), rows ? Direction::row : Direction::col, size(), to.value_or(dtype),
                     {rows ? rowwise_data : columnwise_data, rows ? rowwise_scale_inv : columnwise_scale_inv, nullptr});
}

StoragePtr Float8BlockwiseStorage::view(const Dims& shape) {
  const Dims now = size(), wanted = resolved(shape, count_of(now));
  const size_t kept = is_2d ? std::min<size_t>(2, now.size()) : 1;   // tiles cover the last two dimensions
  if (wanted.size() < kept || !std::equal(now.end() - static_cast<std::ptrdiff_t>(kept), now.end(), wanted.end() - static_cast<std::ptrdiff_t>(kept)))
    fail("view: expected a shape of a Float8BlockwiseQTensor that keeps the last " + std::to_string(kept) + " dimensions, found another");
  auto out = another(*this);
  if (rowwise_data) out->rowwise_data = training::view(rowwise_data, wanted);
  if (columnwise_data) out->columnwise_data = training::view(columnwise_data, turned(wanted));
  return out;
}

void Float8BlockwiseStorage::copy_from_storage(const Storage& from) {
  const auto* src = dynamic_cast<const Float8BlockwiseStorage*>(&from);
  if (!src) throw SemanticError(ErrorClass::type_error, "copy_from_storage: expected a Float8BlockwiseQTensorStorage, found a " + string(from.class_name()));
  expect_same(element == src->element, "Float8BlockwiseQTensorStorage", "FP8 dtype");
  expect_same(is_2d == src->is_2d, "Float8BlockwiseQTensorStorage", "kind of blocks");
  copy_optional(src->rowwise_data, rowwise_data);
  copy_optional(src->columnwise_data, columnwise_data);
  copy_optional(src->rowwise_scale_inv, rowwise_scale_inv);
  copy_optional(src->columnwise_scale_inv, columnwise_scale_inv);
}

// All four where both directions exist, although only the rows are sent then: the original's two lists disagree.
std::vector<string> Float8BlockwiseStorage::fsdp_buffer_fields() const {
  if (!is_2d)
    throw SemanticError(ErrorClass::not_implemented_error, "fsdp: expected square blocks, found a Float8BlockwiseQTensor of vectors, which no gather supports");
  std::vector<string> out;
  if (rowwise_data) out.insert(out.end(), {"_rowwise_data", "_rowwise_scale_inv"});
  if (columnwise_data) out.insert(out.end(), {"_columnwise_data", "_columnwise_scale_inv"});
  return out;
}

// One direction, the rows where they exist: payload [M, K] and scales [M / 128, K tiles] without padding, so that shards concatenate along dim 0.
// Columns [K, M] come with their last dimension in front; of more dimensions than two that is no longer the rows' shape, as in the original.
Extracted Float8BlockwiseStorage::fsdp_extract_buffers() {
  const std::vector<string> names = fsdp_buffer_fields();
  const bool rows = rowwise_data != nullptr;
  const ArrayPtr& data = rows ? rowwise_data : columnwise_data;
  const ArrayPtr& scale = rows ? rowwise_scale_inv : columnwise_scale_inv;
  if (!data || !scale) fail("fsdp: expected data and scales of one direction of a Float8BlockwiseQTensor, found a buffer missing");
  const Shape matrix = flattened(size());
  if (matrix.rows % kTile != 0)
    fail("fsdp: expected a shard whose row count is a multiple of 128, found " + std::to_string(matrix.rows) + "; choose another shard count");
  const ArrayPtr tiles = rows ? scale : swapped(scale);
  Extracted out;
  out.buffers = {rows ? data : last_to_front(data), slice(slice(tiles, 0, 0, matrix.rows / kTile), 1, 0, ceil_div(matrix.cols, kTile))};
  out.meta = json::object({{"direction", rows ? "rowwise" : "columnwise"}, {"field_names", names_as_json(names)}});
  return out;
}

void Float8BlockwiseStorage::fsdp_assign_gathered(const std::vector<ArrayPtr>& buffers, const json::Value& meta) {
  if (buffers.size() != 2)
    throw SemanticError(ErrorClass::value_error,
                        "fsdp: expected gathered data and scales of a Float8BlockwiseQTensor, found " + std::to_string(buffers.size()) + " buffers");
  const ArrayPtr &data = buffers[0], &scale = buffers[1];
  if (!data || !scale) fail("fsdp: expected gathered data and scales of a Float8BlockwiseQTensor, found one missing");
  const Shape matrix = flattened(data->shape), tiles{ceil_div(matrix.rows, kTile), ceil_div(matrix.cols, kTile)};
  if (matrix.rows % kTile != 0 || scale->shape != Dims{tiles.rows, tiles.cols})
    fail("fsdp: expected " + std::to_string(tiles.rows) + " x " + std::to_string(tiles.cols) + " gathered scales for " + std::to_string(matrix.rows) +
         " rows, a multiple of 128, found another geometry");
  if (meta.text("direction") == "rowwise") {
    rowwise_data = data;
    rowwise_scale_inv = padded_with_zeros(scale, {tiles.rows, round_up(tiles.cols, 4)});
  } else {
    columnwise_data = front_to_last(data);
    columnwise_scale_inv = padded_with_zeros(swapped(scale), {tiles.cols, round_up(tiles.rows, 4)});
  }
}

}  // namespace assay::training
