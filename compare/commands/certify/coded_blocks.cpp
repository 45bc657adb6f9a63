// Blocks of codes under every scale, for a dequantize (N5.9, N10.15).
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/expected_values.h"
#include "compare/commands/certify/domains.h"

namespace assay {

namespace {

struct CodedBlocks {
  Quantizer q;
  int64_t length = 0;  // of a block, which is a row
  int64_t codes = 0, scales = 0;
  int64_t amaxes = 1;  // of the tensor

  int64_t rows_of_scale() const { return std::max<int64_t>(1, codes / length); }
  int64_t rows_of_amax() const { return scales * rows_of_scale(); }
  uint32_t scale(int64_t row) const { return static_cast<uint32_t>(row % rows_of_amax() / rows_of_scale()); }
  uint32_t code(int64_t row, int64_t j) const {
    return static_cast<uint32_t>((row % rows_of_scale() * length + j) % codes);
  }
  // Patterns of bf16 from 0 to the last NaN, then the same with lower halves: the product of a scale and an
  // amax of bf16 is exact.
  uint32_t amax(int64_t row) const {
    constexpr int64_t kInfinity = 0x7F80, kLastNan = 0x7FFF;
    const int64_t i = row / rows_of_amax(), half = amaxes / 2, place = i % half;
    const int64_t upper = place == half - 2 && half < kLastNan ? kInfinity : place * kLastNan / (half - 1);
    const int64_t lower = i < half ? 0 : (i * 40503 & 0xFFFF) | 1;
    return static_cast<uint32_t>(upper << 16 | lower);
  }

  // A piece has one tensor amax.
  void fill(int64_t first, int64_t n, std::vector<PlaneData>& inputs) const {
    for (PlaneData& p : inputs) {
      if (p.plane.name == "row.amax") set_code(p.plane, p.bytes, 0, amax(first));
      for (int64_t i = 0; i < n; ++i) {
        if (p.plane.name == "row.scale_inv")
          set_code(p.plane, p.bytes, scale_index(q, p.plane, i, 0), scale(first + i));
        if (p.plane.name == "row.data")
          for (int64_t j = 0; j < length; ++j) set_code(p.plane, p.bytes, i * length + j, code(first + i, j));
      }
    }
  }
};

int64_t codes_of(Encoding e) { return int64_t{1} << info(e).bits; }
CodedBlocks blocks_of(const Problem& p) {
  return {*p.row, p.x.shape.cols, codes_of(p.row->element), codes_of(*info(p.row->format).scale)};
}

}  // namespace

int64_t rows_of_all_codes(const Problem& p) { return blocks_of(p).rows_of_amax(); }

Domain coded_blocks(const Problem& p, CertifyExtent extent) {
  const Quantizer& q = *p.row;
  CodedBlocks blocks = blocks_of(p);
  std::string words = fmt::format("every code of {} under every code of {}", info(q.element).name,
                                  info(*info(q.format).scale).name);
  if (q.format == FormatId::nvfp4) {
    blocks.amaxes = extent == CertifyExtent::full     ? 1 << 16
                    : extent == CertifyExtent::floats ? 1 << 12
                                                      : 1 << 8;
    words += fmt::format(
        " and {} amaxes of the tensor: patterns of bf16 from 0 to a NaN, an infinity among them, and as many "
        "with lower halves",
        blocks.amaxes);
  }
  return {
      std::move(words), blocks.amaxes * blocks.rows_of_amax(),
      [blocks](int64_t first, int64_t n, std::vector<PlaneData>& inputs) { blocks.fill(first, n, inputs); }};
}

}  // namespace assay
