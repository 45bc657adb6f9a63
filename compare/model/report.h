// A model told: text for a screen, JSON, and a page with a roofline.
#pragma once
#include <string>
#include <vector>

#include "compare/model/model.h"
#include "fixtures/json.h"

namespace assay::model {

// The verdict, then the four figures of each launch.
std::string to_text(const Model&);
// One row for each of several lines; header() stands above them.
std::string table_header();
std::string to_row(const Model&);

// assay.model/1 (docs/schemas/model.schema.json). What is not known is null, and "missing" says why.
json::Value to_json(const Model&);

// One self-contained page without a script: the rooflines of the GPU, each line's launches on them, and the
// figures as tables.
std::string model_page(const std::vector<Model>&);

// Why figures are missing: what is absent or refused, each once.
std::vector<std::string> missing(const Model&);

}  // namespace assay::model
