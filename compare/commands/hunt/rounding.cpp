#include "compare/commands/hunt/rounding.h"

#include <algorithm>

#include "compare/choices/tensors.h"
#include "compare/rounding/cases.h"

namespace assay::hunting {

namespace {

// Whether lines of the group may belong to the unit. A unit of quantizers has the name of its format, with
// that of an element where the format has several.
bool may_belong(const rounding::Unit& unit, std::string_view group) {
  if (unit.name == group) return true;
  const std::string_view op = group.substr(0, group.find(' ')), format = group.substr(op.size() + 1);
  if (unit.name == op) return true;
  const bool quantizes = op == "quantize" || op == "split" || op == "dequantize" || op == "scale_chain";
  return quantizes && (unit.name == format || unit.name.starts_with(std::string(format) + " "));
}

}  // namespace

RoundingCases::RoundingCases(Subject& reference, const std::vector<std::string_view>& groups)
    : walk_(reference) {
  for (const rounding::Unit& unit : rounding::all_units()) {
    if (std::none_of(groups.begin(), groups.end(), [&](auto group) { return may_belong(unit, group); }))
      continue;
    OfUnit own{unit.name, {}};
    for (size_t i = 0; i < rounding::cases().size(); ++i) {
      const rounding::Case& c = rounding::cases()[i];
      if (rounding::applies(c, unit) && !rounding::why_unreachable(c, unit)) own.cases.push_back(i);
    }
    of_ += own.cases.size();
    units_.push_back(std::move(own));
  }
}

size_t RoundingCases::count() const {
  size_t out = 0;
  for (const OfUnit& unit : units_)
    if (const auto own = walk_.reached().find(unit.name); own != walk_.reached().end())
      for (size_t i : unit.cases) out += own->second[i] >= 0;
  return out;
}

size_t RoundingCases::look(const Problem& p) {
  if (choices::largest_tensor(p) > kMostTraced) return 0;
  // What the reference cannot trace tells nothing; that it runs the line is judged elsewhere.
  if (walk_.add(0, p)) return 0;
  const size_t before = reached_;
  reached_ = count();
  return reached_ - before;
}

}  // namespace assay::hunting
