#include "fast/subject_host.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "contract/own_order.h"
#include "fast/simt/device_buffer.h"
#include "fast/simt/executor.h"
#include "fast/supports.h"
#include "fast/table.h"
#include "fast/trace.h"

namespace assay {
namespace {

using fast_host::DevicePlane;
using fast_host::Job;
using fast_host::Policy;

class HostSubject final : public Subject {
 public:
  HostSubject(Policy policy) : policy_(policy) {}

  std::string_view name() const override {
    return policy_ == Policy::automatic ? "host" : policy_ == Policy::general ? "host_general" : "host_apart";
  }
  Support supports(const Problem& p) const override { return kernels_run(p); }

  std::optional<std::string> unpinned(const Problem& p) const override { return own_order(p); }

  Served run(const Problem& problem, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
             const Environment& env) override {
    const simt::UseOptions use({.threads = env.threads, .order = env.order, .poison = env.poison});
    std::vector<simt::DeviceBuffer> memory;
    std::vector<DevicePlane> in, out;
    memory.reserve(inputs.size() + outputs.size());
    auto place = [&](const Plane* plane, std::span<const std::byte> bytes) {
      // An odd multiple of the alignment: a kernel that relies on more is seen.
      const size_t alignment = static_cast<size_t>(std::max(env.alignment, info(plane->encoding).bytes()));
      memory.emplace_back(bytes.size(), plane->name, alignment, simt::DeviceBuffer::Align::exactly);
      if (!bytes.empty()) std::memcpy(memory.back().data(), bytes.data(), bytes.size());
      return DevicePlane{plane, memory.back().data()};
    };
    for (const ConstBuffer& b : inputs) in.push_back(place(b.plane, b.bytes));
    for (const Buffer& b : outputs) out.push_back(place(b.plane, b.bytes));  // the caller's poison

    const uint64_t before = simt::launches();
    Served served;
    served.by = fast_host::run(Job{problem, in, out, policy_});
    served.launches = static_cast<int>(simt::launches() - before);

    for (simt::DeviceBuffer& m : memory)
      if (const auto wrong = m.intact()) throw std::runtime_error(*wrong);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (const auto wrong = memory[i].changed_from(inputs[i].bytes)) throw std::runtime_error(*wrong);
    for (size_t i = 0; i < outputs.size(); ++i)
      if (!outputs[i].bytes.empty())
        std::memcpy(outputs[i].bytes.data(), memory[inputs.size() + i].data(), outputs[i].bytes.size());
    return served;
  }

  std::vector<TraceStep> trace(const Problem& p, std::span<const ConstBuffer> inputs, Direction d,
                               int64_t row, int64_t col) override {
    return fast_host::trace(p, inputs, d, row, col);
  }

 private:
  Policy policy_;
};

}  // namespace

std::unique_ptr<Subject> make_host_subject() { return std::make_unique<HostSubject>(Policy::automatic); }
std::unique_ptr<Subject> make_general_host_subject() {
  return std::make_unique<HostSubject>(Policy::general);
}
std::unique_ptr<Subject> make_apart_host_subject() { return std::make_unique<HostSubject>(Policy::apart); }

}  // namespace assay
