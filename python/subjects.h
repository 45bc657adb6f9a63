// The subjects that the package calls in its own process.
#pragma once
#include <memory>

#include "contract/acceptor.h"
#include "contract/subject.h"

namespace assay::python {

std::unique_ptr<Subject> reference();

// The vectorised method with the instructions that this processor has a certificate for, or that need none.
// Null: it was not compiled, or this processor has no instruction set for it.
Subject* vectorised();
// The same, which knows right blocks of large cases before the reference looks at them.
Acceptor* acceptor();

}  // namespace assay::python
