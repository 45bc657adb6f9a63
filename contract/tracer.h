// The steps of many elements of one case. Subject::trace answers for one element; a subject that can compute
// what the elements share once is a Tracing as well, and its trace is one call of its tracer.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "contract/problem.h"
#include "contract/subject.h"

namespace assay {

// The steps that lead to the element (row, col), as Subject::trace has them.
using Tracer = std::function<std::vector<TraceStep>(int64_t row, int64_t col)>;

class Tracing {
 public:
  virtual ~Tracing() = default;
  // The problem and the bytes of the inputs must outlive the tracer. Not for several threads at once.
  virtual Tracer tracer(const Problem&, std::span<const ConstBuffer> inputs, Direction) = 0;
};

}  // namespace assay
