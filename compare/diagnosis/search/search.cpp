#include "compare/diagnosis/search/search.h"

#include <algorithm>
#include <utility>

#include "compare/diagnosis/search/screening.h"
#include "compare/diagnosis/search/stages.h"

namespace assay::cause {

namespace {

// The runners-up, over everything: of a large tensor beside an exact cause only the first.
void add_runners_up(SearchState& s) {
  const size_t most = !s.screening.whole_is_large() ? 4 : s.unexplained() ? 3 : 1;
  std::vector<Candidate> others;
  for (const Candidate& c : s.singles) {
    if (others.size() == most) break;
    if (std::none_of(s.exact.begin(), s.exact.end(), [&](const Candidate& e) { return e.ids == c.ids; }) &&
        (c.sample.repaired > 0 || c.whole.repaired > 0))
      others.push_back(c);
  }
  if (s.screening.of().in_time()) s.screening.confirm(others);
  std::erase_if(others, [](const Candidate& c) { return c.whole.repaired == 0; });
  std::stable_sort(others.begin(), others.end(),
                   [](const Candidate& a, const Candidate& b) { return a.whole.agree > b.whole.agree; });
  s.exact.insert(s.exact.end(), others.begin(), others.end());
}

}  // namespace

Causes find_causes(JudgedCase& judged_case, std::optional<Direction> d,
                   const std::vector<Candidate>& elsewhere) {
  SearchState s{Screening(judged_case, d), d, elsewhere};
  if (!s.screening.can_sample()) return {};
  const bool pairs = judged_case.options.pairs;
  const auto looking = [&] { return s.unexplained() && judged_case.in_time(); };
  try_singles(s);
  if (d && looking()) try_wide(s);
  if (d && judged_case.in_time()) try_constant_scales(s);
  const bool moves = d || judged_case.seen.problem.as<Swizzle>();
  if (moves && judged_case.in_time()) try_layouts(s);  // before values: what is left is judged again
  if (d && looking()) try_code_map(s);
  if (d && looking()) try_places(s);
  if (looking()) try_named_sets(s);
  if (d && s.unexplained() && judged_case.options.flips)
    try_flips(s);  // else a region of one code describes it
  if (d && looking()) try_regions(s);
  if (d && looking()) try_moved_regions(s);
  if (d && looking()) try_factors(s);
  if (d && looking() && pairs) try_displaced(s);
  if (d && looking() && pairs) try_regions_under(s);
  if (d && looking() && pairs) try_residuals(s);
  if (d && looking() && pairs) try_pairs(s);
  if (d && looking()) try_tensor_values(s);
  if (d && looking()) judge_codes_under_scales(s);
  add_runners_up(s);
  return {std::move(s.exact), std::move(s.unseen), std::move(s.under_scales)};
}

}  // namespace assay::cause
