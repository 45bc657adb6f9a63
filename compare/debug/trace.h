// Both sides clause by clause for one element, and the first step on which they part.
#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compare/process/guarded_run.h"
#include "contract/problem.h"
#include "contract/result.h"
#include "fixtures/inputs.h"

namespace assay {

struct TraceOptions {
  Problem problem;
  std::string subject = "host";
  std::string other = "reference";
  std::optional<std::pair<int64_t, int64_t>>
      at;  // element of the tensor (row, column); default: the first that differs (N16.13: that lies outside
           // the bound), else (0, 0)
  std::optional<Direction> direction;  // default: that of the plane that differs first, else the first that
                                       // exists; a gemm has none
  Environment environment;
  double timeout = 60;
  const std::vector<PlaneData>* inputs = nullptr;  // instead of those that the line draws
  bool slice = false;      // also the instructions behind one output, where the subject has them
  std::string plane = {};  // whose slice it is; default: the first output that differs, else the data
};

// One row of the table: a step of a computation, or an output byte (clause empty).
struct TraceRow {
  std::string clause, what;
  std::optional<std::pair<Encoding, uint32_t>> left,
      right;  // other (the reference) and subject; absent where a side has no such step
  bool differs() const { return left && right && left->second != right->second; }
};
// An instruction of the slice behind one output of the element (Subject::slice), and the step of the other
// side that has its value.
struct SliceRow {
  SliceStep step;
  std::optional<TraceStep> same;
};
// Beside which step of the other side the slice parts from it.
struct Parting {
  size_t row = 0;  // in Slice::rows: the first instruction whose value is near the step's and not it, else
                   // the one that stores
  TraceStep step;  // what the other side has there
  std::optional<size_t> agreed;  // the last row before it whose value the other side has too
};
struct Slice {
  std::string plane, place;  // "row.data", "row 0, column 0"
  std::vector<SliceRow> rows;
  std::optional<Parting> parting;  // nothing where the bytes are equal
};

struct Trace {
  Direction direction = Direction::row;
  int64_t row = 0, col = 0;
  std::vector<TraceRow> steps, outputs;
  std::optional<Slice> slice;  // of subjects that run compiled kernels
  std::string no_slice;  // why there is none although it was asked for; empty where the subject has none
  std::string unpinned;  // N16.13: why the subject's bits of d are not pinned; empty: they are
  bool inside = false;   // unpinned: this element of d lies inside the bound
  // False where what is wrong belongs to no element, such as an offset.
  bool differs() const {
    return std::ranges::any_of(steps, &TraceRow::differs) || std::ranges::any_of(outputs, &TraceRow::differs);
  }
};

Result<Trace> trace(const TraceOptions&, const Subjects&);

}  // namespace assay
