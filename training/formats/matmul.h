// general_gemm: what a module calls for fprop, dgrad and wgrad. It picks the direction of each operand that
// the layout reads, checks that both go together, and runs one `gemm` Problem on the Session's Subject (TE
// cpp_extensions/gemm.py, common/gemm/cublaslt_gemm.cu).
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/problem.h"
#include "fixtures/inputs.h"
#include "training/formats/storage.h"

namespace assay::training {

// A plain tensor or a quantized one.
using Tensorlike = std::variant<ArrayPtr, StoragePtr>;
bool absent(const Tensorlike&);
// Logical shape, dtype (nominal for a quantized one), and the plain values; all need !absent.
Dims shape_of(const Tensorlike&);
DType dtype_of(const Tensorlike&);
ArrayPtr plain(Session&, const Tensorlike&, DType to);

// One GEMM as it ran, for comparisons between two routes.
struct GemmRecord {
  std::string name;               // "fprop"
  std::string a, b;               // "weight.row", "input.row"
  std::string line;               // of the Problem; operands' settings in it say how their planes decode
  std::vector<PlaneData> planes;  // its inputs: a.*, b.*, c, bias
  ArrayPtr out;
};

struct GemmOptions {
  DType out_dtype = DType::bfloat16;
  ArrayPtr bias;             // [m], added in binary32 before the result is rounded; null: none
  ArrayPtr accumulate_into;  // [n, m] of out_dtype: the result is added to it and written there; null: a new
                             // tensor
  bool use_split_accumulator = false;
  QuantizerPtr out_quantizer;  // the result's, where the module's output is quantized; must be native
  std::string name, a, b;      // for the record and for error messages: "fprop", "weight", "input"
  std::vector<GemmRecord>* record = nullptr;
};

// d[n, m] = sum over k of A(m, k) B(n, k). Letters as cuBLAS has them: A of "T" is [m, k] and its rows are
// read, of "N" [k, m] and its columns; B of "N" is [..., k] and its rows are read, of "T" [..., n] and its
// columns. So fprop is (weight, input) TN, dgrad (weight, grad_output) NN, wgrad (input, grad_output) NT. The
// result has B's leading dimensions in the first two and is [n, m] in the last. Leading dimensions count as
// one.
//
// Of a hybrid the sub-storage of that direction is taken; Identity is dequantized; per-tensor FP8 turns its
// byte plane where the architecture keeps no transpose. The sum is the Session's gemm_model. Throws
// RuntimeError where the direction is absent ("columnwise"), where scaling modes differ ("scaling_mode"), for
// two E5M2 operands, plain operands of unlike dtypes and two operands of 128x128 blocks; NotImplementedError
// for an out_quantizer that is no native one.
Tensorlike general_gemm(Session&, const Tensorlike& A, const Tensorlike& B, GemmOp layout,
                        const GemmOptions&);

// Whether float8 blocks among the operands force the split accumulator on.
bool forces_split_accumulator(const Tensorlike& A, const Tensorlike& B);

}  // namespace assay::training
