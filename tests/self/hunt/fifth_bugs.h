// The fifth set of kernels with one planted bug each, in the way of the third (third_bugs.h), whose plugin
// and calls it shares: its library defines `find_bug` for its own names. fifth.tsv says of each in plain
// words what is wrong with it, and which public thread it follows. All were written and frozen before any
// search saw them, by somebody who had read neither the search nor the list of causes.
#pragma once
#include <span>

#include "tests/self/hunt/third_bugs.h"

namespace assay::fifth {

using third::Bug;
using third::Call;
using third::Rerun;

// Each of these is about one family of ops.
std::span<const Bug> bugs_of_attention();
std::span<const Bug> bugs_of_gemm();
std::span<const Bug> bugs_of_quantize();  // and of split
std::span<const Bug> bugs_of_others();

// A plane that can be written, as one that can be read.
inline ConstBuffer reading(const Buffer& b) { return {b.plane, b.bytes}; }

}  // namespace assay::fifth
