// Words of a text: the one splitter.
#pragma once
#include <algorithm>
#include <string_view>
#include <vector>

namespace assay {

using Words = std::vector<std::string_view>;

// What stands between the separators, without the blanks before it. Two separators in a row enclose an empty word, and so does an empty text.
inline Words words_of(std::string_view text, char separator) {
  Words out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    std::string_view word = text.substr(at, end - at);
    while (word.starts_with(' ')) word.remove_prefix(1);
    out.push_back(word);
    at = end + 1;
  }
  return out;
}

}  // namespace assay
