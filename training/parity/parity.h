// The parity matrix: hybrid against vanilla, module by module. A cell runs one module twice: along vanilla's route (both directions in one launch, fused norm, activation and
// bias gradient, built-in recipe) and along hybrid's (two single-direction launches, unfused producers, CustomRecipe), and compares everything that the two steps left, in
// causal order, bit for bit. Of a hybrid that has a format per GEMM there are three vanilla routes, one per GEMM.
//
// A cell that differs is excluded only where removing a named cause makes it equal (docs/parity.md): the exclusion is computed in the run, never listed.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/problem.h"
#include "contract/result.h"
#include "contract/subject.h"

namespace assay::training {

// Formats of the three GEMMs: fprop, dgrad, wgrad. "identity" stands for no quantization. The hybrid's weight is H(fprop | dgrad), its input H(fprop | wgrad), its
// gradient H(dgrad | wgrad).
struct Formats {
  std::string_view fprop, dgrad, wgrad;
  bool operator==(const Formats&) const = default;
};

// One step of which circumstances.
//   train           weights in bf16, quantized anew            cached        a second microbatch that uses the first one's workspaces
//   quantized_init  weights kept quantized                     trajectory    three steps, weights updated by their gradients
//   evaluation      a step, an evaluation, a step              column, row   tensor and sequence parallel, with amax groups
enum class Phase : uint8_t { train, cached, quantized_init, trajectory, evaluation, column, row };
inline constexpr std::string_view kPhaseNames[] = {"train", "cached", "quantized_init", "trajectory", "evaluation", "column", "row"};
constexpr std::string_view name_of(Phase p) { return kPhaseNames[static_cast<size_t>(p)]; }

struct Cell {
  std::string_view module;          // "linear", "layernorm_linear", "layernorm_mlp", "grouped_linear", "ops_linear", "ops_grouped_linear"
  Formats formats;
  std::string_view roles = "input,weight";           // which are hybrids; the others are vanilla's, where one format serves both of their directions
  std::string_view backward_override = "";           // of vanilla: "high_precision", or "dequantized" (then hybrids take columns from dequantized rows)
  Phase phase = Phase::train;
  Arch arch = Arch::sm100;
  Flavour flavour = Flavour::assay;
  int64_t tokens = 64;              // rows of the input: 64 and 96 lie on both sides of fused kernels' eligibility; 160 is more than one chunk of a fused sum of rows
  bool packed = false;              // grouped weights in one parameter
  std::string_view factory = "";    // hybrid's quantizers come from this registered factory, and `formats` from them; `roles` says nothing then
  bool operator==(const Cell&) const = default;
};
// "parity linear mxfp8 roles=input,weight phase=cached arch=sm90": what differs from the defaults; formats as "mxfp8", "mxfp8|nvfp4" (fprop | both gradients) or "a|b|c".
// "parity linear factory=my_hybrid phase=cached" of a factory.
std::string to_text(const Cell&);
// What follows module, formats and roles: "phase=cached arch=sm90"; empty where all is default.
std::string circumstances(const Cell&);
// The formats' column of the table: "mxfp8|nvfp4".
std::string to_text(const Formats&);

// Every cell of `assay run roles`, in the order of the table.
const std::vector<Cell>& parity_cells();

// A cell by its text: one of the matrix, or any with factory=. Errors: a word that is none, with the nearest; a factory whose quantizers no vanilla recipe stands beside
// (operands of one GEMM in two formats, delayed scaling, two layers that no single recipe has), with role, direction and what was found.
Result<Cell> parity_cell(std::string_view text);

// Every cell of one factory: modules, phases, architectures, kernel selection and row counts as a single format has them in the matrix. Error: no such factory, or
// one that no module can be compared under.
struct FactoryCell {
  Cell cell;
  std::string refused;              // why this one cannot be compared; empty: it can
};
Result<std::vector<FactoryCell>> factory_cells(std::string_view factory);

struct CellResult {
  enum class Outcome : uint8_t { bitwise, excluded, failed } outcome = Outcome::failed;
  std::string exclusions;           // "E1", "E1 E13": the least set of causes whose removal made it equal
  std::string reason;               // excluded: what the causes are; failed: what removal was tried
  std::string first;                // the first thing that differs: "fprop: b.data", "output"; empty when bitwise
  std::string expected, found;      // vanilla's and hybrid's, on one line each
  int64_t compared = 0;             // bytes
};
CellResult judge_cell(const Cell&, Subject&, const Environment&);

}  // namespace assay::training
