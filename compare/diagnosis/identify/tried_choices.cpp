#include "compare/diagnosis/identify/tried_choices.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "contract/flavours.h"
#include "contract/line.h"
#include "contract/words.h"

namespace assay::identifying {

using std::string;
using std::string_view;

namespace {

// The words of a line that set Numerics.
string numerics_of(const Problem& problem) {
  const string line = to_line(problem);
  string keys;
  for (string_view word : words_of(line, ' ')) {
    string_view key = word.substr(0, word.find('='));
    if (key.starts_with("row.") || key.starts_with("col.")) key.remove_prefix(4);
    const auto named = [&](const NumericInfo& n) { return n.name == key; };
    if (std::any_of(kNumerics.begin(), kNumerics.end(), named))
      keys += (keys.empty() ? "" : " ") + string(word);
  }
  return keys;
}

}  // namespace

std::vector<Choice> choices_for(const ChoiceRuns& runs) {
  const Group& group = runs.group();
  const Case& c = group.cases.front();
  const Problem& first = c.problem;
  std::vector<Choice> out = choices_of(group.format);
  const auto quantizers = [](const Result<Problem>& p) { return std::pair(p->row, p->col); };
  const auto te = runs.problem(c, "flavour=te");
  for (const char* arch : {"sm90", "sm120"}) {
    const string keys = string("flavour=te arch=") + arch;
    if (const auto other = runs.problem(c, keys); te && other && quantizers(te) != quantizers(other))
      out.insert(out.begin() + 2, {string("te arch=") + arch, keys});
  }
  if (first.flavour != Flavour::assay || group.side) return out;
  if (const auto plain = runs.problem(c, ""); plain && quantizers(plain) != std::pair(first.row, first.col)) {
    const string keys = numerics_of(first);
    out.insert(out.begin(), {"the line's own: " + keys, keys});
  }
  return out;
}

std::vector<Choice> changes_of(const Choice& base) {
  std::vector<Choice> out;
  auto add = [&](string_view key, string_view value) {
    const string keys = (base.keys.empty() ? "" : base.keys + " ") + string(key) + "=" + string(value);
    out.push_back(
        {(base.name == "defaults" ? "" : base.name + " ") + string(key) + "=" + string(value), keys});
  };
  for (const NumericInfo& n : kNumerics)
    for (size_t at = 0; at < n.values.size();) {
      const size_t end = std::min(n.values.find(',', at), n.values.size());
      add(n.name, n.values.substr(at, end - at));
      at = n.values.find_first_not_of(", ", end);
    }
  for (const char* v : {"0", "1"}) add("pow2", v);
  for (const char* v : {"0", "1e-12", "1e-10", "1e-4", "0.001953125"}) add("eps", v);
  for (const char* v : {"e4m3", "e5m2"}) add("element", v);
  for (string_view v : words_of(kWords<Block>, ',')) add("block", v);
  for (const char* v : {"off", "mae", "mse"}) add("four_over_six", v);
  add("rht", "0");
  return out;
}

}  // namespace assay::identifying
