// One read, both directions, any two formats: what a direction lane gets, and how it moves what it makes
// (N13).
//
// A block of 256 threads takes a tile of 128x128 elements, each thread a patch of 8x8, as move/patch.cuh
// spreads them. Here a patch is widened to binary32, so that a lane of any format, with run-time Numerics,
// sees the same thing: the tensor, or what the rows came to.
//
// A direction lane is a struct with
//   kCopies                       whether the result is the input, bit for bit (identity)
//   planes                        its DirectionPlanes; the kernel moves them on to the member at hand
//   amax_pass()                   host: whether it needs an amax before it can encode: Pass::none, before, or
//                                 during (accumulated while encoding)
//   start_slots(), finish_slots() host: how many amax slots start() and finish() serve, 0 for none; in a
//   split those of all members
//   start(slot), finish(slot)     device, one thread a slot: what stands there before any amax is taken; the
//                                 scale from the amax
//   accumulate<kRows>(tile, patch)      device: raises the amax by this patch
//   encode<kRows>(tile, patch, step)    device: writes scales and data where step.store; where step.decode
//                                       the patch becomes the result
//                                       dequantized in binary32 (the kernel rounds it to the source's
//                                       encoding, N13.1)
//   of(job, direction)            host: the lane that serves this direction of this Problem
// Every thread of a block calls accumulate() and encode(), those whose patch lies outside the tensor too:
// they may hold barriers.
#pragma once
#include "fast/choose.h"
#include "fast/lane/convert.cuh"
#include "fast/lane/decode.cuh"
#include "fast/lane/element_rule.cuh"
#include "fast/lane/mxfp6.cuh"
#include "fast/move/members.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// This thread's patch of a tensor, or of one member of a grouped tensor: everything is in the member's own
// coordinates.
struct Tile {
  Extent extent;
  Place at;
  Encoding source{};
  uint32_t member = 0;  // N12.2
};

// Binary32 patterns, widened exactly (N1.2; a NaN keeps its payload for identity); 0 outside the tensor.
struct Patch {
  uint32_t bits[kPatch][kPatch];
};

struct Step {
  bool store = false, decode = false;
};
enum class Pass : uint8_t { none, before, during };

// Where one direction reads and writes. Null: there is no such plane.
struct DirectionPlanes {
  uint8_t* data = nullptr;
  uint8_t* scales = nullptr;        // of blocks: one byte each, or F32 where the format says so
  bool gemm = false;                // block scales in the GEMM layout
  const uint32_t* given = nullptr;  // given.amax, or fp8_delayed's given.scale
  const uint32_t* prior = nullptr;  // fp8_delayed's prior.amax
  uint32_t *amax = nullptr, *scale = nullptr, *scale_inv = nullptr;  // of the tensor
  bool by_line = false;  // these three are of each stored row (N3.12, N10.9)

  ASSAY_DEVICE void move_to(const MemberStart& m, int direction, int64_t member) {
    if (data != nullptr) data += m.data[direction];
    if (scales != nullptr) scales += m.scales[direction];
    if (given != nullptr) given += member;
    if (prior != nullptr) prior += member;
    const int64_t slot = by_line ? m.lines[direction] : member;
    if (amax != nullptr) amax += slot;
    if (scale != nullptr) scale += slot;
    if (scale_inv != nullptr) scale_inv += slot;
  }
};

// What lanes that need no amax before they encode have in common.
struct WithoutAmaxPass {
  DirectionPlanes planes;
  Pass amax_pass() const { return Pass::none; }
  int64_t start_slots() const { return 0; }
  int64_t finish_slots() const { return 0; }
  ASSAY_DEVICE void start(int64_t) const {}
  ASSAY_DEVICE void finish(int64_t) const {}
  template <bool kRows> ASSAY_DEVICE void accumulate(const Tile&, const Patch&) const {}
};

inline DirectionPlanes direction_planes(const Job& job, Direction d) {
  const Quantizer& q = *job.problem.quantizer(d);
  DirectionPlanes out;
  out.data = job.output<uint8_t>(d, "data");
  out.gemm = q.scales == ScaleLayout::gemm;
  out.given = job.input(d, q.format == FormatId::fp8_delayed ? "given.scale" : "given.amax");
  out.prior = job.input(d, "prior.amax");
  out.amax = job.output(d, "amax");
  out.by_line = q.row_scaled;
  if (info(q.format).has_blocks()) out.scales = job.output<uint8_t>(d, scale_stem(q.scales));
  else out.scale_inv = job.output(d, "scale_inv");
  out.scale = job.output(d, "scale");
  return out;
}

