#include "reference/swizzle.h"

#include <stdexcept>

namespace assay::reference {

// Seen with the dimension that is not contracted first, the scales are a matrix [I, J], I = 128*A and J =
// 4*T. As an array [A, 4, 32, T, 4] its axes are transposed to [A, T, 32, 4, 4]: tile (a, t) is 512
// consecutive bytes, a 32x16 matrix made of the four 32x4 pieces of its 128 rows set side by side.
namespace {

using Tile = Eigen::Matrix<uint8_t, 32, 16, Eigen::RowMajor>;

// [I, J] from or to the stored compact matrix, which may have them the other way round.
Bytes turned(const Bytes& m, bool by_columns) { return by_columns ? Bytes(m.transpose()) : m; }

void check(Eigen::Index i, Eigen::Index j) {
  if (i % 128 != 0 || j % 4 != 0) throw std::invalid_argument("reference: scales are not padded to 128x4");
}

}  // namespace

Bytes to_gemm(const Bytes& compact, bool by_columns) {  // N6.3
  const Bytes scales = turned(compact, by_columns);
  check(scales.rows(), scales.cols());
  Bytes gemm(compact.rows(), compact.cols());
  uint8_t* next = gemm.data();
  for (Eigen::Index a = 0; a < scales.rows() / 128; ++a)
    for (Eigen::Index t = 0; t < scales.cols() / 4; ++t, next += Tile::SizeAtCompileTime) {
      Eigen::Map<Tile> tile(next);
      for (Eigen::Index piece = 0; piece < 4; ++piece)
        tile.block<32, 4>(0, 4 * piece) = scales.block<32, 4>(128 * a + 32 * piece, 4 * t);
    }
  return gemm;
}

Bytes from_gemm(const Bytes& gemm, bool by_columns) {  // N6.5
  Bytes scales = by_columns ? Bytes(gemm.cols(), gemm.rows()) : Bytes(gemm.rows(), gemm.cols());
  check(scales.rows(), scales.cols());
  const uint8_t* next = gemm.data();
  for (Eigen::Index a = 0; a < scales.rows() / 128; ++a)
    for (Eigen::Index t = 0; t < scales.cols() / 4; ++t, next += Tile::SizeAtCompileTime) {
      const Eigen::Map<const Tile> tile(next);
      for (Eigen::Index piece = 0; piece < 4; ++piece)
        scales.block<32, 4>(128 * a + 32 * piece, 4 * t) = tile.block<32, 4>(0, 4 * piece);
    }
  return turned(scales, by_columns);
}

void store_scales(const Buffer& b, const Bytes& compact) {
  if (b.plane->layout == ScaleLayout::compact) return store(b, compact);
  Bytes padded = Bytes::Zero(b.plane->padded.rows, b.plane->padded.cols);  // N6.4
  padded.topLeftCorner(compact.rows(), compact.cols()) = compact;
  store(b, to_gemm(padded, b.plane->tiles_by_columns()));  // N6.3
}

}  // namespace assay::reference
