// Numerics: the choices on which real implementations of one format differ, as data. Generated from
// numerics.def. Default values are Assay's portable numerics (docs/numerics.md); flavour, arch and dispatch
// resolve to other values.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "contract/choices.h"

namespace assay {

#define NUMERIC(name, Type, clause, summary, ...) enum class Type : uint8_t { __VA_ARGS__ };
#include "contract/numerics.def"
#undef NUMERIC

struct Numerics {
#define NUMERIC(name, Type, clause, summary, ...) Type name{};
#include "contract/numerics.def"
#undef NUMERIC
  bool operator==(const Numerics&) const = default;
};

// One row of numerics.def for documentation and parsing; `values` is "keep, plus", the first the default.
struct NumericInfo {
  std::string_view name, clause, summary, values;
};
inline constexpr std::array kNumerics = {
#define NUMERIC(name, Type, clause, summary, ...) NumericInfo{#name, clause, summary, #__VA_ARGS__},
#include "contract/numerics.def"
#undef NUMERIC
};

// The row, and the words, of each type of numerics.def.
template <class E> inline constexpr NumericInfo kNumeric{};
#define NUMERIC(name, Type, clause, summary, ...)                                                   \
  template <> inline constexpr NumericInfo kNumeric<Type> = {#name, clause, summary, #__VA_ARGS__}; \
  template <> inline constexpr std::string_view kWords<Type> = kNumeric<Type>.values;
#include "contract/numerics.def"
#undef NUMERIC

}  // namespace assay
