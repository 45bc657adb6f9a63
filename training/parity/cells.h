// The cells of the parity matrix: its table, those of a factory, and a cell by its text.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "contract/result.h"
#include "training/parity/cell.h"

namespace assay::training {

// Every cell of `assay run roles`, in the order of the table: those of one process, and of those on ranks,
// with an optimizer or with a recompute a choice (training/parity/trained_cells.h).
const std::vector<Cell>& parity_cells();
// The cells that the choice leaves out: `assay run roles --all` adds them.
const std::vector<Cell>& left_out_cells();

// A cell by its text: one of the matrix, or any with factory=. Errors: an unknown word, with the nearest;
// what with_formats refuses (training/parity/factory.h).
Result<Cell> parity_cell(std::string_view text);

// Every cell of one factory: modules, phases, architectures, kernel selection and row counts as a single
// format has them in the matrix. Error: no such factory, or one that no module can be compared under.
// The modules that have cells of a factory: all but cross attention, of which a layer has no name until a
// session gives it one.
std::vector<std::string_view> factory_modules();
struct FactoryCell {
  Cell cell;
  std::string refused;  // why this one cannot be compared; empty: it can
};
Result<std::vector<FactoryCell>> factory_cells(std::string_view factory);

// Linear, LayerNormLinear and LayerNormMLP meet the stand-in for another rank's amaxes; the others have no
// such group on one rank.
bool has_tensor_parallelism(std::string_view module);

}  // namespace assay::training
