// Which kernel TransformerEngine would run for a Problem, and the Numerics that follow. Integer conditions
// only, on format, dtype, shape, directions, noop and architecture (docs/numerics.md, N8).
#pragma once
#include <string>

#include "contract/problem.h"

namespace assay {

struct TeKernel {
  std::string name;  // "mxfp8 specialised, both directions"; empty when TransformerEngine rejects the Problem
  std::string rejected;  // why TransformerEngine has no kernel for it; empty otherwise
  Numerics row, col;     // what that kernel does
};

// Resolves flavour=te. Does not look at Problem::flavour or at the Numerics already in the Problem.
TeKernel te_kernel(const Problem&);

// Why a run refuses the Problem: its flavour is te, and TransformerEngine has no kernel for it. Empty
// otherwise.
std::string te_rejection(const Problem&);

// N16.12: whether operands of this format reach Hopper's tensor cores dequantized to bf16.
inline bool through_bf16(const Quantizer& q) {
  return info(q.format).family == Family::mx || info(q.format).family == Family::nvfp4;
}

}  // namespace assay
