// What `assay certify` prints about a part that has ended.
#pragma once
#include <string>

#include "compare/commands/certify/certificate.h"
#include "compare/commands/certify/part.h"

namespace assay {

// The part's line, where one of its claims was made here, and a screen for each failure. Adds the part's
// claims to the totals.
std::string part_text(const CertifyPart&, const PartRecord&, const json::Value& entry, const Subjects&,
                      bool colour, Totals&);

// "4 min 10 s".
std::string duration_text(double seconds);

}  // namespace assay
