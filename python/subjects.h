// The subject that the package calls in its own process.
#pragma once
#include <memory>

#include "contract/subject.h"

namespace assay::python {

std::unique_ptr<Subject> reference();

}  // namespace assay::python
