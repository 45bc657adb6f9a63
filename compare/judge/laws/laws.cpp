// Which law applies to which line.
#include "compare/judge/laws/laws.h"

#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/places.h"
#include "compare/judge/laws/attention.h"
#include "compare/judge/laws/gemm.h"
#include "compare/judge/laws/layouts.h"
#include "compare/judge/laws/ops.h"
#include "compare/judge/laws/optimizer.h"
#include "compare/judge/laws/record.h"
#include "compare/judge/laws/scales.h"

namespace assay {

namespace {

// N14.2, N14.3: every member obeys the laws of its own line; the offsets are running sums.
void check_split(LawRecord& laws) {
  const std::vector<Problem> members = member_problems(laws.problem);
  check_offsets(laws, members);
  for (size_t m = 0; m < members.size(); ++m) {
    const std::vector<PlaneData> in = planes_of_member(laws.inputs, m),
                                 out = planes_of_member(laws.outputs, m);
    for (Breach& b : check_laws(members[m], in, out, laws.subject, &laws.evaluated)) {
      b.plane += fmt::format("[{}]", m);
      laws.breaches.push_back(std::move(b));
    }
  }
}

void check_line(LawRecord& laws) {
  const Problem& p = laws.problem;
  if (p.as<Split>()) return check_split(laws);
  check_padding(laws);
  if (p.as<Cast>()) {
    if (p.as<Cast>()->round == Round::sr) return check_stochastic_cast(laws);
    check_cast(laws);
    check_monotone(laws);
  } else if (p.as<Quantize>()) {
    for (Direction d : kDirections)
      if (p.quantizer(d)) check_quantize(laws, d, *p.quantizer(d));
    check_coherent(laws);
  } else if (p.as<Dequantize>()) {
    check_dequantize(laws);
  } else if (p.as<Swizzle>()) {
    check_swizzle(laws);
  } else if (p.as<ScaleChain>()) {
    check_scale_chain(laws);
  } else if (p.as<Hadamard>()) {
    check_hadamard(laws);
  } else if (p.as<Philox>()) {
    check_philox(laws);
  } else if (p.as<Gemm>()) {
    check_gemm(laws);
  } else if (p.as<Adam>()) {
    check_adam(laws);
  } else if (p.as<ScaleState>()) {
    check_scale_state(laws);
  } else if (p.as<Attention>()) {
    check_attention(laws);
  }
}

}  // namespace

std::vector<Breach> check_laws(const Problem& problem, const std::vector<PlaneData>& inputs,
                               const std::vector<PlaneData>& outputs, std::string_view subject,
                               std::vector<std::string>* evaluated, GemmOrder order) {
  LawRecord laws(problem, inputs, outputs, subject, order);
  check_line(laws);
  if (evaluated)
    for (const std::string& claim : laws.evaluated) add_kind(*evaluated, claim);
  return std::move(laws.breaches);
}

}  // namespace assay
