#include "contract/line/key_kinds.h"

#include <bit>

#include "contract/dispatch.h"

namespace assay::line {

std::string choice_text(std::string_view list, size_t index) { return std::string(word_at(list, index)); }

MaybeError read_choice(std::string_view list, std::string_view text, size_t& index) {
  const auto found = index_of_word(list, text);
  if (!found) return unknown("value", text, words_of(list, ','));
  index = *found;
  return {};
}

std::string values_of(std::string_view list) { return join(words_of(list, ','), "|"); }

Numerics numerics_of_kernel(const Problem& p, Direction d) {
  if (p.flavour != Flavour::te) return {};
  const TeKernel kernel = te_kernel(p);
  return d == Direction::row ? kernel.row : kernel.col;
}

MaybeError read_encoding(std::string_view text, Encoding& encoding) {
  const auto found = encoding_named(text);
  if (!found) return unknown("value", text, names_of(kEncodings));
  encoding = *found;
  return {};
}

MaybeError read_f32(std::string_view text, F32Bits& bits) {
  const Result<F32Bits> read = parse_f32(text);
  if (!read) return read.error();
  bits = *read;
  return {};
}

std::string bound_text(uint64_t bound) {
  constexpr uint64_t kLeastPower = 1 << 16;  // below it a number is easier to read than a power of two
  const std::string power = concat({"2^", std::to_string(std::bit_width(bound - 1))});
  if (bound >= kLeastPower && std::has_single_bit(bound)) return power;
  if (bound >= kLeastPower && (bound & (bound + 1)) == 0) return concat({power, "-1"});
  return std::to_string(bound);
}

}  // namespace assay::line
