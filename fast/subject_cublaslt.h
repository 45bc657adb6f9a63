// cuBLASLt as a Subject named "cublaslt": the tensor cores of Hopper multiply as fast/gemm_plan.h asks for
// it. Always linkable: without the library at build time, or a GPU of sm_90, present() says so.
#pragma once
#include <memory>

#include "contract/subject.h"

namespace assay {

// Uses the current device and the default stream, no workspace, and only kernels that do not split K and
// whose order of sums is known; where that of their epilogue's roundings is not, unpinned() says so (N16.13).
// Served::by names the library's version and the whole configuration. Buffers are aligned to 256 bytes
// whatever the Environment asks for: the choice of a kernel depends on it.
std::unique_ptr<Subject> make_cublaslt_subject();

}  // namespace assay
