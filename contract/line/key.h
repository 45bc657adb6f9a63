// One row of the table of keys: which ops have the key, where it applies, and how its value is read and
// printed.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "contract/line/error.h"
#include "contract/problem.h"

namespace assay::line {

using Get = std::string (*)(const Problem&, Direction);
using Set = MaybeError (*)(Problem&, Direction, std::string_view);
using Applies = bool (*)(const Problem&, Direction);

// A text, or the function that makes it.
template <class Function> struct TextOr {
  std::string_view text;
  Function make = nullptr;
  constexpr TextOr(const char* given) : text(given) {}
  constexpr TextOr(std::string_view given) : text(given) {}
  constexpr TextOr(Function function) : make(function) {}
  template <class... Args> std::string operator()(const Args&... args) const {
    return make ? make(args...) : std::string(text);
  }
};

inline bool always(const Problem&, Direction) { return true; }

struct Key {
  std::string_view name;
  unsigned ops;  // bits, below
  bool directional;
  TextOr<std::string (*)()> values;  // for help
  std::string_view summary;
  Get get;
  Set set;
  TextOr<Get> fallback;  // the default in this context
  Applies applies =
      always;  // beyond the op; for directional keys asked only where that direction has a Quantizer
};

// The ops of a key are bits by their positions in Problem::op.
template <class Op, class... Ops> constexpr unsigned bit_of(std::variant<Ops...> Problem::*) {
  unsigned bit = 1, found = 0;
  ((found |= std::is_same_v<Op, Ops> ? bit : 0, bit <<= 1), ...);
  return found;
}
template <class Op> inline constexpr unsigned kBitOf = bit_of<Op>(&Problem::op);

inline constexpr unsigned kCast = kBitOf<Cast>, kQuantize = kBitOf<Quantize>,
                          kDequantize = kBitOf<Dequantize>, kUpdate = kBitOf<Update>,
                          kSwizzle = kBitOf<Swizzle>, kScaleChain = kBitOf<ScaleChain>,
                          kHadamard = kBitOf<Hadamard>, kSplit = kBitOf<Split>, kPhilox = kBitOf<Philox>,
                          kGemm = kBitOf<Gemm>, kAdam = kBitOf<Adam>, kScaleState = kBitOf<ScaleState>,
                          kAttention = kBitOf<Attention>;
// Of a gemm too, but a value for each operand: the key sees the operand's own line. Directional keys of them
// are an attention's as well, with a value for each slot.
inline constexpr unsigned kOperand = 1u << std::variant_size_v<decltype(Problem::op)>;

inline unsigned op_bits(const Problem& p) {
  return 1u << p.op.index() | (p.as<Gemm>() || p.as<Attention>() ? kOperand : 0u);
}

// Every key, in the order of dependency: a fallback may read only earlier keys.
std::span<const Key> keys();

// The key of this name; where several ops have one each, that of the Problem's op.
const Key* key_named(std::string_view name, const Problem&);

inline constexpr std::string_view kSource = "source";  // the one key that a line writes as a word
inline constexpr std::string_view kDispatch = "dispatch";

}  // namespace assay::line
