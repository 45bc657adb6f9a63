// The random Hadamard transform on its own: the rotated transpose of x, and its amax (N11).
#include "fast/choose.h"
#include "fast/lane/hadamard.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

struct HadamardArgs {
  const void* x = nullptr;
  Extent extent;
  Rht rht;
  uint16_t* y = nullptr;
  uint32_t* amax = nullptr;
};

__global__ void hadamard_clear_amax(uint32_t* amax) { *amax = 0; }

// Stores 8 neighbours of a row of y. kVector: y is 16-byte aligned, and the rows of x are a multiple of 16
// (N11.2).
template <bool kVector> ASSAY_DEVICE void store_rotated(uint16_t* to, const uint32_t (&line)[kPatch]) {
  uint32_t pairs[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) pairs[k] = line[2 * k] >> 16 | (line[2 * k + 1] & 0xFFFF0000u);
  if constexpr (kVector) {
    store16_streaming(to, make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
  } else {
#pragma unroll
    for (int k = 0; k < kPatch; ++k) to[k] = uint16_t(pairs[k >> 1] >> (16 * (k & 1)));
  }
}
ASSAY_LANE uint32_t raised_to(uint32_t best, const uint32_t (&line)[kPatch]) {  // N3.1
#pragma unroll
  for (int k = 0; k < kPatch; ++k) {
    const uint32_t size = line[k] & kAbs;
    best = size <= kInf && size > best ? size : best;
  }
  return best;
}

// A thread per patch. kVector: x too is 16-byte aligned and cols is a multiple of 8.
template <bool kVector> __global__ void __launch_bounds__(kThreads, 2) hadamard_butterfly(HadamardArgs a) {
  using S = Source<Encoding::bf16>;
  const Place at = my_place(a.extent);
  uint32_t words[kPatch][S::kWords];
  load_patch<S, kVector>(a.x, a.extent, at, words);
  uint32_t greatest = 0;
#pragma unroll
  for (int j = 0; j < kPatch; ++j) {
    uint32_t line[kPatch];
#pragma unroll
    for (int k = 0; k < kPatch; ++k) line[k] = S::widen(words[k], j);
    rotate_line({true, a.rht.sign_mask, RhtSum::butterfly}, at.lane, line);
    greatest = raised_to(greatest, line);
    if (j < at.cols && at.rows != 0)
      store_rotated<kVector>(a.y + (at.col + j) * a.extent.rows + at.row, line);
  }
  block_atomic_max(greatest, a.amax, nullptr);
}

// A thread per group of 16 rows of a column.
template <bool kVector> __global__ void __launch_bounds__(kThreads, 1) hadamard_integers(HadamardArgs a) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, row = i / a.extent.cols * 16,
                col = i % a.extent.cols;
  uint32_t greatest = 0;
  if (row < a.extent.rows) {
    uint32_t leaf[16];
    const uint16_t* from = static_cast<const uint16_t*>(a.x) + row * a.extent.cols + col;
#pragma unroll
    for (int k = 0; k < 16; ++k)
      leaf[k] = rht_leaf(uint32_t(from[k * a.extent.cols]) << 16, a.rht.sign_mask, k);
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      uint32_t line[kPatch];
      rht_by_integers(leaf, half, a.rht.sum == RhtSum::tc16, line);
      greatest = raised_to(greatest, line);
      store_rotated<kVector>(a.y + col * a.extent.rows + row + 8 * half, line);
    }
  }
  block_atomic_max(greatest, a.amax, nullptr);
}

}  // namespace

std::string run_hadamard(const Job& job) {
  const Problem& p = job.problem;
  const Quantizer& q = *p.col;
  const Rht rht{true, q.sign_mask, q.numerics.rht_sum};
  const HadamardArgs args{job.input<void>("x"),
                          {p.x.shape.rows, p.x.shape.cols},
                          rht,
                          job.output<uint16_t>("y"),
                          job.output("amax")};
  const bool butterfly = rht.sum == RhtSum::butterfly,
             vector = aligned(16, {args.x, args.y}) && (!butterfly || p.x.shape.cols % kPatch == 0);
  launch({.name = "hadamard_clear_amax", .grid = 1, .block = 1}, hadamard_clear_amax, args.amax);
  if (p.x.shape.count() != 0)
    with_flag(vector, [&](auto v) {
      if (butterfly)
        return launch({.name = "hadamard_butterfly", .grid = args.extent.tiles(), .block = kThreads},
                      hadamard_butterfly<v.value>, args);
      const int64_t groups = p.x.shape.count() / 16;
      launch({.name = "hadamard_integers",
              .grid = unsigned((groups + kThreads - 1) / kThreads),
              .block = kThreads},
             hadamard_integers<v.value>, args);
    });
  return std::string(butterfly ? "hadamard_butterfly" : "hadamard_integers") +
         (vector ? ", vector" : ", scalar");
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
