// What each element of a gemm's d may be (N16.10, N16.11, N16.13): the exact sum in the judge's own doubles,
// how far the roundings of a correct side may take it, and the epilogue on both ends, or in whatever order.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

// Whether N16.13 leaves bits of this gemm open: where not, every one is pinned.
bool has_unpinned_bits(const Gemm&);

// In which order what follows the sum is rounded: as N16.6 to N16.9 say, or in any (N16.13).
enum class GemmOrder : uint8_t { pinned, any };

class GemmBounds {
 public:
  // `inputs` as make_inputs has them; both must outlive this.
  GemmBounds(const Problem&, const std::vector<PlaneData>& inputs, GemmOrder order = GemmOrder::pinned);

  struct Interval {
    double low = 0, high = 0;  // values that d can hold
    bool exact = false;        // N16.11: no step rounds, so they are equal
    bool nan = false;          // d is NaN
    bool holds(double d) const { return nan ? d != d : d >= low && d <= high; }
  };
  // Nothing where a sum or a product may overflow; in a pinned order, nothing where a NaN or an infinity
  // takes part.
  std::optional<Interval> at(int64_t n, int64_t m) const;

 private:
  // The elements of one operand, [outer, K]: codes where the sum takes codes, else code times scale.
  struct Elements {
    std::vector<double> values;
    std::vector<double> magnitudes;  // of each row, added
    std::vector<int> low;            // all of a row is a multiple of 2^low
    std::vector<bool> stands;        // whether all of a row are binary32 values, which nothing rounds
    std::vector<double> scales;      // FP8 of a sum of codes: one, or one for each row and 128 of k
    int64_t k = 0;
    double least = 0;                   // the least normal value of its codes
    double relative = 0, absolute = 0;  // how far a correct side's value is from one here
    bool square = false;
  };
  // v is within `bound` of `value`; `exact`: is it. `value` is NaN where there is no bound; `plain` is NaN or
  // infinite where the sum is that, whatever overflows.
  struct Sum {
    double value = 0, bound = 0;
    bool exact = false;
    double plain = 0;
  };
  Elements elements(Side) const;
  const PlaneData* plane(const std::string& name) const { return find_plane(in_, name); }
  Sum in_binary32(int64_t n, int64_t m) const;
  Sum chain(int64_t n, int64_t m, int64_t k0, int64_t k1) const;
  Sum on_tensor_core(int64_t n, int64_t m) const;
  std::vector<double> factors(int64_t n, int64_t m) const;
  std::optional<Interval> as_said(const Sum&, int64_t n, int64_t m) const;
  std::optional<Interval> in_any_order(const Sum&, int64_t n, int64_t m) const;
  std::optional<Interval> not_finite(const Sum&, std::span<const double> factors, double c,
                                     double bias) const;

  const Problem& p_;
  const Gemm& op_;
  const std::vector<PlaneData>& in_;
  GemmOrder order_;
  bool codes_, by_amax_;                              // by_amax_: N16.9
  int length_ = 0, fraction_ = 0, out_fraction_ = 0;  // of a step (N16.4)
  Elements a_, b_;
};

}  // namespace assay
