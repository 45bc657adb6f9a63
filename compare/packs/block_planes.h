// Where the blocks that an acceptor judges (contract/acceptor.h) lie in the planes of a direction.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>

#include "compare/judge/tiling.h"
#include "compare/packs/pack.h"
#include "contract/acceptor.h"

namespace assay {

// Of one direction: the planes that are judged, and how the tile's blocks lie in them.
struct DirectionPlanes {
  Direction direction;
  FormatId format;
  Tile tile;
  const PlaneView *x = nullptr, *data = nullptr,
                  *scales = nullptr;  // null: the tensor has one scale, or nothing is there

  bool rows() const { return direction == Direction::row; }
  bool is_fp4() const { return format == FormatId::nvfp4 || format == FormatId::mxfp4; }
  bool has_block_scales() const {
    return format == FormatId::mxfp8 || format == FormatId::fp8_block || is_fp4();
  }
  bool transposed() const { return !rows() && format != FormatId::mxfp8; }  // N6.1
  int64_t length() const {                                                  // of a block
    if (format == FormatId::fp8_block) return length_of(Block::b1x128);
    if (format == FormatId::nvfp4) return length_of(Block::b1x16);
    return format == FormatId::mxfp8 || format == FormatId::mxfp4 ? length_of(Block::b1x32) : kAcceptedPiece;
  }
  Shape grid() const {
    const Shape s = tile.shape;
    return rows() ? Shape{s.rows, ceil_div(s.cols, length())} : Shape{ceil_div(s.rows, length()), s.cols};
  }
  // The elements of a block, and where its first one stands in the tile.
  Shape origin(const BlockPlace& b) const {
    return rows() ? Shape{b.row, b.col * length()} : Shape{b.row * length(), b.col};
  }
  int64_t length(const BlockPlace& b) const {
    const Shape at = origin(b);
    return std::min(length(), rows() ? tile.shape.cols - at.cols : tile.shape.rows - at.rows);
  }
  // Whether the codes of a block stand side by side.
  bool together() const { return rows() || transposed(); }
  // N6.2, N9.4, N10.14: scales of 1x128 blocks along rows are stored block by block, and those of FP4 down
  // columns column by column.
  bool swapped_scales() const { return rows() ? format == FormatId::fp8_block : is_fp4(); }
  // Where the scale of a block and its i-th code stand in the tile's planes.
  std::pair<int64_t, int64_t> scale_place(const BlockPlace& b) const {
    if (swapped_scales()) return {b.col, b.row};
    return {b.row, b.col};
  }
  std::pair<int64_t, int64_t> code_place(const BlockPlace& b, int i) const {
    const Shape at = origin(b);
    const int64_t row = at.rows + (rows() ? 0 : i), col = at.cols + (rows() ? i : 0);
    return transposed() ? std::pair(col, row) : std::pair(row, col);
  }
  // From an element of a plane on.
  static StridedBytes from(const PlaneView& view, int64_t row, int64_t col) {
    const size_t stride = view.plane.bytes_of(view.plane.padded.cols);
    return {view.bytes.data() + static_cast<size_t>(row) * stride + view.plane.bytes_of(col), stride};
  }
  StridedBytes x_from(Shape at) const { return from(*x, tile.row + at.rows, tile.col + at.cols); }
  StridedBytes data_from(Shape at) const {
    return transposed() ? from(*data, tile.col + at.cols, tile.row + at.rows)
                        : from(*data, tile.row + at.rows, tile.col + at.cols);
  }
  StridedBytes scale_from(const BlockPlace& b) const {
    if (!scales) return {};
    const int64_t row = (rows() ? tile.row : tile.row / length()) + b.row,
                  col = (rows() ? tile.col / length() : tile.col) + b.col;
    return swapped_scales() ? from(*scales, col, row) : from(*scales, row, col);
  }
};

}  // namespace assay
