#include "training/recipes/foreign_answer.h"

#include "training/base/errors.h"

namespace assay::training {

void ForeignAnswer::refuse(std::string_view attribute) const {
  throw SemanticError(
      ErrorClass::attribute_error,
      "expected a quantizer in this slot, found the object that qfactory returned for it, of class " +
          class_ + ", which has no '" + std::string(attribute) +
          "'; return an IdentityQuantizer for a tensor that must not be quantized");
}

}  // namespace assay::training
