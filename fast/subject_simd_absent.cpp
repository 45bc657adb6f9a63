#include "fast/absent_subject.h"
#include "fast/subject_simd.h"

namespace assay {

std::unique_ptr<Subject> make_simd_subject() {
  return std::make_unique<AbsentSubject>("simd", "this program was built without Highway (libhwy-dev)");
}

}  // namespace assay
