#include "fast/table.h"

#include <vector>

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

// Whether one launch serves both directions. MXFP8 lanes are independent; per-tensor columns hold the row's bytes (N3.9).
bool single_read(const Problem& p) {
  if (p.row->format != p.col->format) return false;
  if (info(p.row->format).per_tensor_fp8()) {
    Quantizer col = *p.col;
    col.scales = p.row->scales;
    return *p.row == col;
  }
  return true;
}

std::string quantize(const Job& job) {
  const Problem& p = job.problem;
  if (!p.row || !p.col) return format_row((p.row ? p.row : p.col)->format).quantize(job);
  if (single_read(p)) return format_row(p.row->format).quantize(job);
  std::string by;
  for (Direction d : kDirections) {
    Problem single = p;
    single.quantizer(d == Direction::row ? Direction::col : Direction::row).reset();
    std::vector<DevicePlane> outputs;   // a format that does not ask for the other direction must not find it
    for (const DevicePlane& plane : job.outputs)
      if (plane.plane->direction == d) outputs.push_back(plane);
    Job half{single, job.inputs, outputs, job.policy};
    by += (by.empty() ? "" : "; ") + format_row(p.quantizer(d)->format).quantize(half);
  }
  return by + "; two reads";
}

}  // namespace

std::string run(const Job& job) {
  const Problem& p = job.problem;
  if (p.as<Quantize>()) return quantize(job);
  if (p.as<Dequantize>()) return format_row((p.row ? p.row : p.col)->format).dequantize(job);
  if (p.as<Cast>()) return run_cast(job);
  if (p.as<Update>()) return run_update(job);
  if (p.as<Swizzle>()) return run_swizzle(job);
  return p.row->format == FormatId::mxfp8 ? scale_chain_mxfp8(job) : scale_chain_fp8_current(job);
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
