// expand_sweep: every {a,b,c} and {lo..hi} group of a line.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "contract/line.h"
#include "contract/words.h"

namespace assay {

Result<std::vector<std::string>> expand_sweep(std::string_view text) {
  std::vector<std::string> out{""};
  for (size_t at = 0; at < text.size();) {
    const size_t open = std::min(text.find_first_of("{}", at), text.size());
    for (std::string& line : out) line += text.substr(at, open - at);
    if (open == text.size()) break;
    if (text[open] == '}') return Error{"'}' without '{'", open + 1, ""};
    const size_t close = text.find_first_of("{}", open + 1);
    if (close == std::string_view::npos || text[close] == '{')
      return Error{"'{' without '}'", open + 1, "groups do not nest"};
    const std::string_view body = text.substr(open + 1, close - open - 1);
    std::vector<std::string> choices;
    if (const size_t dots = body.find(".."); dots != std::string_view::npos) {
      const auto low = parse_integer<int64_t>(body.substr(0, dots)),
                 high = parse_integer<int64_t>(body.substr(dots + 2));
      if (!low || !high || *low > *high)
        return Error{concat({"expected {lo..hi} with lo <= hi, found '{", body, "}'"}), open + 1, ""};
      if (static_cast<uint64_t>(*high) - static_cast<uint64_t>(*low) >= kMaxSweep)
        return Error{concat({"a sweep of more than ", std::to_string(kMaxSweep), " lines"}), open + 1,
                     "split it"};
      for (int64_t v = *low; v <= *high; ++v) choices.push_back(std::to_string(v));
    } else {
      for (std::string_view word : words_of(body, ',')) choices.emplace_back(word);
    }
    if (choices.size() > kMaxSweep / out.size())
      return Error{concat({"a sweep of more than ", std::to_string(kMaxSweep), " lines"}), open + 1,
                   "split it"};
    // What it all comes to is known before anything is made of it. Whatever stands behind the group comes to
    // every line as well.
    size_t lines = 0, ends = 0;
    for (const std::string& line : out) lines += line.size();
    for (const std::string& choice : choices) ends += choice.size();
    if (lines * choices.size() + out.size() * (ends + choices.size() * (text.size() - close)) >
        kMaxSweepBytes)
      return Error{concat({"a sweep of more than ", std::to_string(kMaxSweepBytes >> 20), " MiB of lines"}),
                   open + 1, "split it"};
    std::vector<std::string> longer;
    longer.reserve(out.size() * choices.size());
    for (const std::string& line : out)
      for (const std::string& choice : choices) longer.push_back(line + choice);
    out = std::move(longer);
    at = close + 1;
  }
  return out;
}

}  // namespace assay
