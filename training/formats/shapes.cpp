#include "training/formats/shapes.h"

#include <algorithm>

#include "training/base/errors.h"
#include "training/formats/identity.h"

namespace assay::training {

namespace {

// The settings of a block-scaled quantizer; both directions share what shapes depend on.
assay::Quantizer block_settings(const Quantizer& quantizer) {
  const auto line = quantizer.line(Direction::row);
  if (!line || !info(line->format).has_blocks())
    throw SemanticError(
        ErrorClass::not_implemented_error,
        "scale shapes: expected a block-scaled quantizer, found " + std::string(quantizer.class_name()));
  return *line;
}

}  // namespace

Dims turned(const Dims& shape) {
  Dims out = shape;
  if (!out.empty()) std::rotate(out.begin(), out.end() - 1, out.end());
  return out;
}

Dims turned_back(const Dims& shape) {
  Dims out = shape;
  if (!out.empty()) std::rotate(out.begin(), out.begin() + 1, out.end());
  return out;
}

bool multiples_of(const Dims& shape, int64_t n) {
  const Shape s = flattened(shape);
  return s.rows % n == 0 && s.cols % n == 0;
}

Dims packed(Dims shape, Encoding code) {
  if (!shape.empty()) shape.back() = shape.back() * info(code).bits / 8;
  return shape;
}

Dims scale_shape(const assay::Quantizer& settings, const Dims& shape, Direction direction) {
  Shape matrix = flattened(shape);
  if (settings.format == FormatId::mxfp8) {  // a partial block has no scale
    int64_t& along = direction == Direction::row ? matrix.cols : matrix.rows;
    along -= along % length_of(settings.block);
  }
  const Shape scale = geometry(settings, matrix, direction, ScaleLayout::compact).scale_padded;
  return {scale.rows, scale.cols};
}

Dims scale_shape(const Quantizer& quantizer, const Dims& shape, Direction direction) {
  return scale_shape(block_settings(quantizer), shape, direction);
}

Dims columnwise_shape(const Quantizer& quantizer, const Dims& shape) {
  return info(block_settings(quantizer).format).column_data == ColumnData::transposed ? turned(shape) : shape;
}

std::vector<BufferShape> allocated(const Quantizer& quantizer, const Dims& shape, Usages usages, DType dtype,
                                   bool tn_only) {
  if (const auto* identity = dynamic_cast<const IdentityQuantizer*>(&quantizer))
    return {{"_hp_data", shape, identity->dtype.value_or(dtype)}};
  const auto settings = quantizer.line(Direction::row);
  if (!settings)
    throw SemanticError(ErrorClass::not_implemented_error,
                        "make_empty: expected a quantizer that allocates its own buffers, found " +
                            std::string(quantizer.class_name()));
  const FormatInfo& format = info(settings->format);
  std::vector<BufferShape> out;
  if (format.per_tensor_fp8()) {  // where GEMMs read either layout, one plane serves both directions
    if (usages.rowwise || !tn_only) out.push_back({"_data", shape, DType::uint8});
    if (usages.columnwise && tn_only) out.push_back({"_transpose", turned(shape), DType::uint8});
    out.push_back({"_scale_inv", {1}, DType::float32});
    return out;
  }
  const DType scale_dtype = dtype_of(*format.scale);
  const bool nvfp4 = settings->format == FormatId::nvfp4;
  const auto data = [&](Dims codes) {
    return is_packed(*settings) ? packed(std::move(codes), settings->element) : codes;
  };
  if (usages.rowwise) {
    out.push_back({"_rowwise_data", data(shape), DType::uint8});
    out.push_back({"_rowwise_scale_inv", scale_shape(*settings, shape, Direction::row), scale_dtype});
    if (nvfp4)
      out.push_back({"_amax_rowwise", {settings->row_scaled ? flattened(shape).rows : 1}, DType::float32});
  }
  if (usages.columnwise) {
    out.push_back({"_columnwise_data", data(columnwise_shape(quantizer, shape)), DType::uint8});
    out.push_back({"_columnwise_scale_inv", scale_shape(*settings, shape, Direction::col), scale_dtype});
    if (nvfp4)
      out.push_back({"_amax_columnwise",
                     {1},
                     DType::float32});  // one, even where rows have one each: TE's Python allocation
  }
  return out;
}

}  // namespace assay::training
