#include "fast/silicon/device_launch.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "fast/ptx/machine.h"
#include "fast/ptx/tensor_map.h"
#include "fast/silicon/device_text.h"
#include "fast/silicon/driver.h"

namespace assay::silicon {

namespace {

constexpr uint64_t kAlign = 256;
constexpr const char* kNewestVersion = "9.0";  // of PTX, that the drivers of CUDA 13.0 take
constexpr std::chrono::seconds kHangs{20};

Driver& driver() {
  static Driver one;
  return one;
}

std::string name_of(CUresult status) {
  const char* name = nullptr;
  driver().cuGetErrorName(status, &name);
  return name ? name : "an unknown error";
}

// A module on the device, and its entry. Loaded once for each text; an error of a kernel unloads all.
struct Loaded {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
};
std::map<std::string, Loaded>& loaded() {
  static std::map<std::string, Loaded> all;
  return all;
}

const Loaded& load(const ptx::Module& module, const std::string& entry) {
  Driver& d = driver();
  const std::string text = device_text(module, entry, d.architecture, kNewestVersion);
  const auto [at, fresh] = loaded().try_emplace(entry + "\n" + text);
  if (!fresh) {
    if (!at->second.function) throw Refused{"as before"};
    return at->second;
  }
  std::array<char, 4096> log{};
  std::array options = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 2> values = {log.data(), reinterpret_cast<void*>(log.size())};
  const CUresult status =
      d.cuModuleLoadDataEx(&at->second.module, text.c_str(), options.size(), options.data(), values.data());
  if (status != CUDA_SUCCESS) throw Refused{log[0] ? log.data() : name_of(status)};
  d.check(d.cuModuleGetFunction(&at->second.function, at->second.module, entry.c_str()), "finding " + entry);
  return at->second;
}

class DeviceMemory {
 public:
  // The data lie as those of the process do within 256 bytes.
  DeviceMemory(const Contents& c, CUdeviceptr given) : contents_(c), at_(given) {
    if (at_ || c.bytes.empty()) return;
    driver().check(driver().cuMemAlloc(&allocation_, c.bytes.size() + 2 * kAlign), "allocating " + c.name);
    at_ = allocation_ + c.base % kAlign;
  }
  ~DeviceMemory() {
    if (allocation_) driver().cuMemFree(allocation_);
  }
  DeviceMemory(DeviceMemory&& o) noexcept
      : contents_(o.contents_), allocation_(std::exchange(o.allocation_, 0)), at_(o.at_) {}
  DeviceMemory& operator=(DeviceMemory&&) = delete;

  // The device's address of one of the process; nothing where it lies elsewhere.
  std::optional<uint64_t> translated(uint64_t address) const {
    if (address < contents_.base || address - contents_.base >= contents_.bytes.size()) return {};
    return at_ + (address - contents_.base);
  }
  void upload(std::span<const std::byte> bytes) const {
    if (!bytes.empty())
      driver().check(driver().cuMemcpyHtoD(at_, bytes.data(), bytes.size()), "copying to the device");
  }
  void download(std::span<std::byte> bytes) const {
    if (!bytes.empty())
      driver().check(driver().cuMemcpyDtoH(bytes.data(), at_, bytes.size()), "copying from the device");
  }

