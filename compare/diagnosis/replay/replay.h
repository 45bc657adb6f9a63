// Replaying hypotheses: what the reference makes of one direction of one tensor when some steps are done as
// they say, on all of it or on selected lines and places. The steps between the reference's runs (amaxes of
// other scopes, other scales, codes rounded another way) are the judge's own arithmetic.
#pragma once
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "compare/diagnosis/library/hypotheses.h"
#include "compare/diagnosis/replay/lanes.h"
#include "compare/diagnosis/replay/whole_tensor.h"
#include "compare/diagnosis/replay/window.h"
#include "contract/subject.h"

namespace assay {

class Replay {
 public:
  Replay(Lane lane, Subject& reference) : whole_(std::move(lane), reference) {}
  Replay(const Replay&) = delete;

  const Lane& lane() const { return whole_.lane(); }
  // The planes of the lane's problem, its x being the selected part of the tensor (part_of). Amaxes of the
  // tensor are those of all of it. Hypotheses act in the order of the steps that they change, `layout` not at
  // all, because that is done to whole planes (lay_out). Nothing where they do not apply here, or not
  // together. Safe from several threads.
  std::optional<std::vector<PlaneData>> run(const Selection& selection, Hypotheses hypotheses) const;
  // The tensor's amax as it came: what elements that are read otherwise are taken to have in a part of the
  // tensor. Over everything it is computed.
  void observe_amax(double amax) { observed_amax_ = amax; }
  // The lane's problem on the selected part.
  Problem part_of(const Selection& selection) const;
  int runs() const { return whole_.runs(); }

 private:
  std::optional<Problem> keyed(Hypotheses hypotheses) const;
  std::optional<std::vector<PlaneData>> run_other_op(const Problem& p, Hypotheses hypotheses) const;

  WholeTensor whole_;
  std::optional<double> observed_amax_;
  mutable std::mutex keyed_mutex_;
  mutable std::map<std::string, std::optional<Problem>> keyed_;
};

// `planes` (of one lane, whole) with the plane that the hypothesis names put in its order. False where it
// names none of them.
bool lay_out(const Hypothesis& hypothesis, std::vector<PlaneData>& planes);

}  // namespace assay
