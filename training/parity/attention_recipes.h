// The two recipes of a cell of attention: the built-in one of its format, and a custom one that answers each
// role with what the built-in recipe has there, or with a hybrid of two where the cell says so.
#pragma once
#include "training/parity/cell.h"
#include "training/parity/routes.h"

namespace assay::training {

// Of attention's core with fp8_dpa, of multi-head attention with the field that the cell names.
// std::logic_error of a format that attention's core has no recipe for.
RecipePtr built_in_attention_recipe(const Cell&);
// removed.core_hybrids: roles that a slot of the core has too get plain quantizers. Delayed scaling is
// requested, and is in no hybrid (E4).
RecipePtr custom_attention_recipe(const Cell&, const Removed&);

}  // namespace assay::training
