// The vectorised method of fast/simd as a Subject, so that suites and the certificate can judge it, and as
// the Acceptor that `assay check` asks (contract/acceptor.h).
#pragma once
#include <memory>

#include "contract/subject.h"

namespace assay {

// "simd": casts to FP8, MXFP8, FP8 with delayed, current and 1x128 block scales, and NVFP4, in default
// Numerics, on as many threads as the environment has; also an Acceptor. Absent where the program was
// compiled without Highway, or the processor has no instruction set that it uses.
std::unique_ptr<Subject> make_simd_subject();

}  // namespace assay
