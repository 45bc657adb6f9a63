// How third-party vectors become cases: one row per kind of tensor. A family that Assay can judge is a few rows here and nothing else.
//
// A row reads
//   family | tensor pattern | line | input planes | output plane
// and says: an `expected` tensor of that family whose name fits the pattern holds `output plane` of the Problem `line`, run on input planes taken
// from tensors of the same file. Several rows may fit one tensor; then it is judged once for each (a both-direction launch and a single one).
//
// In a pattern `{name}` captures a run of letters, digits and underscores and `{name:a|b}` one of the alternatives; the rest is literal. A pattern that ends
// in "[{i}]" is about the single elements of a tensor, each of its own case. ".packed" tensors hold two 4-bit codes per byte, low nibble first.
// Everywhere else `{...}` is replaced:
//   {name}             a capture; else the field of the case (below); else of the file's params
//   {shape:t}          rows x cols of tensor t ({count:t}: 1 x elements)       {source:t}   its encoding
//   {bits:t} {bits:t[i]}  the binary32 element of tensor t, as bits            {f32:name}   a number of the case or params, as binary32
//   {blocks_of_32:dir} the shape whose MXFP8 scales have the case's logical_dims
// Words of the vectors become words of the line where they differ (rn -> rne, rowwise -> row, true -> 1).
// A case is an entry of params.cases or params.configs whose "prefix" is the capture {c} and a dot.
// An input plane is `plane=tensor`; `plane=@codes` is 0, 1, 2, ...; planes that are not named come from the line's keys.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/result.h"
#include "fixtures/inputs.h"
#include "fixtures/json.h"
#include "fixtures/safetensors.h"

namespace assay {

struct VectorRow {
  std::string_view family, tensor, line, inputs, plane;
};
std::span<const VectorRow> vector_rows();

// True where some row is about `family`.
bool known_family(std::string_view family);

// What one expected tensor, or one element of it, must equal.
struct VectorCheck {
  std::string tensor;                    // "data_rowwise", "amax[3]"
  std::string source;                    // in files whose sources disagree: which one this is ("te_host"), else empty
  Problem problem;
  std::vector<PlaneData> inputs;         // those that the file gives; the rest come from the line
  std::string plane;                     // the output plane of `problem` that is compared
  std::vector<std::byte> want;           // its meaningful elements, or all of its padded ones
  bool padded = false;                   // which of the two
};

// The checks of one expected tensor. `params` is the file's, `path` goes into fill=pack:<path>#<tensor>@<sha256>, which makes the line reproducible.
// Errors: no row fits the name, a placeholder has no value, a size does not fit the plane. `family` must be known.
Result<std::vector<VectorCheck>> checks_of(std::string_view family, const safetensors::File& file, const json::Value& params, std::string_view tensor,
                                           const std::string& path, const std::string& sha256);

}  // namespace assay
