// How what hypotheses make fits what came.
#pragma once
#include <cstdint>

#include "compare/diagnosis/search/judged_lane.h"
#include "compare/diagnosis/search/samples.h"

namespace assay::cause {

// How a replay fits what came.
struct Fit {
  int64_t of = 0, agree = 0, differ = 0, repaired = 0, changed = 0;  // changed: from what is wanted
  double loss = 0;                               // over planes: the share that does not agree
  bool scales_agree = true, data_agrees = true;  // every plane but the data; the data
  bool applies = false;
  bool exact() const { return applies && agree == of; }
  Fit& operator+=(const Fit& o);
};
Fit fit_sample(const Sample& sample, const Ids& ids);
Fit fit_whole(const JudgedLane& lane, const Ids& ids);

// A cause that may be it.
struct Candidate {
  Ids ids;
  Fit sample, whole;
};

}  // namespace assay::cause
