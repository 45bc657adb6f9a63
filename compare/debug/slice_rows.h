// The slice of a compiled kernel beside the steps of the other side: which instruction gave which step's
// value, and where the two part.
#pragma once
#include <string>
#include <vector>

#include "compare/debug/trace.h"
#include "contract/result.h"
#include "contract/subject.h"

namespace assay {

// For the way out of a child process.
std::string to_json(const std::vector<SliceStep>&);
Result<std::vector<SliceStep>> slice_steps_of(const std::string& json);

// A step belongs to the last instruction that gave its value, in any of the ways in which kernels hold it: a
// scale of E8M0 as its code, its exponent or its power of two, a bf16 element in the upper half of a word.
// `output` is what the slice is behind; steps after the one that gives the other side's output are left out.
// Where the output differs, the slice parts from the first step, behind the last that it has, whose value an
// instruction misses narrowly; from the output itself where there is none.
Slice beside(std::vector<SliceStep> slice, std::vector<TraceStep> steps, const TraceRow& output);

// "2F7FFFF0  2.3283042e-10", "true", "00000011  17".
std::string slice_value_text(const SliceStep&);

}  // namespace assay