// Tensors in one: the members of a split, or the one.
inline int64_t member_count(const Problem& p) {
  return p.as<Split>() ? int64_t(p.as<Split>()->members.size()) : 1;
}
// Amaxes of a direction: one for each of them, or one for each of their stored rows (N3.12, N10.9).
inline int64_t amax_slots(const Problem& p, Direction d) {
  if (!p.quantizer(d)->row_scaled) return member_count(p);
  const auto lines = [d](Shape s) { return d == Direction::row ? s.rows : s.cols; };
  const Split* split = p.as<Split>();
  if (split == nullptr) return lines(p.x.shape);
  int64_t slots = 0;
  for (Shape m : split->members) slots += lines(m);
  return slots;
}

// A patch seen from one direction: 8 lines of 8 elements along the contracted dimension. Lines of rows are
// rows, of columns columns; a line is a row of the stored data where those are transposed.
template <bool kRows> struct Axis {
  ASSAY_LANE static uint32_t& at(Patch& p, int line, int k) {
    return kRows ? p.bits[line][k] : p.bits[k][line];
  }
  ASSAY_LANE static uint32_t at(const Patch& p, int line, int k) {
    return kRows ? p.bits[line][k] : p.bits[k][line];
  }
  // Index of the patch's first line, and of the first element along each line.
  ASSAY_LANE static int64_t line(const Tile& t) { return kRows ? t.at.row : t.at.col; }
  ASSAY_LANE static int64_t first(const Tile& t) { return kRows ? t.at.col : t.at.row; }
  // How many of the 8 lines, and of the 8 elements of each, lie inside the tensor: both 0 where none does.
  ASSAY_LANE static int lines(const Tile& t) { return kRows ? t.at.rows : t.at.cols; }
  ASSAY_LANE static int elements(const Tile& t) { return kRows ? t.at.cols : t.at.rows; }
  // Of the whole tensor.
  ASSAY_LANE static int64_t line_count(const Tile& t) { return kRows ? t.extent.rows : t.extent.cols; }
  ASSAY_LANE static int64_t element_count(const Tile& t) { return kRows ? t.extent.cols : t.extent.rows; }
  // Distance in lanes to the next patch along the line, and across it.
  static constexpr int kNext = kRows ? 1 : 8, kAcross = kRows ? 8 : 1;
  // Place within the tile: of the first line, 0..120, and of the first element.
  ASSAY_DEVICE static int tile_line(const Tile& t) { return int(line(t) & (kTile - 1)); }
  ASSAY_DEVICE static int tile_first(const Tile& t) { return int(first(t) & (kTile - 1)); }
};

// A patch line by line in memory, for loops that are not unrolled: where a line takes long code, eight copies
// of it compile for minutes and spill.
struct PatchLines {
  uint32_t line[kPatch][kPatch];
};
template <bool kRows> ASSAY_LANE void take_lines(const Patch& patch, PatchLines& lines) {
#pragma unroll
  for (int l = 0; l < kPatch; ++l)
#pragma unroll
    for (int k = 0; k < kPatch; ++k) lines.line[l][k] = Axis<kRows>::at(patch, l, k);
}
template <bool kRows> ASSAY_LANE void put_lines(const PatchLines& lines, Patch& patch) {
#pragma unroll
  for (int l = 0; l < kPatch; ++l)
#pragma unroll
    for (int k = 0; k < kPatch; ++k) Axis<kRows>::at(patch, l, k) = lines.line[l][k];
}

// --- maxima. All patterns are binary32 without sign, so that they compare as integers and a NaN is above
// everything ---

