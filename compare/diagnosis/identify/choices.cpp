#include "compare/diagnosis/identify/choices.h"

#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "contract/flavours.h"
#include "contract/line.h"
#include "contract/words.h"

namespace assay {

namespace {

using std::string;
using std::string_view;

// "eps" of "row.eps=1".
string_view key_of(string_view word) {
  word = word.substr(0, word.find('='));
  for (string_view side : {"row.", "col."})
    if (word.starts_with(side)) word.remove_prefix(side.size());
  return word;
}

}  // namespace

// ---- choices ------------------------------------------------------------------------------------

std::vector<Choice> choices_of(FormatId format) {
  std::vector<Choice> out{{"defaults", ""}, {"te", "flavour=te"}};
  for (const FlavourInfo& f : flavours())
    if (f.is_of(format)) out.push_back({string(f.name), "flavour=" + string(f.name)});
  return out;
}

Result<Problem> with_choice(const Problem& base, string_view keys) {
  std::set<string_view> gone = {"flavour", "arch", "dispatch"};
  for (const NumericInfo& n : kNumerics) gone.insert(n.name);
  for (string_view word : words_of(keys, ' ')) {
    gone.insert(key_of(word));
    if (!word.starts_with("flavour=")) continue;
    for (const FlavourInfo& f : flavours())
      if (f.name == word.substr(8))
        for (string_view set : words_of(f.keys, ' ')) gone.insert(key_of(set));
  }
  const string line = to_line(base);
  string out;
  for (string_view word : words_of(line, ' '))
    if (word.find('=') == string_view::npos || !gone.contains(key_of(word))) out += string(word) + " ";
  // Whether scales are powers of two is of the bytes, and no choice: where the line's flavour says it, it
  // stays when the flavour goes.
  Problem plain = base;
  plain.flavour = Flavour::assay;
  const string expanded = to_line(plain);
  for (string_view word : words_of(expanded, ' '))
    if (key_of(word) == "pow2" && !gone.contains("pow2") &&
        (" " + out).find(" " + string(word) + " ") == string::npos)
      out += string(word) + " ";
  return parse_line(out + string(keys));
}

Result<Problem> with_choice(const Problem& base, string_view keys, Direction d) {
  Problem alone = base;
  alone.quantizer(d == Direction::row ? Direction::col : Direction::row).reset();
  alone.col_source = ColSource::original;
  const auto chosen = with_choice(alone, keys);
  if (!chosen) return chosen.error();
  Problem out = base;
  out.quantizer(d) = chosen->quantizer(d);
  out.flavour = Flavour::assay;
  if (auto error = validate(out)) return *error;
  return out;
}

}  // namespace assay
