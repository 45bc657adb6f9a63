// Memory that a run needs between its launches and nobody sees. Set to zeros, where that is asked for, and
// freed in the order of the launches, so that nothing waits.
#pragma once
#include <algorithm>
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
class Scratch {
 public:
  explicit Scratch(size_t bytes, Contents contents = Contents::any) {
    if (bytes == 0) return;
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
