// A Python function as a Subject: `--python package.module:function`.
#pragma once
#include <memory>
#include <string>

#include "contract/result.h"
#include "contract/subject.h"

namespace assay {

// The subject that calls `function`, written "package.module:function", in an interpreter of its own: that of
// the environment variable ASSAY_PYTHON, else python3, which must have the package `assay`. Each process that
// uses the subject starts one and keeps it; when it ends, the case at hand has failed, and the next case
// starts another. `spec` are a format and keys, "mxfp8 dir=both": lines that say something else are
// unsupported. Where it is empty, the function's attribute assay_spec says it, or every line is tried whose
// only input is x. The interpreter has `timeout` seconds to import the function.
//
// name() is "python:<function>". present() starts an interpreter, imports the function and says what it said
// if that fails. Error: `function` is not two names with a colon between them.
Result<std::unique_ptr<Subject>> make_python_subject(const std::string& function, const std::string& spec,
                                                     double timeout);

}  // namespace assay
