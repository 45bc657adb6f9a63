// Grouped tensors: where every member begins, found on the device from the sizes it is given, then one launch
// over the tiles of all members (N14): of MXFP8's kernel in registers (mxfp8_members.cu), or of direction
// lanes.
#include "fast/directions.h"
#include "fast/move/direction.cuh"
#include "fast/mxfp8_members.h"
#include "fast/scratch.h"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

enum class ScaleShape : uint8_t { none, bytes, f32_lines, f32_squares, f32_as_codes };

// What decides how much room a member takes in the planes of one direction.
struct DirectionRoom {
  bool columns = false, transposed = false;
  int element_bits = 8, whole = 1, block = 1;  // whole: of so many elements a stored row is a multiple
  ScaleShape shape = ScaleShape::none;

  static DirectionRoom of(const Problem& p, Direction d) {
    const Quantizer& q = *p.quantizer(d);
    const FormatInfo& format = info(q.format);
    DirectionRoom out;
    out.columns = d == Direction::col;
    out.transposed = out.columns && format.column_data == ColumnData::transposed;
    out.element_bits = is_packed(q) ? info(q.element).bits : 8 * info(q.element).bytes();
    if (is_packed(q)) out.whole = info(q.element).packed_codes();
    if (!format.has_blocks()) return out;
    out.block = int(length_of(q.block));
    out.shape = format.scale != Encoding::f32   ? ScaleShape::bytes
                : q.scales == ScaleLayout::gemm ? ScaleShape::f32_as_codes
                : is_square(q.block)            ? ScaleShape::f32_squares
                                                : ScaleShape::f32_lines;
    return out;
  }
  ASSAY_LANE static int64_t up(int64_t n, int64_t m) { return (n + m - 1) / m * m; }
  // Elements of the data, padding codes included (N6.1, N6.8).
  ASSAY_LANE int64_t data(int64_t rows, int64_t cols) const {
    return transposed ? cols * up(rows, whole) : rows * up(cols, whole);
  }
  // Scales, padding included (N6.2, N9.4, N9.6, N10.14, N15.4).
  ASSAY_LANE int64_t scales(int64_t rows, int64_t cols) const {
    const int64_t lines = columns ? cols : rows, blocks = ((columns ? rows : cols) + block - 1) / block;
    switch (shape) {
      case ScaleShape::none: return 0;
      case ScaleShape::bytes: return up(lines, kTile) * up(blocks, 4);
      case ScaleShape::f32_lines: return blocks * up(lines, 4);
      case ScaleShape::f32_squares: return up(lines, kTile) / kTile * up(blocks, 4);
      case ScaleShape::f32_as_codes: return up(lines, kTile) * 4 * blocks;
    }
    return 0;
  }
  ASSAY_LANE int64_t data_bytes(int64_t elements) const { return elements * element_bits / 8; }
  ASSAY_LANE int64_t scale_bytes(int64_t count) const {
    return shape == ScaleShape::f32_lines || shape == ScaleShape::f32_squares ? 4 * count : count;
  }
};

struct OffsetsArgs {
  const uint32_t* noop = nullptr;
  const uint32_t *first_dims = nullptr, *last_dims = nullptr;  // null: every member has this size
  int64_t rows = 0, cols = 0, members = 0;
  DirectionRoom room[2];
  uint32_t* offsets = nullptr;
  uint32_t* scale_offsets[2] = {};
  MemberStart* starts = nullptr;
};

// What is added up over the members.
enum Sum : int { kTiles, kElements, kRowData, kColData, kRowScales, kColScales, kRowLines, kColLines, kSums };

