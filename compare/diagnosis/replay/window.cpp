#include "compare/diagnosis/replay/window.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/expected_values.h"
#include "compare/diagnosis/replay/planes.h"
#include "compare/diagnosis/replay/whole_tensor.h"

namespace assay {

namespace {

// The scale plane of a direction in compact layout without padding, for scale_index.
Plane bare_scales(const Quantizer& q, Shape shape, Direction d, Encoding encoding) {
  const Geometry g = geometry(q, shape, d, ScaleLayout::compact);
  Plane p;
  p.encoding = encoding;
  p.logical = p.padded = g.scale;
  p.direction = d;
  p.transposed = g.transposed;
  return p;
}

bool spreads_nan(const Quantizer& q, const BlockView& b) {
  if (q.numerics.nan_amax != NanAmax::propagate || q.format == FormatId::fp8_block) return false;
  for (int64_t i = b.i0; i < b.i1; ++i)
    for (int64_t j = b.j0; j < b.j1; ++j)
      if (std::isnan(b.x.value(i, j))) return true;
  return false;
}

// Whether blocks are of the lane's own shape and elements, so that their amaxes are known.
bool has_own_blocks(const Window& window) {
  const Quantizer &own = window.whole.quantizer(), &q = window.q();
  return window.x == &window.x->source() && q.block == own.block && q.rht == own.rht &&
         q.sign_mask == own.sign_mask;
}

}  // namespace

Selection all_of(const Matrix& x) {
  Selection s;
  s.lines.resize(static_cast<size_t>(x.lines()));
  s.places.resize(static_cast<size_t>(x.length()));
  std::iota(s.lines.begin(), s.lines.end(), 0);
  std::iota(s.places.begin(), s.places.end(), 0);
  return s;
}

bool Window::stored_as_seen() const { return d == Direction::row || geometry(q(), p.x.shape, d).transposed; }

int64_t Window::scale_index_of(const Plane& scales, int64_t i, int64_t j) const {
  return stored_as_seen() ? scale_index(q(), scales, i, j) : scale_index(q(), scales, j, i);
}

BlockView Window::block(const Matrix& unrotated, int64_t i, int64_t b) const {
  const int64_t n = block_length(), height = block_height();
  const int64_t i0 = line(i / height * height), j0 = place(b * n);
  return {*quantized, unrotated,
          i0,         std::min(i0 + height, quantized->lines()),
          j0,         std::min(j0 + n, quantized->length()),
          height,     n};
}

double Window::plain_amax(int64_t i, int64_t b) const {
  if (!has_own_blocks(*this)) return block(*x, i, b).amax();
  const int64_t n = block_length(), across = ceil_div(quantized->length(), n);
  return whole.block_amaxes()[static_cast<size_t>(line(i) / block_height() * across + place(b * n) / n)];
}

ScaleGrid Window::grid_of_amaxes(const AmaxOfBlock* edit, const Matrix& unrotated) const {
  ScaleGrid g{Encoding::f32, lines(), blocks(), {}, {}, 1};
  g.codes.resize(static_cast<size_t>(g.lines * g.blocks));
  const int64_t height = block_height();
  for (int64_t i = 0; i < g.lines; ++i)
    for (int64_t b = 0; b < g.blocks; ++b) {
      uint32_t& code = g.codes[g.index(i, b)];
      if (i % height != 0) {
        code = g.at(i / height * height, b);
        continue;
      }
      const BlockView view = block(unrotated, i, b);
      code = bits_of(spreads_nan(q(), view) ? std::nan("") : edit ? (*edit)(view) : plain_amax(i, b));
    }
  for (const uint32_t code : g.codes) g.amaxes.push_back(value_of(Encoding::f32, code));
  return g;
}

ScaleGrid Window::grid_of(const PlaneData& scales) const {
  ScaleGrid g{scales.plane.encoding, lines(), blocks(), {}, {}, 1};
  g.codes.reserve(static_cast<size_t>(g.lines * g.blocks));
  for (int64_t i = 0; i < g.lines; ++i)
    for (int64_t b = 0; b < g.blocks; ++b)
      g.codes.push_back(
          code_at(scales.plane, scales.bytes, scale_index_of(scales.plane, i, b * block_length())));
  return g;
}

void Window::edit(ScaleGrid& grid, const Hypothesis& h, const ScaleGrid* of_whole) const {
  const ScaleGrid before = of_whole ? ScaleGrid{} : grid;
  for (int64_t i = 0; i < grid.lines; ++i)
    for (int64_t b = 0; b < grid.blocks; ++b)
      grid.codes[grid.index(i, b)] =
          of_whole ? h.scale(*of_whole, line(i), place(b * block_length()) / block_length())
                   : h.scale(before, i, b);
}

void Window::write(const ScaleGrid& g, const Plane& plane, std::vector<std::byte>& bytes) const {
  const int64_t copy = std::min<int64_t>(block_length(), 32);  // N9.6: a copy for each 32 elements
  for (int64_t i = 0; i < g.lines; ++i)
    for (int64_t j = 0; j < places(); j += copy)
      set_code(plane, bytes, scale_index_of(plane, i, j), g.at(i, j / block_length()));
  if (q().format != FormatId::fp8_block || plane.layout != ScaleLayout::gemm) return;
  for (int64_t i = 0; i < g.lines; ++i)  // also of a partial block
    for (int64_t b = 0; b < g.blocks; ++b)
      for (int64_t k = 0; k < 4; ++k) set_code(plane, bytes, index_of(plane, i, 4 * b + k), g.at(i, b));
}

void Window::give(const ScaleGrid& g, ScaleFrom from) {
  q().scale_from = from;
  const std::string given = name(from == ScaleFrom::amax ? "given.block_amax" : "given.scale_inv");
  for (const Plane& plane : input_planes(p)) {
    if (plane.name != given) continue;
    PlaneData data{plane, std::vector<std::byte>(plane.bytes())};
    write(g, bare_scales(q(), p.x.shape, d, plane.encoding), data.bytes);
    std::erase_if(inputs, [&](const PlaneData& old) { return old.plane.name == given; });
    inputs.push_back(std::move(data));
  }
}

PlaneData* Window::data_in(std::vector<PlaneData>& planes) const { return find_plane(planes, name("data")); }
PlaneData* Window::scales_in(std::vector<PlaneData>& planes) const {
  return find_plane(planes, name(scale_stem(q().scales)));
}

}  // namespace assay
