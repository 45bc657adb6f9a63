// Records of factories: what each one returns for a role, that it is new at every call, and what it says
// about itself.
#include <functional>
#include <set>
#include <string>

#include "compare/witness/records/records.h"
#include "training/formats/hybrid.h"
#include "training/recipes/factories.h"

namespace assay {

namespace {

namespace tr = training;

// "NotImplementedError" where the question has no answer.
json::Value answer(const std::function<json::Value()>& ask) {
  try {
    return ask();
  } catch (const tr::SemanticError& e) {
    return name_of(e.error_class);
  }
}

void collect(const tr::QuantizerPtr& q, std::set<const void*>& seen, size_t& count) {
  seen.insert(q.get());
  ++count;
  if (const auto* h = dynamic_cast<const tr::HybridQuantizer*>(q.get())) {
    collect(h->rowwise_quantizer, seen, count);
    collect(h->columnwise_quantizer, seen, count);
  }
}

}  // namespace

json::Value witness_factories(std::string_view, const Given& given, Subject&) {
  const tr::QFactoryPtr factory = tr::factory_named(given.text("factory"));
  if (!factory) given.at("factory", "").refuse("the name of a factory");
  const tr::RolePtr role = given.role("role");

  const tr::QuantizerLike first = factory->call(role), second = factory->call(role);
  if (const auto* request =
          std::get_if<tr::DelayedScalingRequest>(&first))  // a value: two calls give two of them
    return json::object({{"quantizer", tr::describe(*request)},
                         {"predicates", nullptr},
                         {"distinct_objects", std::holds_alternative<tr::DelayedScalingRequest>(second)}});

  const tr::QuantizerPtr q = std::get<tr::QuantizerPtr>(first);
  std::set<const void*> seen;
  size_t count = 0;
  collect(q, seen, count);
  collect(std::get<tr::QuantizerPtr>(second), seen, count);
  json::Value shown = q->describe();
  if (q->custom()) shown.set("custom", true);
  return json::object(
      {{"quantizer", std::move(shown)},
       {"predicates",
        json::object({{"supports_only_rowwise_all_gather", q->supports_only_rowwise_all_gather()},
                      {"is_requantization_safe", q->is_requantization_safe()},
                      {"compatible_recipe", answer([&] { return json::Value(q->compatible_recipe()); })}})},
       {"distinct_objects", seen.size() == count}});
}

}  // namespace assay
