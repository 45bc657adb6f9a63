// The calls that nvcc's host code and our launchers make of the CUDA runtime. The linker sends them here
// (--wrap, fast/CMakeLists.txt). While a Device is in use they are answered by it; otherwise the runtime
// answers them, as `__real_...`.
#include <cuda_runtime_api.h>

#include "fast/stand_in/device.h"

using assay::stand_in::device_in_use;

namespace {

// A kernel is started through the handle that __cudaGetKernel gave. nvcc's code asks for it once and keeps
// it, so one handle must serve the runtime and every Device: it is the function of the host.
cudaKernel_t handle_of(const void* function) {
  return reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
}

}  // namespace

extern "C" {

void __real___cudaRegisterFunction(void** binary, const char* function, char* device_function,
                                   const char* device_name, int thread_limit, uint3* thread, uint3* block,
                                   dim3* block_size, dim3* grid_size, int* warp_size);
cudaError_t __real_cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                    size_t shared, cudaStream_t stream);
cudaError_t __real_cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value);
cudaError_t __real_cudaGetLastError();
cudaError_t __real_cudaMallocAsync(void** data, size_t bytes, cudaStream_t stream);
cudaError_t __real_cudaFreeAsync(void* data, cudaStream_t stream);

void __wrap___cudaRegisterFunction(void** binary, const char* function, char* device_function,
                                   const char* device_name, int thread_limit, uint3* thread, uint3* block,
                                   dim3* block_size, dim3* grid_size, int* warp_size) {
  assay::stand_in::register_kernel(function, device_name);
  __real___cudaRegisterFunction(binary, function, device_function, device_name, thread_limit, thread, block,
                                block_size, grid_size, warp_size);
}

cudaError_t __wrap___cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = handle_of(function);
  return cudaSuccess;
}

cudaError_t __wrap_cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                    size_t shared, cudaStream_t stream) {
  if (assay::stand_in::Device* device = device_in_use()) {
    device->launch(function, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, arguments, shared);
    return cudaSuccess;
  }
  return __real_cudaLaunchKernel(function, grid, block, arguments, shared, stream);
}

cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                      size_t shared, cudaStream_t stream) {
  return __wrap_cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

// Shared memory beyond 48 KB: the interpreter asks only for what fits a block at all.
cudaError_t __wrap_cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return device_in_use() ? cudaSuccess : __real_cudaFuncSetAttribute(function, attribute, value);
}

// A launch on a Device throws where it fails, so no error is left behind.
cudaError_t __wrap_cudaGetLastError() { return device_in_use() ? cudaSuccess : __real_cudaGetLastError(); }

cudaError_t __wrap_cudaMallocAsync(void** data, size_t bytes, cudaStream_t stream) {
  assay::stand_in::Device* device = device_in_use();
  if (!device) return __real_cudaMallocAsync(data, bytes, stream);
  *data = device->allocate(bytes, "scratch", 256);
  return cudaSuccess;
}

cudaError_t __wrap_cudaFreeAsync(void* data, cudaStream_t stream) {
  assay::stand_in::Device* device = device_in_use();
  if (!device) return __real_cudaFreeAsync(data, stream);
  device->release(data);
  return cudaSuccess;
}

}  // extern "C"
