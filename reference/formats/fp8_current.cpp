// fp8_current: FP8 under a scale that is computed from this tensor's own amax, or under one for each stored
// row. Columns are stored transposed, so that both directions read alike.
#include "reference/blocks.h"
#include "reference/formats/format.h"
#include "reference/scaling.h"

namespace assay::reference {

namespace {

void quantize(const Run& run, Direction d) {
  const Quantizer& q = run.quantizer(d);
  const Values x = seen(run, d),
               amax =
                   amaxes(run, d, x);  // N3.9: under one scale the transpose's codes are the codes' transpose
  Values scale(amax.rows(), 1), scale_inv(amax.rows(), 1);
  std::vector<ElementFactor> factors;
  for (int64_t i = 0; i < amax.rows(); ++i) {  // N3.12
    const Chain chain = chain_of(amax(i, 0), q, run.problem.x.source);
    scale(i, 0) = static_cast<float>(chain.scale);  // exact, as the next
    scale_inv(i, 0) = static_cast<float>(chain.scale_inv);
    factors.push_back(chain.factor);
  }
  if (!q.amax) store(run.output(d, "amax"), amax);  // N3.2: as it was before eps
  store(run.output(d, "scale"), scale);
  store(run.output(d, "scale_inv"), scale_inv);
  store(run.output(d, "data"), per_tensor_elements(x, factors, q, run.threads));  // N6.1
}

Tracer trace(const Run& run, Direction d) {
  if (run.problem.as<Dequantize>()) return trace_dequantize_per_tensor(run, d);
  if (run.problem.as<ScaleChain>()) return trace_divided_scale_chain(run);
  const Values x = seen(run, d);
  return [=, amax_of = amaxes(run, d, x)](int64_t row, int64_t col) {
    const Quantizer& q = run.quantizer(d);
    const auto [i, j] = seen_at(d, row, col);
    const double amax = amax_of(scale_row(q, i), 0);
    std::vector<TraceStep> steps = trace_chain(amax, q, run.problem.x.source, whose_amax(q));
    for (TraceStep& step : trace_element(x(i, j), chain_of(amax, q, run.problem.x.source).factor, q, "N3.8"))
      steps.push_back(std::move(step));
    return steps;
  };
}

}  // namespace

const Format formats::fp8_current = {.quantize = quantize,
                                     .dequantize = dequantize_per_tensor,
                                     .scale_chain = divided_scale_chain,
                                     .trace = trace};

}  // namespace assay::reference
