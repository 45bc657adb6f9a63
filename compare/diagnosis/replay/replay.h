// Replaying hypotheses: what the reference makes of one direction of one tensor when some steps are done as they say, on all of it or on selected lines and places. The steps between
// the reference's runs (amaxes of other scopes, other scales, codes rounded another way) are the judge's own arithmetic.
#pragma once
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compare/diagnosis/library/hypotheses.h"
#include "contract/result.h"
#include "contract/subject.h"
#include "fixtures/inputs.h"

namespace assay {

// One direction of one tensor, of a quantize or of a split's member; of any other op the whole case.
struct Lane {
  Problem problem;                     // a quantize with one direction, from x itself; or another op
  std::optional<Direction> direction;  // nothing: another op than a quantize
  std::optional<size_t> member;
  std::optional<Quantizer> partner;    // of the other direction, where both draw and some mappings count them together (N12.4)
  std::optional<Quantizer> other;      // of the other direction, where both are made of x
  std::vector<PlaneData> inputs;       // of input_planes(problem), perhaps more
};
// The lanes of a case: member by member, rows before columns. `made`: output planes of the case as far as they are known, from which columns of dequantized rows are made (N13.1);
// where rows are lacking there the reference makes them. Errors: what the reference says.
Result<std::vector<Lane>> lanes_of(const Problem& problem, const std::vector<PlaneData>& inputs, const std::vector<PlaneData>& made, Subject& reference);
// "row.data[2]": the name in the case of a lane's plane.
std::string name_in_case(const Lane& lane, const std::string& plane);

// Lines and places (compare/diagnosis/library/hypotheses.h, Matrix) in ascending order, whole blocks each.
struct Selection {
  bool everything = true;
  std::vector<int64_t> lines, places;
};

using Hypotheses = std::span<const Hypothesis* const>;

class Replay {
 public:
  Replay(Lane lane, Subject& reference);
  Replay(const Replay&) = delete;

  const Lane& lane() const { return lane_; }
  // The planes of the lane's problem, its x being the selected part of the tensor (part_of). Amaxes of the tensor are those of all of it. Hypotheses act in the order of the steps that
  // they change, `layout` not at all: that is done to whole planes (lay_out). Nothing: they do not apply here, or not together. Safe from several threads.
  std::optional<std::vector<PlaneData>> run(const Selection& selection, Hypotheses hypotheses) const;
  // The tensor's amax as it came: what elements that are read otherwise are taken to have in a part of the tensor. Over everything it is computed.
  void observe_amax(double amax) { observed_amax_ = amax; }
  // The lane's problem on the selected part.
  Problem part_of(const Selection& selection) const;
  int runs() const { return runs_; }

 private:
  struct Step;
  std::optional<std::vector<PlaneData>> execute(const Problem& p, const std::vector<PlaneData>& inputs) const;
  const PlaneData& rotated() const;
  bool take_from_other(const Hypothesis& h, std::vector<PlaneData>& planes) const;
  bool take_blocks_across(const Hypothesis& h, std::vector<PlaneData>& planes) const;
  double tensor_amax() const;
  const std::vector<double>& block_amaxes() const;
  const ScaleGrid& own_scales(bool amaxes) const;
  std::optional<Problem> keyed(Hypotheses hypotheses) const;
  std::optional<std::vector<PlaneData>> run_rows(const Step& s, const Matrix& x, const Hypothesis& h) const;
  double amax_of_part(const Matrix& x, const std::function<bool(int64_t, int64_t, Shape)>& in, bool edited) const;

  Lane lane_;
  Subject& reference_;
  mutable std::atomic<int> runs_ = 0;
  std::optional<double> observed_amax_;
  mutable std::once_flag rotated_once_, amax_once_, largest_once_, blocks_once_, scales_once_, other_once_, across_once_;
  mutable std::vector<std::pair<double, std::pair<int64_t, int64_t>>> largest_;   // the largest magnitudes, descending, and where they stand
  mutable PlaneData rotated_;
  mutable double amax_ = 0;
  mutable std::vector<double> block_amaxes_;
  mutable ScaleGrid own_scales_{}, own_amaxes_{};
  mutable std::optional<std::vector<PlaneData>> of_other_, across_;
  mutable std::mutex keyed_mutex_;
  mutable std::map<std::string, std::optional<Problem>> keyed_;
};

// `planes` (of one lane, whole) with the plane that the hypothesis names put in its order. False where it names none of them.
bool lay_out(const Hypothesis& hypothesis, std::vector<PlaneData>& planes);

}  // namespace assay
