// Blockwise FP8 (TE tensor/storage/float8_blockwise_tensor_storage.py, tensor/float8_blockwise_tensor.py).
#include "training/formats/blockwise.h"

#include <algorithm>

#include "training/formats/describe.h"
#include "training/formats/parts.h"
#include "training/formats/shapes.h"

namespace assay::training {

using std::string;

namespace {

constexpr int64_t kTile = 128;

assay::Quantizer settings(const Float8BlockwiseStorage& s) {
  assay::Quantizer q;
  q.format = FormatId::fp8_block;
  q.element = s.element;
  q.block = s.is_2d ? Block::b128x128 : Block::b1x128;
  return q;
}

}  // namespace

// Float8BlockQuantizer

json::Value Float8BlockQuantizer::describe() const {
  return described(*this, {{"dtype", shown_dtype(dtype)},
                           {"amax_epsilon", shown_f32(amax_epsilon)},
                           {"block_len", block_len},
                           {"block_scaling_dim", block_scaling_dim},
                           {"force_pow_2_scales", force_pow_2_scales}});
}

bool Float8BlockQuantizer::is_quantizable(const Dims& shape) const { return multiples_of(shape, block_len); }

std::optional<assay::Quantizer> Float8BlockQuantizer::line(Direction) const {
  assay::Quantizer q;
  q.format = FormatId::fp8_block;
  q.element = dtype;
  q.block = block_scaling_dim == 2 ? Block::b128x128 : Block::b1x128;
  q.pow2 = force_pow_2_scales;
  q.eps = amax_epsilon;
  return q;
}

std::shared_ptr<Float8BlockwiseStorage> Float8BlockQuantizer::blank(const Session&) const {
  auto s = std::make_shared<Float8BlockwiseStorage>();
  s->is_2d = block_scaling_dim == 2;
  return s;
}

void Float8BlockQuantizer::fill(Session& session, const ArrayPtr& x, Float8BlockwiseStorage& s,
                                std::optional<F32Bits> noop) {
  kernels::fill_blocks(session, *this, x, s, noop);
}

// Float8BlockwiseStorage

Dims Float8BlockwiseStorage::size() const {
  if (rowwise_data) return rowwise_data->shape;
  if (columnwise_data) return turned_back(columnwise_data->shape);
  nothing_left(ErrorClass::attribute_error, "size");
}

void Float8BlockwiseStorage::update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) {
  const Usages wanted = BlockScaledStorage::wanted(rowwise, columnwise);
  const auto expect = [](bool holds, const string& what) {
    if (!holds)
      throw SemanticError(ErrorClass::assertion_error,
                          "update_usage: " + what + "; quantize it with that usage");
  };
  expect(wanted.rowwise || wanted.columnwise,
         "expected a Float8BlockwiseQTensor to keep rowwise or columnwise data, found neither wanted");
  const bool has_rows = rowwise_data && rowwise_scale_inv;
  if (wanted.rowwise && wanted.columnwise) {
    if (is_2d && has_rows && !(columnwise_data && columnwise_scale_inv))
      create_columnwise();  // square blocks share their scales between directions
    expect(has_rows && columnwise_data && columnwise_scale_inv,
           "expected both rowwise and columnwise data of a Float8BlockwiseQTensor, found one missing");
  } else if (wanted.rowwise) {
    expect(has_rows, "expected rowwise data and scales of a Float8BlockwiseQTensor, found them missing");
    columnwise_data = columnwise_scale_inv = nullptr;
  } else {
    expect(columnwise_data && columnwise_scale_inv,
           "expected columnwise data and scales of a Float8BlockwiseQTensor, found them missing");
    rowwise_data = rowwise_scale_inv = nullptr;
  }
}

void Float8BlockwiseStorage::create_columnwise() {
  if (!columnwise_scale_inv && !quantizer)
    throw SemanticError(ErrorClass::assertion_error,
                        "update_usage: expected the quantizer of a Float8BlockwiseQTensor, which shapes its "
                        "scales, found none");
  const ArrayPtr made = last_to_front(rowwise_data);
  if (columnwise_data && columnwise_data->shape == made->shape) copy_into(*made, *columnwise_data);
  else columnwise_data = made;
  const ArrayPtr tiles = swapped(rowwise_scale_inv);
  if (!columnwise_scale_inv) {
    columnwise_scale_inv =
        padded_with_zeros(tiles, scale_shape(settings(*this), rowwise_data->shape, Direction::col));
    return;
  }
  const int64_t rows = std::min(tiles->shape[0], columnwise_scale_inv->shape[0]),
                cols = std::min(tiles->shape[1], columnwise_scale_inv->shape[1]);
  copy_into(*slice(slice(tiles, 0, 0, rows), 1, 0, cols),
            *slice(slice(columnwise_scale_inv, 0, 0, rows), 1, 0, cols));
}

