#include "training/recipes/foreign_answer.h"

#include "training/base/errors.h"

namespace assay::training {

void ForeignAnswer::refuse(std::string_view attribute) const {
  throw SemanticError(
      ErrorClass::attribute_error,
      "expected a quantizer in this slot, found what qfactory gave for it, an object of class " + class_ +
          ", which has no '" + std::string(attribute) +
          "'; return an IdentityQuantizer where nothing is to be quantized");
}

}  // namespace assay::training
