#include "fast/subject_gpu.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "fast/gemm_plan.h"
#include "fast/launch.h"
#include "fast/table.h"
#include "fast/trace.h"

namespace assay {
namespace {

using fast_gpu::DevicePlane;
using fast_gpu::Job;

// Does nothing: whether it has code for a device tells whether any kernel has.
__global__ void probe_kernel() {}

void check(cudaError_t status, const std::string& what) {
  if (status != cudaSuccess)
    throw std::runtime_error(what + ": " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")");
}

// Device memory with guard bytes around it.
class GuardedMemory {
 public:
  // The data begin at an odd multiple of `alignment` (up to 256), so that a kernel relying on more fails.
  GuardedMemory(size_t bytes, std::string name, size_t alignment) : size_(bytes), name_(std::move(name)) {
    const size_t skew = alignment < kGuard ? alignment : 0;
    total_ = kGuard + skew + bytes + kGuard;
    check(cudaMalloc(reinterpret_cast<void**>(&base_), total_), "allocating " + std::to_string(total_) + " bytes for '" + name_ + "'");
    data_ = base_ + kGuard + skew;
    check(cudaMemset(base_, kPattern, total_), "guarding '" + name_ + "'");
  }
  ~GuardedMemory() { (void)cudaFree(base_); }
  GuardedMemory(GuardedMemory&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), data_(other.data_), size_(other.size_), total_(other.total_), name_(std::move(other.name_)) {}
  GuardedMemory& operator=(GuardedMemory&&) = delete;

  std::byte* data() const { return data_; }
  void upload(std::span<const std::byte> bytes) {
    if (!bytes.empty()) check(cudaMemcpy(data_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "copying '" + name_ + "' to the device");
  }
  void download(std::span<std::byte> bytes) const {
    if (!bytes.empty()) check(cudaMemcpy(bytes.data(), data_, bytes.size(), cudaMemcpyDeviceToHost), "copying '" + name_ + "' from the device");
  }
  // Throws where a byte outside the data was written.
  void check_guards() const {
    const size_t before = static_cast<size_t>(data_ - base_), after = total_ - before - size_;
    std::vector<unsigned char> bytes(before + after);
    check(cudaMemcpy(bytes.data(), base_, before, cudaMemcpyDeviceToHost), "reading the guard of '" + name_ + "'");
    check(cudaMemcpy(bytes.data() + before, data_ + size_, after, cudaMemcpyDeviceToHost), "reading the guard of '" + name_ + "'");
    for (size_t i = 0; i < bytes.size(); ++i)
      if (bytes[i] != kPattern) {
        const std::string where = i < before ? std::to_string(before - i) + " bytes before its start" : std::to_string(i - before) + " bytes past its end";
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

  void add_input(const ConstBuffer& b, size_t alignment) {
    in.emplace_back(b.bytes.size(), b.plane->name, std::max<size_t>(alignment, info(b.plane->encoding).bytes()));
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

Support find_device() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  (void)cudaGetLastError();
  if (status != cudaSuccess) return {false, std::string("no GPU: ") + cudaGetErrorString(status)};
  if (count == 0) return {false, "no GPU: the driver reports none"};
  cudaFuncAttributes attributes{};
  const cudaError_t code = cudaFuncGetAttributes(&attributes, probe_kernel);
  (void)cudaGetLastError();
  if (code == cudaSuccess) return {};
  int device = 0;
  cudaDeviceProp properties{};
  check(cudaGetDevice(&device), "finding the device");
  check(cudaGetDeviceProperties(&properties, device), "reading the device's properties");
  return {false, std::string(properties.name) + " (sm_" + std::to_string(properties.major) + std::to_string(properties.minor) +
                     ") has no code in this program: build with CMAKE_CUDA_ARCHITECTURES for it"};
}

class GpuSubject final : public Subject {
 public:
  std::string_view name() const override { return "gpu"; }
  Support present() const override {
    static const Support support = find_device();
    return support;
  }
  Support supports(const Problem& p) const override {
    const Support here = present();
    return here.yes ? kernel_sums(p) : here;
  }

  Served run(const Problem& problem, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs, const Environment& env) override {
    require();
    DeviceCase c;
    for (const ConstBuffer& b : inputs) c.add_input(b, static_cast<size_t>(env.alignment));
    for (const Buffer& b : outputs) {
      c.add_output(b.plane, static_cast<size_t>(env.alignment));
      c.out.back().upload(b.bytes);   // the caller's poison
    }
    const uint64_t before = fast_gpu::launches();
    Served served;
    served.by = fast_gpu::run(Job{problem, c.in_planes, c.out_planes});
    served.launches = static_cast<int>(fast_gpu::launches() - before);
    check(cudaDeviceSynchronize(), served.by);
    for (const GuardedMemory& m : c.out) m.check_guards();
    for (const GuardedMemory& m : c.in) m.check_guards();
    for (size_t i = 0; i < outputs.size(); ++i) c.out[i].download(outputs[i].bytes);
    return served;
  }

  std::vector<TraceStep> trace(const Problem& p, std::span<const ConstBuffer> inputs, Direction d, int64_t row, int64_t col) override {
    return fast_host::trace(p, inputs, d, row, col);
  }

  std::vector<std::chrono::nanoseconds> time(const Problem& problem, std::span<const ConstBuffer> inputs, int repeats, bool cold) override {
    require();
    DeviceCase c;
    const std::vector<Plane> planes = output_planes(problem);
    for (const ConstBuffer& b : inputs) c.add_input(b, 256);
    for (const Plane& p : planes) c.add_output(&p, 256);
    const Job job{problem, c.in_planes, c.out_planes};

    int device = 0, l2_bytes = 0;
    check(cudaGetDevice(&device), "finding the device");
    check(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device), "reading the size of the L2 cache");
    const size_t flush_bytes = cold ? 2 * static_cast<size_t>(l2_bytes) : 0;
    const GuardedMemory flush(flush_bytes, "flush", 256);

    for (int i = 0; i < kWarmUp; ++i) fast_gpu::run(job);
    check(cudaDeviceSynchronize(), "warming up");
    Event start, stop;
    std::vector<std::chrono::nanoseconds> times;
    for (int i = 0; i < repeats; ++i) {
      if (cold) check(cudaMemsetAsync(flush.data(), i, flush_bytes), "flushing the L2 cache");
      start.record();
      fast_gpu::run(job);
      stop.record();
      times.push_back(stop.since(start));
    }
    return times;
  }

 private:
  static constexpr int kWarmUp = 3;
  void require() const {
    if (const Support s = present(); !s.yes) throw std::runtime_error(s.why);
  }
};

}  // namespace

std::unique_ptr<Subject> make_gpu_subject() { return std::make_unique<GpuSubject>(); }

}  // namespace assay
