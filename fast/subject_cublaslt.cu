#include "fast/subject_cublaslt.h"

#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "fast/gemm_lt.h"
#include "fast/gpu_case.h"
#include "fast/launch.h"
#include "fast/transpose.h"

namespace assay {
namespace {

using fast_gpu::check;
using fast_gpu::DeviceCase;
using fast_gpu::DevicePlane;
using fast_gpu::GuardedMemory;
using fast_gpu::Job;

// The sums are Hopper's, chained as cuBLASLt chains them there.
Support find_hopper() {
  int count = 0, device = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  (void)cudaGetLastError();
  if (status != cudaSuccess) return {false, std::string("no GPU: ") + cudaGetErrorString(status)};
  if (count == 0) return {false, "no GPU: the driver reports none"};
  cudaDeviceProp properties{};
  check(cudaGetDevice(&device), "finding the device");
  check(cudaGetDeviceProperties(&properties, device), "reading the device's properties");
  if (properties.major == 9 && properties.minor == 0) return {};
  return {false, std::string(properties.name) + " is sm_" + std::to_string(properties.major) +
                     std::to_string(properties.minor) + ": these sums are those of sm_90"};
}

// N16.12: an operand dequantized by its format's kernel, in the shape of its tensor. Throws Unsupported where
// bf16 cannot hold a value.
std::vector<uint16_t> brains_of(const Job& job, Side side) {
  Problem p = operand_dequantize(job.problem, side);
  p.as<Dequantize>()->out = Encoding::f32;
  const std::vector<Plane> read = input_planes(p), written = output_planes(p);
  std::vector<DevicePlane> inputs;
  for (const Plane& plane : read)
    inputs.push_back({&plane, const_cast<void*>(job.input<void>(std::string(name_of(side)) +
                                                                plane.name.substr(plane.name.find('.'))))});
  const GuardedMemory y(written[0].bytes(), "dequantized operand", kLtAlignment);
  const DevicePlane output{&written[0], y.data()};
  fast_gpu::run(Job{p, inputs, std::span(&output, 1)});
  check(cudaDeviceSynchronize(), "dequantizing an operand");
  std::vector<uint32_t> words(static_cast<size_t>(written[0].padded.count()));
  y.download(std::as_writable_bytes(std::span(words)));
  std::vector<uint16_t> out;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool nan = (words[i] & 0x7FFFFFFF) > 0x7F800000;
    if (!nan && (words[i] & 0xFFFF) != 0) {
      const size_t cols = static_cast<size_t>(p.x.shape.cols);
      throw Unsupported(
          std::string(name_of(side)) + ": row " + std::to_string(i / cols) + ", column " +
          std::to_string(i % cols) +
          " dequantizes to no bf16 value, and cuBLASLt multiplies this format in bf16 only (N16.12)");
    }
    out.push_back(nan ? uint16_t{0x7FFF} : static_cast<uint16_t>(words[i] >> 16));
  }
  return out;
}

// The operands of a call on the device: those that it cannot read dequantized, those that do not run along k
// moved.
class Operands {
 public:
  Operands(const LtPlan& plan, const Job& job)
      : a_brains_(brains(plan.a, job, Side::a)),
        b_brains_(brains(plan.b, job, Side::b)),
        a_(bytes(plan.a, plan.m, plan.k), "a transposed", kLtAlignment),
        b_(bytes(plan.b, plan.n, plan.k), "b transposed", kLtAlignment) {
    memory.a = along_k(plan.a, a_brains_ ? a_brains_->data() : job.input<void>("a.data"), a_, plan.m, plan.k);
    memory.b = along_k(plan.b, b_brains_ ? b_brains_->data() : job.input<void>("b.data"), b_, plan.n, plan.k);
    memory.a_scale = job.input<void>("a.scale_inv"), memory.b_scale = job.input<void>("b.scale_inv");
    memory.bias = job.input<void>("bias");
    memory.d = job.output<void>("d");
    const void* given = job.input<void>("c");
    memory.c = given ? given : memory.d;  // beta is 0: it is not read
  }
  LtMemory memory{};

