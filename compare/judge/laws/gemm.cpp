#include "compare/judge/laws/gemm.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/gemm_bounds.h"

namespace assay {

void check_gemm(LawRecord& laws) {
  const PlaneData& d = laws.out("d");
  const GemmBounds bounds(laws.problem, laws.inputs, laws.order);
  const bool any = laws.order == GemmOrder::any;
  const Shape s = d.plane.logical;
  std::vector<std::optional<GemmBounds::Interval>> may;
  for (int64_t n = 0; n < s.rows; ++n)
    for (int64_t m = 0; m < s.cols; ++m) may.push_back(bounds.at(n, m));
  for (const bool exact : {false, true}) {
    const auto judged = [&](const auto& i) { return i && i->exact == exact; };
    if (std::none_of(may.begin(), may.end(), judged)) continue;
    laws.begin(exact ? "integer" : "bound");
    for (int64_t i = 0; i < s.count(); ++i) {
      const auto& interval = may[static_cast<size_t>(i)];
      if (!judged(interval)) continue;
      const double got = value(d, i / s.cols, i % s.cols);
      if (interval->holds(got)) continue;
      laws.breach(d, i / s.cols, i % s.cols, [&] {
        const std::string found = number_text(got);
        if (interval->nan) return fmt::format("it is NaN in every order (N16.13), found {}", found);
        if (exact)
          return fmt::format("no step of this sum rounds{}: it is {} ({}), found {}",
                             any ? ", in any order" : "", number_text(interval->low),
                             any ? "N16.13" : "N16.11", found);
        return fmt::format("the sum lies between {} and {} ({}), found {}", number_text(interval->low),
                           number_text(interval->high), any ? "in any order, N16.13" : "N16.10", found);
      });
    }
  }
}

}  // namespace assay
