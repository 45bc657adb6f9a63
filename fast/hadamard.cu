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

// A thread per patch; the rows are a multiple of 16 (N11.2). kVector: x and y are 16-byte aligned and cols is a multiple of 8.
template <bool kVector>
__global__ void __launch_bounds__(kThreads, 1) hadamard_kernel(HadamardArgs a) {
  using S = Source<Encoding::bf16>;
  const Place at = my_place(a.extent);
  uint32_t words[kPatch][S::kWords], bits[kPatch][kPatch];
  load_patch<S, kVector>(a.x, a.extent, at, words);
#pragma unroll
  for (int k = 0; k < kPatch; ++k)
#pragma unroll
    for (int j = 0; j < kPatch; ++j) bits[k][j] = S::widen(words[k], j);
  rotate_patch(a.rht, at.lane, bits);

  uint32_t greatest = 0;
#pragma unroll
  for (int k = 0; k < kPatch; ++k)
#pragma unroll
    for (int j = 0; j < kPatch; ++j) {
      const uint32_t size = bits[k][j] & kAbs;
      greatest = size <= kInf && size > greatest ? size : greatest;   // N3.1
    }
  block_atomic_max(greatest, a.amax, nullptr);

  uint16_t* to = a.y + at.col * a.extent.rows + at.row;
#pragma unroll
  for (int j = 0; j < kPatch; ++j, to += a.extent.rows) {
    if (j >= at.cols || at.rows == 0) continue;
    uint32_t pairs[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) pairs[k] = bits[2 * k][j] >> 16 | (bits[2 * k + 1][j] & 0xFFFF0000u);
    if constexpr (kVector) {
      store16(to, make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
    } else {
#pragma unroll
      for (int k = 0; k < kPatch; ++k) to[k] = uint16_t(pairs[k >> 1] >> (16 * (k & 1)));
    }
  }
}

}  // namespace

std::string run_hadamard(const Job& job) {
  const Problem& p = job.problem;
  const Quantizer& q = *p.col;
  const HadamardArgs args{job.input<void>("x"), {p.x.shape.rows, p.x.shape.cols}, {true, q.sign_mask, q.numerics.rht_sum}, job.output<uint16_t>("y"), job.output("amax")};
  const bool vector = p.x.shape.cols % kPatch == 0 && aligned(16, {args.x, args.y});
  launch({.name = "hadamard_clear_amax", .grid = 1, .block = 1}, hadamard_clear_amax, args.amax);
  if (p.x.shape.count() != 0)
    with_flag(vector, [&](auto v) { launch({.name = "hadamard", .grid = args.extent.tiles(), .block = kThreads}, hadamard_kernel<v.value>, args); });
  return std::string("hadamard") + (vector ? ", vector" : ", scalar");
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
