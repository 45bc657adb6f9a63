#include "training/scenarios/common.h"

#include "training/base/data.h"

namespace assay::training {

void fill_parameters(Module& module, uint64_t seed) {
  for (Parameter& p : module.parameters) {
    const ArrayPtr& value = std::get<ArrayPtr>(p.value);
    p.value = drawn(value->shape, value->dtype, seed++);
  }
}

StepOptions under(RecipePtr recipe) {
  StepOptions options;
  options.recipe = std::move(recipe);
  return options;
}

std::vector<std::string> texts(const std::vector<RolePtr>& roles) {
  std::vector<std::string> out;
  for (const RolePtr& r : roles) out.push_back(r ? to_text(*r) : "None");
  return out;
}

std::string text(const Usages& usages) {
  return std::string(usages.rowwise ? "T" : "F") + (usages.columnwise ? "T" : "F");
}

}  // namespace assay::training
