#include "python/prepared_line.h"

#include <algorithm>
#include <cstdint>
#include <new>
#include <system_error>
#include <thread>

#include "python/line.h"
#include "python/subjects.h"

namespace assay::python {

PreparedLine::PreparedLine(const std::string& line)
    : problem_(problem_of_line(line)), inputs_(input_planes(problem_)), outputs_(output_planes(problem_)) {}

bool PreparedLine::can_run() const {
  Subject* const fast = vectorised();
  return fast && inputs_.size() == 1 && inputs_[0].name == "x" && fast->supports(problem_).yes;
}

std::optional<std::string> PreparedLine::run(std::span<const std::span<std::byte>> memory,
                                             int threads) const {
  const auto fits = [](std::span<const std::byte> bytes, const Plane& plane) {
    return bytes.data() && bytes.size() == plane.bytes();
  };
  const Plane& x = inputs_[0];
  if (memory.size() != outputs_.size() + 1 || !fits(memory[0], x) ||
      reinterpret_cast<uintptr_t>(memory[0].data()) % static_cast<uintptr_t>(info(x.encoding).bytes()) != 0)
    return {};
  std::vector<Buffer> written;
  written.reserve(outputs_.size());
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (!fits(memory[i + 1], outputs_[i])) return {};
    written.push_back({&outputs_[i], memory[i + 1]});
  }
  const ConstBuffer read{&x, memory[0]};
  Environment environment;
  environment.threads =
      threads > 0 ? threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  try {
    return vectorised()->run(problem_, {&read, 1}, written, environment).by;
  } catch (const std::bad_alloc&) {
    return {};
  } catch (const std::system_error&) {  // a thread could not be started
    return {};
  }
}

}  // namespace assay::python
