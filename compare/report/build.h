// What was built: facts that CMake writes into the program anew at every build (cmake/build_facts.cmake).
#pragma once

namespace assay::build {

extern const char* const kVersion;  // "0.1.0"
extern const char* const
    kCommit;  // "8f592b6abc", "-dirty" behind it where the tree is not the commit; "no git"
// Hash of the kernels' source text (fast/**/*.cu and *.cuh): a recording by other kernels is stale.
extern const char* const kKernels;

}  // namespace assay::build
