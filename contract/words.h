// Words and digits in text: splitting, joining, integers, hexadecimal, and the nearest word that an error
// suggests.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/result.h"

namespace assay {

using Words = std::vector<std::string_view>;

// What stands between the separators, without the blanks before it. Two separators in a row enclose an empty
// word, and so does an empty text.
Words words_of(std::string_view text, char separator);

// The names of the rows of a table.
template <class Rows> Words names_of(const Rows& rows) {
  Words names;
  for (const auto& row : rows) names.push_back(row.name);
  return names;
}

// The parts, one after the other. Messages are made so: a chain of `+` takes the compiler three times as
// long.
std::string concat(std::initializer_list<std::string_view> parts);
bool contains(std::span<const std::string_view> words, std::string_view word);
std::string join(std::span<const std::string_view> words, std::string_view separator);

// The word of `words` nearest to `word` by edit distance, or an empty string when none is near.
std::string nearest_word(std::string_view word, std::span<const std::string_view> words);

// "unknown key 'filll'", with the nearest of `words` as the hint, or all of them when none is near.
Error unknown(std::string_view what, std::string_view found, std::span<const std::string_view> words);

// The integer that is the whole text, or nothing. T is int or an integer of fixed width.
template <class T> std::optional<T> parse_integer(std::string_view text, int base = 10);

// The integers from 0 to `most` between the separators; no integers where anything else stands between them.
std::vector<int64_t> integers_of(std::string_view text, char separator, int64_t most);

// The last `digits` hexadecimal digits of a value, "00ff".
std::string hex(uint64_t value, int digits);
// ASCII letters in upper case.
std::string upper(std::string_view text);

}  // namespace assay
