// What the replays of one lane share: runs of the reference, and what is known of the whole tensor.
// Everything is computed when it is first asked for, once. Safe from several threads.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "compare/diagnosis/library/hypotheses.h"
#include "compare/diagnosis/library/matrix.h"
#include "compare/diagnosis/replay/lanes.h"
#include "contract/subject.h"

namespace assay {

class WholeTensor {
 public:
  WholeTensor(Lane lane, Subject& reference) : lane_(std::move(lane)), reference_(reference) {}
  WholeTensor(const WholeTensor&) = delete;

  const Lane& lane() const { return lane_; }
  // The output planes of p as the reference makes them. Nothing where an input is lacking or the reference
  // fails.
  std::optional<std::vector<PlaneData>> execute(const Problem& p, const std::vector<PlaneData>& inputs) const;
  int runs() const { return runs_; }

  // Of a lane with a direction.

  Direction direction() const { return *lane_.direction; }
  const Quantizer& quantizer() const { return *lane_.problem.quantizer(direction()); }
  const PlaneData& x() const { return *find_plane(lane_.inputs, "x"); }
  // The amax that the line gives, or null.
  const PlaneData* given_amax() const;
  // x rotated as the lane's line says. No bytes where that fails.
  const PlaneData& rotated() const;
  // max |x|, of the rotated x where the line rotates.
  double amax() const;
  // max |x| over the elements for which `in` holds; `edited`: x is not the lane's own.
  double amax_of_part(const Matrix& x, const std::function<bool(int64_t, int64_t, Shape)>& in,
                      bool edited) const;
  // The amax of every block, line of blocks by line of blocks.
  const std::vector<double>& block_amaxes() const;
  // The scales as the lane's own line makes them, and the amaxes that they are made of. Empty where the
  // format has none.
  const ScaleGrid& scales() const;
  const ScaleGrid& scale_amaxes() const;
  // The planes of the other direction; those of this direction's quantizer along the other axis. Nothing
  // where there is no such direction, where the reference does not make them, or where amaxes are given for
  // blocks that are no squares.
  const std::optional<std::vector<PlaneData>>& of_other() const;
  const std::optional<std::vector<PlaneData>>& across() const;

 private:
  struct Element {
    double magnitude;
    int64_t i, j;
  };
  static std::vector<Element> largest_elements(const Matrix& x);
  void make_scales() const;

  Lane lane_;
  Subject& reference_;
  mutable std::atomic<int> runs_ = 0;
  mutable std::once_flag rotated_once_, amax_once_, largest_once_, blocks_once_, scales_once_, other_once_,
      across_once_;
  mutable PlaneData rotated_;
  mutable double amax_ = 0;
  mutable std::vector<Element> largest_;  // descending
  mutable std::vector<double> block_amaxes_;
  mutable ScaleGrid scales_{}, scale_amaxes_{};
  mutable std::optional<std::vector<PlaneData>> of_other_, across_;
};

}  // namespace assay
