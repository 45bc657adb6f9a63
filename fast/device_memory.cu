#include "fast/device_memory.h"

#include "fast/gpu_case.h"

namespace assay {
namespace {

using fast_gpu::check;

class CudaDevice final : public DeviceMemory {
 public:
  Support present() const override {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    (void)cudaGetLastError();
    if (status != cudaSuccess) return {false, std::string("no GPU: ") + cudaGetErrorString(status)};
    return count > 0 ? Support{} : Support{false, "no GPU: the driver reports none"};
  }
  void* allocate(size_t bytes) override {
    void* block = nullptr;
    check(cudaMalloc(&block, bytes), "allocating " + std::to_string(bytes) + " bytes on the device");
    return block;
  }
  void release(void* block) noexcept override { (void)cudaFree(block); }
  void to_device(void* device, const void* host, size_t bytes) override {
    check(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "copying to the device");
  }
  void to_host(void* host, const void* device, size_t bytes) override {
    check(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "copying from the device");
  }
  // A launch that failed leaves its error with the library's own runtime; what became of the kernels
  // themselves is seen here.
  void synchronize() override { check(cudaDeviceSynchronize(), "waiting for the plugin's kernels"); }
  std::vector<std::chrono::nanoseconds> time(const std::function<void()>& run, int repeats,
                                             bool cold) override {
    return fast_gpu::device_times(run, repeats, cold);
  }
};

}  // namespace

std::unique_ptr<DeviceMemory> make_device_memory() { return std::make_unique<CudaDevice>(); }

}  // namespace assay
