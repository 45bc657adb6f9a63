// The parts of the certificate as data: rows of lines with the inputs that exhaust them.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <stdexcept>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/commands/certify/part.h"
#include "contract/line.h"

namespace assay {

namespace {

// ---- domains ------------------------------------------------------------------------------------

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

Domain every_float() {
  return patterns("all 2^32 binary32 patterns", kFloats, [](int64_t i) { return static_cast<uint32_t>(i); });
}

// A cast to m mantissa bits changes its result only at values of at most m + 2 significant bits: the grid and
// its midpoints. With m <= 10 their patterns end in 12 zeros at least, so these patterns are every such value
// and both its neighbours.
uint32_t boundary(int64_t i) {
  constexpr uint32_t kLow[] = {0x000, 0x001, 0xFFF};
  return static_cast<uint32_t>(i / 3) << 12 | kLow[i % 3];
}
Domain boundaries() {
  return patterns(
      "every binary32 pattern that ends in 000, 001 or FFF: every point where a cast to 16 bits or fewer "
      "changes, with both neighbours",
      3 * (kFloats >> 12), boundary);
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
            std::fill(inputs[0].bytes.begin(), inputs[0].bytes.end(), std::byte{0});
            for (int64_t i = 0; i < n; ++i) {
              const uint32_t bits = boundary(first + i);
              std::memcpy(inputs[0].bytes.data() + 4 * (i * cols + (first + i) % cols), &bits, 4);
            }
          }};
}

// Blocks of bf16 that hold one amax and the magnitudes just below it, down to those that are 2^24 times
// smaller and have no code: two amaxes of each binade, one under its scale and one above it, whatever the
// format.
constexpr int64_t kBlockOfBf16 = 32, kOthers = kBlockOfBf16 - 1,
                  kRowsOfAmax = (24 * 128 + kOthers - 1) / kOthers;
