// Cells whose hybrid quantizers come from a registered factory: which formats the factory's GEMMs have,
// whether a vanilla recipe can stand beside it, and whether both ask for the same settings.
#pragma once
#include "contract/result.h"
#include "training/parity/cell.h"
#include "training/parity/differences.h"

namespace assay::training {

// Fills formats and override of a factory's cell. Errors: a factory whose quantizers no built-in recipe can
// match (operands of one GEMM in two formats, delayed scaling, two layers that no single recipe has), with
// role, direction and what was found.
Result<Cell> with_formats(Cell);

// What a factory sets for each operand against what the built-in recipe of its format does. Settings that
// decide no bit of a direction are no difference. Nothing for a cell without a factory.
Found compare_settings(const Cell&);

}  // namespace assay::training
