#include "fast/device_memory.h"

namespace assay {
namespace {

class AbsentDevice final : public DeviceMemory {
 public:
  Support present() const override { return {false, "this program was built without CUDA"}; }
  void* allocate(size_t) override { refuse(); }
  void release(void*) noexcept override {}
  void to_device(void*, const void*, size_t) override { refuse(); }
  void to_host(void*, const void*, size_t) override { refuse(); }
  void synchronize() override { refuse(); }
  std::vector<std::chrono::nanoseconds> time(const std::function<void()>&, int, bool) override { refuse(); }

 private:
  [[noreturn]] void refuse() const { throw std::runtime_error(present().why); }
};

}  // namespace

std::unique_ptr<DeviceMemory> make_device_memory() { return std::make_unique<AbsentDevice>(); }

}  // namespace assay
