#include "fast/subject_ptx.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "contract/own_order.h"
#include "fast/stand_in/device.h"
#include "fast/supports.h"
#include "fast/table.h"
#include "fast/trace.h"

namespace assay {
namespace {

using fast_gpu::DevicePlane;
using fast_gpu::Job;

class PtxSubject final : public Subject {
 public:
  std::string_view name() const override { return "ptx"; }
  Support present() const override {
    static const Support support = stand_in::texts_present();
    return support;
  }
  Support supports(const Problem& p) const override {
    const Support here = present();
    return here.yes ? kernels_run(p) : here;
  }
  std::optional<std::string> unpinned(const Problem& p) const override { return own_order(p); }

  Served run(const Problem& problem, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
             const Environment& env) override {
    stand_in::Device device(env);
    return run_on(device, problem, inputs, outputs, env);
  }

  bool interprets() const override { return true; }
  std::vector<LaunchCounts> count(const Problem& problem, std::span<const ConstBuffer> inputs,
                                  const Environment& env) override {
    std::vector<LaunchCounts> out;
    stand_in::Device device(env);
    device.count(out);
    run_for_itself(device, problem, inputs, env);
    return out;
  }

  std::vector<SliceStep> slice(const Problem& problem, std::span<const ConstBuffer> inputs,
                               std::string_view plane, size_t bit, size_t bits,
                               const Environment& env) override {
    const auto run_all = [&](stand_in::Device& device) { run_for_itself(device, problem, inputs, env); };
    return stand_in::slice_behind(run_all, env, plane, bit, bits);
  }

  std::vector<TraceStep> trace(const Problem& p, std::span<const ConstBuffer> inputs, Direction d,
                               int64_t row, int64_t col) override {
    return fast_host::trace(p, inputs, d, row, col);
  }

 private:
  // A run whose outputs nobody asks for.
  static void run_for_itself(stand_in::Device& device, const Problem& problem,
                             std::span<const ConstBuffer> inputs, const Environment& env) {
    const std::vector<Plane> planes = output_planes(problem);
    std::vector<std::vector<std::byte>> bytes;
    std::vector<Buffer> outputs;
    for (const Plane& plane : planes) bytes.emplace_back(plane.bytes(), std::byte{env.poison});
    for (size_t n = 0; n < planes.size(); ++n) outputs.push_back({&planes[n], bytes[n]});
    run_on(device, problem, inputs, outputs, env);
  }

  static Served run_on(stand_in::Device& device, const Problem& problem, std::span<const ConstBuffer> inputs,
                       std::span<const Buffer> outputs, const Environment& env) {
    const stand_in::UseDevice use(device);
    const auto place = [&](const Plane* plane, std::span<const std::byte> bytes, bool writable) {
      const int alignment = std::max(env.alignment, info(plane->encoding).bytes());
      std::byte* data = device.allocate(bytes.size(), plane->name, static_cast<size_t>(alignment), writable);
      if (!bytes.empty()) std::memcpy(data, bytes.data(), bytes.size());
      return DevicePlane{plane, data};
    };
    std::vector<DevicePlane> in, out;
    for (const ConstBuffer& b : inputs) in.push_back(place(b.plane, b.bytes, false));
    for (const Buffer& b : outputs) out.push_back(place(b.plane, b.bytes, true));  // the caller's poison

    Served served;
    served.by = fast_gpu::run(Job{problem, in, out});
    served.launches = device.launches();
    if (served.launches == 0 &&
        std::any_of(outputs.begin(), outputs.end(), [](const Buffer& b) { return !b.bytes.empty(); }))
      throw std::runtime_error("no kernel was launched: " + served.by);
    served.by += "; " + device.report();
    for (size_t i = 0; i < outputs.size(); ++i)
      if (!outputs[i].bytes.empty())
        std::memcpy(outputs[i].bytes.data(), out[i].data, outputs[i].bytes.size());
    return served;
  }
};

}  // namespace

std::unique_ptr<Subject> make_ptx_subject() { return std::make_unique<PtxSubject>(); }

}  // namespace assay
