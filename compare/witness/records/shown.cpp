#include "compare/witness/records/shown.h"

#include <fmt/format.h>

namespace assay {

using std::string;
using std::string_view;

json::Value shown(const training::Dims& d) {
  return list_of(d, [](int64_t n) { return n; });
}

json::Value shown(Shape s) { return json::array({s.rows, s.cols}); }

json::Value shown(const std::vector<string>& texts) {
  return list_of(texts, [](const string& t) { return t; });
}

string hex(F32Bits bits) { return fmt::format("{:08x}", bits); }

json::Value shown(std::span<const F32Bits> bits) {
  return list_of(bits, [](F32Bits b) { return hex(b); });
}

json::Value shown(const training::RolePtr& r) {
  if (!r) return nullptr;
  return json::object({{"module_type", r->module_type}, {"tensor_type", r->tensor_type}, {"name", r->name}});
}

json::Value shown(const std::vector<training::RolePtr>& roles) {
  return list_of(roles, [](const training::RolePtr& r) { return shown(r); });
}

json::Value shape_of(const training::ArrayPtr& a) { return a ? shown(a->shape) : json::Value(); }

json::Value classes_of(const std::vector<training::QuantizerPtr>& all) {
  return list_of(all, [](const training::QuantizerPtr& q) { return q->class_name(); });
}

json::Value categories_of(const training::Warnings& warnings) {
  return list_of(warnings, [](const training::Warning& w) { return w.category; });
}

json::Value mentioned(string_view text, const std::vector<string_view>& words) {
  json::Value out = json::array();
  for (const string_view w : words)
    if (text.find(w) != string_view::npos) out.push(w);
  return out;
}

json::Value failed(const training::SemanticError& e) {
  return json::object({{"error", name_of(e.error_class)}});
}

json::Value failed(const training::SemanticError& e, const std::vector<string_view>& words) {
  json::Value out = failed(e);
  out.set("message_mentions", mentioned(e.what(), words));
  return out;
}

}  // namespace assay
