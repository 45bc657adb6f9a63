#include "fast/ptx/other_results.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include "fast/ptx/hopper_functions.h"
#include "fast/ptx/machine.h"
#include "fast/ptx/run.h"

namespace assay::ptx {

namespace {

// Both halves of the register: what stands above a single f16 or bf16 is never read as a number.
void perturb_halves(Warp& w, const Instruction& i, bool bf16) {
  const uint64_t seed = w.block->perturb;
  const unsigned mantissa = bf16 ? 7 : 10, greatest = bf16 ? 255 : 31;
  const auto normal = [&](uint32_t code) {
    const uint32_t exponent = (code & 0x7FFF) >> mantissa;
    return exponent != 0 && exponent != greatest;
  };
  for (uint32_t m = w.active; m; m &= m - 1) {
    uint32_t& v = w.words[i.d[0] + static_cast<uint32_t>(std::countr_zero(m))];
    for (const unsigned shift : {0u, 16u}) {
      const uint32_t code = v >> shift & 0xFFFF;
      const uint64_t mixed = (code ^ seed * 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull;
      const uint32_t step = seed < 3 ? (seed == 1 ? ~0u : 1u) : static_cast<uint32_t>((mixed >> 40) % 3) - 1;
      if (normal(code) && normal(code + step)) v = (v & ~(0xFFFFu << shift)) | (code + step) << shift;
    }
  }
}

// Moves results of an approximate function by one place (RunOptions::perturb). Zeros, subnormal numbers,
// infinities and NaN stay, and nothing becomes one: what .ftz and the special values give is pinned.
void perturb(Warp& w, const Instruction& i) {
  const Block& b = *w.block;
  if (i.kind != Class::special || (b.perturb_line && b.perturb_line != i.line)) return;
  const Type type = b.kernel->opcodes[i.opcode].last();
  const bool bf16 = type == Type::bf16 || type == Type::bf16x2;
  if (bf16 || type == Type::f16 || type == Type::f16x2) return perturb_halves(w, i, bf16);
  const auto normal = [](uint32_t v) { return (v >> 23 & 255) != 0 && (v >> 23 & 255) != 255; };
  for (uint32_t m = w.active; m; m &= m - 1) {
    uint32_t& v = w.words[i.d[0] + static_cast<uint32_t>(std::countr_zero(m))];
    uint64_t mixed = (v ^ b.perturb * 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull;
    const uint32_t step =
        b.perturb < 3 ? (b.perturb == 1 ? ~0u : 1u) : static_cast<uint32_t>((mixed >> 40) % 3) - 1;
    if (normal(v) && normal(v + step)) v += step;
  }
}

// The function of an H100 that gives the results of an instruction; nothing where it is not known.
std::optional<HopperFunction> function_of(const Opcode& op) {
  switch (op.row->form) {
    case Form::rcp_f32_approx: return HopperFunction::rcp;
    case Form::ex2: return HopperFunction::ex2;
    case Form::rsqrt: return HopperFunction::rsqrt;
    case Form::sqrt_f32_approx: return HopperFunction::sqrt;
    case Form::div_f32_approx: return op.has("full") ? HopperFunction::div_full : HopperFunction::div_approx;
    default: return {};
  }
}

}  // namespace

void carry_out_otherwise(Warp& w, const Instruction& i) {
  const Block& b = *w.block;
  if (b.perturb != kAsHopper) {
    i.handler(w, i);
    return perturb(w, i);
  }
  const Opcode& op = b.kernel->opcodes[i.opcode];
  const auto function = b.perturb_line && b.perturb_line != i.line ? std::nullopt : function_of(op);
  std::array<uint32_t, kLanes> first{}, second{};  // the result may take the place of either
  if (function) {
    std::copy_n(w.words + i.s[0], kLanes, first.begin());
    if (i.sources > 1) std::copy_n(w.words + i.s[1], kLanes, second.begin());
  }
  i.handler(w, i);
  if (!function) return;
  for (uint32_t m = w.active; m; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(m));
    w.words[i.d[0] + lane] = hopper(*function, op.has("ftz"), first[lane], second[lane]);
  }
}

bool known_of_hopper(const Kernel& k, const Instruction& i) {
  return function_of(k.opcodes[i.opcode]).has_value();
}

}  // namespace assay::ptx
