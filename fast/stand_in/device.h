// One run on a device that is no GPU: its memory, and its launches on the interpreter of PTX. Without a
// header of CUDA, so that units of nvcc and of the host compiler may include it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "contract/subject.h"

namespace assay::ptx {
class Recorder;
}

namespace assay::stand_in {

class Device {
 public:
  // Memory is poisoned as the environment says; its order is that of blocks and warps.
  explicit Device(const Environment&);
  ~Device();
  Device(const Device&) = delete;

  // Memory that begins at an odd multiple of `alignment`, so that a kernel that relies on more fails. A
  // launch may reach exactly these bytes, and none behind them. Where an order other than forward is asked
  // for, a kernel may read what is writable only where a kernel has written it, and its races are errors
  // (fast/ptx/checks.h).
  std::byte* allocate(size_t bytes, const std::string& name, size_t alignment, bool writable = true);
  void release(void*) noexcept;
  // Bytes from the host, which count as written. std::runtime_error: they are in no allocation.
  void set(void*, int value, size_t bytes);

  using Size = std::array<unsigned, 3>;
  // Runs the kernel that nvcc registered for a function of the host. `arguments` are addresses of the
  // parameters' values. std::runtime_error: what the kernel did wrong, with its block, thread and PTX line.
  void launch(const void* function, const Size& grid, const Size& block, void** arguments, size_t shared);

  // Launches that follow are recorded for a slice, or counted into a row each.
  void record(ptx::Recorder& recorder) { recorder_ = &recorder; }
  void count(std::vector<LaunchCounts>& counts) { counts_ = &counts; }

  int launches() const { return launches_; }
  // Of the GPU for which the architecture is best known: H100, B200, RTX 5090.
  int multiprocessors() const;
  // "sm_90a: mxfp8_rows, amax x2; 18432 lane instructions".
  std::string report() const;

 private:
  struct Memory;
  Environment environment_;
  std::unique_ptr<Memory> memory_;
  std::map<std::string, int> entries_;  // launches by the kernel's short name
  uint64_t lane_instructions_ = 0;
  int launches_ = 0;
  ptx::Recorder* recorder_ = nullptr;
  std::vector<LaunchCounts>* counts_ = nullptr;
};

// While it lives, the launchers of this OS thread run on the device (runtime.cpp).
class UseDevice {
 public:
  explicit UseDevice(Device&);
  ~UseDevice();
  UseDevice(const UseDevice&) = delete;

 private:
  Device* before_;
};

// The slice behind the bits [bit, bit + bits) of an output's memory (Subject::slice). `run_all` runs
// everything on the device it is given, always in the same way.
std::vector<SliceStep> slice_behind(const std::function<void(Device&)>& run_all, const Environment&,
                                    std::string_view plane, size_t bit, size_t bits);

// The device in use, or null.
Device* device_in_use();

// What nvcc says when the program starts: this function of the host launches that entry.
void register_kernel(const void* function, const char* entry);

// Whether the texts of any architecture are there; if not, what is missing.
Support texts_present();

}  // namespace assay::stand_in
