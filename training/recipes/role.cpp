#include "training/recipes/role.h"

#include <functional>

namespace assay::training {

std::string to_text(const QuantizerRole& role) {
  std::string text;
  const auto say = [&](const char* key, const std::string& value) {
    if (!value.empty()) text += (text.empty() ? "" : "|") + (key + ("=" + value));
  };
  say("module_type", role.module_type);
  say("tensor_type", role.tensor_type);
  say("name", role.name);
  return text.empty() ? "QuantizerRole()" : text;
}

size_t hash_of(const QuantizerRole& role) {
  size_t h = 0;
  for (const std::string* field : {&role.module_type, &role.tensor_type, &role.name})
    h = h * 31 + std::hash<std::string>{}(*field);
  return h;
}

bool same_role(const RolePtr& a, const RolePtr& b) { return a == b || (a && b && *a == *b); }

}  // namespace assay::training
