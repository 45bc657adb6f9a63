// One call of cublasLtMatmul, as a plan asks for it. Compiled by the host compiler; linked where the library
// is found.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fast/gemm_plan.h"

namespace assay {

// Where the operands of a call lie on the device: a and b with k contiguous, scales null where there are
// none.
struct LtMemory {
  const void *a, *b, *a_scale, *b_scale, *c, *bias;
  void* d;
};
inline constexpr size_t kLtAlignment = 256;  // of every pointer

class LtCall {
 public:
  // Asks the heuristic: no workspace, no reduction. Throws std::runtime_error with the library's status.
  LtCall(const LtPlan&, const LtMemory&);
  // The same with aligned placeholders for memory, which the heuristic does not read; not to be launched.
  explicit LtCall(const LtPlan&);
  ~LtCall();

  const std::vector<LtConfig>& offered() const;
  std::optional<size_t> choice() const;  // lt_choice of what is offered
  std::string name() const;              // "cublasLt 130100 algo 66 ..."; there is a choice
  void launch() const;                   // on the default stream; there is a choice

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace assay
