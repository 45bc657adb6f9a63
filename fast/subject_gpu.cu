#include "fast/subject_gpu.h"

#include <chrono>
#include <stdexcept>
#include <string>

#include "contract/own_order.h"
#include "fast/gpu_case.h"
#include "fast/launch.h"
#include "fast/supports.h"
#include "fast/table.h"
#include "fast/trace.h"

namespace assay {
namespace {

using fast_gpu::check;
using fast_gpu::DeviceCase;
using fast_gpu::Job;

// Does nothing: whether it has code for a device tells whether any kernel has.
__global__ void probe_kernel() {}

Support find_device() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  (void)cudaGetLastError();
  if (status != cudaSuccess) return {false, std::string("no GPU: ") + cudaGetErrorString(status)};
  if (count == 0) return {false, "no GPU: the driver reports none"};
  cudaFuncAttributes attributes{};
  const cudaError_t code = cudaFuncGetAttributes(&attributes, probe_kernel);
  (void)cudaGetLastError();
  int device = 0;
  cudaDeviceProp properties{};
  check(cudaGetDevice(&device), "finding the device");
  check(cudaGetDeviceProperties(&properties, device), "reading the device's properties");
  // Results name their machine by this (doctor, bench --against).
  const std::string name = std::string(properties.name) + " (sm_" + std::to_string(properties.major) +
                           std::to_string(properties.minor) + ")";
  if (code == cudaSuccess) return {true, name};
  return {false, name + " has no code in this program: build with CMAKE_CUDA_ARCHITECTURES for it"};
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
    return here.yes ? kernels_run(p) : here;
  }

  std::optional<std::string> unpinned(const Problem& p) const override { return own_on_gpu(p); }

  Served run(const Problem& problem, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
             const Environment& env) override {
    require();
    const DeviceCase c(inputs, outputs, static_cast<size_t>(env.alignment));
    const uint64_t before = fast_gpu::launches();
    Served served;
    served.by = fast_gpu::run(Job{problem, c.in_planes, c.out_planes});
    served.launches = static_cast<int>(fast_gpu::launches() - before);
    c.finish(served.by, outputs);
    return served;
  }

  std::vector<TraceStep> trace(const Problem& p, std::span<const ConstBuffer> inputs, Direction d,
                               int64_t row, int64_t col) override {
    return fast_host::trace(p, inputs, d, row, col);
  }

  std::vector<std::chrono::nanoseconds> time(const Problem& problem, std::span<const ConstBuffer> inputs,
                                             int repeats, bool cold) override {
    require();
    const std::vector<Plane> planes = output_planes(problem);
    const DeviceCase c(inputs, planes);
    const Job job{problem, c.in_planes, c.out_planes};
    return fast_gpu::device_times([&] { fast_gpu::run(job); }, repeats, cold);
  }

 private:
  void require() const {
    if (const Support s = present(); !s.yes) throw std::runtime_error(s.why);
  }
};

}  // namespace

std::unique_ptr<Subject> make_gpu_subject() { return std::make_unique<GpuSubject>(); }

}  // namespace assay
