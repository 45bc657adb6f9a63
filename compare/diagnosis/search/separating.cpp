#include "compare/diagnosis/search/separating.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "compare/diagnosis/search/predict.h"
#include "contract/line.h"

namespace assay::cause {

namespace {

// The case's line with another fill, of a small tensor; nothing where that is no line.
std::optional<Problem> with_fill(const Problem& problem, FillKind kind) {
  Problem p = problem;
  p.x.fill = {};
  p.x.fill.kind = kind;
  p.x.shape = {std::min<int64_t>(p.x.shape.rows, 128), std::min<int64_t>(p.x.shape.cols, 256)};
  if (validate(p)) return {};
  return p;
}

using Planes = Result<std::vector<PlaneData>>;
bool differ(const Planes& x, const Planes& y) {
  if (!x || !y) return false;
  for (size_t i = 0; i < x->size(); ++i)
    if ((*x)[i].bytes != (*y)[i].bytes) return true;
  return false;
}

}  // namespace

void find_separating_lines(const JudgedCase& judged_case, Diagnosis& out) {
  static constexpr FillKind kFills[] = {FillKind::edges,          FillKind::ties,     FillKind::wide,
                                        FillKind::nonfinite,      FillKind::denormal, FillKind::amax_edges,
                                        FillKind::negative_zeros, FillKind::outliers, FillKind::normal};
  std::vector<const Explanation*> exact;
  for (const Explanation& e : out.explanations)
    if (e.exact() && exact.size() < 4) exact.push_back(&e);
  if (exact.size() < 2 || !judged_case.seen.problem.as<Quantize>()) return;
  std::set<std::pair<size_t, size_t>> together;  // pairs that no line parts so far
  for (size_t a = 0; a < exact.size(); ++a)
    for (size_t b = a + 1; b < exact.size(); ++b) together.insert({a, b});
  for (const FillKind kind : kFills) {
    if (together.empty() || !judged_case.in_time()) return;
    const auto p = with_fill(judged_case.seen.problem, kind);
    if (!p) continue;
    const auto inputs = make_inputs(*p, judged_case.reference);
    if (!inputs) continue;
    std::vector<Planes> made;
    for (const Explanation* e : exact) made.push_back(predict(*e, *p, *inputs, judged_case.reference));
    const size_t before = together.size();
    std::erase_if(together, [&](const auto& pair) { return differ(made[pair.first], made[pair.second]); });
    if (together.size() < before) out.separating.push_back(to_line(*p));
  }
}

}  // namespace assay::cause
