// Which members of a split a cause acts in, where it acts in some of them alone.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/problem.h"

namespace assay {

// A scope follows the id of a cause: "scale.corner_zero.stored@after_empty".
struct MemberScope {
  std::string id, title;  // "after_empty", "in members after an empty one"
  std::vector<bool> members;
};
// Those that hold some members of the split, and not all that have elements; the likeliest first.
std::vector<MemberScope> member_scopes(const Problem& split);

// Whether the scope of that id holds member m. False where the split has no such scope.
bool is_in_scope(std::string_view id, const Problem& split, size_t m);

}  // namespace assay
