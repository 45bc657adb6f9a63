// What each element of a gemm's d may be (N16.10, N16.11): the exact sum in the judge's own doubles, how far the roundings of a correct side may
// take it, and the epilogue on both ends.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

class GemmBounds {
 public:
  // `inputs` as make_inputs has them; both must outlive this.
  GemmBounds(const Problem&, const std::vector<PlaneData>& inputs);

  struct Interval {
    double low = 0, high = 0;          // values that d can hold
    bool exact = false;                // N16.11: no step rounds, so they are equal
  };
  // Nothing where a NaN, an infinity or a sum that may overflow takes part.
  std::optional<Interval> at(int64_t n, int64_t m) const;

 private:
  // The elements of one operand, [outer, K]: codes where the sum takes codes, else code times scale.
  struct Elements {
    std::vector<double> values;
    std::vector<double> magnitudes;    // of each row, added
    std::vector<int> low;              // all of a row is a multiple of 2^low
    std::vector<double> scales;        // FP8 of a sum of codes: one, or one for each row and 128 of k
    int64_t k = 0;
    double least = 0;                  // the least normal value of its codes
    double relative = 0, absolute = 0; // how far a correct side's value is from one here
    bool square = false;
  };
  // v is within `bound` of `value`; `exact`: is it.
  struct Sum {
    double value = 0, bound = 0;
    bool exact = false;
  };
  Elements elements(Side) const;
  const PlaneData* plane(const std::string& name) const { return find_plane(in_, name); }
  Sum in_binary32(int64_t n, int64_t m) const;
  Sum chain(int64_t n, int64_t m, int64_t k0, int64_t k1) const;
  Sum on_tensor_core(int64_t n, int64_t m) const;

  const Problem& p_;
  const Gemm& op_;
  const std::vector<PlaneData>& in_;
  bool codes_, row_scaled_;
  int length_ = 0, fraction_ = 0, out_fraction_ = 0;   // of a step (N16.4)
  Elements a_, b_;
};

}  // namespace assay
