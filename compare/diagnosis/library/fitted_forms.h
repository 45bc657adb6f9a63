// The forms of ids whose rows are built from numbers that search has fitted. For the files of this folder.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "compare/diagnosis/library/hypotheses.h"

namespace assay::fitted {

struct Form {
  const char* prefix;  // of the id
  std::optional<Hypothesis> (*row)(const std::string& id, const Problem& lane, Direction d);
};
const std::vector<Form>& scale_forms();   // fitted_scales.cpp
const std::vector<Form>& region_forms();  // fitted_regions.cpp
const std::vector<Form>& flip_forms();    // fitted_flips.cpp

// A row that does nothing yet.
Hypothesis row_of(const std::string& id, Stage stage, const char* clause, std::string title);

}  // namespace assay::fitted
