#include "contract/recipes.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "contract/words.h"

namespace assay {

namespace {

struct ProducerModule {
  std::string_view producer, module;
};
struct ProducerTensor {
  std::string_view producer, tensor, mode;
};
struct Setting {
  std::string_view recipe, tensors, keys;
};

constexpr ProducerModule kModules[] = {
#define PRODUCER(id, te_class, module_type, list) {#id, module_type},
#define SLOT(producer, mode, boundary, part, tensor_type)
#include "contract/roles.def"
#undef SLOT
#undef PRODUCER
};
constexpr ProducerTensor kTensors[] = {
#define PRODUCER(id, te_class, module_type, list)
#define SLOT(producer, mode, boundary, part, tensor_type) {#producer, tensor_type, #mode},
#include "contract/roles.def"
#undef SLOT
#undef PRODUCER
};
constexpr RecipeInfo kRecipes[] = {
#define RECIPE(word, te_class, format) {#word, te_class, FormatId::format},
#define SETTING(recipe, tensors, keys)
#include "contract/recipes.def"
#undef SETTING
#undef RECIPE
};
constexpr Setting kSettings[] = {
#define RECIPE(word, te_class, format)
#define SETTING(recipe, tensors, keys) {#recipe, tensors, keys},
#include "contract/recipes.def"
#undef SETTING
#undef RECIPE
};

void add_once(Words& words, std::string_view word) {
  if (!word.empty() && std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
}

}  // namespace

Result<TensorRole> parse_role(std::string_view text) {
  const size_t first = text.find('/'), second = first == text.npos ? text.npos : text.find('/', first + 1);
  const std::string_view module = text.substr(0, first);
  Words modules, tensors;
  for (const ProducerModule& p : kModules) add_once(modules, p.module);
  if (std::find(modules.begin(), modules.end(), module) == modules.end())
    return unknown("module", module, modules);
  if (first == text.npos)
    return Error{"expected a role <module>/<tensor>[/<name>], found '" + std::string(text) + "'", 0,
                 "role=linear/grad_output"};
  const std::string_view tensor = text.substr(first + 1, second == text.npos ? second : second - first - 1);
  for (const ProducerTensor& t : kTensors) {
    const bool here = std::any_of(std::begin(kModules), std::end(kModules), [&](const ProducerModule& p) {
      return p.producer == t.producer && p.module == module;
    });
    if (here && !t.tensor.empty() && t.tensor == tensor)
      return TensorRole{module, t.tensor, second == text.npos ? std::string_view{} : text.substr(second + 1),
                        t.mode == "backward"};
    if (here) add_once(tensors, t.tensor);
  }
  return unknown("tensor of " + std::string(module), tensor, tensors);
}

std::span<const RecipeInfo> recipes() { return kRecipes; }

Result<RecipeInfo> recipe_named(std::string_view word) {
  Words words;
  for (const RecipeInfo& r : kRecipes) {
    if (r.word == word) return r;
    words.push_back(r.word);
  }
  return unknown("recipe", word, words);
}

std::optional<std::string_view> settings_of(const RecipeInfo& recipe, std::string_view tensor) {
  for (const Setting& s : kSettings) {
    const Words tensors = words_of(s.tensors, '|');
    if (s.recipe == recipe.word && std::find(tensors.begin(), tensors.end(), tensor) != tensors.end())
      return s.keys;
  }
  return std::nullopt;
}

std::optional<std::string_view> setting(std::string_view settings, std::string_view key, Direction d) {
  for (std::string_view word : words_of(settings, ' ')) {
    const size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    if (name == key || name == std::string(name_of(d)) + "." + std::string(key))
      return word.substr(equals + 1);
  }
  return std::nullopt;
}

std::span<const KeyInfo> role_keys() {
  static const std::vector<KeyInfo> table = {
      {"role",
       false,
       "<module>/<tensor>[/<name>]",
       "which tensor of a module this is; what its recipe sets becomes the default of the other keys",
       {"quantize", "split"}},
      {"recipe",
       false,
       "delayed|current|mxfp8|block|nvfp4",
       "with role: the built-in recipe (default: in each direction that of its format)",
       {"quantize", "split"}},
      {"factory",
       false,
       "<a registered name>",
       "with role, and auto for the format: the factory that chooses formats and settings",
       {"quantize", "split"}},
  };
  return table;
}

}  // namespace assay
