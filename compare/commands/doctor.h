// `assay doctor`: what this program is and what it runs on (compare/report/doctor.h).
#pragma once
#include <iosfwd>
#include <span>

#include "contract/subject.h"

namespace assay {

struct Program;

struct DoctorOptions {
  bool json = false;
};
// Prints the facts. 0; 1 where the floating-point environment breaks clause N1.1.
int run_doctor(const DoctorOptions&, std::span<Subject* const> subjects, std::ostream& out);

void register_doctor(Program&);

}  // namespace assay