// The greater of `best` and |bits|. A NaN does not count, or wins where `nan_wins` (N5.1, N5.7).
ASSAY_LANE uint32_t raised(uint32_t best, uint32_t bits, bool nan_wins) {
  const uint32_t a = bits & kAbs, counted = a > kInf && !nan_wins ? 0u : a;
  return counted > best ? counted : best;
}
// Greatest absolute value of each line of the patch.
template <bool kRows>
ASSAY_LANE void line_maxima(const Patch& patch, bool nan_wins, uint32_t (&items)[kPatch]) {
#pragma unroll
  for (int l = 0; l < kPatch; ++l) {
    items[l] = 0;
#pragma unroll
    for (int k = 0; k < kPatch; ++k) items[l] = raised(items[l], Axis<kRows>::at(patch, l, k), nan_wins);
  }
}
ASSAY_LANE uint32_t greatest(const uint32_t (&items)[kPatch]) {
  uint32_t best = items[0];
#pragma unroll
  for (int l = 1; l < kPatch; ++l) best = items[l] > best ? items[l] : best;
  return best;
}
ASSAY_DEVICE uint32_t shuffled_max(uint32_t value, int distance) {
  const uint32_t other = __shfl_xor_sync(kAllLanes, value, distance);
  return other > value ? other : value;
}
// Two at once: one meeting of the warp under the host executor.
ASSAY_DEVICE void shuffled_max2(uint32_t& a, uint32_t& b, int distance) {
  const unsigned long long other = __shfl_xor_sync(kAllLanes, (unsigned long long)(b) << 32 | a, distance);
  a = uint32_t(other) > a ? uint32_t(other) : a;
  b = uint32_t(other >> 32) > b ? uint32_t(other >> 32) : b;
}
// The maximum over all 256 threads, in every thread. Holds barriers.
ASSAY_DEVICE uint32_t tile_maximum(uint32_t value) {
  ASSAY_SHARED(uint32_t, tile_by_warp, [kThreads / 32]);
  const uint32_t warp_max = __reduce_max_sync(kAllLanes, value);
  __syncthreads();  // what the last call left has been read
  if ((threadIdx.x & 31u) == 0) tile_by_warp[threadIdx.x >> 5] = warp_max;
  __syncthreads();
  uint32_t best = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) best = tile_by_warp[w] > best ? tile_by_warp[w] : best;
  return best;
}
// items[l] becomes the maximum over the block of kLength (16 or 32) elements of line l that this patch lies
// in.
template <bool kRows, int kLength> ASSAY_DEVICE void block_maxima(uint32_t (&items)[kPatch]) {
  static_assert(kLength == 16 || kLength == 32);
  constexpr int kNext = Axis<kRows>::kNext;
#pragma unroll
  for (int l = 0; l < kPatch; l += 2) {
    shuffled_max2(items[l], items[l + 1], kNext);
    if constexpr (kLength == 32) shuffled_max2(items[l], items[l + 1], 2 * kNext);
  }
}
// The maximum over the square of kLength (16, 32 or 128) that this patch lies in, from the patch's own. 128
// holds barriers.
template <int kLength> ASSAY_DEVICE uint32_t square_maximum(uint32_t value) {
  static_assert(kLength == 16 || kLength == 32 || kLength == kTile);
  if constexpr (kLength == kTile) return tile_maximum(value);
  value = shuffled_max(shuffled_max(value, 1), 8);
  if constexpr (kLength == 32) value = shuffled_max(shuffled_max(value, 2), 16);
  return value;
}
// Raises *amax (where not null) to the tile's maximum, from the patch's own. Holds barriers.
ASSAY_DEVICE void accumulate_amax(uint32_t value, uint32_t* amax) {
  const uint32_t best = tile_maximum(value);
  // As signed integers, so that a negative value there is less than any maximum.
  if (threadIdx.x == 0 && amax != nullptr) atomicMax(reinterpret_cast<int*>(amax), int(best));
}
ASSAY_DEVICE void accumulate_amax(const Patch& patch, uint32_t* amax) {
  uint32_t items[kPatch];
  line_maxima<true>(patch, false, items);
  accumulate_amax(greatest(items), amax);
}

// Raises amax[line] of each line of the patch. A warp holds 64 elements of each of its rows, or 32 of each of
// its columns.
template <bool kRows>
ASSAY_DEVICE void accumulate_line_amaxes(const Tile& tile, const Patch& patch, uint32_t* amax) {
  using A = Axis<kRows>;
  uint32_t items[kPatch];
  line_maxima<kRows>(patch, false, items);
#pragma unroll
  for (int l = 0; l < kPatch; ++l) {
    items[l] = shuffled_max(shuffled_max(items[l], A::kNext), 2 * A::kNext);
    if constexpr (kRows) items[l] = shuffled_max(items[l], 4);
    const bool first = kRows ? (tile.at.lane & 7) == 0 : tile.at.lane < 8;
    if (first && l < A::lines(tile))
      atomicMax(reinterpret_cast<int*>(amax + A::line(tile) + l), int(items[l]));
  }
}

// --- data ----------------------------------------------------------------------------------------

