#include "fast/absent_subject.h"
#include "fast/subject_cublaslt.h"

namespace assay {

std::unique_ptr<Subject> make_cublaslt_subject() {
  return std::make_unique<AbsentSubject>("cublaslt", "this program was built without cuBLASLt");
}

}  // namespace assay
