// The GPUs of the model and its constants, each with its source. Generated from gpus.def.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "contract/subject.h"

namespace assay::model {

struct Gpu {
  std::string_view name, title;
  Architecture architecture;  // whose kernels it runs
  int sms;
  double ghz;
  double copy, peak;  // bytes per second, of a plain copy and by the datasheet
  std::string_view source;
};

inline constexpr Gpu kGpus[] = {
#define GPU(name, title, architecture, sms, ghz, copy, peak, source) \
  Gpu{#name, title, Architecture::architecture, sms, ghz, copy, peak, source},
#define CONSTANT(name, value, source)
#define PIPE(name, rate, source)
#include "compare/model/gpus.def"
};

constexpr const Gpu* gpu_named(std::string_view name) {
  for (const Gpu& g : kGpus)
    if (g.name == name) return &g;
  return nullptr;
}

struct Constant {
  std::string_view name;
  double value;
  std::string_view source;
};
#define GPU(name, title, architecture, sms, ghz, copy, peak, source)
#define CONSTANT(name, value, source) inline constexpr double name = value;
#define PIPE(name, rate, source)
#include "compare/model/gpus.def"
inline constexpr Constant kConstants[] = {
#define GPU(name, title, architecture, sms, ghz, copy, peak, source)
#define CONSTANT(name, value, source) Constant{#name, value, source},
#define PIPE(name, rate, source)
#include "compare/model/gpus.def"
};

// What limits of every GPU of the table: registers of 32 bits, bytes of shared memory, warps and blocks of an
// SM (CUDA C++ Programming Guide, technical specifications, 9.0 and 10.0).
inline constexpr int kRegisters = 65536, kSharedBytes = 228 * 1024, kSharedReserved = 1024, kWarps = 64,
                     kBlocks = 32;

enum class Pipe : uint8_t {
#define GPU(name, title, architecture, sms, ghz, copy, peak, source)
#define CONSTANT(name, value, source)
#define PIPE(name, rate, source) name,
#include "compare/model/gpus.def"
};
struct PipeInfo {
  Pipe pipe;
  std::string_view name;
  double lanes;  // per clock and SM; 0: no rate of its own
  std::string_view source;
};
inline constexpr std::array kPipes = {
#define GPU(name, title, architecture, sms, ghz, copy, peak, source)
#define CONSTANT(name, value, source)
#define PIPE(name, rate, source) PipeInfo{Pipe::name, #name, rate, source},
#include "compare/model/gpus.def"
};

}  // namespace assay::model
