// Starts a kernel: on a GPU under nvcc, on the host executor otherwise. The same call compiles for both.
//
//   launch({.name = "amax", .grid = 132, .block = 256}, amax_kernel<Bf16>, x, n, out);
//
// On the host the call returns when the grid has finished, runs under the ExecutorOptions in force
// (fast/simt/executor.h) and throws simt::KernelFault. Under nvcc it returns at once, on `stream`, and throws
// std::runtime_error when the launch is refused.
#pragma once
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "fast/device.h"
#if defined(__CUDACC__)
#include <stdexcept>
#include <string>
#else
#include "fast/simt/executor.h"
#endif

namespace assay::ASSAY_FAST_NAMESPACE {

struct LaunchConfig {
  const char* name;  // of the kernel, for reports
  dim3 grid, block;
  unsigned dynamic_shared_bytes = 0;
  // Opts in to more than 48 KB of shared memory in all, up to 227 KB.
  bool large_shared = false;
#if defined(__CUDACC__)
  cudaStream_t stream = nullptr;
#endif
};

#if defined(__CUDACC__)

// Kernels launched by this OS thread so far.
inline uint64_t& launch_counter() {
  static thread_local uint64_t count = 0;
  return count;
}
inline uint64_t launches() { return launch_counter(); }

// How many multiprocessors the current device has.
inline unsigned multiprocessors() {
  int device = 0, count = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  if (status != cudaSuccess)
    throw std::runtime_error(std::string("counting multiprocessors: ") + cudaGetErrorString(status));
  return unsigned(count);
}

template <class... P, class... A> void launch(const LaunchConfig& config, void (*kernel)(P...), A&&... args) {
  auto check = [&](cudaError_t status) {
    if (status != cudaSuccess)
      throw std::runtime_error(std::string("kernel '") + config.name + "': " + cudaGetErrorString(status));
  };
  if (config.large_shared)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(config.dynamic_shared_bytes)));
  kernel<<<config.grid, config.block, config.dynamic_shared_bytes, config.stream>>>(
      static_cast<P>(std::forward<A>(args))...);
  check(cudaGetLastError());
  ++launch_counter();
}

#else

// Kernels launched by this OS thread so far.
inline uint64_t launches() { return simt::launches(); }

// The executor has no multiprocessors. This many, those of an H100, stand for them where a grid is sized.
inline unsigned multiprocessors() { return 132; }

// Every CUDA thread gets its own copy of the arguments, as on a GPU.
template <class... P, class... A> void launch(const LaunchConfig& config, void (*kernel)(P...), A&&... args) {
  struct Call {
    void (*kernel)(P...);
    std::tuple<P...> args;
  };
  const Call call{kernel, {static_cast<P>(std::forward<A>(args))...}};
  const simt::Grid grid{config.name,
                        {config.grid.x, config.grid.y, config.grid.z},
                        {config.block.x, config.block.y, config.block.z},
                        config.dynamic_shared_bytes,
                        config.large_shared};
  simt::run_grid(
      grid,
      [](const void* p) {
        const Call& c = *static_cast<const Call*>(p);
        std::apply(c.kernel, c.args);
      },
      &call);
}

#endif

}  // namespace assay::ASSAY_FAST_NAMESPACE