Domain bf16_blocks() {
  return {
      "blocks of bf16 under two amaxes of every binade, with every magnitude down to 2^-24 times the amax",
      2 * 255 * kRowsOfAmax, [](int64_t first, int64_t n, std::vector<PlaneData>& inputs) {
        for (int64_t i = 0; i < n; ++i) {
          const int64_t row = first + i, of_amax = row / kRowsOfAmax;
          const int64_t amax = of_amax / 2 << 7 | (of_amax % 2 ? 0x7F : 0x40);
          int64_t below = amax - 1 - row % kRowsOfAmax * kOthers;
          for (int64_t j = 0; j < kBlockOfBf16; ++j) {
            const bool is_amax = j == row % kBlockOfBf16;
            const int64_t magnitude = is_amax ? amax : std::max<int64_t>(below--, 0);
            const auto bits = static_cast<uint16_t>(magnitude | ((row + j) % 2 << 15));
            std::memcpy(inputs[0].bytes.data() + 2 * (i * kBlockOfBf16 + j), &bits, 2);
          }
        }
      }};
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

// ---- pairs of amaxes (N10.16) -------------------------------------------------------------------

// Tensor amaxes: every power of two, what lies beside some, values whose quotients round, the ends, infinity
// and NaN.
std::vector<uint32_t> tensor_amaxes(bool quick) {
  std::vector<uint32_t> out = {0x00000000, 0x00000001, 0x00000002, 0x007FFFFF, 0x00800000, 0x00800001,
                               0x7F7FFFFF, 0x7F7FFFFE, 0x7F800000, 0x7FFFFFFF, 0x7F800001, 0x45280000,
                               0x45280001, 0x4527FFFF, 0x44C00000, 0x40C00000, 0x3F800001, 0x3F7FFFFF,
                               0x43E00000, 0x40490FDB};  // among them 2688 = 448 * 6, 1536 = 256 * 6, 6, 448
  for (uint32_t exponent = 1; exponent < 255; exponent += quick ? 16 : 1) out.push_back(exponent << 23);
  for (uint32_t exponent = 7; exponent < 255; exponent += quick ? 40 : 8)
    out.push_back(exponent << 23 | 0x2AAAAB);  // 4/3
  return out;
}

constexpr int kNeighbours = 2;  // on either side of a boundary

// Block amaxes that bring the scale near a code of E4M3 or the middle of two. Where exactly the code changes
// is for the sides to say; these are every pattern within kNeighbours of an estimate.
std::vector<uint32_t> at_boundaries(uint32_t tensor_amax, E4m3Max limit) {
  const double aim = limit == E4m3Max::m256 ? 256.0 : 448.0,
               most = value_of(Encoding::f32, info(Encoding::f32).max_finite);
  const double per_block = std::min(aim * 6.0 / value_of(Encoding::f32, tensor_amax), most) / 6.0;
  std::vector<uint32_t> out;
  for (uint32_t code = 0; code < info(Encoding::e4m3).max_finite; ++code) {
    const double middle = (value_of(Encoding::e4m3, code) + value_of(Encoding::e4m3, code + 1)) / 2.0;
    for (const double v : {middle, value_of(Encoding::e4m3, code + 1)}) {
      const float block = static_cast<float>(v / per_block);
      const int64_t bits = std::bit_cast<uint32_t>(block);
      for (int64_t n = bits - kNeighbours; n <= bits + kNeighbours; ++n)
        out.push_back(static_cast<uint32_t>(std::clamp<int64_t>(n, 0, 0x7F800000)));
    }
  }
  return out;
}

Domain amax_pairs(E4m3Max limit, bool quick) {
  auto tensors = std::make_shared<const std::vector<uint32_t>>(tensor_amaxes(quick));
  auto near = std::make_shared<std::vector<std::array<uint32_t, 2>>>();
  for (const uint32_t a : *tensors)
    if (a != 0 && a < 0x7F800000)
      for (const uint32_t b : at_boundaries(a, limit)) near->push_back({a, b});
  const int64_t blocks = quick ? 1 << 11 : 1 << 15;  // bf16 patterns without a sign
  const int64_t grid = static_cast<int64_t>(tensors->size()) * blocks;
  return {fmt::format("{} tensor amaxes with {} bf16 block amaxes, NaN and infinity among both, and with {} "
                      "near the points where the E4M3 scale changes",
                      tensors->size(), quick ? "every 16th of all" : "all", near->size()),
          grid + static_cast<int64_t>(near->size()),
          [=](int64_t first, int64_t n, std::vector<PlaneData>& inputs) {
            for (int64_t i = 0; i < n; ++i) {
              const int64_t at = first + i;
              std::array<uint32_t, 2> pair;
              if (at < grid)
                pair = {(*tensors)[static_cast<size_t>(at / blocks)],
                        static_cast<uint32_t>(at % blocks * ((1 << 15) / blocks)) << 16};
              else pair = (*near)[static_cast<size_t>(at - grid)];
              std::memcpy(inputs[0].bytes.data() + 8 * i, pair.data(), 8);
            }
          }};
}

// ---- stochastic rounding (N12.3) ----------------------------------------------------------------

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

Domain stochastic_pairs() {
  return {
      "4,096 values (every 256th of every step of the grid, what lies beside some, the ends, any exponent), "
      "each with all 256 bytes",
      kStochasticValues * kBytes, [](int64_t first, int64_t n, std::vector<PlaneData>& inputs) {
        for (int64_t i = 0; i < n; ++i) {
          const uint32_t bits = stochastic_value((first + i) / kBytes);
          std::memcpy(inputs[0].bytes.data() + 4 * i, &bits, 4);
          inputs[1].bytes[static_cast<size_t>(i)] = static_cast<std::byte>((first + i) % kBytes);
        }
      }};
}

// A byte for each pattern, mixed from its place, so that neighbours have different ones.
Domain drawn_floats(bool quick) {
  return {quick ? "every binary32 pattern that ends in 000, 001 or FFF, each with a byte mixed from its place"
                : "all 2^32 binary32 patterns, each with a byte mixed from its place",
          quick ? 3 * (kFloats >> 12) : kFloats,
          [quick](int64_t first, int64_t n, std::vector<PlaneData>& inputs) {
            for (int64_t i = 0; i < n; ++i) {
              const uint32_t bits = quick ? boundary(first + i) : static_cast<uint32_t>(first + i);
              std::memcpy(inputs[0].bytes.data() + 4 * i, &bits, 4);
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

// ---- rows ---------------------------------------------------------------------------------------

enum class Inputs : uint8_t {
  codes,
  floats,
  boundaries,
  amaxes,
  structured_amaxes,
  amax_rows,
  blocks,
  amax_pairs,
  stochastic,
  drawn_floats
};

Domain domain_of(Inputs inputs, const Problem& p, bool quick) {
  switch (inputs) {
    case Inputs::codes: return every_code(p.x.source);
    case Inputs::floats: return quick ? boundaries() : every_float();
    case Inputs::boundaries: return boundaries();
    case Inputs::amaxes: return quick ? bf16_amaxes() : every_amax();
    case Inputs::structured_amaxes: return structured_amaxes();
    case Inputs::amax_pairs: return amax_pairs(p.row->e4m3_max, quick);
    case Inputs::stochastic: return stochastic_pairs();
    case Inputs::drawn_floats: return drawn_floats(quick);
    case Inputs::amax_rows: return amax_rows(p.x.shape.cols);
    case Inputs::blocks: return bf16_blocks();
  }
  return {};
}

// Who must agree. Element arithmetic runs on its own over everything; the kernels around it, twice, over what
// tells them apart.
const std::vector<CertifySide>& element_sides() {
  static const std::vector<CertifySide> sides = {{"lanes", {}}, {"lanes_twin", {}}, {"headers", {}}};
  return sides;
}
const std::vector<CertifySide>& kernel_sides() {
  static const std::vector<CertifySide> sides = {
      {"host", {}}, {"host", {.threads = 1, .order = 17, .poison = 0xA5, .alignment = 4}}};
  return sides;
}
const std::vector<CertifySide>& policy_sides() {
  static const std::vector<CertifySide> sides = {{"host", {}}, {"host_general", {}}};
  return sides;
}
const std::vector<CertifySide>& every_kernel() {
  static const std::vector<CertifySide> sides = {kernel_sides()[0], kernel_sides()[1], {"host_general", {}}};
  return sides;
}
const std::vector<CertifySide>& amax_sides() {
  static const std::vector<CertifySide> sides = {{"host", {}}};
  return sides;
}

struct Row {
  const char *prefix, *lines, *clauses;  // `lines` is a sweep; its shape is one element or one row
  Inputs inputs;
  const std::vector<CertifySide>& (*sides)();
};

constexpr const char *kFp8 = "N2.1 N2.2 N2.3 N2.4 N2.5 N2.6", *kSmall = "N2.1 N2.2 N2.4 N2.5 N2.6",
                     *kWide = "N2.1 N2.3 N2.4 N2.5 N2.6";

constexpr Row kRows[] = {
    // Every code that decodes, and every 16-bit source.
    {"", "cast {f32,bf16,f16} 1x1 {e4m3,e5m2,e2m3,e3m2,e2m1,e8m0} round={rne,rz}", "N2.8", Inputs::codes,
     element_sides},
    {"", "cast f32 1x1 {bf16,f16} round={rne,rz}", "N1.2 N2.8", Inputs::codes, element_sides},
    {"", "cast bf16 1x1 f16 round={rne,rz}", kWide, Inputs::codes, element_sides},
    {"", "cast f16 1x1 bf16 round={rne,rz}", kWide, Inputs::codes, element_sides},
    {"", "cast {e4m3,e5m2} 1x1 {bf16,f16} round={rne,rz} overflow={sat,nosat}", kFp8, Inputs::codes,
     element_sides},
    {"", "cast {e2m3,e3m2,e2m1} 1x1 {bf16,f16} round={rne,rz}", kSmall, Inputs::codes, element_sides},
    {"", "cast e8m0 1x1 {bf16,f16} round={rp,rz} overflow={sat,nosat}", "N2.7", Inputs::codes, element_sides},
    {"kernels: ", "cast {f32,bf16,f16} 1x1 {e4m3,e5m2,e2m3,e3m2,e2m1,e8m0}", "N2.8", Inputs::codes,
     kernel_sides},
    {"kernels: ", "cast {e4m3,e5m2} 1x1 {bf16,f16} round={rne,rz} overflow={sat,nosat}", kFp8, Inputs::codes,
     kernel_sides},
    {"kernels: ", "cast {e2m3,e3m2,e2m1} 1x1 {bf16,f16} round={rne,rz}", kSmall, Inputs::codes, kernel_sides},
    {"kernels: ", "cast e8m0 1x1 {bf16,f16} round={rp,rz} overflow={sat,nosat}", "N2.7", Inputs::codes,
     kernel_sides},
    // Every float.
    {"", "cast {e4m3,e5m2} 1x1 f32 round={rne,rz} overflow={sat,nosat}", kFp8, Inputs::floats, element_sides},
    {"", "cast {e2m3,e3m2,e2m1} 1x1 f32 round={rne,rz}", kSmall, Inputs::floats, element_sides},
    {"", "cast e8m0 1x1 f32 round={rp,rz} overflow={sat,nosat}", "N2.7", Inputs::floats, element_sides},
    {"", "cast {bf16,f16} 1x1 f32 round={rne,rz}", kWide, Inputs::floats, element_sides},
    {"kernels: ", "cast {e4m3,e5m2} 1x1 f32 round={rne,rz} overflow={sat,nosat}", kFp8, Inputs::boundaries,
     kernel_sides},
    {"kernels: ", "cast {e2m3,e3m2,e2m1} 1x1 f32 round={rne,rz}", kSmall, Inputs::boundaries, kernel_sides},
    {"kernels: ", "cast e8m0 1x1 f32 round={rp,rz} overflow={sat,nosat}", "N2.7", Inputs::boundaries,
     kernel_sides},
    {"kernels: ", "cast {bf16,f16} 1x1 f32 round={rne,rz}", kWide, Inputs::boundaries, kernel_sides},
    // What tuned kernels convert with, and the general one: elements that a scale of 1 leaves as they are,
    // blocks of one amax.
    {"kernels: ", "quantize fp8_delayed 1x1 f32 dir=row element={e4m3,e5m2}", "N3.1 N3.8", Inputs::boundaries,
     policy_sides},
    {"kernels: ", "quantize mxfp8 1x8 f32 dir=row element={e4m3,e5m2}", "N5.1 N5.2 N5.3 N5.4 N5.5",
     Inputs::amax_rows, policy_sides},
    {"kernels: ", "quantize mxfp6 1x8 f32 dir=row element={e2m3,e3m2} packing={bytes,packed}",
     "N6.8 N18.1 N18.2 N18.3", Inputs::amax_rows, policy_sides},
    {"kernels: ", "quantize mxfp4 1x8 f32 dir=row", "N15.1 N15.2 N15.3", Inputs::amax_rows, policy_sides},
    {"kernels: ", "quantize mxfp8 1x32 bf16 dir=row element={e4m3,e5m2}", "N5.1 N5.2 N5.3 N5.4 N5.5",
     Inputs::blocks, policy_sides},
    {"kernels: ", "quantize mxfp4 1x32 bf16 dir=row", "N15.1 N15.2 N15.3", Inputs::blocks, policy_sides},
    // Scales.
    {"", "scale_chain {mxfp8,mxfp6,mxfp4} 1x1 e8m0", "N5.4 N5.9", Inputs::codes, kernel_sides},
    {"", "scale_chain mxfp8 1x1 f32 element={e4m3,e5m2}", "N5.2 N5.3 N5.4 N5.9", Inputs::amaxes, amax_sides},
    {"", "scale_chain mxfp6 1x1 f32 element={e2m3,e3m2}", "N18.2 N5.3 N5.4 N5.9", Inputs::amaxes, amax_sides},
    {"", "scale_chain mxfp4 1x1 f32", "N15.2 N5.3 N5.4 N5.9", Inputs::amaxes, amax_sides},
    {"", "scale_chain {fp8_current,fp8_block} 1x1 f32 element={e4m3,e5m2} pow2={0,1} inf_amax={unit,zero}",
     "N3.3 N3.4 N3.5 N3.6 N3.7", Inputs::structured_amaxes, amax_sides},
    {"", "scale_chain {fp8_current,fp8_block} 1x1 f32 eps=0.0078125", "N3.2", Inputs::structured_amaxes,
     amax_sides},
    {"", "scale_chain nvfp4 1x2 f32 e4m3_max={448,256}", "N10.2 N10.3 N10.5 N10.6 N10.7 N10.8 N10.16",
     Inputs::amax_pairs, amax_sides},
    {"", "scale_chain nvfp4 1x2 f32 {inf_amax=zero,nan_tensor_amax=unit,nan_clamp=propagate}",
     "N10.2 N10.3 N10.6 N10.8 N10.16", Inputs::amax_pairs, amax_sides},
    {"", "scale_chain nvfp4 1x2 f32 multiplier=bf16_quotient nan_clamp={drop,propagate}", "N10.8 N10.16",
     Inputs::amax_pairs, amax_sides},
    // Stochastic rounding.
    {"", "cast e2m1 1x1 f32 round=sr sr_rule={integer,fma}", "N12.3", Inputs::stochastic, every_kernel},
    {"elements: ", "cast e2m1 1x1 f32 round=sr sr_rule={integer,fma}", "N12.3", Inputs::drawn_floats,
     element_sides},
};

// The line without its shape: "cast e4m3 f32 round=rz".
std::string name_of_line(const Problem& p) {
  std::string text = to_line(p);
  const std::string shape = fmt::format(" {}x{} ", p.x.shape.rows, p.x.shape.cols);
  return text.replace(text.find(shape), shape.size(), " ");
}

}  // namespace

Problem CertifyPart::sized(int64_t n) const {
  Problem p = problem;
  (by_rows ? p.x.shape.rows : p.x.shape.cols) = n;
  return p;
}

std::vector<CertifyPart> certify_parts(bool quick) {
  std::vector<CertifyPart> out;
  for (const Row& row : kRows) {
    const Result<std::vector<std::string>> lines = expand_sweep(row.lines);
    for (const std::string& line : *lines) {
      const Result<Problem> p = parse_line(line);
      if (!p)
        throw std::logic_error(
            fmt::format("a row of the certificate is not a line: {}: {}", line, p.error().text()));
      CertifyPart part;
      part.name = row.prefix + name_of_line(*p);
      part.clauses = row.clauses;
      part.problem = *p;
      part.by_rows =
          row.inputs == Inputs::amax_rows || row.inputs == Inputs::amax_pairs || row.inputs == Inputs::blocks;
      part.domain = domain_of(row.inputs, *p, quick);
      part.sides = row.sides();
      if (row.inputs == Inputs::stochastic && p->as<Cast>()->sr_rule == SrRule::integer) {
        part.law_words = "of the 256 bytes floor(256 f) take a value up, the others leave it";
        part.law = counts_are_right;
      }
      out.push_back(std::move(part));
    }
  }
  return out;
}

}  // namespace assay