ArrayPtr Float8BlockwiseStorage::dequantize(Session& session, std::optional<DType> to) {
  if (!rowwise_data && !columnwise_data) nothing_left(ErrorClass::assertion_error, "dequantize");
  return decoded(session, settings(*this), rowwise_data ? Direction::row : Direction::col, to);
}

StoragePtr Float8BlockwiseStorage::view(const Dims& shape) {
  const Dims now = size(), wanted = resolved(shape, count_of(now));
  const size_t kept = is_2d ? std::min<size_t>(2, now.size()) : 1;  // tiles cover the last two dimensions
  if (wanted.size() < kept || !std::equal(now.end() - static_cast<std::ptrdiff_t>(kept), now.end(),
                                          wanted.end() - static_cast<std::ptrdiff_t>(kept)))
    raise_runtime_error("view: expected a shape of a Float8BlockwiseQTensor that keeps the last " +
                        std::to_string(kept) + " dimensions, found another");
  auto out = another(*this);
  if (rowwise_data) out->rowwise_data = training::view(rowwise_data, wanted);
  if (columnwise_data) out->columnwise_data = training::view(columnwise_data, turned(wanted));
  return out;
}

void Float8BlockwiseStorage::expect_same_settings(const Storage& from) const {
  const auto& other = static_cast<const Float8BlockwiseStorage&>(from);
  expect_same(element == other.element, kNames.light, "FP8 dtype");
  expect_same(is_2d == other.is_2d, kNames.light, "kind of blocks");
}

// All four where both directions exist, although only the rows are sent then: the original's two lists
// disagree.
std::vector<string> Float8BlockwiseStorage::fsdp_buffer_fields() const {
  if (!is_2d)
    throw SemanticError(
        ErrorClass::not_implemented_error,
        "fsdp: expected square blocks, found a Float8BlockwiseQTensor of vectors, which no gather supports");
  return BlockScaledStorage::fsdp_buffer_fields();
}

// One direction, the rows where they exist: payload [M, K] and scales [M / 128, K tiles] without padding, so
// that shards concatenate along dim 0. Columns [K, M] come with their last dimension in front; of more
// dimensions than two that is no longer the rows' shape, as in the original.
Extracted Float8BlockwiseStorage::fsdp_extract_buffers() {
  const std::vector<string> names = fsdp_buffer_fields();
  const bool rows = rowwise_data != nullptr;
  const ArrayPtr& data = rows ? rowwise_data : columnwise_data;
  const ArrayPtr& scale = rows ? rowwise_scale_inv : columnwise_scale_inv;
  if (!data || !scale)
    raise_runtime_error(
        "fsdp: expected data and scales of one direction of a Float8BlockwiseQTensor, found a buffer "
        "missing");
  const Shape matrix = flattened(size());
  if (matrix.rows % kTile != 0)
    raise_runtime_error("fsdp: expected a shard aligned to blocks, its row count a multiple of 128, found " +
                        std::to_string(matrix.rows) + "; choose another shard count");
  const ArrayPtr tiles = rows ? scale : swapped(scale);
  Extracted out;
  out.buffers = {rows ? data : last_to_front(data),
                 slice(slice(tiles, 0, 0, matrix.rows / kTile), 1, 0, ceil_div(matrix.cols, kTile))};
  out.meta =
      json::object({{"direction", rows ? "rowwise" : "columnwise"}, {"field_names", names_as_json(names)}});
  return out;
}

void Float8BlockwiseStorage::fsdp_assign_gathered(const std::vector<ArrayPtr>& buffers,
                                                  const json::Value& meta) {
  if (buffers.size() != 2)
    throw SemanticError(ErrorClass::value_error,
                        "fsdp: expected gathered data and scales of a Float8BlockwiseQTensor, found " +
                            std::to_string(buffers.size()) + " buffers");
  const ArrayPtr &data = buffers[0], &scale = buffers[1];
  if (!data || !scale)
    raise_runtime_error(
        "fsdp: expected gathered data and scales of a Float8BlockwiseQTensor, found one missing");
  const Shape matrix = flattened(data->shape),
              tiles{ceil_div(matrix.rows, kTile), ceil_div(matrix.cols, kTile)};
  if (matrix.rows % kTile != 0 || scale->shape != Dims{tiles.rows, tiles.cols})
    raise_runtime_error("fsdp: expected " + std::to_string(tiles.rows) + " x " + std::to_string(tiles.cols) +
                        " gathered scales for " + std::to_string(matrix.rows) +
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
