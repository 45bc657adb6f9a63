// DeviceMemory: what a plugin that takes device pointers needs of a GPU. Who judges plugins knows no CUDA;
// the program hands this in (fast/device_memory.h), and tests hand in host memory that pretends.
#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <stdexcept>
#include <vector>

#include "contract/subject.h"

namespace assay {

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // Whether there is a device, and if not, why. May touch it: not for a process that forks.
  virtual Support present() const = 0;
  // At least 256-byte aligned. Everything below throws std::exception on failure.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* block) noexcept = 0;
  virtual void to_device(void* device, const void* host, size_t bytes) = 0;
  virtual void to_host(void* host, const void* device, size_t bytes) = 0;
  // Waits for everything queued on the device; throws what became of it.
  virtual void synchronize() = 0;
  // Device times of `repeats` calls, after a few that are not counted. `cold`: caches are flushed before
  // each.
  virtual std::vector<std::chrono::nanoseconds> time(const std::function<void()>& run, int repeats,
                                                     bool cold) = 0;
};

// Thrown by a Subject that guards its own memory where an input or a byte outside of a plane was written, and
// where foreign code left the float environment changed: claim `guard`, as for buffers of the judge.
struct Trespass : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace assay
