// What role= and recipe= of a line stand for: the defaults of other keys (contract/recipes.h).
#pragma once
#include <array>
#include <string_view>
#include <vector>

#include "contract/problem.h"
#include "contract/result.h"

namespace assay::line {

// A key as a line has it.
struct Given {
  std::string_view name, value;
  size_t key_column, value_column;
};
using RoleKeys = std::vector<Given>;  // of role, recipe and factory, those that the line has
const Given* find(const RoleKeys&, std::string_view name);

// The settings of each direction that role= and recipe= name; nothing where the line has neither or a
// direction's format has no recipe.
using Settings = std::array<std::string_view, 2>;
Result<Settings> role_settings(const Problem&, const RoleKeys&);

// Whether TransformerEngine's rotating kernel makes these rows alone, of a tensor whose columns its recipe
// would rotate (N8.4). Asked before the quantizers have their keys.
bool rows_of_rotating_kernel(const Problem&, std::string_view settings_of_rows);

}  // namespace assay::line
