// The text of one kernel, turned into instructions.
#pragma once
#include "fast/ptx/kernel.h"

namespace assay::ptx {

class Module;
struct Entry;

// Fault: text that is not understood, an unknown form, an operand that does not fit its instruction; always
// with line and text.
Kernel decode(const Module&, const Entry&);

}  // namespace assay::ptx
