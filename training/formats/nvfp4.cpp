// NVFP4 (TE tensor/storage/nvfp4_tensor_storage.py).
#include <utility>

#include "training/formats/parts.h"
#include "training/formats/shapes.h"

namespace assay::training {

namespace {

using std::string;

constexpr int64_t kBlock = 16;

[[noreturn]] void fail(const string& what) { throw SemanticError(ErrorClass::runtime_error, what); }

assay::Quantizer settings(const NVFP4Storage& s) {
  assay::Quantizer q;
  q.format = FormatId::nvfp4;
  q.element = s.element;
  q.block = Block::b1x16;   // square blocks repeat their scale, so that either kind reads alike
  q.row_scaled = s.row_scaled;
  q.four_over_six = s.use_4over6 ? FourOverSix::mae : FourOverSix::off;   // which error chose a scale does not show in it
  q.e4m3_max = s.e4m3_max == 256 ? E4m3Max::m256 : E4m3Max::m448;
  return q;
}

// Packed codes [rows, cols] turned to [cols, rows]: the code of even index is in the low half of a byte.
ArrayPtr swapped_codes(const ArrayPtr& packed_rows, int64_t rows, int64_t cols) {
  const ArrayPtr from = contiguous(packed_rows), out = zeros({cols, rows / 2}, DType::uint8);
  const auto codes = std::as_const(*from).bytes();
  const auto to = out->bytes();
  const auto at = [](int64_t byte) { return static_cast<size_t>(byte); };
  for (int64_t r = 0; r < rows / 2 * 2; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      const std::byte code = codes[at(r * (cols / 2) + c / 2)] >> (c % 2 ? 4 : 0) & std::byte{0xF};
      to[at(c * (rows / 2) + r / 2)] |= code << (r % 2 ? 4 : 0);
    }
  return out;
}

// Scales of 16 x 16 tiles, repeated for the 16 rows of a tile, as columns have them: column c takes of each tile row the scale of its own tile.
void swap_tile_scales(const Array& rows, Array& columns, Shape matrix) {
  const auto from = rows.bytes();
  const auto to = columns.bytes();
  for (int64_t c = 0; c < matrix.cols; ++c)
    for (int64_t tile = 0; tile < ceil_div(matrix.rows, kBlock); ++tile)
      to[static_cast<size_t>(c * columns.shape[1] + tile)] = from[static_cast<size_t>(tile * kBlock * rows.shape[1] + c / kBlock)];
}

}  // namespace

std::vector<Field> NVFP4Storage::fields() {
  std::vector<Field> out = BlockScaledStorage::fields();
  out.push_back({"_amax_rowwise", &amax_rowwise});
  out.push_back({"_amax_columnwise", &amax_columnwise});
  return out;
}

Usages NVFP4Storage::get_usages() const {
  if (!is_tensor) throw SemanticError(ErrorClass::not_implemented_error, "get_usages: expected an NVFP4Tensor, found the light storage, which does not answer");
  return present();
}

Dims NVFP4Storage::size() const {
  if (!rowwise_data && !columnwise_data) fail("size: expected an NVFP4Tensor with data, found none left");
  Dims codes = (rowwise_data ? rowwise_data : columnwise_data)->shape;
  if (!codes.empty()) codes.back() *= 2;
  return rowwise_data ? codes : turned_back(codes);
}

void NVFP4Storage::update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) {
  const Usages wanted{rowwise.value_or(rowwise_data != nullptr), columnwise.value_or(columnwise_data != nullptr)};
  const bool has_rows = rowwise_data && rowwise_scale_inv && amax_rowwise;
  if (wanted.rowwise && wanted.columnwise) {
    if (!has_rows) fail("update_usage: expected rowwise data, scales and amax of an NVFP4Tensor that shall be columnwise too, found one missing");
    if (!columnwise_data || !columnwise_scale_inv) {
      const auto line = quantizer ? quantizer->line(Direction::row) : std::nullopt;
      if (!line || !is_square(line->block))
        fail("update_usage: expected columnwise data of an NVFP4Tensor, or a quantizer of square blocks to make them with, found neither");
      create_columnwise();
    }
    if (!amax_columnwise) fail("update_usage: expected the columnwise amax of an NVFP4Tensor, found none");
    return;
  }
  const auto settle = [](bool keep, std::initializer_list<ArrayPtr*> buffers, const char* direction) {
    for (ArrayPtr* b : buffers) {
      if (keep && !*b)
        fail(string("update_usage: expected an NVFP4Tensor with ") + direction + " data, scales and amax, found one missing; quantize it with that usage");
      if (!keep) *b = nullptr;
    }
  };
  settle(wanted.rowwise, {&rowwise_data, &rowwise_scale_inv, &amax_rowwise}, "row-wise");
  settle(wanted.columnwise, {&columnwise_data, &columnwise_scale_inv, &amax_columnwise}, "column-wise");
}

