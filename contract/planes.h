// Planes: the named byte arrays that go into and come out of one case, with their geometry.
// Names, shapes and padded sizes are shared by both sides; arithmetic and index formulas are not.
//
// Input planes, by op:
//   cast                    x; with round=sr also bits [as x] (u8)
//   quantize                x, <d>.given.amax, <d>.given.scale, <d>.prior.amax, noop      (1x1 f32, where the
//                           key applies; given.scale and prior.amax of row_scaled [R, 1]); with scale_from
//                           <d>.given.block_amax or <d>.given.scale_inv, as the scales (N17.12)
//   dequantize              <d>.amax (nvfp4), <d>.scale_inv or <d>.scale_gemm, <d>.data   (as quantize writes
//                           them)
//   update                  history [length, slots], scale [1, slots], reduced [1, slots] (f32)
//   swizzle                 <d>.scale_inv (inverse: <d>.scale_gemm)
//   scale_chain, hadamard   x
//   split                   x (flat, `capacity` elements), first_dims and last_dims [1, n] (u32, where they
//                           vary), and as quantize, [1, n]
//   philox                  x [n, 4], key [n, 2] (u32)
//   gemm                    a.amax (nvfp4), a.scale_inv, a.data, b.* likewise (as the operand's own quantize
//                           writes them), c [N, M] where beta is not
//                           zero, bias [1, M]
//   adam                    x (the gradient), p, m, v
//   scale_state             x (f32); inverse: x (the state), scale
//   attention               q, k, v; q, kv or qkv where the layout packs them (N20.1); q.descale, k.descale,
//                           v.descale with codes (N20.17); cu_seqlens_q,
//                           cu_seqlens_kv [1, batch + 1] (u32) with lengths, bias [heads * q, kv], keep (u8)
//                           with dropout; do; <slot>.given.scale, <slot>.prior.amax (fp8_delayed)
// Output planes, in causal order (a difference in an earlier plane explains those after it):
//   cast, dequantize        y
//   quantize                <d>.amax, <d>.scale, <d>.scale_inv or <d>.scale_gemm, <d>.data; row before col
//   update                  next.history, next.scale
//   swizzle                 <d>.scale_gemm (inverse: <d>.scale_inv)
//   scale_chain             scale, scale_inv (f32 scales); scale_inv, multiplier, decoded (e8m0 scales; not
//                           scale_inv from codes);
//                           encode_scale, scale_inv, multiplier [n, 1] (nvfp4)
//   hadamard                y [cols, rows] (bf16), amax
//   split                   offsets, <d>.scale_offsets [1, n + 1] (u32), then as quantize, one plane for all
//                           members
//   philox                  y [n, 4] (u32)
//   gemm                    d [N, M]
//   adam                    next.m, next.v, next.p
//   scale_state             scale, multiplier, y; inverse: y (f32)
//   attention               the planes of each slot's cast as quantize has them, <slot> for <d>, and between
//                           them the tensors that are cast: p, s, o, out; with backward=1 also dv, ds, dp,
//                           dq, dk, and grad.q, grad.k, grad.v as q, k, v are packed (N20.2)
// <d> is row or col. scale_inv is the stored decode scale; `scale` multiplies on quantize and exists only for
// per-tensor FP8.
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
// What stands outside the logical region of a padded plane: there is none, zeros (N6.4), or whatever stood
// there before (N14.6).
enum class Padding : uint8_t { none, zero, untouched };

// One member of a grouped plane: `offset` elements into it stands an array of `padded` with `logical`
// meaningful elements, laid out as the member's own line would lay it out.
struct Member {
  int64_t offset = 0;
  Shape logical, padded;
  bool operator==(const Member&) const = default;
};

struct Plane {
  std::string name;
  Part part = Part::output;
  Encoding encoding = Encoding::f32;
  Shape logical;  // meaningful elements
  Shape padded;   // allocated elements; row-major unless layout is gemm
  ScaleLayout layout = ScaleLayout::compact;
  Padding padding = Padding::none;
  std::optional<Direction> direction;  // whose direction it belongs to
  bool transposed = false;             // logical is [cols, rows] of the tensor
  bool packed = false;  // codes of fewer than 8 bits without a gap, the first in the lowest bits (N6.8)
  std::vector<Member>
      members;  // of a grouped plane (N14.2): then logical is [1, sum of members], padded [1, allocated]

