#include "python/subjects.h"

#include "reference/subject.h"

std::unique_ptr<assay::Subject> assay::python::reference() { return make_reference_subject(); }
