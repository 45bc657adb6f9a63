// Memory that a run needs between its launches and nobody sees. Freed in the order of the launches, so that
// nothing waits.
#pragma once
#include <cstddef>
#include <string>

#include "fast/device.h"
#if defined(__CUDACC__)
#include <stdexcept>
#else
#include "fast/simt/device_buffer.h"
#endif

namespace assay::ASSAY_FAST_NAMESPACE {

#if defined(__CUDACC__)
class Scratch {
 public:
  explicit Scratch(size_t bytes) {
    const cudaError_t status = cudaMallocAsync(&data_, bytes, nullptr);
    if (status != cudaSuccess)
      throw std::runtime_error("allocating " + std::to_string(bytes) +
                               " bytes of scratch memory: " + cudaGetErrorString(status));
  }
  ~Scratch() { (void)cudaFreeAsync(data_, nullptr); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  template <class T> T* as() { return static_cast<T*>(data_); }

 private:
  void* data_ = nullptr;
};
#else
class Scratch {
 public:
  explicit Scratch(size_t bytes) : buffer_(bytes, "scratch") {}
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
