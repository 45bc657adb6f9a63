// Which rounding cases (compare/rounding/cases.h) the small lines of a hunt have reached on the reference.
#pragma once
#include <cstddef>
#include <string_view>
#include <vector>

#include "compare/rounding/reached.h"
#include "contract/problem.h"
#include "contract/subject.h"

namespace assay::hunting {

class RoundingCases {
 public:
  // The largest tensor that a line which is looked at has. Every element of it is traced.
  static constexpr int64_t kMostTraced = 256;

  // The reference is a Tracing. `groups`: ops with a format ("quantize mxfp8"), whose cases count.
  RoundingCases(Subject& reference, const std::vector<std::string_view>& groups);
  // Looks at a line, and returns how many cases it is the first to reach: 0 where it is large, where no case
  // is left that its keys allow, or where the reference cannot trace it. Lines whose steps an earlier one had
  // are not traced again.
  size_t look(const Problem&);
  size_t reached() const { return reached_; }
  size_t of() const { return of_; }

 private:
  size_t count() const;

  struct OfUnit {
    std::string name;
    std::vector<size_t> cases;  // places in rounding::cases()
  };
  rounding::Walk walk_;
  std::vector<OfUnit> units_;
  size_t reached_ = 0, of_ = 0;
};

}  // namespace assay::hunting
