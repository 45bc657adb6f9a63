// What the codes and scales of one direction leave for the values that they were made of.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/planes.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay::coherent {

// What is known of one element. nan: it is one; open: nothing.
struct Interval {
  enum class Kind : uint8_t { known, nan, open } kind = Kind::open;
  double low = 0, high = 0;
};
// With `slack` of each end, and `least`, more room on both sides.
Interval widened(Interval i, double slack, double least);
bool disjoint(const Interval& a, const Interval& b);

// One direction of a quantize. Rows and columns of its elements are those of the tensor.
class DirectionValues {
 public:
  DirectionValues(const Problem& problem, Direction d, const std::vector<PlaneData>& planes);

  const std::string& trouble() const { return trouble_; }  // a plane that is absent; empty: none is
  bool unscaled() const { return unscaled_; }              // values are known but for the tensor's amax
  // From here on values are in units of the tensor's scale, whatever that is.
  void take_unit() { given_ = 2688; }
  const Quantizer& quantizer() const { return q_; }
  const PlaneData* amax() const { return amax_; }
  bool has_scale() const { return scale_; }
  uint32_t code(int64_t r, int64_t c) const;
  uint32_t scale_code(int64_t r, int64_t c) const;

  // What the element was that the code was made of.
  Interval at(int64_t r, int64_t c) const;
  // What the code stands for.
  double middle(int64_t r, int64_t c) const;
  // The value that a dequantize gives: what columns of the dequantized rows quantize (N13.1).
  Interval decoded(int64_t r, int64_t c, Encoding source) const;

 private:
  void find_planes(const std::vector<PlaneData>& planes);
  double unit(int64_t r, int64_t c) const;
  double tensor_amax(int64_t r, int64_t c) const;
  bool overflows(int64_t r, int64_t c) const;
  int64_t scale_at(int64_t r, int64_t c) const;

  Quantizer q_;
  Encoding source_;
  Direction d_;
  bool transposed_ = false, unscaled_ = false;
  const PlaneData *data_ = nullptr, *scale_ = nullptr, *amax_ = nullptr;
  std::optional<double> given_;
  double slack_ = 0;
  std::array<Interval, 256> intervals_{};
  std::string trouble_;
};

}  // namespace assay::coherent