void NVFP4Storage::create_columnwise() {
  const Dims logical = size();
  const Shape matrix = flattened(logical);
  const ArrayPtr codes = swapped_codes(rowwise_data, matrix.rows, matrix.cols);
  if (columnwise_data && columnwise_data->shape == codes->shape) copy_into(*codes, *columnwise_data);
  else columnwise_data = codes;
  if (!columnwise_scale_inv) columnwise_scale_inv = zeros(scale_shape(settings(*this), logical, Direction::col), DType::uint8);
  swap_tile_scales(*contiguous(rowwise_scale_inv), *columnwise_scale_inv, matrix);
  if (amax_columnwise) copy_into(*amax_rowwise, *amax_columnwise);
  else amax_columnwise = clone(amax_rowwise);
}

ArrayPtr NVFP4Storage::dequantize(Session& session, std::optional<DType> to) {
  if (!rowwise_data && columnwise_data)
    throw SemanticError(ErrorClass::not_implemented_error,
                        "dequantize: expected row-wise data of an NVFP4Tensor, found only column-wise ones, which the original cannot dequantize; keep the rows");
  if (!rowwise_data) throw SemanticError(ErrorClass::value_error, "dequantize: expected an NVFP4Tensor with data, found none left");
  assay::Quantizer q = settings(*this);
  q.scales = with_gemm_swizzled_scales ? ScaleLayout::gemm : ScaleLayout::compact;
  return dequantized(session, q, Direction::row, size(), to.value_or(dtype), {rowwise_data, rowwise_scale_inv, amax_rowwise});
}

StoragePtr NVFP4Storage::view(const Dims& shape) {
  const Dims now = size();
  if (shape == now) return make_like();
  const Dims wanted = resolved(shape, count_of(now));
  if (wanted.empty() || wanted.back() != now.back())
    fail("view: expected a shape of an NVFP4Tensor that keeps the inner dimension of " + std::to_string(now.back()));
  auto out = another(*this);
  const Shape matrix = flattened(wanted);
  if (rowwise_data) out->rowwise_data = training::view(rowwise_data, packed(wanted));
  if (columnwise_data) out->columnwise_data = training::view(columnwise_data, {matrix.cols, matrix.rows / 2});   // columns know no leading dimensions
  return out;
}

void NVFP4Storage::copy_from_storage(const Storage& from) {
  const auto* src = dynamic_cast<const NVFP4Storage*>(&from);
  if (!src) throw SemanticError(ErrorClass::type_error, "copy_from_storage: expected an NVFP4TensorStorage, found a " + string(from.class_name()));
  expect_same(element == src->element, "NVFP4TensorStorage", "FP4 dtype");
  expect_same(with_gemm_swizzled_scales == src->with_gemm_swizzled_scales, "NVFP4TensorStorage", "scale layout");
  expect_same(row_scaled == src->row_scaled, "NVFP4TensorStorage", "kind of tensor scale");
  expect_same(use_4over6 == src->use_4over6 && e4m3_max == src->e4m3_max, "NVFP4TensorStorage", "four-over-six setting");
  copy_optional(src->rowwise_data, rowwise_data);
  copy_optional(src->columnwise_data, columnwise_data);
  copy_optional(src->rowwise_scale_inv, rowwise_scale_inv);
  copy_optional(src->columnwise_scale_inv, columnwise_scale_inv);
  copy_optional(src->amax_rowwise, amax_rowwise);
  copy_optional(src->amax_columnwise, amax_columnwise);
}

std::vector<string> NVFP4Storage::fsdp_buffer_fields() const {
  throw SemanticError(ErrorClass::not_implemented_error,
                      "fsdp: expected a format that gathers its shards, found NVFP4 inside another storage, which no gather supports");
}

}  // namespace assay::training
