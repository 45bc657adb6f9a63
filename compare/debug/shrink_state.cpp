#include "compare/debug/shrink_state.h"

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "contract/line.h"
#include "fixtures/fill.h"
#include "fixtures/inputs.h"

namespace assay::shrinking {

Problem drawn(const State& s) { return s.side ? operand_problem(s.problem, *s.side) : s.problem; }

Fill& fill_of(State& s) { return s.side ? s.problem.as<Gemm>()->operand(*s.side).fill : s.problem.x.fill; }

std::vector<std::optional<Side>> sides_of(const Problem& p) {
  if (p.as<Gemm>()) return {Side::a, Side::b};
  return {std::nullopt};
}

int64_t& extent(Problem& p, size_t axis) {
  return axis == 0 ? p.x.shape.rows : axis == 1 ? p.x.shape.cols : p.as<Gemm>()->k;
}

Encoding source(const State& s) {
  return s.side ? s.problem.as<Gemm>()->operand(*s.side).source : s.problem.x.source;
}

uint32_t element(const State& s, int64_t i) { return code_at(source(s), s.x, i); }

std::vector<int64_t> set_elements(const State& s) {
  std::vector<int64_t> out;
  for (int64_t i = 0, count = drawn(s).x.shape.count(); i < count; ++i)
    if (element(s, i) != 0) out.push_back(i);
  return out;
}

std::string hex(const State& s, uint32_t code) {
  return fmt::format("{:0{}x}", code, info(source(s)).bytes() * 2);
}

bool express(State& state) {
  const std::vector<int64_t> live = set_elements(state);
  if (live.size() > kMaxLiteral) return false;
  const int64_t cols = drawn(state).x.shape.cols;
  Fill fill;
  fill.kind = live.empty() ? FillKind::zeros : FillKind::literal;
  for (int64_t i : live)
    fill.payload += fmt::format("{}{}@{}.{}", fill.payload.empty() ? "" : "+", hex(state, element(state, i)),
                                i / cols, i % cols);
  fill_of(state) = fill;
  state.loaded = false;
  state.x.clear();
  return true;
}

}  // namespace assay::shrinking
