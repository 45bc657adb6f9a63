// The formats of the MX family that users bring.
#include "training/formats/mx.h"

#include <string>

#include "training/formats/parts.h"
#include "training/formats/shapes.h"

namespace assay::training {

using std::string;

assay::Quantizer MxSettings::line() const {
  assay::Quantizer q;
  q.format = format;
  q.element = dtype;
  q.block = info(format).block;
  if (has_several(info(format).packings)) q.packing = packing;
  return q;
}

Dims MxStorage::size() const {
  if (!rowwise_data && !columnwise_data) nothing_left(ErrorClass::attribute_error, "size");
  Dims shape = (rowwise_data ? rowwise_data : columnwise_data)->shape;
  if (is_packed(settings.line()) && !shape.empty())
    shape.back() = shape.back() * 8 / info(settings.dtype).bits;
  const bool transposed = info(settings.format).column_data == ColumnData::transposed;
  return rowwise_data || !transposed ? shape : turned_back(shape);
}

void MxStorage::update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) {
  const Usages wanted = BlockScaledStorage::wanted(rowwise, columnwise);
  const auto expect = [&](bool keep, const ArrayPtr& data, const ArrayPtr& scale, const char* direction) {
    if (keep && (!data || !scale))
      raise_runtime_error("update_usage: expected " + with_article(names().tensor) + " with " + direction +
                          " data and scales, found none; quantize it with that usage");
  };
  expect(wanted.rowwise, rowwise_data, rowwise_scale_inv, "row-wise");
  expect(wanted.columnwise, columnwise_data, columnwise_scale_inv, "column-wise");
  if (!wanted.rowwise) rowwise_data = rowwise_scale_inv = nullptr;
  if (!wanted.columnwise) columnwise_data = columnwise_scale_inv = nullptr;
}

ArrayPtr MxStorage::dequantize(Session& session, std::optional<DType> to) {
  if (!rowwise_data && !columnwise_data) nothing_left(ErrorClass::runtime_error, "dequantize");
  return decoded(session, settings.line(), rowwise_data ? Direction::row : Direction::col, to);
}

StoragePtr MxStorage::view(const Dims& shape) {
  const Dims now = size(), wanted = resolved(shape, count_of(now));
  if (wanted.empty() || wanted.back() != now.back())
    raise_runtime_error("view: expected a shape of " + with_article(names().tensor) +
                        " that keeps the inner dimension of " + std::to_string(now.back()) +
                        ", along which its codes share scales, found another; dequantize it first");
  const StoragePtr out = make_like();
  auto& mx = static_cast<MxStorage&>(*out);
  const assay::Quantizer line = settings.line();
  const auto stored = [&](const Dims& codes) {
    return is_packed(line) ? packed(codes, line.element) : codes;
  };
  const bool transposed = info(settings.format).column_data == ColumnData::transposed;
  if (rowwise_data) mx.rowwise_data = training::view(rowwise_data, stored(wanted));
  if (columnwise_data)
    mx.columnwise_data = training::view(columnwise_data, stored(transposed ? turned(wanted) : wanted));
  return out;
}

void MxStorage::expect_same_settings(const Storage& from) const {
  const MxSettings& other = static_cast<const MxStorage&>(from).settings;
  expect_same(settings.dtype == other.dtype, names().light, "element");
  expect_same(settings.packing == other.packing, names().light, "packing");
}

std::vector<string> MxStorage::fsdp_buffer_fields() const {
  throw SemanticError(
      ErrorClass::not_implemented_error,
      "fsdp: expected a format whose shards a gather knows, found " + with_article(class_name()) +
          " of a custom recipe; gather the weight in high precision and quantize it after that");
}

}  // namespace assay::training
