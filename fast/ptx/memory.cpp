#include "fast/ptx/memory.h"

#include <utility>

namespace assay::ptx {

void Memory::add(const void* data, size_t bytes, std::string name, bool writable, bool written) {
  const auto base = reinterpret_cast<uint64_t>(data);
  auto flags = written ? nullptr : std::make_shared<std::vector<uint8_t>>(bytes, 0);
  const uint32_t times = ++times_[name];
  std::string id = times == 1 ? name : name + "#" + std::to_string(times);
  by_base_[base] = {base, bytes, std::move(name), std::move(id), writable, std::move(flags)};
}

const Allocation* Memory::named(const std::string& id) const {
  for (const auto& [base, a] : by_base_)
    if (a.id == id) return &a;
  return nullptr;
}

void Memory::remove(const void* data) { by_base_.erase(reinterpret_cast<uint64_t>(data)); }

const Allocation* Memory::holding(uint64_t address, uint64_t bytes) const {
  auto found = by_base_.upper_bound(address);
  if (found == by_base_.begin()) return nullptr;
  const Allocation& a = (--found)->second;
  return address - a.base <= a.bytes && bytes <= a.bytes - (address - a.base) ? &a : nullptr;
}

std::string Memory::place(uint64_t address) const {
  const Allocation* a = holding(address, 1);
  if (!a) return nearest(address);
  return "'" + a->name + "' (" + std::to_string(a->bytes) + " bytes), offset " +
         std::to_string(address - a->base);
}

std::string Memory::nearest(uint64_t address) const {
  if (by_base_.empty()) return "there is no allocation";
  auto found = by_base_.upper_bound(address);
  const bool below = found != by_base_.begin();
  if (below) --found;
  const Allocation& a = found->second;
  const std::string name = "'" + a.name + "' (" + std::to_string(a.bytes) + " bytes)";
  if (below) return "nearest below " + name + ", offset " + std::to_string(address - a.base);
  return "nearest above " + name + ", " + std::to_string(a.base - address) + " bytes before it";
}

}  // namespace assay::ptx
