// MXFP8 of the members of a split (N14): a grid that fills the GPU walks over the strips or tiles of all
// members, whose sizes only the device knows, and each is taken as one of a tensor of its own
// (move/block_pair.cuh).
#include "fast/mxfp8_members.h"

#include "fast/move/block_pair.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

using Bf16 = Source<Encoding::bf16>;

template <class RowSide, class ColSide> struct MembersArgs {
  BlockPairArgs<RowSide, ColSide> pair;  // of all members; extent.rows is not read
  const MemberStart* starts = nullptr;
  int64_t members = 0;
};

// As block_pair; members have columns in common.
template <class RowSide, class ColSide>
__global__ void __launch_bounds__(kThreads, 2) mxfp8_members(MembersArgs<RowSide, ColSide> a) {
  if (is_noop(a.pair.noop)) return;
  constexpr bool kStrip = RowSide::kStrip || ColSide::kStrip;
  constexpr int kRows = kStrip ? kStripRows : kTile, kCols = kStrip ? kStripCols : kTile;
  constexpr unsigned kOfTile = kTile / kRows;  // rows of strips in one of tiles
  const unsigned tiles_across = unsigned((a.pair.extent.cols + kTile - 1) / kTile),
                 across = unsigned((a.pair.extent.cols + kCols - 1) / kCols),
                 all = unsigned(a.starts[a.members].tiles) / tiles_across * kOfTile * across;
  for (unsigned n = blockIdx.x; n < all; n += gridDim.x) {
    const unsigned row = n / across, tile_row = row / kOfTile;
    const int64_t m = member_of_tile(a.starts, a.members, int64_t(tile_row) * tiles_across);
    const MemberStart& start = a.starts[m];
    BlockPairArgs<RowSide, ColSide> one = a.pair;
    one.x = static_cast<const char*>(one.x) + start.elements * 2;
    one.extent.rows = start.rows;
    if (one.row.to.data != nullptr) one.row.to.data += start.data[0], one.row.to.scales += start.scales[0];
    if (one.col.to.data != nullptr) one.col.to.data += start.data[1], one.col.to.scales += start.scales[1];
    const unsigned row_of_member = row - unsigned(start.tiles) / tiles_across * kOfTile;
    const TileAt tile{row_of_member, n - row * across};
    take_tile<Bf16, kStrip ? Spread::strip : Spread::blocks>(
        one, tile, [&] { return tile; }, n != blockIdx.x);
  }
}

template <class RowSide, class ColSide>
void launch_members(const Job& job, const MemberStart* starts, int64_t members, const RowSide& row,
                    const ColSide& col) {
  const Shape s = job.problem.x.shape;
  const MembersArgs<RowSide, ColSide> args{
      {job.input<void>("x"), job.input("noop"), {0, s.cols}, row, col}, starts, members};
  launch({.name = "mxfp8_members", .grid = 2 * multiprocessors(), .block = kThreads},
         mxfp8_members<RowSide, ColSide>, args);
}

bool served(const Job& job, const Target& row, const Target& col) {
  const Problem& p = job.problem;
  for (const Direction d : kDirections) {
    const std::optional<Quantizer>& q = p.quantizer(d);
    if (q && (q->format != FormatId::mxfp8 || q->numerics != Numerics{} || is_square(q->block))) return false;
  }
  if (p.row && p.col && (p.row->element != p.col->element || row.gemm != col.gemm)) return false;
  const Vary vary = p.as<Split>()->vary;
  return job.policy != Policy::general && p.x.source == Encoding::bf16 &&
         (vary == Vary::first || vary == Vary::none) && p.col_source == ColSource::original &&
         p.x.shape.cols % kPatch == 0 && p.x.shape.cols != 0 && aligned(16, {job.input<void>("x")}) &&
         aligned(8, {row.data, col.data}) && aligned(4, {row.scales, col.scales});
}

}  // namespace

std::string split_mxfp8_members(const Job& job, const MemberStart* starts, int64_t members) {
  const Problem& p = job.problem;
  const Target row = block_target(job, Direction::row), col = block_target(job, Direction::col);
  if (!served(job, row, col)) return "";
  const Quantizer& any = p.row ? *p.row : *p.col;
  with_fp8(any.element, [&](auto element) {
    with_flag(!(p.row ? row : col).gemm, [&](auto strip) {
      using Side = Mxfp8Side<element.value, false, false, strip.value>;
      if (!p.col) return launch_members(job, starts, members, Side{row, {}}, NoSide{});
      if (!p.row) return launch_members(job, starts, members, NoSide{}, Side{col, {}});
      return launch_members(job, starts, members, Side{row, {}}, Side{col, {}});
    });
  });
  return "mxfp8_members<" + directions(p) + "> " + how(p);
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
