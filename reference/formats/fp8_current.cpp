// fp8_current: per-tensor FP8 whose scale is computed from this tensor's own amax.
#include "reference/formats/format.h"
#include "reference/scaling.h"

namespace assay::reference {

namespace {

// Computed from the tensor (N3.1), or given.
double amax_for(const Run& run, Direction d, const Values& x) {
  return run.quantizer(d).amax ? scalar(run.input(d, "given.amax")) : tensor_amax(x, 0.0, run.threads);
}

void quantize(const Run& run, Direction d) {
  const Quantizer& q = run.quantizer(d);
  const Values x = values(run.input("x"), run.threads);                      // N1.2
  const double amax = amax_for(run, d, x);
  const Chain chain = chain_of(amax, q, run.problem.x.source);
  if (!q.amax) store_scalar(run.output(d, "amax"), amax);                    // N3.2: as it was before eps
  store_scalar(run.output(d, "scale"), chain.scale);
  store_scalar(run.output(d, "scale_inv"), chain.scale_inv);
  store_per_tensor_data(run, d, per_tensor_elements(x, chain.factor, q, run.threads));
}

std::vector<TraceStep> trace(const Run& run, Direction d, int64_t row, int64_t col) {
  if (run.problem.as<Dequantize>()) return trace_dequantize_per_tensor(run, d, row, col);
  const Quantizer& q = run.quantizer(d);
  const Values x = values(run.input("x"), run.threads);
  if (run.problem.as<ScaleChain>()) return trace_chain(x(row, col), q, run.problem.x.source, "");
  const double amax = amax_for(run, d, x);
  std::vector<TraceStep> steps = trace_chain(amax, q, run.problem.x.source, q.amax ? " (given)" : " of the tensor");
  for (TraceStep& step : trace_element(x(row, col), chain_of(amax, q, run.problem.x.source).factor, q, "N3.8")) steps.push_back(std::move(step));
  return steps;
}

}  // namespace

const Format formats::fp8_current = {
    .quantize = quantize, .dequantize = dequantize_per_tensor, .scale_chain = divided_scale_chain, .trace = trace};

}  // namespace assay::reference
