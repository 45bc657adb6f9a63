// expand_sweep: every {a,b,c} and {lo..hi} group of a line.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/line.h"
#include "contract/words.h"

namespace assay {

namespace {

// A group and the text before it. Behind the last group stands one without braces, whose only choice is
// empty.
struct Group {
  std::string_view before;
  std::vector<std::string_view> words;  // none for {lo..hi}
  int64_t low = 0;
  size_t count = 1, column = 0;

  std::string choice(size_t i) const {
    return words.empty() ? std::to_string(low + static_cast<int64_t>(i)) : std::string(words[i]);
  }
};

Error too_many_lines(size_t column) {
  return {concat({"a sweep of more than ", std::to_string(kMaxSweep), " lines"}), column, "split it"};
}

// What stands between two braces.
std::optional<Error> read_choices(std::string_view body, Group& group) {
  const size_t dots = body.find("..");
  if (dots == std::string_view::npos) {
    group.words = words_of(body, ',');
    group.count = group.words.size();
    return {};
  }
  const auto low = parse_integer<int64_t>(body.substr(0, dots)),
             high = parse_integer<int64_t>(body.substr(dots + 2));
  if (!low || !high || *low > *high)
    return Error{concat({"expected {lo..hi} with lo <= hi, found '{", body, "}'"}), group.column, ""};
  if (static_cast<uint64_t>(*high) - static_cast<uint64_t>(*low) >= kMaxSweep)
    return too_many_lines(group.column);
  group.low = *low, group.count = static_cast<size_t>(*high - *low) + 1;
  return {};
}

Result<std::vector<Group>> groups_of(std::string_view text) {
  std::vector<Group> out;
  for (size_t at = 0;;) {
    const size_t open = std::min(text.find_first_of("{}", at), text.size());
    Group& group = out.emplace_back();
    group.before = text.substr(at, open - at), group.column = open + 1;
    if (open == text.size()) return group.words = {""}, out;
    if (text[open] == '}') return Error{"'}' without '{'", open + 1, ""};
    const size_t close = text.find_first_of("{}", open + 1);
    if (close == std::string_view::npos || text[close] == '{')
      return Error{"'{' without '}'", open + 1, "groups do not nest"};
    if (auto error = read_choices(text.substr(open + 1, close - open - 1), group)) return *error;
    at = close + 1;
  }
}

Result<size_t> lines_of(const std::vector<Group>& groups) {
  size_t lines = 1;
  for (const Group& g : groups) {
    if (g.count > kMaxSweep / lines) return too_many_lines(g.column);
    lines *= g.count;
  }
  return lines;
}

}  // namespace

Result<size_t> count_sweep(std::string_view text) {
  const auto groups = groups_of(text);
  return groups ? lines_of(*groups) : Result<size_t>(groups.error());
}

Result<std::vector<std::string>> expand_sweep(std::string_view text) {
  const auto groups = groups_of(text);
  if (!groups) return groups.error();
  const auto lines = lines_of(*groups);
  if (!lines) return lines.error();
  size_t bytes = 0;
  for (const Group& g : *groups) {
    size_t choices = 0;
    for (size_t i = 0; i < g.count; ++i) choices += g.choice(i).size();
    bytes += *lines / g.count * choices + *lines * g.before.size();
    if (bytes > kMaxSweepBytes)
      return Error{concat({"a sweep of more than ", std::to_string(kMaxSweepBytes >> 20), " MiB of lines"}),
                   g.column, "split it"};
  }
  std::vector<std::string> out{""};
  for (const Group& g : *groups) {
    std::vector<std::string> longer;
    longer.reserve(out.size() * g.count);
    for (const std::string& line : out)
      for (size_t i = 0; i < g.count; ++i) longer.push_back(concat({line, g.before, g.choice(i)}));
    out = std::move(longer);
  }
  return out;
}

}  // namespace assay
