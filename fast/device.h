// What every kernel (.cu) and lane (.cuh) file includes. The same text is compiled twice: by nvcc for a GPU,
// and by the host compiler for the executor in fast/simt, which runs it on a CPU. This header picks the
// meaning of each device word.
//
//   namespace assay::ASSAY_FAST_NAMESPACE { ... }   fast_gpu under nvcc, fast_host otherwise; both link into
//                                                   one program
//   ASSAY_LANE      a function of values only. Callable from kernels, and on the host build also outside any
//                   kernel
//   ASSAY_DEVICE    a function that may use threadIdx, shared memory, barriers and warp operations: kernels
//                   only
//   ASSAY_SHARED(uint16_t, tile, [64][72]);                 static shared memory; a raw __shared__ does not
//                                                           compile on the host
//   ASSAY_SHARED_ALIGNED(16, uint16_t, tile, [64][72]);     the same, with an alignment in bytes
//   ASSAY_DYNAMIC_SHARED(uint16_t, tile);                   uint16_t* tile:
//                                                           LaunchConfig::dynamic_shared_bytes, 128-byte
//                                                           aligned
//   load16/store16 (uint4), load8/store8 (uint2), each also ..._streaming: one vector access; the address
//   must be a multiple of
//                   its size, which the host build checks
//
// Everything else is plain CUDA: __global__, __launch_bounds__, threadIdx, __syncthreads, __shfl_*_sync,
// atomicMax, __fmul_rn, ... The words that the host build knows are those of fast/simt/cuda_words.h; what is
// missing there is not portable and must not be used (__activemask, float atomicAdd, approximate math, inline
// PTX).
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#define ASSAY_FAST_NAMESPACE fast_gpu
#define ASSAY_LANE __device__ __forceinline__
#define ASSAY_DEVICE __device__ __forceinline__
#define ASSAY_SHARED(T, name, dims) __shared__ T name dims
#define ASSAY_SHARED_ALIGNED(alignment, T, name, dims) \
  __shared__ __align__(alignment)                      \
  T name dims
#define ASSAY_DYNAMIC_SHARED(T, name)                                    \
  extern __shared__ __align__(128) unsigned char assay_dynamic_shared[]; \
  T* name = reinterpret_cast<T*>(assay_dynamic_shared)

namespace assay::fast_gpu {

ASSAY_DEVICE uint4 load16(const void* p) { return *static_cast<const uint4*>(p); }
ASSAY_DEVICE uint2 load8(const void* p) { return *static_cast<const uint2*>(p); }
ASSAY_DEVICE void store16(void* p, uint4 v) { *static_cast<uint4*>(p) = v; }
ASSAY_DEVICE void store8(void* p, uint2 v) { *static_cast<uint2*>(p) = v; }
// Global memory that is read or written once: do not keep it in the caches.
ASSAY_DEVICE uint4 load16_streaming(const void* p) { return __ldcs(static_cast<const uint4*>(p)); }
ASSAY_DEVICE uint2 load8_streaming(const void* p) { return __ldcs(static_cast<const uint2*>(p)); }
ASSAY_DEVICE void store16_streaming(void* p, uint4 v) { __stcs(static_cast<uint4*>(p), v); }
ASSAY_DEVICE void store8_streaming(void* p, uint2 v) { __stcs(static_cast<uint2*>(p), v); }

}  // namespace assay::fast_gpu

#else

#include "fast/simt/cuda_words.h"

#define ASSAY_FAST_NAMESPACE fast_host
#define ASSAY_LANE inline
#define ASSAY_DEVICE inline
// The array keeps its real type, so that the compiler and UBSan see its bounds. A type takes no parentheses:
// NOLINTBEGIN(bugprone-macro-parentheses)
#define ASSAY_SHARED_ALIGNED(alignment, T, name, dims)                          \
  using name##_shared_type = T dims;                                            \
  static constinit thread_local ::assay::simt::SharedSlot name##_shared_slot{}; \
  name##_shared_type& name = *static_cast<name##_shared_type*>(                 \
      ::assay::simt::shared_array(name##_shared_slot, sizeof(name##_shared_type), alignment, #name))
#define ASSAY_SHARED(T, name, dims) ASSAY_SHARED_ALIGNED(alignof(T), T, name, dims)
#define ASSAY_DYNAMIC_SHARED(T, name) T* name = static_cast<T*>(::assay::simt::dynamic_shared())
// NOLINTEND(bugprone-macro-parentheses)

#endif
