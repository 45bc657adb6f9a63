#include "compare/witness/vectors/pattern.h"

#include <algorithm>
#include <utility>

namespace assay {

namespace {

using std::string;
using std::string_view;

constexpr string_view kSources[] = {"te_host", "te_python", "kernel_helper"};

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Matches text against a pattern, longest captures first.
bool match(string_view pattern, string_view text, Captures& captures) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] != '{')
    return !text.empty() && pattern[0] == text[0] && match(pattern.substr(1), text.substr(1), captures);
  const size_t close = pattern.find('}');
  const string_view inside = pattern.substr(1, close - 1), rest = pattern.substr(close + 1);
  const size_t colon = inside.find(':');
  const string name(inside.substr(0, colon));
  string_view choices = colon == string_view::npos ? string_view{} : inside.substr(colon + 1);
  auto take = [&](string_view word) {
    if (word.empty() || !text.starts_with(word)) return false;
    if (!match(rest, text.substr(word.size()), captures)) return false;
    captures[name] = string(word);
    return true;
  };
  if (choices == "#") {
    const size_t n = std::min(text.find_first_not_of("0123456789"), text.size());
    return take(text.substr(0, n));
  }
  if (!choices.empty()) {
    for (; !choices.empty(); choices.remove_prefix(std::min(choices.find('|') + 1, choices.size()))) {
      if (take(choices.substr(0, choices.find('|')))) return true;
      if (choices.find('|') == string_view::npos) return false;
    }
    return false;
  }
  size_t n = 0;
  while (n < text.size() && is_word(text[n])) ++n;
  for (; n > 0; --n)
    if (take(text.substr(0, n))) return true;
  return false;
}

}  // namespace

// A pattern with `~` in front matches with and without a case, with and without a source.
bool match_tensor(string_view pattern, string_view text, Captures& captures) {
  if (!pattern.starts_with('~')) return match(pattern, text, captures);
  pattern.remove_prefix(1);
  if (match(pattern, text, captures)) return true;
  const string_view first = text.substr(0, text.find('.'));
  if (first.size() == text.size()) return false;
  text.remove_prefix(first.size() + 1);
  for (string_view source : kSources)
    if (first == source) return captures["source_name"] = string(source), match(pattern, text, captures);
  if (captures.contains("c")) return false;
  captures["c"] = string(first);
  return match_tensor("~" + string(pattern), text, captures);
}

string line_word(string_view word) {
  static constexpr std::pair<string_view, string_view> kWords[] = {
      {"rn", "rne"}, {"satfinite", "sat"}, {"rowwise", "row"}, {"colwise", "col"}, {"columnwise", "col"},
      {"true", "1"}, {"false", "0"},       {"1d", "1x16"},     {"2d", "16x16"},
  };
  for (const auto& [from, to] : kWords)
    if (word == from) return string(to);
  return string(word);
}

}  // namespace assay
