// identity: high-precision data, copied. No scale.
#include <cstring>

#include "reference/formats/format.h"
#include "reference/scaling.h"

namespace assay::reference {

namespace {

void copy(const ConstBuffer& from, const Buffer& to) {
  if (!from.bytes.empty()) std::memcpy(to.bytes.data(), from.bytes.data(), from.bytes.size());
}

void quantize(const Run& run, Direction d) { copy(run.input("x"), run.output(d, "data")); }  // N7.1, N6.1

void dequantize(const Run& run, Direction d) { copy(run.input(d, "data"), run.output("y")); }  // N7.1

Tracer trace(const Run& run, Direction d) {
  const ConstBuffer& from = run.problem.as<Quantize>() ? run.input("x") : run.input(d, "data");
  return [from](int64_t row, int64_t col) -> std::vector<TraceStep> {
    return {code_step("N7.1", "bytes, copied", from.plane->encoding,
                      load(from, row * from.plane->logical.cols + col))};
  };
}

}  // namespace

const Format formats::identity = {.quantize = quantize, .dequantize = dequantize, .trace = trace};

}  // namespace assay::reference
