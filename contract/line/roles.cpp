#include "contract/line/roles.h"

#include <optional>
#include <string>

#include "contract/dispatch.h"
#include "contract/recipes.h"
#include "contract/words.h"

namespace assay::line {

namespace {

// An error in the value of a key.
Error in_value(const Given& given, const Error& e) {
  return {concat({given.name, ": ", e.message}), given.value_column, e.hint};
}

// The settings that the recipe of each direction's format has for this tensor; nothing where no recipe has
// any.
std::optional<Settings> settings_for(const Problem& p, const TensorRole& role) {
  std::optional<Settings> out;
  for (Direction d : kDirections)
    for (const RecipeInfo& r : recipes()) {
      if (r.format != p.quantizer(d)->format) continue;
      const auto settings = settings_of(r, role.tensor);
      if (!settings) continue;
      if (!out) out.emplace();
      (*out)[static_cast<size_t>(d)] = *settings;
    }
  return out;
}

}  // namespace

const Given* find(const RoleKeys& keys, std::string_view name) {
  for (const Given& given : keys)
    if (given.name == name) return &given;
  return nullptr;
}

Result<Settings> role_settings(const Problem& p, const RoleKeys& given) {
  if (given.empty()) return Settings{};
  if (const Given* factory = find(given, "factory"))
    return Error{"a line with factory= cannot be read here", factory->key_column,
                 "`assay list '<line>' --canonical` prints the line that the factory makes of it"};
  const Given *role_at = find(given, "role"), *recipe_at = find(given, "recipe");
  if (!role_at)
    return Error{"recipe= needs the role of the tensor", recipe_at->key_column, "role=linear/input"};
  const Result<TensorRole> role = parse_role(role_at->value);
  if (!role) return in_value(*role_at, role.error());
  if (recipe_at) {
    const Result<RecipeInfo> recipe = recipe_named(recipe_at->value);
    if (!recipe) return in_value(*recipe_at, recipe.error());
    for (Direction d : kDirections)
      if (const FormatInfo& format = info(p.quantizer(d)->format); format.id != recipe->format) {
        const std::string_view wanted = info(recipe->format).name;
        return Error{
            concat({"recipe=", recipe->word, " is of ", wanted, ", the line's format is ", format.name}),
            recipe_at->value_column, concat({"write ", wanted, ", or leave recipe= out"})};
      }
  }
  const std::optional<Settings> settings = settings_for(p, *role);
  if (!settings)
    return Error{
        concat({"no recipe quantizes ", role->module, "/", role->tensor, " by ", info(p.row->format).name}),
        role_at->value_column, "leave role= out, or name another format"};
  return *settings;
}

bool rows_of_rotating_kernel(const Problem& p, std::string_view settings) {
  if (p.flavour != Flavour::te || !p.as<Quantize>() || !p.row || p.col ||
      setting(settings, "rht", Direction::col) != "1")
    return false;
  Problem fused = p;
  fused.dispatch = Dispatch::rhtrc;
  if (const auto round = setting(settings, "round", Direction::row))
    fused.row->round = static_cast<Round>(*index_of_word(kWords<Round>, *round));
  return te_kernel(fused).rejected.empty();
}

}  // namespace assay::line
