// The parts of the certificate as data: rows of lines with the inputs that exhaust them.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>

#include <fmt/format.h>

#include "compare/certify.h"
#include "compare/describe.h"
#include "contract/line.h"

namespace assay {

namespace {

// ---- domains -----------------------------------------------------------------------------------------------------------

// A domain of one input plane of 4-byte patterns.
template <class Pattern>
Domain patterns(std::string words, int64_t count, Pattern pattern) {
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

// A cast to m mantissa bits changes its result only at values of at most m + 2 significant bits: the grid and its midpoints. With m <= 10 their patterns end
// in 12 zeros at least, so these patterns are every such value and both its neighbours.
uint32_t boundary(int64_t i) {
  constexpr uint32_t kLow[] = {0x000, 0x001, 0xFFF};
  return static_cast<uint32_t>(i / 3) << 12 | kLow[i % 3];
}
Domain boundaries() {
  return patterns("every binary32 pattern that ends in 000, 001 or FFF: every point where a cast to 16 bits or fewer changes, with both neighbours", 3 * (kFloats >> 12), boundary);
}

// Amaxes: what has no sign first, NaN included; then a sample of what has one, which the E8M0 rules ignore (N2.7).
Domain every_amax() {
  return patterns("all 2^31 binary32 patterns without a sign, and every 2^12th with one", kNotNegative + (kNotNegative >> 12), [](int64_t i) {
    return i < kNotNegative ? static_cast<uint32_t>(i) : 0x80000000u | static_cast<uint32_t>(i - kNotNegative) << 12;
  });
}
Domain bf16_amaxes() {
  return patterns("all 2^16 bf16 patterns, widened", 1 << 16, [](int64_t i) { return static_cast<uint32_t>(i) << 16; });
}
Domain structured_amaxes() {
  return patterns("every binary32 pattern without a sign that ends in 000, 001, 7FF, 800, 801 or FFF", 6 * (kNotNegative >> 12), [](int64_t i) {
    constexpr uint32_t kLow[] = {0x000, 0x001, 0x7FF, 0x800, 0x801, 0xFFF};
    return static_cast<uint32_t>(i / 6) << 12 | kLow[i % 6];
  });
}

// Rows of zeros but for one amax, each row a block of its own.
Domain amax_rows(int64_t cols) {
  return {"rows that hold one pattern without a sign, of those that end in 000, 001 or FFF, among zeros", 3 * (kNotNegative >> 12),
          [cols](int64_t first, int64_t n, std::vector<PlaneData>& inputs) {
            std::fill(inputs[0].bytes.begin(), inputs[0].bytes.end(), std::byte{0});
            for (int64_t i = 0; i < n; ++i) {
              const uint32_t bits = boundary(first + i);
              std::memcpy(inputs[0].bytes.data() + 4 * (i * cols + (first + i) % cols), &bits, 4);
            }
          }};
}

Domain every_code(Encoding e) {
  const EncodingInfo& f = info(e);
  return {fmt::format("all {} codes of {}", 1 << f.bits, f.name), int64_t{1} << f.bits, [bytes = static_cast<size_t>(f.bytes())](int64_t first, int64_t n, std::vector<PlaneData>& inputs) {
            for (int64_t i = 0; i < n; ++i) {
              const uint32_t code = static_cast<uint32_t>(first + i);
              std::memcpy(inputs[0].bytes.data() + static_cast<size_t>(i) * bytes, &code, bytes);
            }
          }};
}

// ---- rows --------------------------------------------------------------------------------------------------------------

enum class Inputs : uint8_t { codes, floats, boundaries, amaxes, structured_amaxes, amax_rows };

Domain domain_of(Inputs inputs, const Problem& p, bool quick) {
  switch (inputs) {
    case Inputs::codes: return every_code(p.x.source);
    case Inputs::floats: return quick ? boundaries() : every_float();
    case Inputs::boundaries: return boundaries();
    case Inputs::amaxes: return quick ? bf16_amaxes() : every_amax();
    case Inputs::structured_amaxes: return structured_amaxes();
    case Inputs::amax_rows: return amax_rows(p.x.shape.cols);
  }
  return {};
}

// Who must agree. Element arithmetic runs on its own over everything; the kernels around it, twice, over what tells them apart.
const std::vector<CertifySide>& element_sides() {
  static const std::vector<CertifySide> sides = {{"lanes", {}}, {"lanes_twin", {}}, {"headers", {}}};
  return sides;
}
const std::vector<CertifySide>& kernel_sides() {
  static const std::vector<CertifySide> sides = {{"host", {}}, {"host", {.threads = 1, .order = 17, .poison = 0xA5, .alignment = 4}}};
  return sides;
}
const std::vector<CertifySide>& policy_sides() {
  static const std::vector<CertifySide> sides = {{"host", {}}, {"host_general", {}}};
  return sides;
}
const std::vector<CertifySide>& amax_sides() {
  static const std::vector<CertifySide> sides = {{"host", {}}};
  return sides;
}

struct Row {
  const char *prefix, *lines, *clauses;   // `lines` is a sweep; its shape is one element or one row
  Inputs inputs;
  const std::vector<CertifySide>& (*sides)();
};

constexpr const char *kFp8 = "N2.1 N2.2 N2.3 N2.4 N2.5 N2.6", *kSmall = "N2.1 N2.2 N2.4 N2.5 N2.6", *kWide = "N2.1 N2.3 N2.4 N2.5 N2.6";

constexpr Row kRows[] = {
    // Every code that decodes, and every 16-bit source.
    {"", "cast {f32,bf16,f16} 1x1 {e4m3,e5m2,e2m3,e3m2,e2m1,e8m0} round={rne,rz}", "N2.8", Inputs::codes, element_sides},
    {"", "cast f32 1x1 {bf16,f16} round={rne,rz}", "N1.2 N2.8", Inputs::codes, element_sides},
    {"", "cast bf16 1x1 f16 round={rne,rz}", kWide, Inputs::codes, element_sides},
    {"", "cast f16 1x1 bf16 round={rne,rz}", kWide, Inputs::codes, element_sides},
    {"", "cast {e4m3,e5m2} 1x1 {bf16,f16} round={rne,rz} overflow={sat,nosat}", kFp8, Inputs::codes, element_sides},
    {"", "cast {e2m3,e3m2,e2m1} 1x1 {bf16,f16} round={rne,rz}", kSmall, Inputs::codes, element_sides},
    {"", "cast e8m0 1x1 {bf16,f16} round={rp,rz} overflow={sat,nosat}", "N2.7", Inputs::codes, element_sides},
    {"kernels: ", "cast {f32,bf16,f16} 1x1 {e4m3,e5m2,e2m3,e3m2,e2m1,e8m0}", "N2.8", Inputs::codes, kernel_sides},
    {"kernels: ", "cast {e4m3,e5m2} 1x1 {bf16,f16} round={rne,rz} overflow={sat,nosat}", kFp8, Inputs::codes, kernel_sides},
    {"kernels: ", "cast {e2m3,e3m2,e2m1} 1x1 {bf16,f16} round={rne,rz}", kSmall, Inputs::codes, kernel_sides},
    {"kernels: ", "cast e8m0 1x1 {bf16,f16} round={rp,rz} overflow={sat,nosat}", "N2.7", Inputs::codes, kernel_sides},
    // Every float.
    {"", "cast {e4m3,e5m2} 1x1 f32 round={rne,rz} overflow={sat,nosat}", kFp8, Inputs::floats, element_sides},
    {"", "cast {e2m3,e3m2,e2m1} 1x1 f32 round={rne,rz}", kSmall, Inputs::floats, element_sides},
    {"", "cast e8m0 1x1 f32 round={rp,rz} overflow={sat,nosat}", "N2.7", Inputs::floats, element_sides},
    {"", "cast {bf16,f16} 1x1 f32 round={rne,rz}", kWide, Inputs::floats, element_sides},
    {"kernels: ", "cast {e4m3,e5m2} 1x1 f32 round={rne,rz} overflow={sat,nosat}", kFp8, Inputs::boundaries, kernel_sides},
    {"kernels: ", "cast {e2m3,e3m2,e2m1} 1x1 f32 round={rne,rz}", kSmall, Inputs::boundaries, kernel_sides},
    {"kernels: ", "cast e8m0 1x1 f32 round={rp,rz} overflow={sat,nosat}", "N2.7", Inputs::boundaries, kernel_sides},
    {"kernels: ", "cast {bf16,f16} 1x1 f32 round={rne,rz}", kWide, Inputs::boundaries, kernel_sides},
    // What tuned kernels convert with, and the general one: elements that a scale of 1 leaves as they are, blocks of one amax.
    {"kernels: ", "quantize fp8_delayed 1x1 f32 dir=row element={e4m3,e5m2}", "N3.1 N3.8", Inputs::boundaries, policy_sides},
    {"kernels: ", "quantize mxfp8 1x8 f32 dir=row element={e4m3,e5m2}", "N5.1 N5.2 N5.3 N5.4 N5.5", Inputs::amax_rows, policy_sides},
    // Scales.
    {"", "scale_chain mxfp8 1x1 e8m0", "N5.4 N5.9", Inputs::codes, kernel_sides},
    {"", "scale_chain mxfp8 1x1 f32 element={e4m3,e5m2}", "N5.2 N5.3 N5.4 N5.9", Inputs::amaxes, amax_sides},
    {"", "scale_chain fp8_current 1x1 f32 element={e4m3,e5m2} pow2={0,1} inf_amax={unit,zero}", "N3.2 N3.3 N3.4 N3.5 N3.6 N3.7", Inputs::structured_amaxes, amax_sides},
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
      if (!p) throw std::logic_error(fmt::format("a row of the certificate is no line: {}: {}", line, p.error().text()));
      CertifyPart part;
      part.name = row.prefix + name_of_line(*p);
      part.clauses = row.clauses;
      part.problem = *p;
      part.by_rows = row.inputs == Inputs::amax_rows;
      part.domain = domain_of(row.inputs, *p, quick);
      part.sides = row.sides();
      out.push_back(std::move(part));
    }
  }
  return out;
}

}  // namespace assay
