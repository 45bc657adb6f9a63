#include "python/prepared_line.h"

#include <algorithm>
#include <stdexcept>
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

std::optional<std::string> PreparedLine::run(uintptr_t x, std::span<const uintptr_t> outputs,
                                             int threads) const {
  if (outputs.size() != outputs_.size())
    throw std::invalid_argument("expected an address for each output plane of the line");
  const Plane& from = inputs_[0];
  if (!x || x % static_cast<uintptr_t>(info(from.encoding).bytes()) != 0) return {};
  const ConstBuffer read{&from, {reinterpret_cast<const std::byte*>(x), from.bytes()}};
  std::vector<Buffer> written;
  written.reserve(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i)
    written.push_back({&outputs_[i], {reinterpret_cast<std::byte*>(outputs[i]), outputs_[i].bytes()}});
  Environment environment;
  environment.threads =
      threads > 0 ? threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return vectorised()->run(problem_, {&read, 1}, written, environment).by;
}

}  // namespace assay::python
