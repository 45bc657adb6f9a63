#include "training/parity/attention_recipes.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>

#include "contract/words.h"
#include "training/formats/hybrid.h"
#include "training/recipes/delayed.h"
#include "training/recipes/factories.h"
#include "training/recipes/format_table.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

struct BuiltIn {
  string_view format, recipe, factory;  // the factory whose answers for attention's roles are that recipe's
};
constexpr BuiltIn kBuiltIn[] = {{"fp8_current", "Float8CurrentScaling", "nvfp4_linear_fp8_dpa_factory"},
                                {"mxfp8", "MXFP8BlockScaling", "mxfp8_factory"},
                                {"fp8_delayed", "DelayedScaling", ""}};
const BuiltIn& built_in(string_view format) {
  for (const BuiltIn& row : kBuiltIn)
    if (row.format == format) return row;
  throw std::logic_error(string(format) + " is no format of attention's core");
}

// The slot of the core that a role stands for; a boundary without a consumer is known by its name.
string_view slot_of(const RolePtr& role) {
  if (!role) return "";
  if (role->module_type == "dpa") return role->tensor_type;
  if (role->name.find("dpa_grad_input") != string::npos) return "dqkv";
  return role->name.find("dpa_output") != string::npos ? "o" : "";
}

QuantizerLike delayed_request() {
  DelayedScalingRequest request;
  request.amax_history_len = 16;  // the built-in recipe's
  return request;
}

// What the built-in recipe has for a slot of the core, and for a tensor of a layer.
QuantizerLike core_answer(string_view format, const RolePtr& role) {
  const BuiltIn& row = built_in(format);
  return row.factory.empty() ? delayed_request() : factory_named(row.factory)->call(role);
}
QuantizerLike layer_answer(string_view format, const RolePtr& role) {
  if (format == "fp8_delayed") return delayed_request();
  return base_quantizer(format, role);
}

// Whether an edge of the core has this role under fp8_mha: O that of the input of the layer behind it, dQKV
// that of the gradient of the layer before it.
bool is_edge_of_core(const QuantizerRole& role) {
  const bool behind = role.name.ends_with("proj");
  return behind ? role.tensor_type == "input" : role.tensor_type == "grad_output";
}

// The answer of a cell's factory, or of its recipe.
QuantizerLike answer(const Cell& c, const RolePtr& role, bool core) {
  if (!c.factory.empty()) return factory_named(c.factory)->call(role);
  return core ? core_answer(c.formats.fprop, role) : layer_answer(c.formats.fprop, role);
}

// Without the hybrid, where there is one.
QuantizerLike plain_of(const QuantizerLike& made) {
  const QuantizerPtr* q = std::get_if<QuantizerPtr>(&made);
  const auto* pair = q ? dynamic_cast<const HybridQuantizer*>(q->get()) : nullptr;
  return pair ? QuantizerLike(pair->rowwise_quantizer->copy()) : made;
}

}  // namespace

RecipePtr built_in_attention_recipe(const Cell& c) {
  const string field = c.core.empty() ? "fp8_dpa" : string(c.core);
  return make_recipe(built_in(c.formats.fprop).recipe, json::object({{field, true}}));
}

RecipePtr custom_attention_recipe(const Cell& cell, const Removed& removed) {
  const bool of_core = cell.module == kAttention || !cell.core.empty(), edges = cell.core == "fp8_mha";
  const Words hybrids = cell.factory.empty() ? words_of(cell.roles, ',') : Words{};
  const bool without = removed.core_hybrids;
  const auto recipe = recipe_around("attention", [=](const RolePtr& role) -> QuantizerLike {
    const string_view slot = slot_of(role);
    const bool core = of_core && !slot.empty();
    const QuantizerLike made = answer(cell, role, core);
    const string_view called = core || !role ? slot : string_view(role->tensor_type);
    if (without && (core || (role && edges && is_edge_of_core(*role)))) return plain_of(made);
    const QuantizerPtr* q = std::get_if<QuantizerPtr>(&made);
    if (!q || !*q || called.empty() || std::find(hybrids.begin(), hybrids.end(), called) == hybrids.end())
      return made;
    return std::make_shared<HybridQuantizer>((*q)->copy(), (*q)->copy());
  });
  recipe->fp8_dpa = cell.module == kAttention || cell.core == "fp8_dpa";
  recipe->fp8_mha = edges;
  return recipe;
}

}  // namespace assay::training
