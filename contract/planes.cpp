#include "contract/planes.h"

namespace assay {

Geometry geometry(const Quantizer& q, Shape shape, Direction d) {
  const FormatInfo& format = info(q.format);
  const bool col = d == Direction::col;
  Geometry g;
  g.transposed = col && format.column_data == ColumnData::transposed;          // N6.1
  g.data = g.transposed ? Shape{shape.cols, shape.rows} : shape;
  g.has_scale = format.scale.has_value();
  if (!g.has_scale) return g;
  if (format.per_tensor_fp8()) {
    g.scale = g.scale_padded = {1, 1};
  } else if (!col) {                                                           // N6.2; 32x32 repeats its scale, same shape (N5.8)
    g.scale = {shape.rows, ceil_div(shape.cols, 32)};
    g.scale_padded = {round_up(g.scale.rows, 128), round_up(g.scale.cols, 4)};
  } else {
    g.scale = {ceil_div(shape.rows, 32), shape.cols};
    g.scale_padded = {round_up(g.scale.rows, 4), round_up(g.scale.cols, 128)};
  }
  return g;
}

namespace {

Plane scalars(std::string name, Part part, std::optional<Direction> d = {}, Shape shape = {1, 1}) {
  Plane p;
  p.name = std::move(name);
  p.part = part;
  p.encoding = Encoding::f32;
  p.logical = p.padded = shape;
  p.direction = d;
  return p;
}

Plane matrix(std::string name, Part part, Encoding encoding, Shape shape) {
  Plane p = scalars(std::move(name), part, {}, shape);
  p.encoding = encoding;
  return p;
}

Plane scale_plane(const Quantizer& q, Shape shape, Direction d, Part part, ScaleLayout layout) {
  const Geometry g = geometry(q, shape, d);
  Plane p;
  p.name = plane_name(d, scale_stem(layout));
  p.part = part;
  p.encoding = *info(q.format).scale;
  p.logical = g.scale;
  p.padded = g.scale_padded;
  p.layout = layout;
  p.padding = g.scale == g.scale_padded ? Padding::none : Padding::zero;
  p.direction = d;
  return p;
}

Plane data_plane(const Quantizer& q, Shape shape, Direction d, Part part) {
  const Geometry g = geometry(q, shape, d);
  Plane p = matrix(plane_name(d, "data"), part, q.element, g.data);
  p.direction = d;
  p.transposed = g.transposed;
  return p;
}

// The planes that a dequantize reads and a quantize writes last.
void add_quantized(std::vector<Plane>& out, const Quantizer& q, Shape shape, Direction d, Part part) {
  if (info(q.format).scale) out.push_back(scale_plane(q, shape, d, part, q.scales));
  out.push_back(data_plane(q, shape, d, part));
}

Direction only_direction(const Problem& p) { return p.row ? Direction::row : Direction::col; }

ScaleLayout swizzle_from(const Swizzle& s) { return s.inverse ? ScaleLayout::gemm : ScaleLayout::compact; }
ScaleLayout swizzle_to(const Swizzle& s) { return s.inverse ? ScaleLayout::compact : ScaleLayout::gemm; }

}  // namespace

std::vector<Plane> input_planes(const Problem& p) {
  std::vector<Plane> out;
  const Shape shape = p.x.shape;
  const Plane x = matrix("x", Part::input, p.x.source, shape);
  if (p.as<Cast>() || p.as<ScaleChain>()) {
    out.push_back(x);
  } else if (const Quantize* op = p.as<Quantize>()) {
    out.push_back(x);
    for (Direction d : kDirections) {
      if (!p.quantizer(d)) continue;
      const Quantizer& q = *p.quantizer(d);
      if (q.format == FormatId::fp8_current && q.amax) out.push_back(scalars(plane_name(d, "given.amax"), Part::input, d));
      if (q.format == FormatId::fp8_delayed) {
        out.push_back(scalars(plane_name(d, "given.scale"), Part::input, d));
        out.push_back(scalars(plane_name(d, "prior.amax"), Part::input, d));
      }
    }
    if (op->noop) out.push_back(scalars("noop", Part::input));
  } else if (p.as<Dequantize>()) {
    const Direction d = only_direction(p);
    add_quantized(out, *p.quantizer(d), shape, d, Part::input);
  } else if (const Update* op = p.as<Update>()) {
    out.push_back(scalars("history", Part::input, {}, shape));
    out.push_back(scalars("scale", Part::input, {}, {1, shape.cols}));
    if (op->reduction) out.push_back(scalars("reduced", Part::input, {}, {1, shape.cols}));
  } else if (const Swizzle* op = p.as<Swizzle>()) {
    const Direction d = only_direction(p);
    out.push_back(scale_plane(*p.quantizer(d), shape, d, Part::input, swizzle_from(*op)));
  }
  return out;
}

std::vector<Plane> output_planes(const Problem& p) {
  std::vector<Plane> out;
  const Shape shape = p.x.shape;
  if (const Cast* op = p.as<Cast>()) {
    out.push_back(matrix("y", Part::output, op->to, shape));
  } else if (p.as<Quantize>()) {
    for (Direction d : kDirections) {
      if (!p.quantizer(d)) continue;
      const Quantizer& q = *p.quantizer(d);
      const bool current = q.format == FormatId::fp8_current;
      if (q.format == FormatId::fp8_delayed || (current && !q.amax)) out.push_back(scalars(plane_name(d, "amax"), Part::output, d));
      if (current) out.push_back(scalars(plane_name(d, "scale"), Part::output, d));
      add_quantized(out, q, shape, d, Part::output);
    }
  } else if (const Dequantize* op = p.as<Dequantize>()) {
    out.push_back(matrix("y", Part::output, op->out, shape));
  } else if (p.as<Update>()) {
    out.push_back(scalars("next.history", Part::output, {}, shape));
    out.push_back(scalars("next.scale", Part::output, {}, {1, shape.cols}));
  } else if (const Swizzle* op = p.as<Swizzle>()) {
    const Direction d = only_direction(p);
    Plane plane = scale_plane(*p.quantizer(d), shape, d, Part::output, swizzle_to(*op));
    if (op->inverse) {   // N6.5: every byte is copied, so every byte is meaningful
      plane.logical = plane.padded;
      plane.padding = Padding::none;
    }
    out.push_back(plane);
  } else if (p.as<ScaleChain>()) {
    if (info(p.row->format).per_tensor_fp8()) {
      out.push_back(matrix("scale", Part::output, Encoding::f32, shape));
      out.push_back(matrix("scale_inv", Part::output, Encoding::f32, shape));
    } else {
      if (p.x.source == Encoding::f32) out.push_back(matrix("scale_inv", Part::output, Encoding::e8m0, shape));
      out.push_back(matrix("multiplier", Part::output, Encoding::f32, shape));
      out.push_back(matrix("decoded", Part::output, Encoding::f32, shape));
    }
  }
  return out;
}

}  // namespace assay
