// Who multiplies: which sums of a gemm the kernels have, and how cuBLASLt is asked for the others. Decisions
// only, and no CUDA, so that every machine can test them; fast/gemm_lt.cu carries a plan out.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/problem.h"
#include "contract/result.h"
#include "contract/subject.h"

namespace assay {

// Whether the kernels run this Problem: every op, and of a gemm f32_sequential (N16.2).
Support kernel_sums(const Problem&);

// Whether the sum takes the operand's amaxes as 1, and multiplies by them after it (N16.9).
inline bool leaves_amax_out(const Operand& o) {
  return o.quantizer.row_scaled && o.quantizer.format == FormatId::nvfp4;
}

// How a scale tensor is read: not at all, one for the tensor, one for each line, m of a and n of b (N16.6),
// one for 128 of k in a line, one for 128x128 (N16.7). The compact layouts are cuBLASLt's own.
enum class LtScale : uint8_t { none, tensor, outer_vector, vector_128, block_128x128 };
struct LtOperand {
  Encoding encoding{};
  LtScale scale = LtScale::none;
  bool dequantize = false;  // to bf16, which every value must be exactly (N16.12)
  bool transpose =
      false;  // the stored rows do not run along k: elements are moved before the call, as every call is TN
  bool operator==(const LtOperand&) const = default;
};
// D [n, m] row-major is cuBLASLt's column-major m x n: op(A) is A transposed, of leading dimension k, as is
// B.
struct LtPlan {
  int64_t m = 0, n = 0, k = 0;
  LtOperand a, b;
  Encoding out{};     // of D, of C and of the bias
  bool tf32 = false;  // CUBLAS_COMPUTE_32F_FAST_TF32
  bool fast_accumulation = false;
  float alpha = 1, beta = 0;
  bool bias = false;
  std::vector<int>
      stages;              // STAGES_ID of the kernels whose K loop is known: steps of N16.4, chained by N16.5
  std::string unpinned{};  // what is not known of its epilogue, whose d is judged by the bound (N16.13).
                           // Empty: every bit is known
  bool operator==(const LtPlan&) const = default;
};
// ALGO_ID of those kernels.
inline constexpr int kLtAlgorithm = 66;

// The call that gives the bits of N16 for a gemm, or those of another order of its epilogue's roundings; or
// why there is none: the sum is another, or cuBLASLt refuses the types or the sizes.
Result<LtPlan> lt_plan(const Problem&);

// The configuration of an algorithm that the heuristic offered.
struct LtConfig {
  int algorithm = 0, tile = 0, split_k = 0, reduction = 0, swizzling = 0, custom = 0, stages = 0,
      inner_shape = 0, cluster_shape = 0;
  bool operator==(const LtConfig&) const = default;
};
// "algo 66 tile 5 splitk 1 reduction 0 swizzle 0 custom 0 stages 36 inner 0 cluster 2"
std::string to_text(const LtConfig&);
// The first that splits no K and whose K loop is known, as an index into `offered`; nothing: none is.
std::optional<size_t> lt_choice(const LtPlan&, const std::vector<LtConfig>& offered);

}  // namespace assay
