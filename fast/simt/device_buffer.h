// Memory for kernels on the host executor: stands for cudaMalloc. A byte touched past the end is a fault that
// names the buffer.
//
// A buffer ends as close as its alignment allows to a page that cannot be touched. The bytes between (fewer
// than the alignment) and up to 256 bytes before the buffer hold a pattern that intact() checks; under
// AddressSanitizer they are poisoned as well. Memory is reused, so that making one costs little. Contents
// start as the poison byte of the options in force.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace assay::simt {

// The exit status of a process whose kernel touched memory that it may not touch. What was touched, and by
// which kernel, block and thread, is then on stderr.
inline constexpr int kMemoryFaultStatus = 86;

struct DeviceSlot;

class DeviceBuffer {
 public:
  enum class Align {
    at_least,  // the end is guarded as closely as the alignment allows
    exactly    // an odd multiple of the alignment, so that a kernel relying on more shows
  };
  // `alignment` is a power of two up to 4096. `name` appears in reports. 0 bytes are allowed.
  DeviceBuffer(size_t bytes, std::string name, size_t alignment = 256, Align = Align::at_least);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&&) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&&) noexcept;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() { return {data_, size_}; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  template <class T> T* as() { return reinterpret_cast<T*>(data_); }

  // Nothing when the bytes around the buffer are untouched; else where one was written: "buffer 'x' (64
  // bytes): byte at offset 65 written".
  std::optional<std::string> intact() const;
  // Nothing when the buffer holds these bytes, as many as it has; else where it does not: "buffer 'x' (64
  // bytes) at offset 5 was written, and is an input".
  std::optional<std::string> changed_from(std::span<const std::byte> bytes) const;

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  DeviceSlot* slot_ = nullptr;
};

}  // namespace assay::simt
