// Rows of one block each: an amax, and elements that get its scale. Which scale that is, and where the code
// of an element changes under it, is for the sides to say. Of a 16-bit source every element that can have a
// code is tried; of binary32 those within a few patterns of an estimate of every change.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/commands/certify/domains.h"

namespace assay {

namespace {

constexpr int64_t kAmaxes = 1 << 15;  // the patterns of 16 bits without a sign
// Those of binary32 that end in 12 zeros: all that bf16 and f16 have, widened, among them.

constexpr int64_t kF32Amaxes = 1 << 19;
constexpr int kF32AmaxZeros = 12;

// A row holds the amax in one column, which moves from row to row, and others below it with signs in turn.
struct Rows {
  Encoding source;
  int64_t cols,
      others;  // others: elements that an amax is to have beside it, whatever the number of its rows
  int64_t per_row() const { return cols - 1; }
  int64_t of_amax() const { return (others + per_row() - 1) / per_row(); }

  // Writes rows [first, first + n): amax(a) is the pattern of amax number a, and magnitude(a, k) that of the
  // k-th element beside it, for k < others.
  template <class Amax, class Magnitude>
  void fill(int64_t first, int64_t n, std::byte* x, Amax amax, Magnitude magnitude) const {
    const auto bytes = static_cast<size_t>(info(source).bytes());
    const int sign_bit = info(source).bits - 1;
    for (int64_t row = first; row < first + n; ++row) {
      const int64_t a = row / of_amax();
      int64_t k = row % of_amax() * per_row();
      for (int64_t j = 0; j < cols; ++j, x += bytes) {
        const bool is_amax = j == row % cols;
        uint32_t bits = is_amax ? amax(a) : k < others ? magnitude(a, k) : 0;
        k += !is_amax;
        bits |= static_cast<uint32_t>((row + j) % 2) << sign_bit;
        std::memcpy(x, &bits, bytes);
      }
    }
  }
};

// ---- every pattern of a 16-bit source -----------------------------------------------------------

Domain every_pattern(const Problem& p) {
  const Rows rows{p.x.source, p.x.shape.cols, kAmaxes};
  const auto amax = [](int64_t a) { return static_cast<uint32_t>(a); };
  const auto magnitude = [](int64_t a, int64_t k) {
    return static_cast<uint32_t>(std::max<int64_t>(a - 1 - k, 0));
  };
  return {fmt::format("every {} pattern without a sign as an amax, NaN and infinity among them, with every "
                      "pattern below it, signs in turn",
                      info(p.x.source).name),
          kAmaxes * rows.of_amax(), [=](int64_t first, int64_t n, std::vector<PlaneData>& inputs) {
            rows.fill(first, n, inputs[0].bytes.data(), amax, magnitude);
          }};
}

// ---- binary32 around every change ---------------------------------------------------------------

constexpr int64_t kAround = 7;  // patterns of each change: three on either side of an estimate

// The power of two not below v.
double power_not_below(double v) {
  int exponent = 0;
  const double fraction = std::frexp(v, &exponent);
  return std::ldexp(1.0, fraction == 0.5 ? exponent - 1 : exponent);
}

// Estimates of what the elements under an amax are multiplied by, in binary64.
class Multipliers {
 public:
  explicit Multipliers(const Quantizer& q) : q_(q) {}
  // How many estimates an amax has. In NVFP4 the block scale is one of two codes of E4M3, if the amax brings
  // it near the middle of these.
  int64_t count() const { return q_.format == FormatId::nvfp4 ? 2 : 1; }
  double of(double amax, int64_t which) const {
    if (std::isnan(amax)) return 1;
    if (q_.format == FormatId::nvfp4) return of_nvfp4(amax, which);
    const double largest = value_of(q_.element, info(q_.element).max_finite);
    if (info(q_.format).scale == Encoding::e8m0)  // N5.3, N5.4
      return 1.0 / power_not_below(std::clamp(amax / largest, 0x1p-127, 0x1p127));
    if (!(amax > 0) || std::isinf(amax)) return 1;                // N3.4
    const double scale = std::min(largest / amax, kMost);         // N3.3, N3.5
    return q_.pow2 ? std::ldexp(1.0, std::ilogb(scale)) : scale;  // N3.6
  }

 private:
  static constexpr double kMost = std::numeric_limits<float>::max();
  // N10.2, N10.6, N10.8.
  double of_nvfp4(double amax, int64_t which) const {
    const double encode = std::min(448.0 * 6.0 / value_of(Encoding::f32, *q_.amax), kMost);
    const double wanted = std::min(amax * encode / 6.0, 448.0);
    uint32_t code = 0;
    while (value_of(Encoding::e4m3, code) < wanted) ++code;
    if (which == 1 && code > 0) --code;
    const double scale = value_of(Encoding::e4m3, code);
    return scale > 0 ? std::min(encode / scale, kMost) : kMost;
  }

  Quantizer q_;
};

// The points at which the code of a magnitude changes, in units of the element's values.
std::vector<double> changes_of(Encoding element) {
  std::vector<double> out;
  for (uint32_t code = 0; code < info(element).max_finite; ++code)
    out.push_back((value_of(element, code) + value_of(element, code + 1)) / 2);
  return out;
}

Domain around_changes(const Problem& p) {
  const auto changes = std::make_shared<const std::vector<double>>(changes_of(p.row->element));
  const Multipliers multipliers(*p.row);
  const int64_t of_multiplier = static_cast<int64_t>(changes->size()) * kAround;
  const Rows rows{Encoding::f32, p.x.shape.cols, of_multiplier * multipliers.count()};
  const auto amax = [](int64_t a) { return static_cast<uint32_t>(a) << kF32AmaxZeros; };
  return {fmt::format(
              "every binary32 pattern without a sign that ends in 000 as an amax, all of bf16 and f16, NaN "
              "and infinity among them, with the patterns within {} of every point where the code "
              "changes under its scale, signs in turn",
              kAround / 2),
          kF32Amaxes * rows.of_amax(), [=](int64_t first, int64_t n, std::vector<PlaneData>& inputs) {
            std::vector<double> of_amax(static_cast<size_t>(multipliers.count()));
            int64_t known = -1;
            const auto magnitude = [&](int64_t a, int64_t k) {
              if (a != known)
                for (size_t m = 0; m < of_amax.size(); ++m)
                  of_amax[m] = multipliers.of(std::bit_cast<float>(amax(a)), static_cast<int64_t>(m));
              known = a;
              const double change = (*changes)[static_cast<size_t>(k % of_multiplier / kAround)];
              const auto near = static_cast<float>(change / of_amax[static_cast<size_t>(k / of_multiplier)]);
              const int64_t bits = int64_t{std::bit_cast<uint32_t>(near)} + k % kAround - kAround / 2;
              return static_cast<uint32_t>(std::clamp<int64_t>(bits, 0, amax(a)));
            };
            rows.fill(first, n, inputs[0].bytes.data(), amax, magnitude);
          }};
}

}  // namespace

Domain scaled_elements(const Problem& p) {
  return p.x.source == Encoding::f32 ? around_changes(p) : every_pattern(p);
}

}  // namespace assay
