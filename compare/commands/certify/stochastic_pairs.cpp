// Values with random bytes, and what stochastic rounding must do with all 256 of them (N12.3).
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/commands/certify/domains.h"

namespace assay {

namespace {

constexpr int64_t kBytes = 256, kStochasticValues = 4096;
constexpr std::array<uint32_t, 8> kE2m1Times512 = {0,    256,  512,  768,
                                                   1024, 1536, 2048, 3072};  // the magnitudes of E2M1

// 4,096 values, both signs of each magnitude: every 256th of every step of the grid; one pattern above and
// below some of these; the ends; any exponent.
uint32_t stochastic_value(int64_t i) {
  const uint32_t sign = static_cast<uint32_t>(i & 1) << 31;
  const int64_t m = i >> 1, grid = 7 * kBytes, beside = grid + 7 * 16;
  auto fraction = [](int64_t step, int64_t of_256) {
    const double lo = kE2m1Times512[static_cast<size_t>(step)] / 512.0,
                 width = kE2m1Times512[static_cast<size_t>(step + 1)] / 512.0 - lo;
    return std::bit_cast<uint32_t>(
        static_cast<float>(lo + width * static_cast<double>(of_256) / 256.0));  // exact
  };
  if (m < grid) return sign | fraction(m / kBytes, m % kBytes);
  if (m < beside) return sign | (fraction((m - grid) / 16, 17 * ((m - grid) % 16) + 1) + (m % 2 ? 1u : ~0u));
  constexpr uint32_t kEnds[] = {0x7FFFFFFF, 0x7F800001, 0x7F800000, 0x7F7FFFFF, 0x40C00000,
                                0x40C00001, 0x40BFFFFF, 0x40E00000, 0x00000001, 0x007FFFFF,
                                0x00800000, 0x3B000000, 0x3AFFFFFF, 0x3A800000};
  const size_t end = static_cast<size_t>(m - beside);
  if (end < std::size(kEnds)) return sign | kEnds[end];
  const uint32_t mixed = static_cast<uint32_t>(m) * 2654435761u;
  return sign | (112 + (mixed >> 24) % 18) << 23 | (mixed & 0x7FFFFF);  // 2^-15 to 8
}

// Value i of bf16, and behind these of f16, widened.
uint32_t widened(int64_t i) {
  constexpr int64_t kOfBf16 = 1 << 16;
  if (i < kOfBf16) return static_cast<uint32_t>(i) << 16;
  return std::bit_cast<uint32_t>(
      static_cast<float>(value_of(Encoding::f16, static_cast<uint32_t>(i - kOfBf16))));  // exact
}
constexpr int64_t kWidened = 2 << 16;

}  // namespace

Domain stochastic_pairs(CertifyExtent extent) {
  constexpr const char* kStructured =
      "4,096 values (every 256th of every step of the grid, what lies beside some, the ends, any exponent)";
  const bool full = extent == CertifyExtent::full;
  const int64_t values = kStochasticValues + (full ? kWidened : 0);
  return {fmt::format("{}{}, each with all 256 bytes", kStructured,
                      full ? ", every bf16 and every f16 pattern, widened" : ""),
          values * kBytes, [](int64_t first, int64_t n, std::vector<PlaneData>& inputs) {
            for (int64_t i = 0; i < n; ++i) {
              const int64_t value = (first + i) / kBytes;
              const uint32_t bits =
                  value < kStochasticValues ? stochastic_value(value) : widened(value - kStochasticValues);
              std::memcpy(inputs[0].bytes.data() + 4 * i, &bits, 4);
              inputs[1].bytes[static_cast<size_t>(i)] = static_cast<std::byte>((first + i) % kBytes);
            }
          }};
}

// A byte for each pattern, mixed from its place, so that neighbours have different ones.
Domain drawn_floats(CertifyExtent extent) {
  const bool quick = extent == CertifyExtent::quick;
  const Domain floats = quick ? boundaries() : every_float();
  return {quick ? "every binary32 pattern that ends in 000, 001 or FFF, each with a byte mixed from its place"
                : "all 2^32 binary32 patterns, each with a byte mixed from its place",
          floats.count, [floats](int64_t first, int64_t n, std::vector<PlaneData>& inputs) {
            floats.fill(first, n, inputs);
            for (int64_t i = 0; i < n; ++i) {
              const uint32_t bits = code_at(Encoding::f32, inputs[0].bytes, i);
              const uint32_t mixed = (bits ^ bits >> 15) * 0x2C1B3C6Du;
              inputs[1].bytes[static_cast<size_t>(i)] = static_cast<std::byte>(mixed >> 24);
            }
          }};
}

// N12.3 by counting: of the 256 bytes floor(256 f) take a value up, the others leave it. Integers all the
// way: T is floor(512 |y|).
std::string counts_are_right(const std::vector<PlaneData>& inputs, const std::vector<PlaneData>& outputs) {
  for (size_t first = 0; first < outputs[0].bytes.size(); first += kBytes) {
    const uint32_t y = code_at(Encoding::f32, inputs[0].bytes, static_cast<int64_t>(first)),
                   a = y & 0x7FFFFFFF, exponent = a >> 23;
    uint32_t low = 7, up = 0;
    if (a < 0x40C00000) {  // below 6
      const uint32_t significand = exponent ? (a & 0x7FFFFF) | 0x800000 : a,
                     shift = 141 - std::max(exponent, 1u);
      const uint32_t t = shift < 32 ? significand >> shift : 0;
      low = 0;
      while (kE2m1Times512[low + 1] <= t) ++low;
      up = (t - kE2m1Times512[low]) * 256 / (kE2m1Times512[low + 1] - kE2m1Times512[low]);
    }
    const uint32_t sign = a > 0x7F800000 ? 0 : y >> 31 << 3;
    uint32_t ups = 0, lows = 0;
    for (size_t i = first; i < first + kBytes; ++i) {
      const uint32_t code = static_cast<uint32_t>(outputs[0].bytes[i]);
      lows += code == (sign | low);
      ups += low < 7 && code == (sign | (low + 1));
    }
    if (ups != up || lows + ups != kBytes)
      return fmt::format("{:08X} goes up for {} bytes and stays for {}, expected {} and {} (N12.3)", y, ups,
                         lows, up, kBytes - int64_t{up});
  }
  return {};
}

}  // namespace assay
