#include "fast/stand_in/device.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fast/ptx/run.h"
#include "fast/ptx/slice.h"
#include "fast/stand_in/kernel_texts.h"

namespace assay::stand_in {

namespace {

// It exists before the constructors of other units register their kernels.
std::unordered_map<const void*, std::string>& registered() {
  static std::unordered_map<const void*, std::string> kernels;
  return kernels;
}

thread_local Device* in_use = nullptr;

std::string demangled(const std::string& entry) {
  int status = 0;
  char* text = abi::__cxa_demangle(entry.c_str(), nullptr, nullptr, &status);
  std::string out = status == 0 ? text : entry;
  std::free(text);
  return out;
}

// "direction_kernel" of "void assay::fast_gpu::direction_kernel<...>(...)".
std::string short_name(const std::string& entry) {
  const std::string whole = demangled(entry);
  size_t begin = 0, at = 0;
  for (; at < whole.size(); ++at) {
    // "(anonymous namespace)" is a part of the name, other parentheses hold the parameters.
    if (constexpr std::string_view kUnnamed = "(anonymous namespace)";
        whole.compare(at, kUnnamed.size(), kUnnamed) == 0)
      at += kUnnamed.size() - 1;
    else if (whole[at] == '<' || whole[at] == '(') break;
    else if (whole[at] == ' ' || whole[at] == ':') begin = at + 1;
  }
  return whole.substr(begin, at - begin);
}

std::string text(const ptx::Dim& d) {
  return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
}

LaunchCounts counts_of(ptx::Module& module, const std::string& entry, const ptx::Launch& l,
                       const ptx::Counters& counted) {
  LaunchCounts out{short_name(entry),       text(l.grid),        text(l.block),
                   ptx::totals_of(counted), ptx::line_columns(), {}};
  for (ptx::LineCounters& line : ptx::by_line(module.kernel(entry), counted, module.text()))
    out.lines.push_back({line.line, std::move(line.text), std::move(line.source), std::move(line.counts)});
  return out;
}

void replace(std::string& text, const std::string& what, const std::string& with) {
  if (const size_t at = text.find(what); at != std::string::npos) text.replace(at, what.size(), with);
}

std::vector<std::byte> laid_out(const ptx::Entry& entry, void** arguments) {
  std::vector<std::byte> out(entry.parameter_bytes);
  for (size_t n = 0; n < entry.parameters.size(); ++n)
    std::memcpy(out.data() + entry.parameters[n].offset, arguments[n], entry.parameters[n].bytes);
  return out;
}

}  // namespace

struct Device::Memory {
  ptx::Memory reachable;
  std::unordered_map<void*, std::unique_ptr<std::byte[]>> blocks;
};

Device::Device(const Environment& environment)
    : environment_(environment), memory_(std::make_unique<Memory>()) {}
Device::~Device() = default;

std::byte* Device::allocate(size_t bytes, const std::string& name, size_t alignment, bool writable) {
  auto block = std::make_unique<std::byte[]>(bytes + 3 * alignment);
  const auto even = ptx::align_up(reinterpret_cast<uint64_t>(block.get()), 2 * alignment);
  auto* data = reinterpret_cast<std::byte*>(even + alignment);
  std::memset(data, environment_.poison, bytes);
  memory_->reachable.add(data, bytes, name, writable, !writable);
  memory_->blocks[data] = std::move(block);
  return data;
}

void Device::release(void* data) noexcept {
  memory_->reachable.remove(data);
  memory_->blocks.erase(data);
}

void Device::set(void* data, int value, size_t bytes) {
  const auto address = reinterpret_cast<uint64_t>(data);
  const ptx::Allocation* a = memory_->reachable.holding(address, bytes);
  if (!a)
    throw std::runtime_error("cudaMemsetAsync of " + std::to_string(bytes) +
                             " bytes: " + memory_->reachable.place(address));
  std::memset(data, value, bytes);
  if (a->written)
    std::fill_n(a->written->begin() + static_cast<ptrdiff_t>(address - a->base), bytes, uint8_t{1});
}

void Device::launch(const void* function, const Size& grid, const Size& block, void** arguments,
                    size_t shared) {
  const auto found = registered().find(function);
  if (found == registered().end())
    throw std::runtime_error("a kernel was launched that nvcc did not register");
  const std::string& name = found->second;
  ptx::Module& module = kernel_texts(environment_.architecture).module_of(name);
  try {
    ptx::Launch launch;
    launch.grid = {grid[0], grid[1], grid[2]};
    launch.block = {block[0], block[1], block[2]};
    launch.dynamic_shared = shared;
    launch.parameters = laid_out(module.entry(name), arguments);
    const ptx::Counters counted = ptx::run(module, name, launch, memory_->reachable,
                                           {.order = environment_.order,
                                            .poison = environment_.poison,
                                            .count = counts_ != nullptr,
                                            .check = environment_.order != Environment::kForward,
                                            .recorder = recorder_});
    if (counts_) {
      counts_->push_back(counts_of(module, name, launch, counted));
      counts_->back().symbol = name;
      counts_->back().text = kernel_texts(environment_.architecture).path_of(name);
      counts_->back().dynamic_shared = shared;
    }
    lane_instructions_ += counted.lane_instructions;
  } catch (const ptx::Fault& fault) {
    std::string what = fault.what();
    replace(what, name, demangled(name));
    throw std::runtime_error(what);
  }
  ++entries_[short_name(name)];
  ++launches_;
}

int Device::multiprocessors() const {
  switch (environment_.architecture) {
    case Architecture::sm_90a: return 132;
    case Architecture::sm_100a: return 148;
    case Architecture::sm_120a: return 170;
  }
  return 1;
}

std::string Device::report() const {
  std::string out(name(environment_.architecture));
  char separator = ':';
  for (const auto& [entry, times] : entries_) {
    out += separator + (" " + entry) + (times > 1 ? " x" + std::to_string(times) : "");
    separator = ',';
  }
  return out + "; " + std::to_string(lane_instructions_) + " lane instructions";
}

std::vector<SliceStep> slice_behind(const std::function<void(Device&)>& run_all,
                                    const Environment& environment, std::string_view plane, size_t bit,
                                    size_t bits) {
  const auto recorded = [&](ptx::Recorder& recorder) {
    Device device(environment);
    device.record(recorder);
    run_all(device);
  };
  std::vector<SliceStep> out;
  for (const ptx::SliceStep& s :
       ptx::slice_behind(recorded, std::string(plane), bit, static_cast<unsigned>(bits)))
    out.push_back({s.text, s.line,
                   s.source.file.empty() ? "" : s.source.file + ":" + std::to_string(s.source.line),
                   short_name(s.kernel) + " block " + text(s.block), s.thread, s.memory, s.offset,
                   s.predicate ? "pred" : std::string(ptx::info(s.type).name), s.value});
  return out;
}

UseDevice::UseDevice(Device& device) : before_(std::exchange(in_use, &device)) {}
UseDevice::~UseDevice() { in_use = before_; }

Device* device_in_use() { return in_use; }

void register_kernel(const void* function, const char* entry) { registered()[function] = entry; }

Support texts_present() {
  for (const Architecture a : kArchitectures)
    if (!kernel_texts(a).empty()) return {};
  return {false,
          "no PTX of the kernels, neither in the folder this program was built in nor in ../share/assay/ptx "
          "beside it: "
          "ci/build cuda assay makes it, and cmake --install copies it"};
}

}  // namespace assay::stand_in
