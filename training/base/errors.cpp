#include "training/base/errors.h"

#include <iterator>

namespace assay::training {

namespace {
constexpr std::string_view kNames[] = {"ValueError",          "TypeError",           "RuntimeError",
                                       "NotImplementedError", "AssertionError",      "AttributeError",
                                       "ValidationError",     "FrozenInstanceError", "KeyError",
                                       "PicklingError",       "IndexError"};
}

std::string_view name_of(ErrorClass c) { return kNames[static_cast<size_t>(c)]; }

bool is_a(ErrorClass c, ErrorClass base) {
  using enum ErrorClass;
  return c == base || (c == validation_error && base == value_error) ||
         (c == not_implemented_error && base == runtime_error) ||
         (c == frozen_instance_error && base == attribute_error);
}

}  // namespace assay::training