// Stores 8 bytes a line: `count` of them where fewer lie inside. `pitch` is that of the stored rows.
ASSAY_DEVICE void store_lines8(uint8_t* to, int64_t pitch, int lines, int count,
                               const uint2 (&codes)[kPatch]) {
  const bool vector = count == kPatch && ((reinterpret_cast<uintptr_t>(to) | uint64_t(pitch)) & 7u) == 0;
#pragma unroll
  for (int l = 0; l < kPatch; ++l, to += pitch) {
    if (l >= lines) continue;
    if (vector) store_codes<true>(to, count, codes[l]);
    else store_codes<false>(to, count, codes[l]);
  }
}
// codes[l] holds the 8 codes of line l, one a byte. Columns are stored as lines (kTransposed) or as the
// tensor's rows (N6.1).
template <bool kRows, bool kTransposed>
ASSAY_DEVICE void store_bytes(uint8_t* data, const Tile& tile, uint2 (&codes)[kPatch]) {
  using A = Axis<kRows>;
  if constexpr (kRows || kTransposed) {
    store_lines8(data + A::line(tile) * A::element_count(tile) + A::first(tile), A::element_count(tile),
                 A::lines(tile), A::elements(tile), codes);
  } else {
    transpose8(codes);
    store_lines8(data + tile.at.row * tile.extent.cols + tile.at.col, tile.extent.cols, tile.at.rows,
                 tile.at.cols, codes);
  }
}
// codes[l] holds the 8 codes of line l, one in 4 bits, the first lowest. Lines are stored rows; a padding
// code is 0 (N6.8).
template <bool kRows>
ASSAY_DEVICE void store_nibbles(uint8_t* data, const Tile& tile, const uint32_t (&codes)[kPatch]) {
  using A = Axis<kRows>;
  const int64_t pitch = (A::element_count(tile) + 1) >> 1;
  uint8_t* to = data + A::line(tile) * pitch + (A::first(tile) >> 1);
  const int count = A::elements(tile), bytes = (count + 1) >> 1;
  const uint32_t mask = count >= kPatch ? 0xFFFFFFFFu : (1u << (4 * count)) - 1u;
  const bool vector = bytes == 4 && ((reinterpret_cast<uintptr_t>(to) | uint64_t(pitch)) & 3u) == 0;
#pragma unroll
  for (int l = 0; l < kPatch; ++l, to += pitch) {
    if (l >= A::lines(tile)) continue;
    const uint32_t word = codes[l] & mask;
    if (vector) {
      *reinterpret_cast<uint32_t*>(to) = word;
      continue;
    }
#pragma unroll
    for (int b = 0; b < 4; ++b)
      if (b < bytes) to[b] = uint8_t(word >> (8 * b));
  }
}

// codes[l] holds the 8 codes of line l, one a byte, of 6 bits; four are stored in three bytes (N6.8). Lines
// are stored rows; a padding code is 0.
template <bool kRows>
ASSAY_DEVICE void store_sixes(uint8_t* data, const Tile& tile, const uint2 (&codes)[kPatch]) {
  using A = Axis<kRows>;
  const int64_t pitch = ((A::element_count(tile) + 3) >> 2) * 3;
  uint8_t* to = data + A::line(tile) * pitch + (A::first(tile) >> 2) * 3;
  const int count = A::elements(tile), bytes = ((count + 3) >> 2) * 3;
  const uint64_t mask = count >= kPatch ? ~uint64_t{0} : (uint64_t{1} << (8 * count)) - 1u;
#pragma unroll
  for (int l = 0; l < kPatch; ++l, to += pitch) {
    if (l >= A::lines(tile)) continue;
    const uint32_t low = squeeze_sixes(codes[l].x & uint32_t(mask)),
                   high = squeeze_sixes(codes[l].y & uint32_t(mask >> 32));
#pragma unroll
    for (int b = 0; b < 6; ++b)
      if (b < bytes) to[b] = uint8_t((b < 3 ? low : high) >> (8 * (b % 3)));
  }
}

// --- block scales. A block's first patch stores; a tile stores its share of the padding as 0 (N6.4) ---

