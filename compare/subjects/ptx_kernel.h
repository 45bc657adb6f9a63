// Somebody's kernels as PTX text, run on the CPU (docs/ptx.md), as a Subject.
#pragma once
#include <memory>
#include <string>

#include "compare/subjects/ptx_launch_file.h"
#include "contract/result.h"
#include "contract/subject.h"

namespace assay {

// The subject of a launch file (ptx_launch_file.h). name() is "ptx:<file name without extension>". Error: the
// file or its PTX cannot be read, an entry is not there or has a form of an instruction that is not
// understood, an argument does not fit its parameter; then with the entry's signature. run() throws what the
// kernel did wrong, with block, thread and line. Served::by names the instructions whose bits the PTX ISA
// does not pin.
// Where the file has the argument "raw", the kernel makes x itself and prepare() puts it into a case's
// inputs; a run that makes another x throws. `timeout`: the seconds of a processor that a run has; a launch
// that takes more instructions than kernels can in that time throws, with the place where it stands.
inline constexpr double kUsualTimeout = 60;
Result<std::unique_ptr<Subject>> make_ptx_kernel_subject(const std::string& path,
                                                         double timeout = kUsualTimeout);
// The same of one launch that was typed. name() is "ptx:<name of the PTX file without extension>".
Result<std::unique_ptr<Subject>> make_ptx_kernel_subject(const PtxLaunchWords&,
                                                         double timeout = kUsualTimeout);

// The reference for a case of this kernel: its prepare() is the kernel's, so that a caller who draws inputs
// with it gets the x that the kernel's own prologue makes. `kernel` must outlive it.
std::unique_ptr<Subject> reference_behind(std::unique_ptr<Subject> reference, Subject& kernel);

}  // namespace assay
