// Expressions of a launch: integers, names, + - * / % with their usual ranks, parentheses, cdiv(a, b),
// min(a, b), max(a, b) (docs/ptx.md).
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "contract/result.h"

namespace assay {

// Holds every value of i64 and of u64.
using WideInt = __int128;
std::string to_text(WideInt);

// The value of an expression. `lookup` knows the names. Error: with the column.
Result<int64_t> evaluate(std::string_view expression,
                         const std::function<std::optional<int64_t>(std::string_view)>& lookup);

// What a number of a launch may be, both ends included.
struct Bounds {
  std::string what;  // "i32", "size 2 of a grid"
  WideInt least = 0, most = 0;
};
Bounds shared_bounds();
Bounds memory_bounds();
Bounds map_bounds();  // of a number of a tensor map

// The value of an expression, which may be any of i64 and u64, if it is within the bounds. Error: names the
// expression, and the value and the bounds or what cannot be read.
using Lookup = std::function<std::optional<WideInt>(std::string_view)>;
Result<WideInt> evaluate_within(std::string_view expression, const Bounds&, const Lookup&);

// What is wrong with an expression whatever the line is: what cannot be read, a name that no line has, or a
// value without a name that is out of bounds.
std::optional<Error> check_expression(std::string_view expression, const Bounds&);
// The names that an expression may have, in words.
inline constexpr std::string_view kPermittedNames =
    "rows, cols, rng.seed, rng.offset, rng.member, keys of the line with integer values, and <plane>.rows "
    ".cols .padded_rows .padded_cols .bytes";

}  // namespace assay
