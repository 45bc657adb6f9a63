// The calls that nvcc's host code and our launchers make of the CUDA runtime. The linker sends them here
// (--wrap, fast/CMakeLists.txt). While a Device is in use they are answered by it; otherwise the runtime
// answers them, as `__real_...`.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <stdexcept>

#include "fast/ptx/driver_map.h"
#include "fast/stand_in/device.h"

using assay::stand_in::device_in_use;

namespace {

// A kernel is started through the handle that __cudaGetKernel gave. nvcc's code asks for it once and keeps
// it, so one handle must serve the runtime and every Device: it is the function of the host.
cudaKernel_t handle_of(const void* function) {
  return reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
}

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);
// The driver's own function, when somebody has asked for it.
EncodeTiled drivers_encode_tiled = nullptr;

bool is_encode_tiled(const char* symbol) { return std::strcmp(symbol, "cuTensorMapEncodeTiled") == 0; }

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
cudaError_t __real_cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device);
cudaError_t __real_cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream);
cudaError_t __real_cudaGetDevice(int* device);
cudaError_t __real_cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t __real_cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                           cudaDriverEntryPointQueryResult* status);
cudaError_t __real_cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                                    unsigned long long flags,
                                                    cudaDriverEntryPointQueryResult* status);

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

// A Device has no pool.
cudaError_t __wrap_cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return device_in_use() ? cudaErrorNotSupported : __real_cudaDeviceGetDefaultMemPool(pool, device);
}

cudaError_t __wrap_cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  assay::stand_in::Device* device = device_in_use();
  if (!device) return __real_cudaMemsetAsync(data, value, bytes, stream);
  device->set(data, value, bytes);
  return cudaSuccess;
}

cudaError_t __wrap_cudaGetDevice(int* device) {
  if (!device_in_use()) return __real_cudaGetDevice(device);
  *device = 0;
  return cudaSuccess;
}

cudaError_t __wrap_cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const assay::stand_in::Device* in_use = device_in_use();
  if (!in_use) return __real_cudaDeviceGetAttribute(value, attribute, device);
  if (attribute != cudaDevAttrMultiProcessorCount) return cudaErrorNotSupported;
  *value = in_use->multiprocessors();
  return cudaSuccess;
}

// A map for the interpreter, or for the driver where no Device is in use. What is wrong with an argument is
// thrown, as by a launch.
CUresult __wrap_cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                       void* address, const cuuint64_t* sizes, const cuuint64_t* strides,
                                       const cuuint32_t* box, const cuuint32_t* element_strides,
                                       CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                       CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  if (!device_in_use())
    return drivers_encode_tiled ? drivers_encode_tiled(map, type, rank, address, sizes, strides, box,
                                                       element_strides, interleave, swizzle, promotion, fill)
                                : CUDA_ERROR_NOT_INITIALIZED;
  static_assert(sizeof(cuuint64_t) == sizeof(uint64_t) && sizeof(cuuint32_t) == sizeof(uint32_t));
  assay::ptx::TiledMapRequest r;
  r.data_type = type, r.rank = rank, r.address = reinterpret_cast<uint64_t>(address);
  r.sizes = reinterpret_cast<const uint64_t*>(sizes), r.strides = reinterpret_cast<const uint64_t*>(strides);
  r.box = box, r.element_strides = element_strides;
  r.interleave = interleave, r.swizzle = swizzle, r.promotion = promotion, r.fill = fill;
  try {
    assay::ptx::encode_tiled(map, r);
  } catch (const assay::ptx::Fault& fault) {
    throw std::runtime_error(fault.what());
  }
  return CUDA_SUCCESS;
}

// Programs keep what they are given, so one function must serve the driver and every Device. Of the driver's
// functions a Device has this one alone.
cudaError_t answer_entry_point(const char* symbol, void** function, cudaDriverEntryPointQueryResult* status,
                               cudaError_t real) {
  if (is_encode_tiled(symbol) && real == cudaSuccess && *function)
    drivers_encode_tiled = reinterpret_cast<EncodeTiled>(*function);
  const bool ours = is_encode_tiled(symbol) && (device_in_use() || drivers_encode_tiled);
  if (!ours && !device_in_use()) return real;
  *function = ours ? reinterpret_cast<void*>(&__wrap_cuTensorMapEncodeTiled) : nullptr;
  if (status) *status = ours ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return ours ? cudaSuccess : cudaErrorSymbolNotFound;
}

cudaError_t __wrap_cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                           cudaDriverEntryPointQueryResult* status) {
  *function = nullptr;
  return answer_entry_point(symbol, function, status,
                            __real_cudaGetDriverEntryPoint(symbol, function, flags, status));
}

cudaError_t __wrap_cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                                    unsigned long long flags,
                                                    cudaDriverEntryPointQueryResult* status) {
  *function = nullptr;
  return answer_entry_point(
      symbol, function, status,
      __real_cudaGetDriverEntryPointByVersion(symbol, function, version, flags, status));
}

}  // extern "C"