 private:
  const Contents& contents_;
  CUdeviceptr allocation_ = 0, at_ = 0;
};

using Device = std::vector<DeviceMemory>;

std::optional<uint64_t> translated(const Device& device, uint64_t address) {
  for (const DeviceMemory& m : device)
    if (const auto there = m.translated(address)) return there;
  return {};
}

CUtensorMap on_device(const ptx::TensorMap& m, const Device& device) {
  static constexpr std::array kTypes = {CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_DATA_TYPE_UINT16,
                                        CU_TENSOR_MAP_DATA_TYPE_UINT32, CU_TENSOR_MAP_DATA_TYPE_UINT64};
  const auto address = translated(device, m.address);
  if (!address) throw std::runtime_error("a tensor map of memory that the launch was not given");
  const std::array<uint32_t, ptx::kMostDimensions> steps = {1, 1, 1, 1, 1};
  const auto swizzle = m.atom == 32       ? CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B
                       : m.atom == 64     ? CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B
                       : m.swizzle == 128 ? CU_TENSOR_MAP_SWIZZLE_128B
                       : m.swizzle == 64  ? CU_TENSOR_MAP_SWIZZLE_64B
                       : m.swizzle == 32  ? CU_TENSOR_MAP_SWIZZLE_32B
                                          : CU_TENSOR_MAP_SWIZZLE_NONE;
  size_t log2 = 0;
  while (1u << log2 < m.element_bytes) ++log2;
  CUtensorMap out;
  driver().check(driver().cuTensorMapEncodeTiled(
                     &out, m.half_bytes ? CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B : kTypes.at(log2), m.rank,
                     reinterpret_cast<void*>(*address), m.sizes.data(), m.strides.data() + 1, m.box.data(),
                     steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
                 "encoding a tensor map");
  return out;
}

// Addresses and tensor maps among the bytes become the device's. Returns where they lie, word for word.
std::vector<size_t> translate(std::span<std::byte> bytes, uint64_t first, const Device& device) {
  constexpr size_t kWord = sizeof(uint64_t);
  std::vector<size_t> changed;
  for (size_t at = (kWord - first % kWord) % kWord; at + kWord <= bytes.size(); at += kWord) {
    if (at + ptx::kTensorMapBytes <= bytes.size()) {
      try {
        const auto map = on_device(ptx::decode_tensor_map(std::span<const std::byte, ptx::kTensorMapBytes>(
                                       bytes.subspan(at, ptx::kTensorMapBytes))),
                                   device);
        std::memcpy(bytes.data() + at, &map, sizeof map);
        for (size_t end = at + ptx::kTensorMapBytes; at < end; at += kWord) changed.push_back(at);
        at -= kWord;
        continue;
      } catch (const ptx::Fault&) {  // an ordinary word
      }
    }
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, kWord);
    if (const auto there = translated(device, word)) {
      std::memcpy(bytes.data() + at, &*there, kWord);
      changed.push_back(at);
    }
  }
  return changed;
}

// std::nullopt: the kernel runs on and on.
std::optional<CUresult> waited_for() {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const CUresult status = driver().cuStreamQuery(nullptr);
    if (status != CUDA_ERROR_NOT_READY) return status;
    if (std::chrono::steady_clock::now() - start > kHangs) return {};
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

Device allocated(const Loaded& kernel, const std::vector<Contents>& all, const ptx::Module& module) {
  Device device;
  device.reserve(all.size());
  for (const Contents& c : all) {
    CUdeviceptr at = 0;
    size_t bytes = 0;
    if (module.variables().contains(c.name))
      driver().cuModuleGetGlobal(&at, &bytes, kernel.module, c.name.c_str());
    device.emplace_back(c, at);
  }
  return device;
}

// Parameters begin where a tensor map may: at multiples of 64 bytes of this process.
struct alignas(64) Parameters {
  std::array<std::byte, 4096> bytes{};
};

void start(const Loaded& kernel, const ptx::Entry& entry, const ptx::Launch& launch, Parameters& parameters) {
  Driver& d = driver();
  if (launch.dynamic_shared)
    d.check(d.cuFuncSetAttribute(kernel.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                 static_cast<int>(launch.dynamic_shared)),
            "asking for shared memory");
  std::vector<void*> addresses;
  for (const ptx::Parameter& p : entry.parameters) addresses.push_back(parameters.bytes.data() + p.offset);
  const CUresult status = d.cuLaunchKernel(
      kernel.function, launch.grid.x, launch.grid.y, launch.grid.z, launch.block.x, launch.block.y,
      launch.block.z, static_cast<unsigned>(launch.dynamic_shared), nullptr, addresses.data(), nullptr);
  if (status != CUDA_SUCCESS) throw Refused{name_of(status)};
}

}  // namespace

std::vector<Contents> contents_of(const ptx::Module& module, const ptx::Memory& memory) {
  std::vector<Contents> out;
  const auto keep = [&](const std::string& name, uint64_t base, uint64_t bytes) {
    Contents c{name, base, std::vector<std::byte>(bytes), {}};
    if (bytes) std::memcpy(c.bytes.data(), reinterpret_cast<const void*>(base), bytes);
    out.push_back(std::move(c));
  };
  for (const auto& [base, a] : memory.allocations()) keep(a.id, base, a.bytes);
  for (const auto& [name, v] : module.variables())
    if (v.space == ptx::Space::global) keep(name, v.address, v.bytes);
  return out;
}

std::vector<Contents> launch_on_device(ptx::Module& module, const std::string& entry,
                                       const ptx::Launch& launch, std::vector<Contents> before,
                                       const std::function<void()>& hanging) {
  const Loaded& kernel = load(module, entry);
  std::optional<CUresult> status;
  {
    const Device device = allocated(kernel, before, module);
    for (size_t n = 0; n < before.size(); ++n) {
      std::vector<std::byte> bytes = before[n].bytes;
      before[n].addresses = translate(bytes, before[n].base, device);
      device[n].upload(bytes);
    }
    Parameters parameters;
    if (launch.parameters.size() > parameters.bytes.size())
      throw Refused{"more than 4096 bytes of parameters"};
    std::copy(launch.parameters.begin(), launch.parameters.end(), parameters.bytes.begin());
    translate(std::span(parameters.bytes).first(launch.parameters.size()), 0, device);
    start(kernel, module.entry(entry), launch, parameters);
    status = waited_for();
    if (!status) {
      hanging();
      std::_Exit(9);
    }
    if (status == CUDA_SUCCESS) {
      std::vector<Contents> after = before;
      for (size_t n = 0; n < after.size(); ++n) device[n].download(after[n].bytes);
      return after;
    }
  }
  loaded().clear();
  try {
    driver().reset();
  } catch (const std::runtime_error&) {  // some errors end the whole process's use of the GPU; the next
                                         // launch says so
  }
  throw Ended{name_of(*status)};
}

}  // namespace assay::silicon
