// The sections of a diagnosis as HTML. Each is empty where there is nothing to say. For html.cpp, and for
// notebooks (python/).
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "compare/diagnosis/diagnosis.h"
#include "fixtures/json.h"

namespace assay::sections {

// html_verdict.cpp: the verdict with its facts, and the stages in causal order.
std::string verdict(const Diagnosis& d);
std::string stages(const Diagnosis& d);
// html_where.cpp: the heat map and the coordinates.
std::string where(const Diagnosis& d);
// html_how.cpp: planes, fingerprints and histograms.
std::string how(const Diagnosis& d);
// html_causes.cpp: explanations, and what this input could not tell.
std::string causes(const Diagnosis& d);
// html_evidence.cpp: the first element step by step, how to see it again, and the machine.
std::string trace(const Diagnosis& d);
std::string again(const Diagnosis& d);
std::string machine(const json::Value& doctor);

// ---- what sections share ----------------------------------------------------------------------------------

std::vector<const Explanation*> exact_ones(const Diagnosis& d);
// Elements that were right and would not be.
int64_t breaks(const Explanation& e);
std::string direction_text(Direction d);
std::string code(std::string_view text);
std::string command(const std::string& text);
// "id + id", as code.
std::string ids_text(const Explanation& e);

// The head of a table. `kind` is the class of the column, "n" for numbers; a column without text has no
// scope.
struct Column {
  std::string_view text, kind = {};
};
std::string table_head(std::initializer_list<Column> columns);

}  // namespace assay::sections
