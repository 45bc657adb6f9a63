// The kernels on a GPU, as a Subject named "gpu". Always linkable: without CUDA at build time, or a device,
// present() says so.
#pragma once
#include <memory>

#include "contract/subject.h"

namespace assay {

// Uses the current device and the default stream. Outputs are surrounded by guard bytes that are checked
// after every run.
std::unique_ptr<Subject> make_gpu_subject();

}  // namespace assay
