// Which instruction sets of the vectorised method (fast/simd) this machine has certified: kept in a file of
// the user's cache folder, by `assay certify --simd`, and read by `assay check`.
#pragma once
#include <set>
#include <string>

#include "compare/process/guarded_run.h"
#include "contract/acceptor.h"

namespace assay {

// The subject `simd` as an acceptor. Null: it is not among the subjects, or not on this machine.
Acceptor* acceptor_of(const Subjects&);

// $XDG_CACHE_HOME/assay/simd-certificate.json, or below ~/.cache. Empty: there is neither variable.
std::string simd_certificate_path();

// The instruction sets that the file at `path` certifies for this processor and these sources of fast/simd; a
// file that is absent or cannot be read certifies none.
std::set<std::string, std::less<>> certified_targets(const std::string& path, const Acceptor&);

// Adds the instruction set in use to the file. A sentence that says what was kept and where, or why not.
std::string keep_certificate(const std::string& path, const Acceptor&);

}  // namespace assay
