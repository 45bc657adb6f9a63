// Proof of the floating-point environment (N1.1), once for every set of compiler flags. Each returns what is
// wrong; nothing when all is well.
#pragma once
#include <string>
#include <vector>

namespace assay::env {

std::vector<std::string> probe_reference();   // with the flags of reference/
std::vector<std::string> probe_fast_host();   // with the flags of the kernels on the host executor
std::vector<std::string> probe_contracted();  // must find fault: -ffp-contract=fast -mfma
std::vector<std::string> probe_fast_math();   // must find fault: -ffast-math

}  // namespace assay::env
