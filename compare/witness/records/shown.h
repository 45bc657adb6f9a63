// How the answers of all topics show one thing: lists, shapes, bits, roles, errors.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/problem.h"
#include "fixtures/json.h"
#include "training/base/array.h"
#include "training/base/errors.h"
#include "training/formats/quantizer.h"
#include "training/recipes/role.h"

namespace assay {

// The elements of a range as an array; `show` makes a value of one.
template <class Range, class Show> json::Value list_of(const Range& range, Show show) {
  json::Value out = json::array();
  for (const auto& one : range) out.push(show(one));
  return out;
}
json::Value shown(const training::Dims&);  // of an array: its shape
json::Value shown(Shape);                  // [rows, columns]
json::Value shown(const std::vector<std::string>&);
std::string hex(F32Bits);  // "3f800000"
json::Value shown(std::span<const F32Bits>);
json::Value shown(const training::RolePtr&);  // {module_type, tensor_type, name}; null: none
json::Value shown(const std::vector<training::RolePtr>&);
json::Value shape_of(const training::ArrayPtr&);  // null: none
json::Value classes_of(const std::vector<training::QuantizerPtr>&);
json::Value categories_of(const training::Warnings&);

// Which of the words that a record asks for a text mentions.
json::Value mentioned(std::string_view text, const std::vector<std::string_view>& words);
// {"error": its class}, and "message_mentions" where words are asked for.
json::Value failed(const training::SemanticError&);
json::Value failed(const training::SemanticError&, const std::vector<std::string_view>& words);

// {"ok": what `act` gives}, or the error that it throws.
template <class Act, class Failed> json::Value outcome(Act act, Failed failed_as) {
  try {
    return json::object({{"ok", act()}});
  } catch (const training::SemanticError& e) {
    return failed_as(e);
  }
}
template <class Act> json::Value outcome(Act act) {
  return outcome(act, [](const training::SemanticError& e) { return failed(e); });
}

}  // namespace assay
