// One operand of a gemm on its way into shared memory: every element is decoded once, to binary32, whatever
// its format and layout.
//
// A line is what one output reads: row m of a, row n of b. Stored rows run along k, or along the lines where
// columns are stored as they are; either way 8 neighbours of a stored row are read at once, and shared memory
// holds them k by k.
#pragma once
#include "fast/lane/nvfp4.cuh"
#include "fast/move/dequantize.cuh"
#include "fast/move/element.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

inline constexpr int kGemmTile = 64,
                     kGemmDepth = 32;  // lines of either operand, and k, that shared memory holds at a time
inline constexpr int kGemmPitch = kGemmTile + 4;  // a multiple of 4 for vectors
inline constexpr int kGemmThreads = 64;

// What a code is multiplied by: nothing, the scale_inv of the tensor or of the line (N3.12), that of the
// block (f32 or E8M0), or that of the block under an amax.
enum class Factor : uint8_t { none, tensor, line, f32, e8m0, two_level };

struct GemmOperand {
  const void *data = nullptr, *scales = nullptr;
  const uint32_t* amax = nullptr;  // two_level; null: 1, as under N16.9
  int64_t lines = 0, k = 0;
  int64_t pitch = 0;  // elements of a stored row, those that fill a packed one's last byte among them
  Encoding element{};
  int bits = 0;  // of an element as it is stored: 32, 16, 8, packed 6 or 4
  Factor factor{};
  bool along_k = true, vector = false;
  BlockIndex index;
  Nvfp4Chain chain;
};

ASSAY_DEVICE float gemm_factor(const GemmOperand& o, int64_t line, int64_t k) {
  switch (o.factor) {
    case Factor::none: break;
    case Factor::tensor: return as_float(*static_cast<const uint32_t*>(o.scales));
    case Factor::line: return as_float(static_cast<const uint32_t*>(o.scales)[line]);
    case Factor::f32: return as_float(static_cast<const uint32_t*>(o.scales)[o.index(line, k)]);
    case Factor::e8m0: return as_float(mx_scale(static_cast<const uint8_t*>(o.scales)[o.index(line, k)]));
    case Factor::two_level:
      return o.chain.decode_multiplier(o.amax != nullptr ? *o.amax : kOne,
                                       static_cast<const uint8_t*>(o.scales)[o.index(line, k)]);
  }
  return 1.0f;
}

// `count` of 8 codes of a stored row, from element `first` on.
template <int kBytes>
ASSAY_DEVICE void load_octet_of(const GemmOperand& o, int64_t first, int count, uint32_t (&codes)[8]) {
  if (o.vector && count == 8) return load_eight<kBytes, true>(o.data, first, codes);
#pragma unroll
  for (int j = 0; j < 8; ++j) codes[j] = j < count ? load_element<kBytes>(o.data, first + j) : 0u;
}
ASSAY_DEVICE void load_octet(const GemmOperand& o, int64_t stored_row, int64_t at, int count,
                             uint32_t (&codes)[8]) {
  const int64_t first = stored_row * o.pitch + at;
  if (o.bits == 8) return load_octet_of<1>(o, first, count, codes);
  if (o.bits == 16) return load_octet_of<2>(o, first, count, codes);
  if (o.bits == 32) return load_octet_of<4>(o, first, count, codes);
  if (o.bits == 6) {  // N6.8: four codes in three bytes
    const uint8_t* from = static_cast<const uint8_t*>(o.data) + (first >> 2) * 3;
    uint64_t bits = 0;
#pragma unroll
    for (int b = 0; b < 6; ++b)
      if (4 * (b / 3) < count) bits |= uint64_t(from[b]) << (8 * b);
#pragma unroll
    for (int j = 0; j < 8; ++j) codes[j] = j < count ? uint32_t(bits >> (6 * j)) & 63u : 0u;
    return;
  }
  const uint8_t* from = static_cast<const uint8_t*>(o.data) + (first >> 1);  // N6.8: two in a byte
  uint32_t word = 0;
  if (o.vector && count == 8) {
    word = *reinterpret_cast<const uint32_t*>(from);
  } else {
#pragma unroll
    for (int b = 0; b < 4; ++b)
      if (2 * b < count) word |= uint32_t(from[b]) << (8 * b);
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) codes[j] = (word >> (4 * j)) & 15u;
}

template <Encoding E>
ASSAY_DEVICE void scale_octet(const uint32_t (&codes)[8], const float (&factor)[8], float (&out)[8]) {
#pragma unroll
  for (int j = 0; j < 8; ++j) out[j] = __fmul_rn(as_float(decode<E>(codes[j])), factor[j]);
}
ASSAY_DEVICE void decode_octet(Encoding element, const uint32_t (&codes)[8], const float (&factor)[8],
                               float (&out)[8]) {
  switch (element) {
    case Encoding::f32: return scale_octet<Encoding::f32>(codes, factor, out);
    case Encoding::bf16: return scale_octet<Encoding::bf16>(codes, factor, out);
    case Encoding::f16: return scale_octet<Encoding::f16>(codes, factor, out);
    case Encoding::e4m3: return scale_octet<Encoding::e4m3>(codes, factor, out);
    case Encoding::e5m2: return scale_octet<Encoding::e5m2>(codes, factor, out);
    case Encoding::e2m3: return scale_octet<Encoding::e2m3>(codes, factor, out);
    case Encoding::e3m2: return scale_octet<Encoding::e3m2>(codes, factor, out);
    case Encoding::e2m1: return scale_octet<Encoding::e2m1>(codes, factor, out);
    case Encoding::e8m0:
    case Encoding::u8:
    case Encoding::u32: break;  // no operand has them
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) out[j] = as_float(kNan);
}

// Lines first_line .. + 63 and k first_k .. + 31 of an operand to tile[k][line]; what lies outside the
// operand is 0.
ASSAY_DEVICE void load_tile(const GemmOperand& o, int64_t first_line, int64_t first_k,
                            float (&tile)[kGemmDepth][kGemmPitch]) {
  constexpr int kOctets = kGemmTile * kGemmDepth / 8 / kGemmThreads;
#pragma unroll 1
  for (int r = 0; r < kOctets; ++r) {
    const int octet = r * kGemmThreads + int(threadIdx.x);
    // Along k a warp stores to 32 neighbours of one row of the tile, which no two banks share; along the
    // lines it loads whole stored rows.
    const int line = o.along_k ? octet % kGemmTile : octet % (kGemmTile / 8) * 8;
    const int k = o.along_k ? octet / kGemmTile * 8 : octet / (kGemmTile / 8);
    const int64_t at_line = first_line + line, at_k = first_k + k;
    const int lines = inside(at_line, o.lines), depth = inside(at_k, o.k);
    uint32_t codes[8] = {};
    float factor[8], out[8];
    if (o.along_k) {
      const float one =
          lines > 0 && depth > 0 ? gemm_factor(o, at_line, at_k) : 0.0f;  // 8 of a line lie in one block
      if (lines > 0) load_octet(o, at_line, at_k, depth, codes);
#pragma unroll
      for (int j = 0; j < 8; ++j) factor[j] = one;
    } else {
      if (depth > 0) load_octet(o, at_k, at_line, lines, codes);
#pragma unroll
      for (int j = 0; j < 8; ++j)
        factor[j] = depth > 0 && j < lines ? gemm_factor(o, at_line + j, at_k) : 0.0f;
    }
    decode_octet(o.element, codes, factor, out);
#pragma unroll
    for (int j = 0; j < 8; ++j) tile[o.along_k ? k + j : k][o.along_k ? line : line + j] = out[j];
  }
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
