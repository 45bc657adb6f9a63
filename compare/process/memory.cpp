#include "compare/process/memory.h"

#include <fstream>

#include <fmt/format.h>

#include "contract/planes.h"

namespace assay {

int64_t bytes_as_a_whole(const Problem& p) {
  size_t planes = 0;
  for (const auto& list : {input_planes(p), output_planes(p)})
    for (const Plane& plane : list) planes += plane.bytes();
  return static_cast<int64_t>(4 * planes) + 8 * p.x.shape.count();
}

std::optional<int64_t> bytes_available() {
  std::ifstream info("/proc/meminfo");
  for (std::string word; info >> word;)
    if (int64_t kib = 0; word == "MemAvailable:" && info >> kib) return kib << 10;
  return {};
}

std::optional<std::string> lacks_memory(const Problem& problem) {
  constexpr int64_t kSmall = int64_t{64}
                             << 20;  // a case of fewer elements is begun without a look at the memory
  if (problem.x.shape.count() < kSmall) return {};
  const int64_t bytes = bytes_as_a_whole(problem);
  const auto available = bytes_available();
  if (!available || bytes < *available) return {};
  return fmt::format("it needs about {} of memory, and {} are free", gib_text(bytes), gib_text(*available));
}

std::string gib_text(int64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / static_cast<double>(int64_t{1} << 30));
}

}  // namespace assay
