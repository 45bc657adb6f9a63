// The values of a key: those that lines are drawn with, and the class that stands for a value in a table of
// choices. A word stands for itself. Numbers are too many, so they are classes by what the steps of a
// quantizer can tell apart: 0, 1, other powers of two, other numbers, negative, subnormal, inf, nan.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/line.h"

namespace assay::choices {

// The row of the table of keys, as this op has it; null: the op has no key of this name.
const KeyInfo* key_of(std::string_view op, std::string_view name);

// Values to draw from, by class. None for keys that are drawn together with the sizes (groups, batch,
// lengths, capacity, ...); fill=literal and fill=pack are not among those of fill, because they name data.
struct ValueClass {
  std::string name;
  std::vector<std::string> values;  // at least one
};
const std::vector<ValueClass>& classes_of(const KeyInfo&);

// The class of a key's value in this Problem. Empty where the value does not count as a choice: seed decides
// no rule, and fill=literal and fill=pack name data.
std::string class_of(const KeyInfo&, std::string_view value, const Problem&);

// "0", "1", "tail" (no multiple of 16), "16n", "32n" and "128n": the borders of blocks and tiles.
std::string_view size_class(int64_t size);
inline constexpr std::string_view kSizeClasses[] = {"0", "1", "tail", "16n", "32n", "128n"};
// Sizes of a class, small ones first.
std::span<const int64_t> sizes_of(std::string_view size_class);

}  // namespace assay::choices
