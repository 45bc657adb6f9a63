// Pieces of a module's extra state as pickle writes them, for scenarios and records of what a loader refuses.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "training/state/pickle.h"

namespace assay::training::extra_pieces {

// An object of a recipe's class, with empty state.
inline pickle::Value recipe(const char* name) {
  return {pickle::Object{"transformer_engine.common.recipe", name, {{std::string("{}")}}}};
}
// A tensor as torch rebuilds it.
inline pickle::Value tensor() {
  return {pickle::Object{"torch._utils", "_rebuild_tensor_v2", {{std::string("float32")}}}};
}
// The bytes of a dict.
inline pickle::Bytes dict(std::vector<pickle::Entry> items) {
  return pickle::dumps({pickle::Dict{std::move(items)}});
}

}  // namespace assay::training::extra_pieces
