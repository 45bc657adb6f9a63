// Which Problems the kernels run at all, on a GPU or on the host executor.
#pragma once
#include "fast/gemm_plan.h"

namespace assay {

// Every op with every Numerics, but for the sums that they do not have (fast/gemm_plan.h) and scales of
// blocks that are given.
inline Support kernels_run(const Problem& p) {
  for (Direction d : kDirections)
    if (p.quantizer(d) && p.quantizer(d)->scale_from != ScaleFrom::x)
      return {false, "given scales of blocks are the reference's (N17.12)"};
  return kernel_sums(p);
}

}  // namespace assay
