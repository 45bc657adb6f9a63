// The two kernels of attention's fused path, computed: products and softmax by the op `attention` (N20), the
// casts of S, O, dP and dQKV by the quantizers that the flow hands over. Where cuDNN leaves bits open, these
// are emulation E's: sums in order, operands of n, S cast normalised. Under MXFP8 the products read Q and K
// along their rows and V along its columns in both directions, as E does; the tensors that are cast for
// backward alone are recorded and multiply nothing.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "training/attention/fused_flow.h"

namespace assay::training {

struct CoreSettings {
  int64_t batch = 1, heads = 1;          // of this rank
  int64_t q = 1, kv = 1;                 // tokens of a sequence
  int64_t depth = 1;                     // elements of a head
  std::optional<F32Bits> softmax_scale;  // nothing: 1 / sqrt(depth)
  bool causal = true;
};

// Kernels of a core whose tensors are (s, b, h, d). `record` takes the operands of both calls as GEMMs
// called "core.fprop" and "core.dgrad": every buffer that a call was handed, S and dP as cast, and the
// result. Both references outlive the kernels.
AttentionKernels core_kernels(Session&, const CoreSettings&, std::vector<GemmRecord>& record);

// A core without quantization, by the same computation.
ArrayPtr core_forward(Session&, const CoreSettings&, const std::array<ArrayPtr, 3>& qkv,
                      std::vector<GemmRecord>& record);
std::array<ArrayPtr, 3> core_backward(Session&, const CoreSettings&, const std::array<ArrayPtr, 3>& qkv,
                                      const ArrayPtr& d_o, std::vector<GemmRecord>& record);

}  // namespace assay::training
