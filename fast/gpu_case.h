// What the subjects of a GPU share: one Problem's planes in guarded device memory, and device times. For
// units that nvcc compiles.
#pragma once
#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "contract/subject.h"
#include "fast/table.h"

namespace assay::fast_gpu {

// Throws what CUDA says about `what`, where that is not success.
inline void check(cudaError_t status, const std::string& what) {
  if (status != cudaSuccess)
    throw std::runtime_error(what + ": " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) +
                             ")");
}

// Device memory with guard bytes around it.
class GuardedMemory {
 public:
  // The data begin at an odd multiple of `alignment` (up to 256), so that a kernel relying on more fails.
  GuardedMemory(size_t bytes, std::string name, size_t alignment) : size_(bytes), name_(std::move(name)) {
    const size_t skew = alignment < kGuard ? alignment : 0;
    total_ = kGuard + skew + bytes + kGuard;
    check(cudaMalloc(reinterpret_cast<void**>(&base_), total_),
          "allocating " + std::to_string(total_) + " bytes for '" + name_ + "'");
    data_ = base_ + kGuard + skew;
    check(cudaMemset(base_, kPattern, total_), "guarding '" + name_ + "'");
  }
  ~GuardedMemory() { (void)cudaFree(base_); }
  GuardedMemory(GuardedMemory&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        data_(other.data_),
        size_(other.size_),
        total_(other.total_),
        name_(std::move(other.name_)) {}
  GuardedMemory& operator=(GuardedMemory&&) = delete;

  std::byte* data() const { return data_; }
  void upload(std::span<const std::byte> bytes) {
    if (!bytes.empty())
      check(cudaMemcpy(data_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
            "copying '" + name_ + "' to the device");
  }
  void download(std::span<std::byte> bytes) const {
    if (!bytes.empty())
      check(cudaMemcpy(bytes.data(), data_, bytes.size(), cudaMemcpyDeviceToHost),
            "copying '" + name_ + "' from the device");
  }
  // Throws where a byte outside the data was written.
  void check_guards() const {
    const size_t before = static_cast<size_t>(data_ - base_), after = total_ - before - size_;
    std::vector<unsigned char> bytes(before + after);
    check(cudaMemcpy(bytes.data(), base_, before, cudaMemcpyDeviceToHost),
          "reading the guard of '" + name_ + "'");
    check(cudaMemcpy(bytes.data() + before, data_ + size_, after, cudaMemcpyDeviceToHost),
          "reading the guard of '" + name_ + "'");
    for (size_t i = 0; i < bytes.size(); ++i)
      if (bytes[i] != kPattern) {
        const std::string where = i < before ? std::to_string(before - i) + " bytes before its start"
                                             : std::to_string(i - before) + " bytes past its end";
        throw std::runtime_error("a kernel wrote outside buffer '" + name_ + "': " + where);
      }
  }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr unsigned char kPattern = 0xC3;
  std::byte *base_ = nullptr, *data_ = nullptr;
  size_t size_ = 0, total_ = 0;
  std::string name_;
};

// Everything one Problem needs on the device.
struct DeviceCase {
  std::vector<GuardedMemory> in, out;
  std::vector<DevicePlane> in_planes, out_planes;

  // Outputs hold the caller's bytes, the poison of the run.
  DeviceCase(std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs, size_t alignment) {
    for (const ConstBuffer& b : inputs) add_input(b, alignment);
    for (const Buffer& b : outputs) {
      add_output(b.plane, alignment);
      out.back().upload(b.bytes);
    }
  }
  // For times: outputs of any content.
  DeviceCase(std::span<const ConstBuffer> inputs, const std::vector<Plane>& outputs) {
    for (const ConstBuffer& b : inputs) add_input(b, 256);
    for (const Plane& p : outputs) add_output(&p, 256);
  }
  // Waits for what `by` launched, checks every guard, and copies the outputs back.
  void finish(const std::string& by, std::span<const Buffer> outputs) const {
    check(cudaDeviceSynchronize(), by);
    for (const GuardedMemory& m : out) m.check_guards();
    for (const GuardedMemory& m : in) m.check_guards();
    for (size_t i = 0; i < outputs.size(); ++i) out[i].download(outputs[i].bytes);
  }

 private:
  void add_input(const ConstBuffer& b, size_t alignment) {
    in.emplace_back(b.bytes.size(), b.plane->name,
                    std::max<size_t>(alignment, info(b.plane->encoding).bytes()));
    in.back().upload(b.bytes);
    in_planes.push_back({b.plane, in.back().data()});
  }
  void add_output(const Plane* plane, size_t alignment) {
    out.emplace_back(plane->bytes(), plane->name, std::max<size_t>(alignment, info(plane->encoding).bytes()));
    out_planes.push_back({plane, out.back().data()});
  }
};

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "making an event"); }
  ~Event() { (void)cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record() { check(cudaEventRecord(event_), "recording an event"); }
  // Waits for this event; seconds since `start`.
  std::chrono::nanoseconds since(const Event& start) const {
    check(cudaEventSynchronize(event_), "waiting for the kernels");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, start.event_, event_), "reading the time");
    return std::chrono::nanoseconds(std::llround(static_cast<double>(milliseconds) * 1e6));
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Device times of `repeats` runs after a few that are not counted. `cold`: the L2 cache is overwritten before
// each.
template <class Run> std::vector<std::chrono::nanoseconds> device_times(Run&& run, int repeats, bool cold) {
  constexpr int kWarmUp = 3;
  int device = 0, l2_bytes = 0;
  check(cudaGetDevice(&device), "finding the device");
  check(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device),
        "reading the size of the L2 cache");
  const size_t flush_bytes = cold ? 2 * static_cast<size_t>(l2_bytes) : 0;
  const GuardedMemory flush(flush_bytes, "flush", 256);

  for (int i = 0; i < kWarmUp; ++i) run();
  check(cudaDeviceSynchronize(), "warming up");
  Event start, stop;
  std::vector<std::chrono::nanoseconds> times;
  for (int i = 0; i < repeats; ++i) {
    if (cold) check(cudaMemsetAsync(flush.data(), i, flush_bytes), "flushing the L2 cache");
    start.record();
    run();
    stop.record();
    times.push_back(stop.since(start));
  }
  return times;
}

}  // namespace assay::fast_gpu
