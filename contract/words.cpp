#include "contract/words.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <system_error>

namespace assay {

Words words_of(std::string_view text, char separator) {
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

std::string concat(std::initializer_list<std::string_view> parts) {
  std::string out;
  for (std::string_view part : parts) out += part;
  return out;
}

bool contains(std::span<const std::string_view> words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string join(std::span<const std::string_view> words, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += separator;
    out += words[i];
  }
  return out;
}

std::string nearest_word(std::string_view word, std::span<const std::string_view> words) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;  // beyond this a suggestion misleads
  for (std::string_view candidate : words) {
    const auto [shorter, longer] = std::minmax({word.size(), candidate.size()});
    if (longer - shorter >= best_distance) continue;  // the distance is at least that
    std::vector<size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const size_t change = diagonal + (word[i - 1] != candidate[j - 1]);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

Error unknown(std::string_view what, std::string_view found, std::span<const std::string_view> words) {
  const std::string near = nearest_word(found, words);
  const std::string hint =
      near.empty() ? concat({"one of ", join(words, ", ")}) : concat({"did you mean '", near, "'?"});
  return {concat({"unknown ", what, " '", found, "'"}), 0, hint};
}

template <class T> std::optional<T> parse_integer(std::string_view text, int base) {
  T value{};
  const auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || status != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
  return value;
}
template std::optional<uint8_t> parse_integer(std::string_view, int);
template std::optional<uint16_t> parse_integer(std::string_view, int);
template std::optional<uint32_t> parse_integer(std::string_view, int);
template std::optional<uint64_t> parse_integer(std::string_view, int);
template std::optional<int32_t> parse_integer(std::string_view, int);
template std::optional<int64_t> parse_integer(std::string_view, int);

std::vector<int64_t> integers_of(std::string_view text, char separator, int64_t most) {
  std::vector<int64_t> out;
  for (std::string_view word : words_of(text, separator)) {
    const auto value = parse_integer<int64_t>(word);
    if (!value || *value < 0 || *value > most) return {};
    out.push_back(*value);
  }
  return out;
}

std::string hex(uint64_t value, int digits) {
  std::string out;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += "0123456789abcdef"[value >> shift & 15];
  return out;
}

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return out;
}

}  // namespace assay
