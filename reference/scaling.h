// Pieces that more than one format is made of: amax, the scale by which MAX is reached, the scaled element,
// per-tensor FP8 elements, and the way back.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/numerics.h"
#include "reference/parallel.h"
#include "reference/rounding.h"
#include "reference/tensor.h"

namespace assay::reference {

// The larger of an amax so far and |x|; a NaN x does not take part (N3.1, N5.1).
inline double larger(double amax, double x) {
  const double magnitude = std::abs(x);
  return magnitude > amax ? magnitude : amax;  // false for NaN
}

// N3.1: max |x| over the matrix, from `start`.
double tensor_amax(const Values& x, double start, int threads);

// The amax plane of fp8_current and nvfp4, of x as it is stored: [1, 1], given or of the tensor (N3.1,
// N10.1), or under row_scaled [R, 1], of each stored row (N3.12, N10.9).
Values amaxes(const Run&, Direction, const Values& x);
// Which entry of it, and of what follows from it, holds for a stored row.
inline int64_t scale_row(const Quantizer& q, int64_t stored_row) { return q.row_scaled ? stored_row : 0; }
// Whose amax that is, for a trace.
const char* whose_amax(const Quantizer&);

// The values of an encoding, to the nearest of which a binary32 value is rounded (N2.1, N2.3) unless said
// otherwise.
class Grid {
 public:
  explicit Grid(Encoding e, Round round = Round::rne) : encode_(e, round, Overflow::nosat) {}
  double operator()(double value) const { return encode_.rounded(value); }

 private:
  Encoder encode_;
};

// The divisions between an amax and its scales (N17.14); `most` is MAX (N3.3) or F * 6 (N10.2).
class Divider {
 public:
  Divider(const Quantizer&, Encoding source);
  // N3.3, N10.2: fl(most / amax).
  double encode(double most, double amax) const {
    return rule_ == ScaleDivision::divide ? narrowed(most / amax)
                                          : rounded(narrowed(most * quotient(1, amax)));
  }
  // N17.5, N17.8: fl(amax / most).
  double decode(double amax, double most) const {
    return rule_ == ScaleDivision::reciprocal ? narrowed(amax * narrowed(1 / most)) : quotient(amax, most);
  }
  // One division under every rule: fl(1 / scale), fl(b / 6).
  double quotient(double a, double b) const { return rounded(narrowed(a / b)); }
  // For a trace: the clause of a scale that is `clause`'s under a plain division, and the reciprocal that was
  // multiplied by, where there is one.
  const char* cites(const char* clause) const { return rule_ == ScaleDivision::divide ? clause : "N17.14"; }
  std::vector<TraceStep> trace_encode(double amax) const;
  std::vector<TraceStep> trace_decode(const char* what, double most) const;

 private:
  double rounded(double value) const { return grid_ ? (*grid_)(value) : value; }

  ScaleDivision rule_;
  std::optional<Grid> grid_;  // of in_source
};

// What elements are multiplied by (N3.8, N5.5), or divided by (N17.5, N17.10).
struct ElementFactor {
  double value;
  bool divides = false;
  double before = 1;  // with `divides`: a divisor that comes first (N17.10: divide_twice)
};

// How a quantizer's elements become codes.
class ElementCast {
 public:
  explicit ElementCast(const Quantizer&);
  // The value that is cast: fl(x * factor) or fl(x / factor), and what N17.3 makes of it.
  double scaled(double x, const ElementFactor& factor) const {
    const double result = narrowed_once(x, factor);
    return pre_round_ ? (*pre_round_)(result) : result;  // N17.3
  }
  double narrowed_once(double x, const ElementFactor& factor) const {
    return narrowed_once(x, factor, neg_zero_);
  }
  // The code of such a value.
  uint32_t operator()(double scaled) const {
    if (nan_sign_ && std::isnan(scaled)) return nan_code_;  // N17.16
    return signed_zero(cast_(scaled));
  }  // N2.1 to N2.5, N17.1, N17.2
  // N17.4, of a code however it was rounded.
  uint32_t signed_zero(uint32_t code) const { return neg_zero_ == NegZero::drop && code == sign_ ? 0 : code; }
  // The codes of n consecutive elements that share a factor.
  void codes(const float* x, int64_t n, const ElementFactor&, uint8_t* out) const;

