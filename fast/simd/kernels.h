// What the kernels are asked for, whatever their instruction set.
#pragma once
#include <cstring>

#include "fast/simd/simd.h"

namespace assay::simd {

// What was seen of the codes of a block, as simd::Block says it.
struct Doubt {
  bool special = false;
  int32_t differ = 0, first = 0;
  bool any() const { return special || differ != 0; }
};
inline void add(std::vector<Block>& unknown, int64_t row, int64_t col, const Doubt& d, bool scale) {
  unknown.push_back({static_cast<uint32_t>(row), static_cast<uint32_t>(col), d.special, scale,
                     static_cast<uint8_t>(d.differ), static_cast<uint8_t>(d.first)});
}

// MXFP8 and, where the element is e2m1, MXFP4.
struct Job {
  Source source;
  Element element;
  bool columns;
  ConstBytes x;
  int64_t rows, cols;
  Bytes data, scales;           // only read where `unknown` is set
  std::vector<Block>* unknown;  // null: codes and scales are written

  void doubt(int64_t row, int64_t col, const Doubt& d, bool scale) const {
    add(*unknown, row, col, d, scale);
  }
};

// FP8 with one scale for the tensor, or one for each block of 128 along rows or down columns (N9.1). Data of
// columns are stored [cols, rows]. Scales of blocks are binary32, [blocks of a row, rows] or [blocks of a
// column, cols].
struct Fp8Job {
  Source source;
  Element element;
  bool columns, blocks, pow2;
  uint32_t scale;  // of the tensor: bits of the factor
  ConstBytes x;
  int64_t rows, cols;
  Bytes data, scales;
  std::vector<Block>* unknown;

  void doubt(int64_t row, int64_t col, const Doubt& d, bool scale) const {
    add(*unknown, row, col, d, scale);
  }
  // Writes the scale of a block, or says whether it is the recorded one.
  bool put_scale(int64_t row, int64_t col, uint32_t bits) const {
    if (!blocks) return true;
    std::byte* const at = scales.first + static_cast<size_t>(row) * scales.stride + 4 * col;
    if (unknown) return std::memcmp(at, &bits, 4) == 0;
    std::memcpy(at, &bits, 4);
    return true;
  }
};

// NVFP4 with blocks of 16 along rows, or down columns, which are stored as rows: data [cols, bytes of rows],
// scales [cols, blocks of a column].
struct Nvfp4Job {
  Source source;
  bool columns;
  uint32_t amax;  // of the tensor
  ConstBytes x;
  int64_t rows, cols;
  Bytes data, scales;           // only read where `unknown` is set
  std::vector<Block>* unknown;  // null: codes and scales are written

  void doubt(int64_t row, int64_t col, const Doubt& d, bool scale) const {
    add(*unknown, row, col, d, scale);
  }
};

// The functions of simd.h as one instruction set has them.
struct Kernels {
  void (*job)(const Job&);
  void (*cast)(Source, Element, const std::byte* x, std::byte* y, int64_t count);
  void (*scales)(Element, const uint32_t* amaxes, uint8_t* scales, int64_t count);
  void (*fp8)(const Fp8Job&);
  void (*factors)(Element, bool pow2, const uint32_t* amaxes, uint32_t* factors, uint32_t* inverses,
                  int64_t count);
  uint32_t (*amax)(Source, const std::byte* x, int64_t count);
  void (*nvfp4)(const Nvfp4Job&);
  void (*nvfp4_chain)(const uint32_t* amaxes, Nvfp4Chain* out, int64_t count);
};

// Null: the program was not compiled for it.
const Kernels* kernels_of(std::string_view target);

}  // namespace assay::simd
