// The kernels' own table: one row per format, joined by name to the rows of contract/formats.def, and one
// function per other op. Compiled twice, as every kernel is (fast/device.h): assay::fast_host and
// assay::fast_gpu. Both subjects call run().
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "contract/planes.h"
#include "contract/problem.h"
#include "fast/device.h"

namespace assay::ASSAY_FAST_NAMESPACE {

// A plane in memory that kernels can touch.
struct DevicePlane {
  const Plane* plane = nullptr;
  void* data = nullptr;
};

// Which kernels may serve. automatic: tuned ones where they apply. general: the one with run-time Numerics,
// so that both can be compared. apart: each direction through a launch of its own, so that one read can be
// compared with two.
enum class Policy : uint8_t { automatic, general, apart };

// One run. The problem is valid (contract/line.h), inputs and outputs are those of contract/planes.h, in any
// memory the kernels reach.
struct Job {
  const Problem& problem;
  std::span<const DevicePlane> inputs, outputs;
  Policy policy = Policy::automatic;

  // The plane's memory, or null where the Problem has no such plane.
  template <class T = uint32_t> const T* input(std::string_view name) const {
    return static_cast<const T*>(look(inputs, name));
  }
  template <class T = uint32_t> T* output(std::string_view name) const {
    return static_cast<T*>(look(outputs, name));
  }
  template <class T = uint32_t> const T* input(Direction d, std::string_view name) const {
    return input<T>(plane_name(d, name));
  }
  template <class T = uint32_t> T* output(Direction d, std::string_view name) const {
    return output<T>(plane_name(d, name));
  }

 private:
  static void* look(std::span<const DevicePlane> planes, std::string_view name) {
    for (const DevicePlane& p : planes)
      if (p.plane->name == name) return p.data;
    return nullptr;
  }
};

// Each launches what it needs, waits for nothing, and says which kernels served: "mxfp8_pair<row, col> bf16,
// vector, one read". Empty tensors launch nothing that would touch their planes.
struct FormatRow {
  std::string_view name;
  // The quantizers present are of this format, both of x, and one read serves them.
  std::string (*quantize)(const Job&);
  std::string (*dequantize)(const Job&);
};
#define FORMAT(name, ...)                      \
  std::string quantize_##name(const Job& job); \
  std::string dequantize_##name(const Job& job);
#include "contract/formats.def"
#undef FORMAT
const FormatRow& format_row(FormatId id);

std::string run_cast(const Job&);
std::string run_update(const Job&);
std::string run_swizzle(const Job&);
std::string run_hadamard(const Job&);
std::string run_split(const Job&);
std::string run_philox(const Job&);
std::string run_gemm(const Job&);  // of the sums of kernel_sums (fast/gemm_plan.h)
std::string run_adam(const Job&);
std::string run_scale_state(const Job&);
std::string run_attention(const Job&);
std::string scale_chain_nvfp4(const Job&);
std::string scale_chain_f32(const Job&);   // fp8_current, fp8_block
std::string scale_chain_e8m0(const Job&);  // mxfp8, mxfp6, mxfp4

// Runs any Problem.
std::string run(const Job&);

}  // namespace assay::ASSAY_FAST_NAMESPACE
