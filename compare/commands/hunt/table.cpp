#include "compare/commands/hunt/table.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "compare/choices/draft.h"
#include "contract/line.h"

namespace assay::hunting {

std::string table_of(const std::vector<Lines::Covered>& covered, const std::vector<Finding>& findings) {
  if (covered.empty()) return {};
  std::map<std::string, size_t> found;
  for (const Finding& f : findings)
    if (const auto p = parse_line(f.line)) ++found[choices::draft_of(*p).group()];
  size_t width = 0;
  for (const Lines::Covered& row : covered) width = std::max(width, row.group.size());
  std::string out =
      fmt::format("{:<{}}  {:>8}  {:>8}  {:>6}  {:>8}\n", "", width, "lines", "pairs", "codes", "findings");
  for (const Lines::Covered& row : covered)
    out += fmt::format("{:<{}}  {:>8}  {:>8}  {:>6}  {:>8}\n", row.group, width, row.lines, row.pairs,
                       row.codes, found[row.group]);
  return out;
}

}  // namespace assay::hunting
