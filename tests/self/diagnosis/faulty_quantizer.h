// A quantizer of its own with faults that can be switched on: the ground truth by which `assay explain` is
// judged. Its arithmetic is written from docs/numerics.md by a third method (tables of an encoding's values
// and their midpoints) and shares nothing with reference/, fast/ or compare/diagnosis. With no fault on, its
// bytes are the reference's (diagnosis_benchmark_test.cpp shows it).
#pragma once
#include <bitset>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "contract/subject.h"

namespace assay {

enum class Switch : uint16_t {
#define SWITCH(name, ...) name,
#define OUTSIDE(name, ...) name,
#define FOREIGN(name, ...) name,
#include "tests/self/diagnosis/switches.def"
#undef SWITCH
#undef OUTSIDE
#undef FOREIGN
};

struct SwitchInfo {
  std::string_view name, stage, what;
  bool outside = false;        // no list of causes has it
  std::string_view says = {};  // what has to be said where nothing foretells its bytes; else empty
};
inline constexpr SwitchInfo kSwitches[] = {
#define SWITCH(name, stage, what) SwitchInfo{#name, #stage, what, false},
#define OUTSIDE(name, stage, what) SwitchInfo{#name, #stage, what, true},
#define FOREIGN(name, stage, says, what) SwitchInfo{#name, #stage, what, false, says},
#include "tests/self/diagnosis/switches.def"
#undef SWITCH
#undef OUTSIDE
#undef FOREIGN
};
inline const SwitchInfo& info(Switch s) { return kSwitches[static_cast<size_t>(s)]; }

using Switches = std::bitset<std::size(kSwitches)>;
// "c_rz" or "c_rz+ly_scales_transposed"; empty or "none": no fault. Nothing: a word is no switch.
std::optional<Switches> parse_switches(std::string_view text);

// quantize of mxfp8, mxfp4, nvfp4 (no four_over_six, not row-scaled), fp8_block, fp8_current and fp8_delayed
// from f32, bf16 and f16, any direction, both scale layouts, default Numerics. name() is "faulty". Has no
// state: run() may be called from several threads. A switch whose step a line does not reach does nothing.
std::unique_ptr<Subject> make_faulty_quantizer(const Switches&);

}  // namespace assay
