#include "fast/absent_subject.h"
#include "fast/subject_gpu.h"

namespace assay {

std::unique_ptr<Subject> make_gpu_subject() {
  return std::make_unique<AbsentSubject>("gpu", "this program was built without CUDA");
}

}  // namespace assay
