// What goes wrong in the semantic layer, in the original's own classes: a caller of TransformerEngine sees
// which class of exception was raised, so that is part of the behaviour. Warnings are collected, never
// printed.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace assay::training {

// Python's classes. validation_error is pydantic's, a ValueError (is_a).
enum class ErrorClass : uint8_t {
  value_error,
  type_error,
  runtime_error,
  not_implemented_error,
  assertion_error,
  attribute_error,
  validation_error,
  frozen_instance_error,
  key_error,
  pickling_error,
  index_error
};
// "ValueError", "TypeError", ...
std::string_view name_of(ErrorClass);
// Whether an error of class `c` is also one of class `base`: "except base" would catch it.
bool is_a(ErrorClass c, ErrorClass base);

class SemanticError : public std::runtime_error {
 public:
  SemanticError(ErrorClass c, const std::string& what) : std::runtime_error(what), error_class(c) {}
  ErrorClass error_class;
};

[[noreturn]] inline void fail(ErrorClass c, const std::string& what) { throw SemanticError(c, what); }

struct Warning {
  std::string category;  // "UserWarning"
  std::string text;
};
using Warnings = std::vector<Warning>;

}  // namespace assay::training
