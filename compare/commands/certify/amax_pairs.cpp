// Pairs of a tensor amax and a block amax for the scale chain of NVFP4 (N10.16).
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/commands/certify/domains.h"

namespace assay {

namespace {

// Tensor amaxes of binary32: every power of two, what lies beside some, values whose quotients round, the
// ends, infinity and NaN.
std::vector<uint32_t> chosen_tensors(bool quick) {
  std::vector<uint32_t> out = {0x00000000, 0x00000001, 0x00000002, 0x007FFFFF, 0x00800000, 0x00800001,
                               0x7F7FFFFF, 0x7F7FFFFE, 0x7F800000, 0x7FFFFFFF, 0x7F800001, 0x45280000,
                               0x45280001, 0x4527FFFF, 0x44C00000, 0x40C00000, 0x3F800001, 0x3F7FFFFF,
                               0x43E00000, 0x40490FDB};  // among them 2688 = 448 * 6, 1536 = 256 * 6, 6, 448
  for (uint32_t exponent = 1; exponent < 255; exponent += quick ? 16 : 1) out.push_back(exponent << 23);
  for (uint32_t exponent = 7; exponent < 255; exponent += quick ? 40 : 8)
    out.push_back(exponent << 23 | 0x2AAAAB);  // 4/3
  return out;
}

constexpr int64_t kPlaces = 5;                // of a boundary: two neighbours on either side
constexpr int64_t kE4m3Boundaries = 2 * 126;  // the codes but the first, and the middles below them
constexpr int64_t kNearATensor = kE4m3Boundaries * kPlaces;

// Block amaxes that bring the scale near a code of E4M3 or the middle of two. Where exactly the code changes
// is for the sides to say; these are every pattern within two of an estimate.
class NearBoundaries {
 public:
  explicit NearBoundaries(E4m3Max limit) : aim_(limit == E4m3Max::m256 ? 256.0 : 448.0) {
    for (uint32_t code = 0; code < 126; ++code) {
      const double low = value_of(Encoding::e4m3, code), high = value_of(Encoding::e4m3, code + 1);
      scales_[2 * code] = (low + high) / 2.0;
      scales_[2 * code + 1] = high;
    }
  }
  // Block amax i of kNearATensor, which is a finite pattern or infinity, whatever the tensor's.
  uint32_t pattern(uint32_t tensor, int64_t i) const {
    const double amax = std::bit_cast<float>(tensor);
    const double encode = amax > 0 && amax < kInfinite ? std::min(aim_ * 6.0 / amax, kMost) : 1.0;  // N10.2
    const auto block = static_cast<float>(scales_[static_cast<size_t>(i / kPlaces)] / (encode / 6.0));
    const int64_t bits = int64_t{std::bit_cast<uint32_t>(block)} + i % kPlaces - kPlaces / 2;
    return static_cast<uint32_t>(std::clamp<int64_t>(bits, 0, 0x7F800000));
  }

 private:
  static constexpr double kMost = std::numeric_limits<float>::max(),
                          kInfinite = std::numeric_limits<double>::infinity();
  double aim_;
  std::array<double, kE4m3Boundaries> scales_;
};

// A list of tensor amaxes: evenly spaced patterns without a sign, then chosen ones.
struct Tensors {
  int64_t spaced = 0;  // a power of two of at most 2^31
  std::vector<uint32_t> chosen;
  int64_t count() const { return spaced + static_cast<int64_t>(chosen.size()); }
  uint32_t at(int64_t i) const {
    return i < spaced ? static_cast<uint32_t>(i * ((int64_t{1} << 31) / spaced))
                      : chosen[static_cast<size_t>(i - spaced)];
  }
};

struct Pairs {
  Tensors tensors;  // each with `blocks` evenly spaced bf16 amaxes
  int64_t blocks = 0;
  Tensors near_change;  // each with the block amaxes near its boundaries
  NearBoundaries boundaries;
  int64_t grid() const { return tensors.count() * blocks; }
  int64_t near_count() const { return near_change.count() * kNearATensor; }

  std::array<uint32_t, 2> at(int64_t i) const {
    if (i < grid()) {
      const int64_t step = (int64_t{1} << 31) / blocks;
      return {tensors.at(i / blocks), static_cast<uint32_t>(i % blocks * step)};
    }
    const uint32_t tensor = near_change.at((i - grid()) / kNearATensor);
    return {tensor, boundaries.pattern(tensor, (i - grid()) % kNearATensor)};
  }
};

std::string described(const Pairs& pairs, CertifyExtent extent) {
  if (extent == CertifyExtent::full)
    return fmt::format(
        "all 2^15 bf16 tensor amaxes without a sign and {} others with all 2^15 bf16 block "
        "amaxes, and every tensor amax that ends in 000, and the others, with the {} block "
        "amaxes near the points where the E4M3 scale changes",
        pairs.tensors.chosen.size(), kNearATensor);
  return fmt::format(
      "{} tensor amaxes with {} bf16 block amaxes, NaN and infinity among both, and with {} "
      "near the points where the E4M3 scale changes",
      pairs.tensors.count(), extent == CertifyExtent::quick ? "every 16th of all" : "all",
      pairs.near_count());
}

}  // namespace

Domain amax_pairs(E4m3Max limit, CertifyExtent extent) {
  const bool quick = extent == CertifyExtent::quick, full = extent == CertifyExtent::full;
  std::vector<uint32_t> chosen = chosen_tensors(quick), finite = chosen;
  std::erase_if(finite, [](uint32_t a) { return a == 0 || a >= 0x7F800000; });
  const auto pairs = std::make_shared<const Pairs>(Pairs{{full ? 1 << 15 : 0, std::move(chosen)},
                                                         quick ? 1 << 11 : 1 << 15,
                                                         {full ? 1 << 19 : 0, std::move(finite)},
                                                         NearBoundaries(limit)});
  return {described(*pairs, extent), pairs->grid() + pairs->near_count(),
          [pairs](int64_t first, int64_t n, std::vector<PlaneData>& inputs) {
            for (int64_t i = 0; i < n; ++i) {
              const std::array<uint32_t, 2> pair = pairs->at(first + i);
              std::memcpy(inputs[0].bytes.data() + 8 * i, pair.data(), 8);
            }
          }};
}

}  // namespace assay
