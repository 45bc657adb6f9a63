// One process at a time may use a file: a lock that is not inherited, so workers of a run that was killed do
// not hold it.
#pragma once
#include <string>

namespace assay {

// Locks the open file for this process, until it closes any descriptor of it. Empty where it has the lock, or
// where the file system cannot tell; else what stands in the way: "another run has it open, process 123".
std::string locked_by_another(int file);

}  // namespace assay
