// The enums of a Problem whose values are the words of a key, and those words. Generated from choices.def.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace assay {

// Words apart by ", " in one text, as #__VA_ARGS__ has them: their number, the one at an index, and the index
// of one.
constexpr size_t count_words(std::string_view list) {
  size_t n = 1;
  for (char c : list) n += c == ',';
  return n;
}
constexpr std::string_view word_at(std::string_view list, size_t index) {
  for (; index > 0; --index) list.remove_prefix(list.find(',') + 2);
  return list.substr(0, list.find(','));
}
constexpr std::optional<size_t> index_of_word(std::string_view list, std::string_view word) {
  for (size_t i = 0, n = count_words(list); i < n; ++i)
    if (word_at(list, i) == word) return i;
  return std::nullopt;
}

#define CHOICE(Type, ...) enum class Type : uint8_t { __VA_ARGS__ };
#define SPELLED(Type, words, ...) enum class Type : uint8_t { __VA_ARGS__ };
#include "contract/choices.def"
#undef SPELLED
#undef CHOICE

// The words of an enum's values, in their order: "sm90, sm100". numerics.h adds those of its enums.
template <class E> inline constexpr std::string_view kWords{};
#define CHOICE(Type, ...) template <> inline constexpr std::string_view kWords<Type> = #__VA_ARGS__;
#define SPELLED(Type, words, ...)                                     \
  template <> inline constexpr std::string_view kWords<Type> = words; \
  static_assert(count_words(words) == count_words(#__VA_ARGS__), "a SPELLED row has a word per enumerator");
#include "contract/choices.def"
#undef SPELLED
#undef CHOICE

// The word of a value: "sm90".
template <class E> constexpr std::string_view word_of(E value) {
  static_assert(!kWords<E>.empty(), "this enum has no row");
  return word_at(kWords<E>, static_cast<size_t>(value));
}

}  // namespace assay
