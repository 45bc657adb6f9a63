// The report page of `assay explain --html`: a Diagnosis as one self-contained file (compare/text/html.h),
// verdict first, evidence after it.
#pragma once
#include <optional>
#include <string>

#include "compare/diagnosis/diagnosis.h"

namespace assay {

// `doctor`: the facts of doctor_facts (compare/report/doctor.h); null leaves the section about the machine
// out.
std::string diagnosis_page(const Diagnosis&, const json::Value& doctor = {});
// The same into a file. Error: `path` cannot be written.
std::optional<Error> write_diagnosis_page(const Diagnosis&, const std::string& path,
                                          const json::Value& doctor = {});

}  // namespace assay
