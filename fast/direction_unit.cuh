// The kernel of direction lanes and its launches. Included by the generated units, one per row lane, behind
// the lanes (fast/families.def).
#pragma once
#include <stdexcept>

#include "fast/directions.h"
#include "fast/move/direction.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// A direction that is not produced.
struct NoDirection : WithoutAmaxPass {
  static constexpr bool kCopies = true;
  template <bool kRows> ASSAY_DEVICE void encode(const Tile&, Patch&, Step) const {}
};

// What one launch does with each patch, in this order.
struct Stage {
  bool row_amax = false, row_encode = false;
  Step row_step{};  // decode: what follows sees the dequantized rows (N13.1)
  bool col_amax = false, col_encode = false;
};

// Patches of x, widened (N1.2). Vectors where the tensor allows them.
template <class S> ASSAY_DEVICE void load_widened(const void* x, const Tile& tile, Patch& patch) {
  uint32_t words[kPatch][S::kWords];
  const bool vector = tile.extent.cols % kPatch == 0 && (reinterpret_cast<uintptr_t>(x) & 15u) == 0;
  if (vector) load_patch<S, true>(x, tile.extent, tile.at, words);
  else load_patch<S, false>(x, tile.extent, tile.at, words);
#pragma unroll
  for (int i = 0; i < kPatch; ++i)
#pragma unroll
    for (int j = 0; j < kPatch; ++j) {
      uint32_t bits = S::widen(words[i], j);
      if constexpr (S::kEncoding ==
                    Encoding::f16) {  // decode() makes NaN canonical; identity wants it as it was (N7.1)
        const uint32_t code = j % 2 ? words[i][j / 2] >> 16 : words[i][j / 2] & 0xFFFFu;
        if (is_nan(bits)) bits = (code & 0x8000u) << 16 | kInf | (code & 0x03FFu) << 13;
      }
      patch.bits[i][j] = bits;
    }
}

// The patch rounded to E and widened again (N13.1); what lies outside the tensor is 0, whatever a scale made
// of it.
template <Encoding E> ASSAY_DEVICE void round_patch(const Tile& tile, Patch& patch) {
#pragma unroll
  for (int i = 0; i < kPatch; ++i)
#pragma unroll
    for (int j = 0; j < kPatch; ++j)
      patch.bits[i][j] = i < tile.at.rows && j < tile.at.cols
                             ? decode<E>(encode<E>(patch.bits[i][j], Round::rne, Overflow::nosat))
                             : 0u;
}

template <class RowLane, class ColLane> struct DirectionArgs {
  const void* x = nullptr;
  const uint32_t* noop = nullptr;
  Encoding source{};
  Extent extent;
  uint32_t member = 0;
  const MemberStart* starts = nullptr;
  int64_t members = 1;
  Stage stage;
  RowLane row;
  ColLane col;
};

template <class RowLane, class ColLane>
__global__ void __launch_bounds__(kThreads, 1) direction_kernel(DirectionArgs<RowLane, ColLane> a) {
  if (is_noop(a.noop)) return;
  const int64_t tiles = a.starts != nullptr ? a.starts[a.members].tiles : int64_t(gridDim.x);
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    Tile tile{a.extent, {}, a.source, a.member};
    RowLane row = a.row;
    ColLane col = a.col;
    const char* x = static_cast<const char*>(a.x);
    int64_t tile_in_member = t;
    if (a.starts != nullptr) {
      const int64_t m = member_of_tile(a.starts, a.members, t);
      const MemberStart& start = a.starts[m];
      tile.extent = {start.rows, start.cols};
      tile.member = uint32_t(m);
      tile_in_member -= start.tiles;
      x += start.elements * (a.source == Encoding::f32 ? 4 : 2);
      row.planes.move_to(start, 0, m);
      col.planes.move_to(start, 1, m);
    }
    tile.at = place_in_tile(tile.extent, unsigned(tile_in_member));

    Patch patch;
    if (a.source == Encoding::bf16) load_widened<Source<Encoding::bf16>>(x, tile, patch);
    else if (a.source == Encoding::f16) load_widened<Source<Encoding::f16>>(x, tile, patch);
    else load_widened<Source<Encoding::f32>>(x, tile, patch);

    if (a.stage.row_amax) row.template accumulate<true>(tile, patch);
    if (a.stage.row_encode) {
      row.template encode<true>(tile, patch, a.stage.row_step);
      if (!RowLane::kCopies && a.stage.row_step.decode) {
        if (a.source == Encoding::bf16) round_patch<Encoding::bf16>(tile, patch);
        else if (a.source == Encoding::f16) round_patch<Encoding::f16>(tile, patch);
        else round_patch<Encoding::f32>(tile, patch);
      }
    }
    if (a.stage.col_amax) col.template accumulate<false>(tile, patch);
    if (a.stage.col_encode) col.template encode<false>(tile, patch, Step{true, false});
  }
}

