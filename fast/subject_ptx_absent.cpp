#include "fast/absent_subject.h"
#include "fast/subject_ptx.h"

namespace assay {

std::unique_ptr<Subject> make_ptx_subject() {
  return std::make_unique<AbsentSubject>(
      "ptx",
      "this program was built without nvcc, which makes the PTX of the kernels: build the preset cuda");
}

}  // namespace assay