 private:
  static size_t bytes(const LtOperand& o, int64_t lines, int64_t k) {
    return o.transpose ? static_cast<size_t>(lines * k * info(o.encoding).bytes()) : 0;
  }
  static const void* along_k(const LtOperand& o, const void* data, const GuardedMemory& moved, int64_t lines,
                             int64_t k) {
    if (!o.transpose) return data;
    fast_gpu::transpose_elements(data, moved.data(), k, lines, info(o.encoding).bytes());
    return moved.data();
  }
  static std::unique_ptr<GuardedMemory> brains(const LtOperand& o, const Job& job, Side side) {
    if (!o.dequantize) return nullptr;
    const std::vector<uint16_t> values = brains_of(job, side);
    auto out =
        std::make_unique<GuardedMemory>(values.size() * sizeof(uint16_t), "operand in bf16", kLtAlignment);
    out->upload(std::as_bytes(std::span(values)));
    return out;
  }
  std::unique_ptr<GuardedMemory> a_brains_, b_brains_;  // N16.12
  GuardedMemory a_, b_;
};

class CublasLtSubject final : public Subject {
 public:
  std::string_view name() const override { return "cublaslt"; }
  Support present() const override {
    static const Support support = find_hopper();
    return support;
  }
  Support supports(const Problem& p) const override {
    if (const Support here = present(); !here.yes) return here;
    const Result<LtPlan> plan = lt_plan(p);
    if (!plan) return {false, plan.error().text()};
    if (empty(*plan)) return {};
    const LtCall call(*plan);
    return call.choice() ? Support{} : Support{false, unknown(call)};
  }
  std::optional<std::string> unpinned(const Problem& p) const override {
    const Result<LtPlan> plan = lt_plan(p);
    if (!plan || plan->unpinned.empty()) return {};
    return plan->unpinned;
  }

  Served run(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
             const Environment&) override {
    const LtPlan plan = require(p);
    if (empty(plan)) return {"cublasLt, nothing to multiply", 0};
    const DeviceCase c(inputs, outputs, kLtAlignment);
    const uint64_t before = fast_gpu::launches();
    const Operands operands(plan, Job{p, c.in_planes, c.out_planes});
    const LtCall call(plan, operands.memory);
    require_choice(call);
    call.launch();
    const Served served{call.name(), static_cast<int>(fast_gpu::launches() - before) + 1};
    c.finish(served.by, outputs);
    return served;
  }

  // The product alone: the layouts that it reads are made before. Nothing for what is no gemm, such as a copy
  // to compare with.
  std::vector<std::chrono::nanoseconds> time(const Problem& p, std::span<const ConstBuffer> inputs,
                                             int repeats, bool cold) override {
    if (!p.as<Gemm>()) return {};
    const LtPlan plan = require(p);
    if (empty(plan)) return {};
    const std::vector<Plane> planes = output_planes(p);
    const DeviceCase c(inputs, planes);
    const Operands operands(plan, Job{p, c.in_planes, c.out_planes});
    const LtCall call(plan, operands.memory);
    require_choice(call);
    return fast_gpu::device_times([&] { call.launch(); }, repeats, cold);
  }

 private:
  static std::string unknown(const LtCall& call) {
    return "cuBLASLt offers no kernel whose order of sums is known; " +
           (call.offered().empty() ? "it offers none"
                                   : "the first of its " + std::to_string(call.offered().size()) + ": " +
                                         to_text(call.offered()[0]));
  }
  static void require_choice(const LtCall& call) {
    if (!call.choice()) throw std::runtime_error(unknown(call));
  }
  static bool empty(const LtPlan& plan) { return plan.m == 0 || plan.n == 0; }
  LtPlan require(const Problem& p) const {
    if (const Support s = present(); !s.yes) throw std::runtime_error(s.why);
    Result<LtPlan> plan = lt_plan(p);
    if (!plan) throw std::runtime_error(plan.error().text());
    return *plan;
  }
};

}  // namespace

std::unique_ptr<Subject> make_cublaslt_subject() { return std::make_unique<CublasLtSubject>(); }

}  // namespace assay
