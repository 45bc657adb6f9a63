// What set and setp have in common (9.7.6, 9.7.7): the word of a comparison, and the predicate that joins its
// result. Included by the files choose_*.cpp alone.
#pragma once
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>

#include "fast/ptx/handlers.h"
#include "fast/ptx/values_float.h"

namespace assay::ptx {

enum class Join : uint32_t { none, and_, or_, xor_ };
inline Join join_of(const Opcode& op) {
  return op.has("and") ? Join::and_ : op.has("or") ? Join::or_ : op.has("xor") ? Join::xor_ : Join::none;
}
// A third operand stands where .and, .or or .xor does, and nowhere else.
inline uint32_t join_code(const Opcode& op, const Instruction& i) {
  const Join join = join_of(op);
  if (i.with_optional != (join != Join::none))
    throw Fault("'" + op.text + "' " + (i.with_optional ? "takes no" : "needs a") + " predicate to join");
  return static_cast<uint32_t>(join);
}
inline uint32_t joined(Join join, uint32_t a, uint32_t b) {
  return join == Join::and_ ? a & b : join == Join::or_ ? a | b : join == Join::xor_ ? a ^ b : a;
}

// The word of a comparison, in the order of Compare. lo, ls, hi and hs are the unsigned names.
inline Compare compare_of(const Opcode& op) {
  static constexpr std::string_view kWords[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                                "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
  static constexpr std::pair<std::string_view, Compare> kUnsignedWords[] = {
      {"lo", Compare::lt}, {"ls", Compare::le}, {"hi", Compare::gt}, {"hs", Compare::ge}};
  for (const auto& [word, compare] : kUnsignedWords)
    if (op.has(word)) return compare;
  for (size_t k = 0; k < std::size(kWords); ++k)
    if (op.has(kWords[k])) return static_cast<Compare>(k);
  return Compare::eq;
}

// Make<Rule>::handler for the comparison; integers have the first six.
template <template <class> class Make, size_t... k> Handler by_compare(Compare c, std::index_sequence<k...>) {
  Handler found = nullptr;
  ((static_cast<size_t>(c) == k ? (found = Make<Compared<static_cast<Compare>(k)>>::handler, 0) : 0), ...);
  return found;
}

}  // namespace assay::ptx
