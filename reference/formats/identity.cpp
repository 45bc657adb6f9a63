// identity: high-precision data, copied. No scale.
#include <cstring>

#include "reference/formats/format.h"
#include "reference/scaling.h"

namespace assay::reference {

namespace {

void copy(const ConstBuffer& from, const Buffer& to) {
  if (!from.bytes.empty()) std::memcpy(to.bytes.data(), from.bytes.data(), from.bytes.size());
}

void quantize(const Run& run, Direction d) { copy(run.input("x"), run.output(d, "data")); }   // N7.1, N6.1

// The stored bytes where y has the stored encoding (N7.1); else a cast (N2.1, N2.3).
void dequantize(const Run& run, Direction d) {
  const ConstBuffer& data = run.input(d, "data");
  const Buffer& y = run.output("y");
  const Encoding from = data.plane->encoding, to = y.plane->encoding;
  if (from == to) return copy(data, y);
  for (int64_t i = 0; i < y.plane->padded.count(); ++i) store(y, i, cast_code(from, load(data, i), to, Round::rne, Overflow::nosat));
}

std::vector<TraceStep> trace(const Run& run, Direction d, int64_t row, int64_t col) {
  const ConstBuffer& from = run.problem.as<Quantize>() ? run.input("x") : run.input(d, "data");
  const Encoding encoding = from.plane->encoding;
  const uint32_t code = load(from, row * from.plane->logical.cols + col);
  std::vector<TraceStep> steps = {code_step("N7.1", "source bytes, copied", encoding, code)};
  if (const Dequantize* op = run.problem.as<Dequantize>(); op && op->out != encoding)
    steps.push_back(code_step("N2.1", "cast", op->out, cast_code(encoding, code, op->out, Round::rne, Overflow::nosat)));
  return steps;
}

}  // namespace

const Format formats::identity = {.quantize = quantize, .dequantize = dequantize, .trace = trace};

}  // namespace assay::reference