  size_t bytes() const { return bytes_of(padded.count()); }
  // The shape of an array of its stored units: of bytes where it is packed, else of elements.
  Shape stored() const { return packed ? Shape{padded.rows, padded.cols * bits() / 8} : padded; }
  // Bits that an element takes.
  int bits() const { return packed ? info(encoding).bits : 8 * info(encoding).bytes(); }
  // Bytes that n consecutive elements take; in a packed plane n is a multiple of packed_codes().
  size_t bytes_of(int64_t n) const { return static_cast<size_t>(n) * static_cast<size_t>(bits()) / 8; }
  // Whether GEMM layout counts tiles down the rows: scales of columns that are stored as they are (N6.3).
  bool tiles_by_columns() const { return direction == Direction::col && !transposed; }
};

// The plane of member m alone, as the member's own line has it: same name, members empty. Its bytes begin at
// bytes_of(members[m].offset).
Plane member_plane(const Plane& grouped, size_t m);

// Shapes of one direction's data and scales.
struct Geometry {
  Shape data,
      data_padded;  // stored shape: [cols, rows] where transposed; a packed row is rounded up to whole bytes
  bool transposed = false;
  bool has_scale = false;
  Encoding scale_encoding = Encoding::f32;
  Shape scale, scale_padded;
};

// Geometry of x with shape `shape` quantized by `q` in direction `d`, its scales in `layout`. With R x C the
// stored data:
//   per-tensor FP8          1x1; row_scaled [R, 1]                                                 (N3.12)
//   mxfp8                   row [R, cdiv(C, 32)] to [128, 4], col [cdiv(R, 32), C] to [4, 128]
//                           (N6.2)
//   nvfp4, mxfp4            [R, cdiv(C, block)] to [128, 4]
//                           (N10.14, N15.4)
//   fp8_block               1x128 [cdiv(C, 128), R], 128x128 [cdiv(R, 128), cdiv(C, 128)], both to [1, 4]
//                           (N9.4)
//   fp8_block, gemm         E8M0 [R, 4 cdiv(C, 128)] to [128, 4]
//                           (N9.6)
// GEMM layout takes as many bytes as the padded compact one in the formats of one-byte scales.
Geometry geometry(const Quantizer& q, Shape shape, Direction d, ScaleLayout layout);
inline Geometry geometry(const Quantizer& q, Shape shape, Direction d) {
  return geometry(q, shape, d, q.scales);
}

std::vector<Plane> input_planes(const Problem&);
std::vector<Plane> output_planes(const Problem&);

// N14.2: the line of each member of a split: a quantize of the member's shape, whose fill begins where the
// member's rows begin and whose given and prior values are the member's (N14.4).
std::vector<Problem> member_problems(const Problem& split);
// N14.4, N3.12: a given value at member or row `place`: halved from one to the next, four times in turn, so
// that no two neighbours share a value; exact on the exponent field.
F32Bits halved(F32Bits value, size_t place);

// N16.1: the line of one operand of a gemm: a quantize of its tensor in the one direction that is read, [M,
// K] or [K, M] for a, [N, K] or [K, N] for b. The fill is the operand's, drawn for b with the next seed, so
// that equal seeds give unequal operands.
Problem operand_problem(const Problem& gemm, Side);
// The same as a dequantize to f32, under hopper_f16 to bf16 (N16.12), of identity to its own source: its
// input planes, in their order, are the operand's planes of the gemm by other names
// ("row.data" is "a.data").
Problem operand_dequantize(const Problem& gemm, Side);
// What is added to the fill's seed for the other inputs of a line: for B, C and the bias of a gemm;
// for K, V, the bias and dO of an attention;
// for p, m and v of an adam.
inline constexpr uint64_t kSeedOfB = 1, kSeedOfC = 2, kSeedOfBias = 3;
inline constexpr uint64_t kSeedOfKeys = 1, kSeedOfValues = 2, kSeedOfAttentionBias = 3, kSeedOfGradient = 4;
inline constexpr uint64_t kSeedOfParameter = 1, kSeedOfMoment = 2, kSeedOfSquares = 3;

// "row.data": the name of a plane that belongs to one direction.
inline std::string plane_name(Direction d, std::string_view stem) {
  return std::string(name_of(d)) + "." + std::string(stem);
}
// What the scale plane is called in either layout, behind the direction.
constexpr std::string_view scale_stem(ScaleLayout layout) {
  return layout == ScaleLayout::gemm ? "scale_gemm" : "scale_inv";
}

constexpr int64_t ceil_div(int64_t n, int64_t m) { return (n + m - 1) / m; }
constexpr int64_t round_up(int64_t n, int64_t m) { return ceil_div(n, m) * m; }

}  // namespace assay
