// The kernels on the host executor, as a Subject named "host".
#pragma once
#include <memory>

#include "contract/subject.h"

namespace assay {

// Runs every valid Problem whose formats have kernels. Environment: threads, order, poison and alignment all
// take effect; buffers are guarded, and a kernel that breaks a rule throws simt::KernelFault.
std::unique_ptr<Subject> make_host_subject();

// "host_general": the same with every quantize served by the kernel with run-time Numerics and integer
// conversions.
std::unique_ptr<Subject> make_general_host_subject();

// "host_apart": the same with a quantize of both directions of x as two launches of one direction each.
std::unique_ptr<Subject> make_apart_host_subject();

}  // namespace assay
