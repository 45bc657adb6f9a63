// Memory that a run needs between its launches and nobody sees. Set to zeros, where that is asked for, and
// freed in the order of the launches, so that nothing waits.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "fast/device.h"
#if defined(__CUDACC__)
#include <stdexcept>
#else
#include "fast/simt/device_buffer.h"
#endif

namespace assay::ASSAY_FAST_NAMESPACE {

enum class Contents : uint8_t { any, zeros };

#if defined(__CUDACC__)
// Lets the driver keep 32 MiB of what was freed for the next run, and says whether it does. By itself it
// gives all of it back when the host waits for the device; to get it again probably cost an H100 30
// microseconds.
inline bool keep_freed_memory() {
  uint64_t most = uint64_t{32} << 20, kept = 0;
  int device = 0;
  cudaMemPool_t pool = nullptr;
  if (cudaGetDevice(&device) != cudaSuccess || cudaDeviceGetDefaultMemPool(&pool, device) != cudaSuccess ||
      cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept) != cudaSuccess) {
    (void)cudaGetLastError();  // without a pool the allocation says what is wrong
    return false;
  }
  if (kept >= most || cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &most) == cudaSuccess)
    return true;
  (void)cudaGetLastError();
  return false;
}

class Scratch {
 public:
  explicit Scratch(size_t bytes, Contents contents = Contents::any) {
    if (bytes == 0) return;
    static std::atomic<bool> kept = false;
    if (!kept) kept = keep_freed_memory();
    cudaError_t status = cudaMallocAsync(&data_, bytes, nullptr);
    if (status == cudaSuccess && contents == Contents::zeros)
      status = cudaMemsetAsync(data_, 0, bytes, nullptr);
    if (status != cudaSuccess)
      throw std::runtime_error("allocating " + std::to_string(bytes) +
                               " bytes of scratch memory: " + cudaGetErrorString(status));
  }
  ~Scratch() {
    if (data_ != nullptr) (void)cudaFreeAsync(data_, nullptr);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  template <class T> T* as() { return static_cast<T*>(data_); }

 private:
  void* data_ = nullptr;
};
#else
class Scratch {
 public:
  explicit Scratch(size_t bytes, Contents contents = Contents::any) : buffer_(bytes, "scratch") {
    if (contents == Contents::zeros) std::fill_n(buffer_.data(), bytes, std::byte{0});
  }
  ~Scratch() noexcept(false) {
    if (const auto wrong = buffer_.intact(); wrong && std::uncaught_exceptions() == 0)
      throw std::runtime_error(*wrong);
  }
  template <class T> T* as() { return buffer_.as<T>(); }

 private:
  simt::DeviceBuffer buffer_;
};
#endif

}  // namespace assay::ASSAY_FAST_NAMESPACE