 private:
  static double first_divided(double x, const ElementFactor& factor) {
    return factor.before == 1 ? x : narrowed(x / factor.before);
  }
  static double narrowed_once(double x, const ElementFactor& factor, NegZero neg_zero) {
    const double result =
        factor.divides ? first_divided(x, factor) / factor.value
                       : x * factor.value;  // zero only where it is exactly: binary64 does not underflow here
    if (result == 0 && neg_zero == NegZero::plus)
      return 0.0;  // N5.6: only an exact zero; what rounds to zero keeps its sign
    if (result == 0 && neg_zero == NegZero::minus) return -0.0;  // N17.4
    return narrowed(result);
  }

  NegZero neg_zero_;
  bool nan_sign_;  // a NaN has a code with a sign bit
  Encoder cast_;
  uint32_t sign_;  // the code of -0
  uint32_t nan_code_;
  std::optional<Grid> pre_round_;
};

// MAX: the largest finite value of an element encoding.
double max_of(Encoding element);

// N3.8: the codes of x as it is stored. `factors`: one, or one for each row (N3.12).
Bytes per_tensor_elements(const Values& x, const std::vector<ElementFactor>& factors, const Quantizer&,
                          int threads);

// N3.7: fl(1 / scale).
inline double decode_scale(double scale) { return narrowed(1.0 / scale); }

// N3.2 to N3.7: from an amax, of a tensor (fp8_current) or of a block (fp8_block), to its scales.
struct Chain {
  double least;  // amax, or eps where that is larger
  double scale;
  double scale_inv;
  ElementFactor factor;  // of the elements
};
Chain chain_of(double amax, const Quantizer&, Encoding source);
// The same from a decode scale that is given (N17.12), scale_order=decode_first or decode_divide.
Chain chain_from(double scale_inv, const Quantizer&, Encoding source);
// Op scale_chain over the amaxes in x, and the steps of one amax; `of` says whose amax it is (" of the
// tensor").
void divided_scale_chain(const Run&);
Tracer trace_divided_scale_chain(const Run&);
std::vector<TraceStep> trace_chain(double amax, const Quantizer&, Encoding source, std::string_view of);

// fl(value * scale) rounded to `out`: the last two steps of every dequantize (N3.10, N5.9, N9.5, N10.15).
inline uint32_t dequantized(double value, double scale, const Encoder& out) {
  return out(narrowed(value * scale));
}

// Where element (row, col) of x stands in a data plane (N6.1).
inline std::pair<int64_t, int64_t> stored_at(const Plane& data, int64_t row, int64_t col) {
  return data.transposed ? std::pair{col, row} : std::pair{row, col};
}

// Op dequantize: y from the direction's data, with scale_of(i, j) the factor of the element that is stored at
// (i, j).
template <class ScaleOf> void dequantize_each(const Run& run, Direction d, ScaleOf scale_of) {
  const ConstBuffer& data = run.input(d, "data");
  const Values stored = values(data, run.threads);                                     // N2.8
  const Values q = data.plane->transposed ? transposed(stored, run.threads) : stored;  // N6.1
  const Buffer& y = run.output("y");
  const Encoder round(y.plane->encoding, Round::rne, Overflow::nosat);  // N2.3
  const Shape shape = y.plane->logical;
  parallel_for(run.threads, shape.rows, [&](int64_t r) {
    for (int64_t c = 0; c < shape.cols; ++c) {
      const auto [i, j] = stored_at(*data.plane, r, c);
      store(y, r * shape.cols + c, dequantized(q(r, c), scale_of(i, j), round));
    }
  });
}
// The steps of one element of it: its code and value, how `scale` was found, and the product (`clause`:
// N5.9).
std::vector<TraceStep> trace_dequantize(const Run&, Direction, int64_t row, int64_t col,
                                        std::vector<TraceStep> scale_steps, double scale,
                                        const std::string& clause);

// N3.10, N3.12: op dequantize of the per-tensor formats, whole plane and one element.
void dequantize_per_tensor(const Run&, Direction);
Tracer trace_dequantize_per_tensor(const Run&, Direction);

// Steps for `assay trace`: a binary32 value, a code, and how one element becomes a code (`clause`: N3.8 or
// N5.5).
TraceStep value_step(std::string clause, std::string what, double value);
TraceStep code_step(std::string clause, std::string what, Encoding, uint32_t code);
std::vector<TraceStep> trace_element(double x, const ElementFactor&, const Quantizer&,
                                     const std::string& clause);

}  // namespace assay::reference
