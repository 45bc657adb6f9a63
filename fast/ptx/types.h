// The types of registers, variables and instructions. Generated from types.def.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace assay::ptx {

// Thrown for text that is not understood, for launches that do not fit their entry, and for kernels that do
// something wrong.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Type : uint8_t {
#define TYPE(name, bits, kind) name,
#include "fast/ptx/types.def"
#undef TYPE
};

enum class Kind : uint8_t { predicate, untyped, natural, integer, floating, packed };

struct TypeInfo {
  std::string_view name;
  int bits;
  Kind kind;
  constexpr int bytes() const { return bits / 8; }
};

inline constexpr std::array kTypes = {
#define TYPE(name, bits, kind) TypeInfo{#name, bits, Kind::kind},
#include "fast/ptx/types.def"
#undef TYPE
};

constexpr const TypeInfo& info(Type t) { return kTypes[static_cast<size_t>(t)]; }

// The type that a word without its dot names ("u32"), or nothing.
constexpr std::optional<Type> type_named(std::string_view word) {
  for (size_t i = 0; i < kTypes.size(); ++i)
    if (kTypes[i].name == word) return static_cast<Type>(i);
  return {};
}

// The state spaces (5.1). A generic address may point into several of them.
enum class Space : uint8_t { generic, global, shared, local, param, constant };

}  // namespace assay::ptx