// Exclusive sums over all members: one block takes kThreads of them at a time and carries the totals on
// (N14.3).
__global__ void __launch_bounds__(kThreads) member_offsets(OffsetsArgs a) {
  ASSAY_SHARED(long long, by_warp, [kSums][kThreads / 32]);
  if (is_noop(a.noop)) return;
  const int lane = int(threadIdx.x & 31u), warp = int(threadIdx.x >> 5);
  long long carry[kSums] = {};
  // Entry `members` is the end: a member without elements.
  for (int64_t base = 0; base <= a.members; base += kThreads) {
    const int64_t m = base + threadIdx.x;
    const bool on = m < a.members;
    const int64_t rows = !on ? 0 : a.first_dims != nullptr ? int64_t(a.first_dims[m]) : a.rows;
    const int64_t cols = !on ? 0 : a.last_dims != nullptr ? int64_t(a.last_dims[m]) : a.cols;
    const long long mine[kSums] = {((rows + kTile - 1) / kTile) * ((cols + kTile - 1) / kTile),
                                   rows * cols,
                                   a.room[0].data(rows, cols),
                                   a.room[1].data(rows, cols),
                                   a.room[0].scales(rows, cols),
                                   a.room[1].scales(rows, cols),
                                   rows,
                                   cols};
    long long before[kSums];
#pragma unroll
    for (int s = 0; s < kSums; ++s) {
      long long sum = mine[s];
#pragma unroll
      for (int distance = 1; distance < 32; distance <<= 1) {
        const long long other = __shfl_up_sync(kAllLanes, sum, distance);
        if (lane >= distance) sum += other;
      }
      before[s] = sum - mine[s];
      if (lane == 31) by_warp[s][warp] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int s = 0; s < kSums; ++s) {
      before[s] += carry[s];
#pragma unroll
      for (int w = 0; w < kThreads / 32; ++w) {
        if (w < warp) before[s] += by_warp[s][w];
        carry[s] += by_warp[s][w];
      }
    }
    __syncthreads();
    if (m > a.members) continue;
    a.starts[m] = {before[kTiles],
                   before[kElements],
                   rows,
                   cols,
                   {a.room[0].data_bytes(before[kRowData]), a.room[1].data_bytes(before[kColData])},
                   {a.room[0].scale_bytes(before[kRowScales]), a.room[1].scale_bytes(before[kColScales])},
                   {before[kRowLines], before[kColLines]}};
    a.offsets[m] = uint32_t(before[kElements]);
    if (a.scale_offsets[0] != nullptr) a.scale_offsets[0][m] = uint32_t(before[kRowScales]);
    if (a.scale_offsets[1] != nullptr) a.scale_offsets[1][m] = uint32_t(before[kColScales]);
  }
}

// Blocks for the tiles of all members, whose sizes only the device knows: no more than there can be, and few
// enough that blocks without a tile cost little.
unsigned blocks_for(const Problem& p, int64_t members) {
  constexpr int64_t kMost = 1056;
  const Split& op = *p.as<Split>();
  const Shape s = p.x.shape;
  const int64_t elements = op.capacity > s.count() ? op.capacity : s.count();
  const auto tiles = [](int64_t n) { return (n + kTile - 1) / kTile; };
  int64_t bound = elements / kTile + members;  // each further tile of a member takes 128 elements at least
  if (op.vary == Vary::first && s.cols != 0) bound = (tiles(elements / s.cols) + members) * tiles(s.cols);
  if (op.vary == Vary::last && s.rows != 0) bound = (tiles(elements / s.rows) + members) * tiles(s.rows);
  if (elements == 0) return 0;
  return unsigned(bound < kMost ? bound : kMost);
}

}  // namespace

std::string run_split(const Job& job) {
  const Problem& p = job.problem;
  const int64_t members = member_count(p);
  OffsetsArgs args;
  args.noop = job.input("noop");
  args.first_dims = job.input("first_dims");
  args.last_dims = job.input("last_dims");
  args.members = members;
  if (members != 0) {  // sizes that do not vary
    args.rows = p.as<Split>()->vary == Vary::none ? p.x.shape.rows / members : p.x.shape.rows;
    args.cols = p.x.shape.cols;
  }
  args.offsets = job.output("offsets");
  for (Direction d : kDirections) {
    if (!p.quantizer(d)) continue;
    const int i = d == Direction::row ? 0 : 1;
    args.room[i] = DirectionRoom::of(p, d);
    args.scale_offsets[i] = job.output(d, "scale_offsets");
  }
  Scratch starts(size_t(members + 1) * sizeof(MemberStart));
  args.starts = starts.as<MemberStart>();
  launch({.name = "member_offsets", .grid = 1, .block = kThreads}, member_offsets, args);
  if (members == 0) return "member_offsets";
  if (const std::string by = split_mxfp8_members(job, args.starts, members); !by.empty())
    return "member_offsets; " + by + ", " + std::to_string(members) + " members";

  Read read;
  read.x = job.input<void>("x");
  read.noop = args.noop;
  read.source = p.x.source;
  read.starts = args.starts;
  read.members = members;
  read.grid = blocks_for(p, members);
  return "member_offsets; " + launch_directions(job, read) + ", " + std::to_string(members) + " members";
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
