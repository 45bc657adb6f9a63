// Planes: the named byte arrays that go into and come out of one case, with their geometry.
// Names, shapes and padded sizes are shared by both sides; arithmetic and index formulas are not.
//
// Input planes, by op:
//   cast, quantize          x
//   quantize                + <d>.given.amax, <d>.given.scale, <d>.prior.amax, noop       (1x1 f32, where the key applies)
//   dequantize              <d>.data, <d>.scale_inv or <d>.scale_gemm                     (as quantize writes them)
//   update                  history [length, slots], scale [1, slots], reduced [1, slots] (f32)
//   swizzle                 <d>.scale_inv (inverse: <d>.scale_gemm)
//   scale_chain             x
// Output planes, in causal order (a difference in an earlier plane explains those after it):
//   cast                    y
//   quantize                <d>.amax, <d>.scale, <d>.scale_inv or <d>.scale_gemm, <d>.data; row before col
//   dequantize              y
//   update                  next.history, next.scale
//   swizzle                 <d>.scale_gemm (inverse: <d>.scale_inv)
//   scale_chain             scale, scale_inv (per-tensor FP8); scale_inv, multiplier, decoded (mxfp8; not scale_inv from codes)
// <d> is row or col. scale_inv is the stored decode scale; `scale` multiplies on quantize and exists only for per-tensor FP8.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/problem.h"

namespace assay {

enum class Part : uint8_t { input, output };
// What stands outside the logical region of a padded plane: there is none, or zeros (clause N6.4).
enum class Padding : uint8_t { none, zero };

struct Plane {
  std::string name;
  Part part = Part::output;
  Encoding encoding = Encoding::f32;
  Shape logical;                                   // meaningful elements
  Shape padded;                                    // allocated elements; row-major unless layout is gemm
  ScaleLayout layout = ScaleLayout::compact;
  Padding padding = Padding::none;
  std::optional<Direction> direction;              // whose direction it belongs to
  bool transposed = false;                         // logical is [cols, rows] of the tensor

  size_t bytes() const { return static_cast<size_t>(padded.count()) * static_cast<size_t>(info(encoding).bytes()); }
};

// Shapes of one direction's data and scales.
struct Geometry {
  Shape data;                        // stored shape: transposed for columns of per-tensor FP8
  bool transposed = false;
  bool has_scale = false;
  Shape scale, scale_padded;         // compact: [rows, scale columns], columnwise MXFP8 [scale rows, cols]
};

// Geometry of x with shape `shape` quantized by `q` in direction `d`. Shapes as in TransformerEngine: MXFP8 row scales pad to
// [128, 4], column scales to [4, 128]; a per-tensor scale is 1x1. GEMM layout takes as many bytes as the padded compact one.
Geometry geometry(const Quantizer& q, Shape shape, Direction d);

std::vector<Plane> input_planes(const Problem&);
std::vector<Plane> output_planes(const Problem&);

// "row.data": the name of a plane that belongs to one direction.
inline std::string plane_name(Direction d, std::string_view stem) { return std::string(name_of(d)) + "." + std::string(stem); }
// What the scale plane is called in either layout, behind the direction.
constexpr std::string_view scale_stem(ScaleLayout layout) { return layout == ScaleLayout::gemm ? "scale_gemm" : "scale_inv"; }

constexpr int64_t ceil_div(int64_t n, int64_t m) { return (n + m - 1) / m; }
constexpr int64_t round_up(int64_t n, int64_t m) { return ceil_div(n, m) * m; }

}  // namespace assay