// One thread per amax slot of either direction: before any amax is taken, or after.
template <class RowLane, class ColLane>
__global__ void __launch_bounds__(kThreads)
    slots_kernel(RowLane row, int64_t row_slots, ColLane col, int64_t col_slots, const uint32_t* noop,
                 bool finish) {
  if (is_noop(noop)) return;
  const int64_t slot = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (slot < row_slots) finish ? row.finish(slot) : row.start(slot);
  if (slot < col_slots) finish ? col.finish(slot) : col.start(slot);
}
template <class RowLane, class ColLane>
void launch_slots(const char* name, const RowLane& row, int64_t row_slots, const ColLane& col,
                  int64_t col_slots, const Read& read, bool finish) {
  const int64_t slots = row_slots > col_slots ? row_slots : col_slots;
  if (slots == 0) return;
  launch({.name = name, .grid = unsigned((slots + kThreads - 1) / kThreads), .block = kThreads},
         slots_kernel<RowLane, ColLane>, row, row_slots, col, col_slots, read.noop, finish);
}

template <class RowLane, class ColLane>
std::string launch_lanes(const Job& job, const Read& read, const RowLane& row, const ColLane& col) {
  const Problem& p = job.problem;
  const bool decoded = p.row && p.col && p.col_source == ColSource::row_dequantized;
  auto pass = [&](const char* name, const Stage& stage) {
    if (read.grid == 0) return;
    launch({.name = name, .grid = read.grid, .block = kThreads}, direction_kernel<RowLane, ColLane>,
           DirectionArgs<RowLane, ColLane>{read.x,
                                           read.noop,
                                           read.source,
                                           {read.shape.rows, read.shape.cols},
                                           read.member,
                                           read.starts,
                                           read.members,
                                           stage,
                                           row,
                                           col});
  };
  std::string by;
  launch_slots("start", row, row.start_slots(), col, col.start_slots(), read, false);
  const bool row_before = row.amax_pass() == Pass::before, col_before = col.amax_pass() == Pass::before;
  if (row_before || (col_before && !decoded)) {
    pass("amax", {.row_amax = row_before, .col_amax = col_before && !decoded});
    by += "amax pass; ";
  }
  launch_slots("finish", row, row.finish_slots(), col, decoded ? 0 : col.finish_slots(), read, true);
  if (col_before && decoded) {
    pass("amax of decoded rows",
         {.row_encode = true, .row_step = {.store = false, .decode = true}, .col_amax = true});
    by += "amax pass of the decoded rows; ";
  }
  if (decoded) launch_slots("finish col", row, 0, col, col.finish_slots(), read, true);
  pass("pair", {.row_amax = row.amax_pass() == Pass::during,
                .row_encode = true,
                .row_step = {.store = true, .decode = decoded},
                .col_amax = col.amax_pass() == Pass::during,
                .col_encode = true});

  by += "pair<";
  for (Direction d : kDirections)
    if (p.quantizer(d))
      by += (by.back() == '<' ? "" : ", ") + std::string(info(p.quantizer(d)->format).name) + " " +
            std::string(name_of(d));
  return by + "> " + how(p) + (decoded ? ", columns of the decoded rows" : "");
}

template <class RowLane> std::string launch_with_row(const Job& job, const Read& read) {
  const Problem& p = job.problem;
  RowLane row;
  if constexpr (!std::is_same_v<RowLane, NoDirection>) {
    row = RowLane::of(job, Direction::row);
    if (!p.col) return launch_lanes(job, read, row, NoDirection{});
  }
  switch (info(p.col->format).family) {
#define FAMILY(name, Lane) \
  case Family::name:       \
    return launch_lanes(job, read, row, Lane::of(job, Direction::col));
#include "fast/families.def"
#undef FAMILY
  }
  throw std::runtime_error("no direction lane for " + std::string(info(p.col->format).name));
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