// scales[l]: the one-byte scale of the block of kLength elements of line l. Compact scales are [line][block]
// in [128, 4], or [block][line] in [4, 128] where kByBlock (N6.2, N10.14, N15.4); GEMM layout by N6.3.
template <bool kRows, int kLength, bool kByBlock>
ASSAY_DEVICE void store_byte_scales(const DirectionPlanes& planes, const Tile& tile,
                                    const uint32_t (&scales)[kPatch]) {
  using A = Axis<kRows>;
  if (A::tile_first(tile) % kLength != 0) return;
  const int64_t j = A::first(tile) / kLength, blocks = (A::element_count(tile) + kLength - 1) / kLength,
                padded = (blocks + 3) & ~int64_t{3};
  if (j >= padded) return;
  const int64_t lines_padded = (A::line_count(tile) + kTile - 1) / kTile * kTile;
#pragma unroll
  for (int l = 0; l < kPatch; ++l) {
    const int64_t i = A::line(tile) + l;
    const uint8_t scale = i < A::line_count(tile) && j < blocks ? uint8_t(scales[l]) : uint8_t(0);
    planes.scales[planes.gemm ? gemm_index(i, j, padded >> 2)
                  : kByBlock  ? j * lines_padded + i
                              : i * padded + j] = scale;
  }
}
// --- elements ------------------------------------------------------------------------------------

// Two codes of one of kElements, in the low bytes, or those of 4 bits in the low byte. On a GPU the
// conversion instructions; on the host executor their twins, or integers, so that both are judged
// (convert.cuh). What the element is is known when a kernel is launched.
template <Encoding... kElements> struct Convert {
  Encoding element{};
  bool integers = false;
  ASSAY_LANE uint32_t operator()(float lo, float hi) const {
    uint32_t codes = 0;
    ((element == kElements ? void(codes = pair<kElements>(lo, hi)) : void()), ...);
    return codes;
  }
  ASSAY_LANE uint32_t decoded(uint32_t code) const {
    uint32_t bits = kNan;
    ((element == kElements ? void(bits = decode<kElements>(code)) : void()), ...);
    return bits;
  }

 private:
  template <Encoding E> ASSAY_LANE uint32_t pair(float lo, float hi) const {
#if !defined(__CUDA_ARCH__)
    if (integers) return Bits::pair<E>(lo, hi);
#endif
    return Hardware::pair<E>(lo, hi);
  }
};
// Whether every format of a family takes these elements and no other: what its lane knows.
template <Encoding... kElements> constexpr bool are_elements_of(Family family) {
  for (const FormatInfo& f : kFormats)
    for (size_t e = 0; e < kEncodings.size() && f.family == family; ++e)
      if (has_word(f.elements, kEncodings[e].name) && ((static_cast<Encoding>(e) != kElements) && ...))
        return false;
  return true;
}
using Fp8Convert = Convert<Encoding::e4m3, Encoding::e5m2>;
static_assert(are_elements_of<Encoding::e4m3, Encoding::e5m2>(Family::fp8_tensor) &&
                  are_elements_of<Encoding::e4m3, Encoding::e5m2>(Family::fp8_block),
              "a row of formats.def has an element that the lanes of FP8 do not know");
// The code of E that widens to `bits`: the inverse of widening, for values that E has.
template <Encoding E> ASSAY_LANE uint32_t narrow_exactly(uint32_t bits) {
  if constexpr (E == Encoding::f32) return bits;
  if constexpr (E == Encoding::bf16) return bits >> 16;
  if (is_nan(bits))
    return (bits & kSign) >> 16 | Layout<E>::kInfCode | (bits & kFraction) >> Layout<E>::kDrop;
  return encode<E>(bits, Round::rne, Overflow::nosat);
}
// x * multiplier, rounded once. `plus_zero`: adding +0 in the same rounding turns an exact -0 into +0 and
// changes nothing else (N5.6).
ASSAY_LANE float scaled(uint32_t x, float multiplier, bool plus_zero) {
  return plus_zero ? __fmaf_rn(as_float(x), multiplier, 0.0f) : __fmul_rn(as_float(x), multiplier);
}
// codes[l]: those of line l by the rule, under factors[l]. In memory, as its code is too long to stand there
// eight times.
template <bool kRows>
ASSAY_LANE void rule_codes(const ElementRule& rule, const Patch& patch, const uint32_t (&factors)[kPatch],
                           bool divides, uint2 (&codes)[kPatch]) {
  PatchLines lines;
  take_lines<kRows>(patch, lines);
  uint32_t factor[kPatch];
  uint64_t eight[kPatch];
#pragma unroll
  for (int l = 0; l < kPatch; ++l) factor[l] = factors[l];
#pragma unroll 1
  for (int l = 0; l < kPatch; ++l) eight[l] = rule.eight(lines.line[l], {as_float(factor[l]), divides});
#pragma unroll
  for (int l = 0; l < kPatch; ++l) codes[l] = make_uint2(uint32_t(eight[l]), uint32_t(eight[l] >> 32));
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
