// Patterns, codes and rows that exhaust what one part of the certificate runs over.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "compare/commands/certify/domains.h"

namespace assay {

namespace {

// A domain of one input plane of 4-byte patterns.
template <class Pattern> Domain patterns(std::string words, int64_t count, Pattern pattern) {
  return {std::move(words), count, [pattern](int64_t first, int64_t n, std::vector<PlaneData>& inputs) {
            std::byte* out = inputs[0].bytes.data();
            for (int64_t i = 0; i < n; ++i) {
              const uint32_t bits = pattern(first + i);
              std::memcpy(out + 4 * i, &bits, 4);
            }
          }};
}

constexpr int64_t kFloats = int64_t{1} << 32, kNotNegative = int64_t{1} << 31;

}  // namespace

// A cast to m mantissa bits changes its result only at values of at most m + 2 significant bits: the grid and
// its midpoints. With m <= 10 their patterns end in 12 zeros at least, so these patterns are every such value
// and both its neighbours.
uint32_t boundary_pattern(int64_t i) {
  constexpr uint32_t kLow[] = {0x000, 0x001, 0xFFF};
  return static_cast<uint32_t>(i / 3) << 12 | kLow[i % 3];
}
Domain every_float() {
  return patterns("all 2^32 binary32 patterns", kFloats, [](int64_t i) { return static_cast<uint32_t>(i); });
}

Domain boundaries() {
  return patterns(
      "every binary32 pattern that ends in 000, 001 or FFF: every point where a cast to 16 bits or fewer "
      "changes, with both neighbours",
      3 * (kFloats >> 12), boundary_pattern);
}

// Amaxes: what has no sign first, NaN included; then a sample of what has one, which the E8M0 rules ignore
// (N2.7).
Domain every_amax() {
  return patterns("all 2^31 binary32 patterns without a sign, and every 2^12th with one",
                  kNotNegative + (kNotNegative >> 12), [](int64_t i) {
                    return i < kNotNegative ? static_cast<uint32_t>(i)
                                            : 0x80000000u | static_cast<uint32_t>(i - kNotNegative) << 12;
                  });
}
Domain bf16_amaxes() {
  return patterns("all 2^16 bf16 patterns, widened", 1 << 16,
                  [](int64_t i) { return static_cast<uint32_t>(i) << 16; });
}
Domain amaxes_without_sign() {
  return patterns("all 2^31 binary32 patterns without a sign", kNotNegative,
                  [](int64_t i) { return static_cast<uint32_t>(i); });
}
Domain structured_amaxes() {
  return patterns("every binary32 pattern without a sign that ends in 000, 001, 7FF, 800, 801 or FFF",
                  6 * (kNotNegative >> 12), [](int64_t i) {
                    constexpr uint32_t kLow[] = {0x000, 0x001, 0x7FF, 0x800, 0x801, 0xFFF};
                    return static_cast<uint32_t>(i / 6) << 12 | kLow[i % 6];
                  });
}

// Rows of zeros but for one amax, each row a block of its own.
Domain amax_rows(int64_t cols) {
  return {"rows that hold one pattern without a sign, of those that end in 000, 001 or FFF, among zeros",
          3 * (kNotNegative >> 12), [cols](int64_t first, int64_t n, std::vector<PlaneData>& inputs) {
            std::fill_n(inputs[0].bytes.begin(), 4 * n * cols, std::byte{0});
            for (int64_t i = 0; i < n; ++i) {
              const uint32_t bits = boundary_pattern(first + i);
              std::memcpy(inputs[0].bytes.data() + 4 * (i * cols + (first + i) % cols), &bits, 4);
            }
          }};
}

namespace {

// Blocks that hold one amax and the magnitudes just below it, down to those that are 2^24 times smaller and
// have no code, as patterns of 16 bits: two amaxes of each binade, one under its scale and one above it,
// whatever the format. Those of binary32 are patterns of bf16 with lower halves: such as leave the upper half
// exact, just above it, and on either side of the middle to the next one.
struct BlocksOfBinades {
  Encoding source;
  int64_t length;

  int mantissa_bits() const { return source == Encoding::f16 ? 10 : 7; }
  int64_t amaxes() const { return 2 * (source == Encoding::f16 ? 31 : 255); }
  int64_t of_amax() const { return ((int64_t{24} << mantissa_bits()) + length - 2) / (length - 1); }

  void put(int64_t block, std::byte* at) const {
    const int64_t amax_number = block / of_amax(), step = int64_t{1} << mantissa_bits();
    const int64_t amax = amax_number / 2 * step | (amax_number % 2 ? step - 1 : step / 2);
    int64_t below = amax - 1 - block % of_amax() * (length - 1);
    for (int64_t j = 0; j < length; ++j) {
      const bool is_amax = j == block % length;
      const int64_t magnitude = is_amax ? amax : std::max<int64_t>(below--, 0);
      const auto half = static_cast<uint32_t>(magnitude | ((block + j) % 2 << 15));
      if (source != Encoding::f32) {
        std::memcpy(at + 2 * j, &half, 2);
        continue;
      }
      constexpr uint32_t kLower[] = {0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
      const uint32_t bits = half << 16 | kLower[(block / 2 + j) % std::ssize(kLower)];
      std::memcpy(at + 4 * j, &bits, 4);
    }
  }
};

}  // namespace

Domain blocks_of_binades(Encoding source, int64_t length, int64_t in_a_row) {
  const BlocksOfBinades blocks{source, length};
  const std::string what = fmt::format(
      "blocks of {} under two amaxes of every binade, with every magnitude {}down to 2^-24 times "
      "the amax",
      info(source).name, source == Encoding::f32 ? "of bf16, with lower bits or without, " : "");
  return {in_a_row == 1 ? what
                        : fmt::format("rows of {} {}: neighbours have neighbouring amaxes", in_a_row, what),
          blocks.amaxes() * blocks.of_amax() / in_a_row,
          [=](int64_t first, int64_t n, std::vector<PlaneData>& inputs) {
            const auto bytes = static_cast<int64_t>(info(source).bytes()) * length;
            const int64_t of_amax = blocks.of_amax();
            for (int64_t row = first; row < first + n; ++row)
              for (int64_t b = 0; b < in_a_row; ++b)
                blocks.put((row / of_amax * in_a_row + b) * of_amax + row % of_amax,
                           inputs[0].bytes.data() + bytes * ((row - first) * in_a_row + b));
          }};
}

Domain down_columns(Domain rows, int64_t length) {
  rows.words = "as columns, " + rows.words;
  rows.fill = [fill = rows.fill, length](int64_t first, int64_t n, std::vector<PlaneData>& inputs) {
    std::vector<PlaneData> turned = inputs;
    fill(first, n, turned);
    const auto width = static_cast<size_t>(info(inputs[0].plane.encoding).bytes());
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < length; ++j)
        std::memcpy(inputs[0].bytes.data() + static_cast<size_t>(j * n + i) * width,
                    turned[0].bytes.data() + static_cast<size_t>(i * length + j) * width, width);
  };
  return rows;
}

Domain every_code(Encoding e) {
  const EncodingInfo& f = info(e);
  return {fmt::format("all {} codes of {}", 1 << f.bits, f.name), int64_t{1} << f.bits,
          [bytes = static_cast<size_t>(f.bytes())](int64_t first, int64_t n, std::vector<PlaneData>& inputs) {
            for (int64_t i = 0; i < n; ++i) {
              const uint32_t code = static_cast<uint32_t>(first + i);
              std::memcpy(inputs[0].bytes.data() + static_cast<size_t>(i) * bytes, &code, bytes);
            }
          }};
}

}  // namespace assay
