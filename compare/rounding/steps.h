// What a predicate of a rounding case looks at: the steps of one element as the reference reports them
// (Tracing::tracer), and the case that they belong to. Nothing here computes what the reference computes.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "contract/problem.h"
#include "contract/subject.h"
#include "fixtures/inputs.h"

namespace assay::rounding {

// One direction of a case, or the whole case where it has no directions.
struct Lane {
  const Problem& problem;
  const std::vector<PlaneData>& inputs;
  Direction direction = Direction::row;
  bool directed = false;  // it has a quantizer in that direction

  const Quantizer& quantizer() const { return *problem.quantizer(direction); }
};

// One step of one element, and the value that it was made of.
class Moment {
 public:
  Moment(const Lane& lane, const TraceStep& self, uint32_t before)
      : lane(lane), self_(self), before_(before) {}
  const Lane& lane;
  const TraceStep& self() const { return self_; }
  double value() const;  // of this step
  // The last binary32 value before this step: what a code was rounded from. NaN where there is none.
  double before() const;

 private:
  const TraceStep& self_;
  uint32_t before_;  // its bits
};

// The same with all of the element's steps around it.
class Step : public Moment {
 public:
  Step(const Moment& moment, const std::vector<TraceStep>& all, int64_t col)
      : Moment(moment), all(all), col(col) {}
  // The first step of these names (names_step of compare/rounding/cases.h), or null; and its value, NaN where
  // there is none.
  const TraceStep* find(std::string_view names) const;
  double of(std::string_view names) const;

  const std::vector<TraceStep>& all;
  const int64_t col;  // of the element
};

}  // namespace assay::rounding
