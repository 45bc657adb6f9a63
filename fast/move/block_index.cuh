// Where the scale of a block stands, for every format with blocks and both layouts (N6.2, N6.3, N9.4, N9.6,
// N10.14, N15.4).
//
// Lines run along the contracted dimension: a line of rows is a row of the tensor, a line of columns a column
// of it.
#pragma once
#include "contract/planes.h"
#include "fast/move/patch.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

struct BlockIndex {
  bool gemm = false;
  int length_shift = 0;                     // a scale serves 2^length_shift elements of a line
  int line_shift = 0;                       // compact: of 2^line_shift lines
  int64_t line_pitch = 0, block_pitch = 0;  // compact
  int64_t tiles = 0;                        // GEMM: tiles of 4 codes along a line

  // Of element `element` of line `line`, in scales.
  ASSAY_LANE int64_t operator()(int64_t line, int64_t element) const {
    const int64_t j = element >> length_shift;
    return gemm ? gemm_index(line, j, tiles) : (line >> line_shift) * line_pitch + j * block_pitch;
  }
};

// Scales of an x of `shape` quantized by `q`, in `layout`.
inline BlockIndex block_index(const Quantizer& q, Shape shape, Direction d, ScaleLayout layout) {
  const Geometry g = geometry(q, shape, d, layout);
  const bool fp8_block = q.format == FormatId::fp8_block, square = is_square(q.block);
  BlockIndex at;
  at.gemm = layout == ScaleLayout::gemm;
  const int64_t length =
      fp8_block && at.gemm ? 32 : length_of(q.block);  // each scale stands four times there (N9.6)
  while (int64_t{1} << at.length_shift < length) ++at.length_shift;
  at.line_shift =
      fp8_block && square ? at.length_shift : 0;  // elsewhere a square block repeats its scale (N5.8)
  const bool as_is = d == Direction::col && !g.transposed;  // scales of columns that are stored as they are
  const bool by_block = as_is || (fp8_block && !square);
  at.line_pitch = by_block ? 1 : g.scale_padded.cols;
  at.block_pitch = by_block ? g.scale_padded.cols : 1;
  at.tiles = (as_is ? g.scale_padded.rows : g.scale_padded.cols) >> 2;
  return at;
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
