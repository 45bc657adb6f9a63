// What a line says, as JSON for the package: its words and the geometry of its planes.
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>

#include "contract/problem.h"
#include "contract/result.h"
#include "fixtures/json.h"

namespace assay::python {

// What a caller got wrong. `kind` chooses the exception: "line" (LineError), "plane" (PlaneError), "run"
// (AssayError).
struct Failure : std::runtime_error {
  Failure(std::string kind, const Error& error, std::string plane = {});
  std::string kind, plane;
  Error error;
};
// {"error": {"kind", "message", "column", "hint", "plane"}}.
json::Value to_json(const Failure&);

// Reads a line with factory= resolved. Throws Failure "line".
Problem problem_of_line(std::string_view line);

// {"line", "canonical", "op", "rows", "cols", "source", "draws", "planes": [{"name", "input", "encoding",
// "dtype", "logical", "padded", "bytes", "packed", "transposed", "gemm", "direction", "members"}]}; dtype is
// safetensors' word.
json::Value line_facts(std::string_view line);

// The keys of a line: {"keys": [{"name", "directional", "values", "summary", "ops"}]}.
json::Value key_table();

// The lines of a suite, by name or path: {"lines": [...]}.
json::Value suite_lines(const std::string& name_or_path);

}  // namespace assay::python
