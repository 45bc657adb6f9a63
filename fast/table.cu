#include "fast/table.h"

#include <stdexcept>
#include <vector>

#include "fast/hybrid.h"

namespace assay::ASSAY_FAST_NAMESPACE {

const FormatRow& format_row(FormatId id) {
  static constexpr FormatRow kRows[] = {
#define FORMAT(name, ...) {#name, quantize_##name, dequantize_##name},
#include "contract/formats.def"
#undef FORMAT
  };
  return kRows[static_cast<size_t>(id)];
}

namespace {

bool one_format(const Problem& p) {
  return !p.row || !p.col || (p.row->format == p.col->format && p.col_source == ColSource::original);
}

// Each direction through a launch of its own, as a pair of quantizers that know nothing of each other would
// run (N13.2).
std::string quantize_apart(const Job& job) {
  std::string by;
  for (Direction d : kDirections) {
    Problem single = job.problem;
    single.quantizer(d == Direction::row ? Direction::col : Direction::row).reset();
    std::vector<DevicePlane> outputs;  // a format that does not ask for the other direction must not find it
    for (const DevicePlane& plane : job.outputs)
      if (plane.plane->direction == d) outputs.push_back(plane);
    by += (by.empty() ? "" : "; ") +
          format_row(single.quantizer(d)->format).quantize({single, job.inputs, outputs, Policy::automatic});
  }
  return by + "; two reads";
}

// A kernel that makes both directions draws other words for them than one that makes one (N12.4): then two
// launches are no other way to the same bytes.
bool drawn_together(const Problem& p) {
  for (Direction d : kDirections)
    if (p.quantizer(d) && p.quantizer(d)->round == Round::sr &&
        p.quantizer(d)->numerics.draw != Draw::logical)
      return true;
  return false;
}

std::string quantize(const Job& job) {
  const Problem& p = job.problem;
  if (job.policy == Policy::apart && p.row && p.col && p.col_source == ColSource::original &&
      !drawn_together(p))
    return quantize_apart(job);
  return one_format(p) ? format_row((p.row ? p.row : p.col)->format).quantize(job) : quantize_hybrid(job);
}

}  // namespace

std::string run(const Job& job) {
  const Problem& p = job.problem;
  if (p.as<Quantize>()) return quantize(job);
  if (p.as<Dequantize>()) return format_row((p.row ? p.row : p.col)->format).dequantize(job);
  if (p.as<Cast>()) return run_cast(job);
  if (p.as<Update>()) return run_update(job);
  if (p.as<Swizzle>()) return run_swizzle(job);
  if (p.as<Hadamard>()) return run_hadamard(job);
  if (p.as<Split>()) return run_split(job);
  if (p.as<Philox>()) return run_philox(job);
  if (p.as<Gemm>()) return run_gemm(job);
  if (p.as<Adam>()) return run_adam(job);
  if (p.as<ScaleState>()) return run_scale_state(job);
  if (p.as<Attention>()) return run_attention(job);
  switch (info(p.row->format).family) {
    case Family::nvfp4: return scale_chain_nvfp4(job);
    case Family::mx: return scale_chain_e8m0(job);
    case Family::fp8_tensor:
    case Family::fp8_block: return scale_chain_f32(job);
    case Family::identity: break;
  }
  throw std::runtime_error("no scale chain of " + std::string(info(p.row->format).name));
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
