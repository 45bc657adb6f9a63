// The planes between the steps of an attention (N20.2): inputs as the core reads them, casts, results in the
// line's layout, and what a kernel of another order shows of them. For attention_core.cpp.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/arithmetic/attention_bound.h"
#include "compare/arithmetic/attention_core.h"
#include "contract/attention.h"

namespace assay {

// Elements, and how far a correct kernel may be from each.
class Values {
 public:
  void resize(size_t count) { values_.assign(count, 0), off_.assign(count, 0); }
  size_t size() const { return values_.size(); }
  double at(int64_t i) const { return values_[static_cast<size_t>(i)]; }
  // Infinite where nothing is claimed. An infinity or a NaN is claimed as it is.
  double off(int64_t i) const { return off_[static_cast<size_t>(i)]; }
  void put(int64_t i, double value, double off) {
    values_[static_cast<size_t>(i)] = value;
    off_[static_cast<size_t>(i)] = std::isfinite(off)     ? off
                                   : std::isfinite(value) ? std::numeric_limits<double>::infinity()
                                                          : 0;
  }
  // Nothing is claimed of the element, whatever it is.
  void put_open(int64_t i) {
    values_[static_cast<size_t>(i)] = 0;
    off_[static_cast<size_t>(i)] = std::numeric_limits<double>::infinity();
  }
  // The element is what was observed.
  void observe(int64_t i, double value) {
    values_[static_cast<size_t>(i)] = value, off_[static_cast<size_t>(i)] = 0;
  }
  void append(const Values& more);
  Values part(size_t first, size_t count) const;
  bool known() const;  // every element: nothing is off
  bool observed = false;

 private:
  std::vector<double> values_, off_;
};

// What a kernel may cast in place of S (N20.18): of each row the sum of its exponentials, how far what the
// kernel goes on from may be from S as it is here, and 1 / (1 - dropout).
struct Exponentials {
  std::vector<double> totals;
  std::vector<double> off;
  double keep_factor = 1;
};

class AttentionStages {
 public:
  // Everything must outlive this.
  AttentionStages(const Problem&, const std::vector<PlaneData>& inputs, const AttentionChange&,
                  const RunLine&, const std::vector<PlaneData>* observed);

  double nominal(double v) const;  // rounded once to n
  const PlaneData& input(std::string_view name) const;
  // Q, K, V after their cast and back, (sequence, head, token, element). False where a cast does not run.
  bool take_inputs(Values& q, Values& k, Values& v);
  // dO after its cast and back, (token, sequence, head, element).
  std::optional<Values> take_gradient();
  // dO before its cast, where kernels of the recipe get it as well (MXFP8, N20.23); otherwise nothing.
  const Values* gradient_before_cast() const { return gradient_ ? &*gradient_ : nullptr; }
  // Writes a plane; where the plane is observed, `x` becomes what is observed.
  void put(std::string_view plane, Values& x);
  // Writes the planes of a slot's only cast, and gives what it makes.
  std::optional<Values> cast(AttentionSlot, const Values&);
  // The same of S, of which a kernel may cast exponentials whatever it shows.
  std::optional<Values> cast_probabilities(const Values& s, const Exponentials&);
  // The inverse scale of a slot ("s") that has one for its whole tensor; otherwise 1.
  double scale_inverse(const std::string& slot) const;
  // The largest value of a code of a slot that is cast with one scale; otherwise 1.
  double largest_code(AttentionSlot) const;
  const NominalRounding& rounding() const { return rounding_; }
  bool put_result(const Values& o);
  const Values& result() const { return result_; }  // O after its cast
  bool put_gradients(const Values& dq, const Values& dk, const Values& dv);
  std::vector<PlaneData> take() { return std::move(planes_); }

 private:
  const PlaneData* observed(std::string_view name) const;
  PlaneData* plane(std::string_view name);
  int64_t row_of(AttentionTensor, int64_t b, int64_t i) const;  // -1: a ragged layout has no such token
  Values gathered(AttentionTensor) const;
  double descale(AttentionTensor, int64_t b, int64_t kv_head) const;
  Values as_wide(const Values& heads) const;
  bool cast_three(AttentionSlot, Values& q, Values& k, Values& v);
  struct Made {
    std::vector<PlaneData> planes;  // by their names in the cast's own line
    Values back;
  };
  std::optional<Made> made_by(const AttentionCast&, const Values&) const;
  bool change_cast(const AttentionCast&, Problem& line, std::vector<PlaneData>& in) const;
  std::optional<Values> cast_one(const AttentionCast&, const Values&);
  void settle_scalars(const AttentionCast&, const Values& x, Made& made) const;
  bool bare(const AttentionCast& c) const { return c.slot == AttentionSlot::s && change_.s_not_descaled; }
  KernelCast kernel_cast(const AttentionCast&, double inverse) const;
  double cast_off(const AttentionCast&, const KernelCast&, double x, double off, double now) const;
  void settle_data(const AttentionCast&, const Values& x, Made& made) const;
  // Writes one element of a plane: the observed one where it is inside.
  double store(PlaneData& to, const PlaneData* seen, int64_t at, double value, double off) const;

  const Problem& p_;
  const Attention& op_;
  AttentionSizes n_;
  const std::vector<PlaneData>& inputs_;
  const AttentionChange& change_;
  const RunLine& run_;
  const std::vector<PlaneData>* observed_;
  NominalRounding rounding_;
  std::vector<PlaneData> planes_;
  Values result_;
  std::optional<Values> gradient_;
};

}  // namespace assay
