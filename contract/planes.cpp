#include "contract/planes.h"

#include <algorithm>

#include "contract/attention.h"

namespace assay {

Geometry geometry(const Quantizer& q, Shape shape, Direction d, ScaleLayout layout) {
  const FormatInfo& format = info(q.format);
  const bool col = d == Direction::col;
  Geometry g;
  g.transposed = col && format.column_data == ColumnData::transposed;  // N6.1
  g.data = g.transposed ? Shape{shape.cols, shape.rows} : shape;
  g.data_padded = g.data;
  if (is_packed(q)) g.data_padded.cols = round_up(g.data.cols, info(q.element).packed_codes());  // N6.8
  g.has_scale = format.scale.has_value();
  if (!g.has_scale) return g;
  g.scale_encoding = *format.scale;
  const int64_t rows = g.data.rows, cols = g.data.cols, length = length_of(q.block);
  auto padded_to = [&](int64_t r, int64_t c) {
    g.scale_padded = {round_up(g.scale.rows, r), round_up(g.scale.cols, c)};
  };
  if (format.per_tensor_fp8()) {
    g.scale = g.scale_padded = {q.row_scaled ? rows : 1, 1};                       // N3.12
  } else if (format.family == Family::fp8_block && layout == ScaleLayout::gemm) {  // N9.6
    g.scale_encoding = Encoding::e8m0;
    g.scale = {rows, 4 * ceil_div(cols, length)};
    padded_to(128, 4);
  } else if (format.family == Family::fp8_block) {  // N9.4
    g.scale = {is_square(q.block) ? ceil_div(rows, length) : ceil_div(cols, length),
               is_square(q.block) ? ceil_div(cols, length) : rows};
    padded_to(1, 4);
  } else if (col && !g.transposed) {  // N6.2; a square block repeats its scale, same shape (N5.8)
    g.scale = {ceil_div(rows, length), cols};
    padded_to(4, 128);
  } else {  // N6.2, N10.14, N15.4, N18.4
    g.scale = {rows, ceil_div(cols, length)};
    padded_to(128, 4);
  }
  return g;
}

namespace {

Plane matrix(std::string name, Part part, Encoding encoding, Shape shape, std::optional<Direction> d = {}) {
  Plane p;
  p.name = std::move(name);
  p.part = part;
  p.encoding = encoding;
  p.logical = p.padded = shape;
  p.direction = d;
  return p;
}

Plane scalars(std::string name, Part part, std::optional<Direction> d = {}, Shape shape = {1, 1}) {
  return matrix(std::move(name), part, Encoding::f32, shape, d);
}

Plane scale_plane(const Quantizer& q, Shape shape, Direction d, Part part, ScaleLayout layout) {
  const Geometry g = geometry(q, shape, d, layout);
  Plane p = matrix(plane_name(d, scale_stem(layout)), part, g.scale_encoding, g.scale, d);
  p.padded = g.scale_padded;
  p.layout = layout;
  p.padding = g.scale == g.scale_padded ? Padding::none : Padding::zero;
  p.transposed = g.transposed;
  return p;
}

Plane data_plane(const Quantizer& q, Shape shape, Direction d, Part part) {
  const Geometry g = geometry(q, shape, d);
  Plane p = matrix(plane_name(d, "data"), part, q.element, g.data, d);
  p.padded = g.data_padded;
  p.padding = g.data == g.data_padded ? Padding::none : Padding::zero;
  p.transposed = g.transposed;
  p.packed = is_packed(q);
  return p;
}

// "amax" or "scale": one for the tensor, or one for each stored row (N3.12, N10.9).
Plane of_tensor_or_rows(std::string_view stem, const Quantizer& q, Shape shape, Direction d, Part part) {
  return scalars(plane_name(d, stem), part, d, {q.row_scaled ? geometry(q, shape, d).data.rows : 1, 1});
}

// What a quantize of one direction writes, in causal order.
void add_outputs(std::vector<Plane>& out, const Quantizer& q, Shape shape, Direction d) {
  const bool current = q.format == FormatId::fp8_current;
  if (q.format == FormatId::fp8_delayed || ((current || q.format == FormatId::nvfp4) && !q.amax))
    out.push_back(of_tensor_or_rows("amax", q, shape, d, Part::output));
  if (current) out.push_back(of_tensor_or_rows("scale", q, shape, d, Part::output));
  if (info(q.format).scale) out.push_back(scale_plane(q, shape, d, Part::output, q.scales));
  out.push_back(data_plane(q, shape, d, Part::output));
}

// N17.12: one value for each scale of the compact layout, unpadded.
Plane block_given(const Quantizer& q, Shape shape, Direction d) {
  const Geometry g = geometry(q, shape, d, ScaleLayout::compact);
  const bool amax = q.scale_from == ScaleFrom::amax;
  return matrix(plane_name(d, amax ? "given.block_amax" : "given.scale_inv"), Part::input,
                amax ? Encoding::f32 : g.scale_encoding, g.scale, d);
}

// What a quantize reads beside x.
void add_givens(std::vector<Plane>& out, const Quantizer& q, Shape shape, Direction d) {
  if (q.scale_from != ScaleFrom::x) out.push_back(block_given(q, shape, d));
  if (q.amax) out.push_back(scalars(plane_name(d, "given.amax"), Part::input, d));
  if (q.format == FormatId::fp8_delayed) {
    out.push_back(of_tensor_or_rows("given.scale", q, shape, d, Part::input));
    out.push_back(of_tensor_or_rows("prior.amax", q, shape, d, Part::input));
  }
}

Direction only_direction(const Problem& p) { return p.row ? Direction::row : Direction::col; }
const Quantizer& only_quantizer(const Problem& p) { return *p.quantizer(only_direction(p)); }

ScaleLayout swizzle_from(const Swizzle& s) { return s.inverse ? ScaleLayout::gemm : ScaleLayout::compact; }
ScaleLayout swizzle_to(const Swizzle& s) { return s.inverse ? ScaleLayout::compact : ScaleLayout::gemm; }

// The planes called alike of every member, one after the other. `spare`: elements allocated beyond them
// (N14.6).
Plane grouped(std::vector<Plane> members, int64_t spare) {
  Plane p = members.front();
  p.logical = p.padded = {1, 0};
  p.padding = spare > 0 ? Padding::untouched : Padding::none;
  for (const Plane& m : members) {
    p.members.push_back({p.padded.cols, m.logical, m.padded});
    p.padded.cols += m.padded.count();
  }
  p.logical.cols = p.padded.cols;
  p.padded.cols += spare;
  return p;
}

// N14.6: spare elements are even in number and fill whole bytes; spare scales beside them.
int64_t whole_bytes(const Plane& p) { return p.packed ? std::max(2, info(p.encoding).packed_codes()) : 2; }
constexpr int64_t kSpareScales = 512;

// `planes_of(member)`, joined by name.
template <class PlanesOf>
void add_grouped(std::vector<Plane>& out, const Problem& split, PlanesOf planes_of) {
  const std::vector<Problem> problems = member_problems(split);
  const Split& op = *split.as<Split>();
  int64_t active = 0;
  for (Shape m : op.members) active += m.count();
  std::vector<std::vector<Plane>> planes;
  for (const Problem& m : problems) planes.push_back(planes_of(m));
  for (size_t i = 0; !planes.empty() && i < planes[0].size(); ++i) {
    std::vector<Plane> alike;
    for (const std::vector<Plane>& m : planes) alike.push_back(m[i]);
    const Plane& first = alike[0];
    const bool spare = op.capacity > active, data = first.name == "x" || first.name.ends_with(".data");
    const bool blocks = first.direction && info(split.quantizer(*first.direction)->format).has_blocks() &&
                        first.name.find(".scale_") != std::string::npos;
    out.push_back(grouped(std::move(alike), !spare   ? 0
                                            : data   ? round_up(op.capacity - active, whole_bytes(first))
                                            : blocks ? kSpareScales
                                                     : 0));
  }
}

}  // namespace

Plane member_plane(const Plane& g, size_t m) {
  // Field by field, because a copy of g would copy the list of its members once for each of them.
  const auto& [name, part, encoding, logical, padded, layout, padding, direction, transposed, packed,
               members] = g;
  const Member& own = members[m];
  const Padding around = own.logical == own.padded ? Padding::none : Padding::zero;
  return {name, part, encoding, own.logical, own.padded, layout, around, direction, transposed, packed, {}};
}

F32Bits halved(F32Bits value, size_t place) {
  const F32Bits exponent = value >> 23 & 0xFF, times = static_cast<F32Bits>(place % 4);
  return exponent > times && exponent < 0xFF ? value - (times << 23) : value;
}

std::vector<Problem> member_problems(const Problem& split) {
  const Split& op = *split.as<Split>();
  std::vector<Problem> out;
  int64_t row = 0;
  for (size_t m = 0; m < op.members.size(); ++m) {
    Problem p = split;
    p.op = Quantize{op.noop};
    p.flavour = Flavour::assay;  // it has set the split's Numerics, which are the member's
    p.arch = Arch::sm100;
    p.dispatch = Dispatch::automatic;
    p.x.shape = op.members[m];
    p.x.fill.at_row += row;
    p.rng.member = static_cast<uint32_t>(m);  // N12.2
    for (Direction d : kDirections) {
      if (!p.quantizer(d)) continue;
      Quantizer& q = *p.quantizer(d);
      q.scale = halved(q.scale, m);  // N14.4
      q.prior_amax = halved(q.prior_amax, m);
      if (q.amax) q.amax = halved(*q.amax, m);
    }
    out.push_back(std::move(p));
    row += op.members[m].rows;
  }
  return out;
}

Problem operand_problem(const Problem& gemm, Side side) {
  const Gemm& op = *gemm.as<Gemm>();
  const Operand& operand = op.operand(side);
  const Direction d = op.direction(side);
  const int64_t outer = side == Side::a ? gemm.x.shape.cols : gemm.x.shape.rows;
  Problem p;
  p.op = Quantize{};
  p.x = {d == Direction::row ? Shape{outer, op.k} : Shape{op.k, outer}, operand.source,
         operand.fill};  // N16.1
  if (side == Side::b) p.x.fill.seed += kSeedOfB;
  p.quantizer(d) = operand.quantizer;
  p.rng = gemm.rng;
  return p;
}

Problem operand_dequantize(const Problem& gemm, Side side) {
  Problem p = operand_problem(gemm, side);
  const bool identity = only_quantizer(p).format == FormatId::identity,
             bf16 = gemm.as<Gemm>()->sum == GemmSum::hopper_f16;
  p.op = Dequantize{identity ? p.x.source : bf16 ? Encoding::bf16 : Encoding::f32, CodesFrom::quantized};
  return p;
}

std::vector<Plane> input_planes(const Problem& p) {
  std::vector<Plane> out;
  const Shape shape = p.x.shape;
  const Plane x = matrix("x", Part::input, p.x.source, shape);
  if (const Cast* op = p.as<Cast>()) {
    out.push_back(x);
    if (op->round == Round::sr) out.push_back(matrix("bits", Part::input, Encoding::u8, shape));
  } else if (p.as<ScaleChain>() || p.as<Hadamard>()) {
    out.push_back(x);
  } else if (const Quantize* op = p.as<Quantize>()) {
    out.push_back(x);
    for (Direction d : kDirections)
      if (p.quantizer(d)) add_givens(out, *p.quantizer(d), shape, d);
    if (op->noop) out.push_back(scalars("noop", Part::input));
  } else if (p.as<Dequantize>()) {
    const Direction d = only_direction(p);
    const Quantizer& q = *p.quantizer(d);
    if (q.format == FormatId::nvfp4) out.push_back(of_tensor_or_rows("amax", q, shape, d, Part::input));
    if (info(q.format).scale) out.push_back(scale_plane(q, shape, d, Part::input, q.scales));
    out.push_back(data_plane(q, shape, d, Part::input));
  } else if (const Update* op = p.as<Update>()) {
    out.push_back(scalars("history", Part::input, {}, shape));
    out.push_back(scalars("scale", Part::input, {}, {1, shape.cols}));
    if (op->reduction) out.push_back(scalars("reduced", Part::input, {}, {1, shape.cols}));
  } else if (const Swizzle* op = p.as<Swizzle>()) {
    const Direction d = only_direction(p);
    out.push_back(scale_plane(*p.quantizer(d), shape, d, Part::input, swizzle_from(*op)));
  } else if (const Split* op = p.as<Split>()) {
    const int64_t n = static_cast<int64_t>(op->members.size());
    add_grouped(out, p, [](const Problem& m) {
      return std::vector<Plane>{matrix("x", Part::input, m.x.source, m.x.shape)};
    });
    if (op->vary == Vary::first || op->vary == Vary::both)
      out.push_back(matrix("first_dims", Part::input, Encoding::u32, {1, n}));
    if (op->vary == Vary::last || op->vary == Vary::both)
      out.push_back(matrix("last_dims", Part::input, Encoding::u32, {1, n}));
    add_grouped(out, p, [](const Problem& m) {
      std::vector<Plane> givens;
      for (Direction d : kDirections)
        if (m.quantizer(d)) add_givens(givens, *m.quantizer(d), m.x.shape, d);
      return givens;
    });
    if (op->noop) out.push_back(scalars("noop", Part::input));
  } else if (p.as<Philox>()) {
    out.push_back(x);
    out.push_back(matrix("key", Part::input, Encoding::u32, {shape.rows, 2}));
  } else if (const Gemm* op = p.as<Gemm>()) {
    for (Side side : kSides)
      for (Plane plane : input_planes(operand_dequantize(p, side))) {
        plane.name = std::string(name_of(side)) + plane.name.substr(plane.name.find('.'));
        plane.direction.reset();
        out.push_back(std::move(plane));
      }
    if (op->reads_c()) out.push_back(matrix("c", Part::input, p.x.source, shape));
    if (op->bias) out.push_back(matrix("bias", Part::input, *op->bias, {1, shape.cols}));
  } else if (const Adam* op = p.as<Adam>()) {
    out.push_back(x);
    out.push_back(matrix("p", Part::input, op->parameter, shape));
    out.push_back(matrix("m", Part::input, op->moments, shape));
    out.push_back(matrix("v", Part::input, op->moments, shape));
  } else if (const ScaleState* op = p.as<ScaleState>()) {
    out.push_back(x);
    if (op->inverse) out.push_back(scalars("scale", Part::input));
  } else if (p.as<Attention>()) {
    return attention_inputs(p);
  }
  return out;
}

std::vector<Plane> output_planes(const Problem& p) {
  std::vector<Plane> out;
  const Shape shape = p.x.shape;
  if (const Cast* op = p.as<Cast>()) {
    out.push_back(matrix("y", Part::output, op->to, shape));
  } else if (p.as<Quantize>()) {
    for (Direction d : kDirections)
      if (p.quantizer(d)) add_outputs(out, *p.quantizer(d), shape, d);
  } else if (const Dequantize* op = p.as<Dequantize>()) {
    out.push_back(matrix("y", Part::output, op->out, shape));
  } else if (p.as<Update>()) {
    out.push_back(scalars("next.history", Part::output, {}, shape));
    out.push_back(scalars("next.scale", Part::output, {}, {1, shape.cols}));
  } else if (const Swizzle* op = p.as<Swizzle>()) {
    const Direction d = only_direction(p);
    Plane plane = scale_plane(*p.quantizer(d), shape, d, Part::output, swizzle_to(*op));
    if (op->inverse && info(p.quantizer(d)->format).family !=
                           Family::fp8_block) {  // N6.5: every byte is copied, so every byte is meaningful
      plane.logical = plane.padded;
      plane.padding = Padding::none;
    }
    out.push_back(plane);
  } else if (p.as<ScaleChain>()) {
    const FormatId format = p.row->format;
    if (format == FormatId::nvfp4) {
      out.push_back(matrix("encode_scale", Part::output, Encoding::f32, {shape.rows, 1}));
      out.push_back(matrix("scale_inv", Part::output, Encoding::e4m3, {shape.rows, 1}));
      out.push_back(matrix("multiplier", Part::output, Encoding::f32, {shape.rows, 1}));
    } else if (info(format).scale == Encoding::f32) {
      out.push_back(matrix("scale", Part::output, Encoding::f32, shape));
      out.push_back(matrix("scale_inv", Part::output, Encoding::f32, shape));
    } else {
      if (p.x.source == Encoding::f32)
        out.push_back(matrix("scale_inv", Part::output, Encoding::e8m0, shape));
      out.push_back(matrix("multiplier", Part::output, Encoding::f32, shape));
      out.push_back(matrix("decoded", Part::output, Encoding::f32, shape));
    }
  } else if (p.as<Hadamard>()) {
    out.push_back(matrix("y", Part::output, Encoding::bf16, {shape.cols, shape.rows}));
    out.back().transposed = true;
    out.push_back(scalars("amax", Part::output));
  } else if (const Split* op = p.as<Split>()) {
    const int64_t n = static_cast<int64_t>(op->members.size());
    out.push_back(matrix("offsets", Part::output, Encoding::u32, {1, n + 1}));
    for (Direction d : kDirections)
      if (p.quantizer(d) && info(p.quantizer(d)->format).has_blocks())
        out.push_back(matrix(plane_name(d, "scale_offsets"), Part::output, Encoding::u32, {1, n + 1}, d));
    add_grouped(out, p, [](const Problem& m) {
      std::vector<Plane> outputs;
      for (Direction d : kDirections)
        if (m.quantizer(d)) add_outputs(outputs, *m.quantizer(d), m.x.shape, d);
      return outputs;
    });
  } else if (p.as<Philox>()) {
    out.push_back(matrix("y", Part::output, Encoding::u32, shape));
  } else if (p.as<Gemm>()) {
    out.push_back(matrix("d", Part::output, p.x.source, shape));
  } else if (const Adam* op = p.as<Adam>()) {
    out.push_back(matrix("next.m", Part::output, op->moments, shape));
    out.push_back(matrix("next.v", Part::output, op->moments, shape));
    out.push_back(matrix("next.p", Part::output, op->parameter, shape));  // N19.4
  } else if (const ScaleState* op = p.as<ScaleState>()) {
    if (!op->inverse) out.push_back(scalars("scale", Part::output));
    if (!op->inverse) out.push_back(scalars("multiplier", Part::output));
    out.push_back(matrix("y", Part::output, op->inverse ? Encoding::f32 : op->to, shape));
  } else if (p.as<Attention>()) {
    return attention_outputs(p);
  }
  return out;
}

}  // namespace assay
