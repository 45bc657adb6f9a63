// The parts of the certificate as data: rows of lines with the inputs that exhaust them.
#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "compare/commands/certify/domains.h"
#include "compare/commands/certify/part.h"
#include "contract/line.h"

namespace assay {

namespace {

enum class Inputs : uint8_t {
  codes,
  floats,
  boundaries,
  amaxes,
  structured_amaxes,
  amax_rows,
  blocks,
  scaled_elements,
  coded_blocks,
  amax_pairs,
  stochastic,
  drawn_floats
};

// Rows of blocks, or columns of them.
Domain blocks(const Problem& p) {
  const FormatId format = (p.row ? p.row : p.col)->format;
  const int64_t length = format == FormatId::fp8_block ? 128
                         : format == FormatId::nvfp4   ? 16
                                                       : 32,
                line = p.row ? p.x.shape.cols : p.x.shape.rows;
  const Domain rows = blocks_of_binades(p.x.source, length, line / length);
  return p.row ? rows : down_columns(rows, line);
}

Domain domain_of(Inputs inputs, const Problem& p, CertifyExtent extent) {
  const bool quick = extent == CertifyExtent::quick, full = extent == CertifyExtent::full;
  switch (inputs) {
    case Inputs::codes: return every_code(p.x.source);
    case Inputs::floats: return quick ? boundaries() : every_float();
    case Inputs::boundaries: return boundaries();
    case Inputs::amaxes: return quick ? bf16_amaxes() : every_amax();
    case Inputs::structured_amaxes: return full ? amaxes_without_sign() : structured_amaxes();
    case Inputs::amax_pairs: return amax_pairs(p.row->e4m3_max, extent);
    case Inputs::stochastic: return stochastic_pairs(extent);
    case Inputs::drawn_floats: return drawn_floats(extent);
    case Inputs::amax_rows: return amax_rows(p.x.shape.cols);
    case Inputs::blocks: return blocks(p);
    case Inputs::scaled_elements: return scaled_elements(p);
    case Inputs::coded_blocks: return coded_blocks(p, extent);
  }
  return {};
}

// Whether the part counts rows, and not elements or columns.
bool has_rows(Inputs inputs, const Problem& p) {
  return inputs == Inputs::amax_rows || inputs == Inputs::amax_pairs || inputs == Inputs::scaled_elements ||
         inputs == Inputs::coded_blocks || (inputs == Inputs::blocks && p.row);
}

// Who must agree. Element arithmetic runs on its own over everything; the kernels around it, twice, over what
// tells them apart. The full certificate asks everybody.
using Sides = std::vector<CertifySide>;
Sides with(Sides sides, std::initializer_list<const char*> others) {
  for (const char* subject : others) sides.push_back({subject, {}});
  return sides;
}
Sides element_sides(bool full) {
  const Sides sides = with({}, {"lanes", "lanes_twin", "headers"});
  return full ? with(sides, {"mpfr", "simd", "host"}) : sides;
}
Sides with_ptx(Sides sides) {
  for (const Architecture a : kArchitectures) sides.push_back({"ptx", {.architecture = a}});
  return sides;
}
Sides kernel_sides(bool full) {
  const Sides sides = {{"host", {}}, {"host", {.threads = 1, .order = 17, .poison = 0xA5, .alignment = 4}}};
  return full ? with_ptx(sides) : sides;
}
Sides policy_sides(bool full) {
  const Sides sides = with({}, {"host", "host_general"});
  return full ? with(sides, {"simd"}) : sides;
}
Sides block_sides(bool full) {
  return full ? with(policy_sides(full), {"simd_accepts"}) : policy_sides(full);
}
Sides stochastic_sides(bool full) {
  const Sides sides = with(kernel_sides(false), {"host_general"});
  return full ? with(sides, {"lanes", "lanes_twin"}) : sides;
}
Sides decode_sides(bool full) {
  const Sides sides = with(kernel_sides(false), {"host_general"});
  return full ? with_ptx(sides) : sides;
}
Sides amax_sides(bool full) { return full ? with({}, {"host", "simd"}) : with({}, {"host"}); }
Sides vector_sides(bool) { return with({}, {"simd"}); }

struct Row {
  const char *prefix, *lines, *clauses;  // `lines` is a sweep; its shape is one element or one row
  Inputs inputs;
  Sides (*sides)(bool full);
  CertifyExtent least = CertifyExtent::quick;  // the least certificate that has it
};

constexpr const char *kFp8 = "N2.1 N2.2 N2.3 N2.4 N2.5 N2.6", *kSmall = "N2.1 N2.2 N2.4 N2.5 N2.6",
                     *kWide = "N2.1 N2.3 N2.4 N2.5 N2.6", *kMxfp8 = "N5.1 N5.2 N5.3 N5.4 N5.5",
                     *kMxfp4 = "N15.1 N15.2 N15.3", *kNvfp4 = "N10.2 N10.4 N10.5 N10.6 N10.7 N10.8 N10.9";
constexpr CertifyExtent kFull = CertifyExtent::full;

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
    {"kernels: ", "quantize mxfp8 1x8 f32 dir=row element={e4m3,e5m2}", kMxfp8, Inputs::amax_rows,
     policy_sides},
    {"kernels: ", "quantize mxfp6 1x8 f32 dir=row element={e2m3,e3m2} packing={bytes,packed}",
     "N6.8 N18.1 N18.2 N18.3", Inputs::amax_rows, policy_sides},
    {"kernels: ", "quantize mxfp4 1x8 f32 dir=row", kMxfp4, Inputs::amax_rows, policy_sides},
    {"kernels: ", "quantize mxfp8 1x32 bf16 dir=row element={e4m3,e5m2}", kMxfp8, Inputs::blocks,
     policy_sides},
    {"kernels: ", "quantize mxfp4 1x32 bf16 dir=row", kMxfp4, Inputs::blocks, policy_sides},
    // Kernels that take neighbouring blocks together, along rows and down columns: 51 blocks of bf16 and f32
    // (17 of 128 elements), and 31 of f16, are whole groups and a rest. One amax of a tensor gives a scale of
    // 1, the other a scale that rounds.
    {"long rows: ", "quantize mxfp8 {1x1632 bf16,1x1632 f32,1x992 f16} dir=row element={e4m3,e5m2}", kMxfp8,
     Inputs::blocks, block_sides},
    {"long rows: ", "quantize mxfp4 {1x1632 bf16,1x1632 f32,1x992 f16} dir=row", kMxfp4, Inputs::blocks,
     block_sides},
    {"long rows: ",
     "quantize fp8_block {1x2176 bf16,1x2176 f32,1x3968 f16} dir=row element={e4m3,e5m2} pow2={0,1}",
     "N3.3 N3.4 N3.5 N3.6 N3.7 N3.8 N9.1", Inputs::blocks, block_sides},
    {"long rows: ", "quantize nvfp4 {1x816 bf16,1x816 f32,1x496 f16} dir=row amax={2688,0x40490FDB}", kNvfp4,
     Inputs::blocks, block_sides},
    {"long rows: ",
     "quantize fp8_current {1x1632 bf16,1x1632 f32,1x992 f16} dir=row element={e4m3,e5m2} pow2={0,1} "
     "amax=0x40490FDB",
     "N3.3 N3.4 N3.5 N3.6 N3.7 N3.8", Inputs::blocks, block_sides},
    {"long columns: ", "quantize mxfp8 {1632x1 bf16,1632x1 f32,992x1 f16} dir=col element={e4m3,e5m2}",
     kMxfp8, Inputs::blocks, block_sides},
    {"long columns: ", "quantize mxfp4 {1632x1 bf16,1632x1 f32,992x1 f16} dir=col", kMxfp4, Inputs::blocks,
     block_sides},
    {"long columns: ",
     "quantize fp8_block {2176x1 bf16,2176x1 f32,3968x1 f16} dir=col element={e4m3,e5m2} pow2={0,1}",
     "N3.3 N3.4 N3.5 N3.6 N3.7 N3.8 N9.1", Inputs::blocks, block_sides},
    {"long columns: ", "quantize nvfp4 {816x1 bf16,816x1 f32,496x1 f16} dir=col amax={2688,0x40490FDB}",
     kNvfp4, Inputs::blocks, block_sides},
    {"long columns: ",
     "quantize fp8_current {1632x1 bf16,1632x1 f32,992x1 f16} dir=col element={e4m3,e5m2} pow2={0,1} "
     "amax=0x40490FDB",
     "N3.3 N3.4 N3.5 N3.6 N3.7 N3.8", Inputs::blocks, block_sides},
    // Dequantize.
    {"", "dequantize mxfp8 1x32 f32 dir=row element={e4m3,e5m2} out={f32,bf16,f16}", "N5.9",
     Inputs::coded_blocks, decode_sides},
    {"", "dequantize mxfp6 1x32 f32 dir=row element={e2m3,e3m2} out={f32,bf16,f16}", "N5.9",
     Inputs::coded_blocks, decode_sides},
    {"", "dequantize mxfp4 1x32 f32 dir=row out={f32,bf16,f16}", "N5.9", Inputs::coded_blocks, decode_sides},
    {"", "dequantize nvfp4 1x16 f32 dir=row out={f32,bf16,f16}", "N10.14 N10.15", Inputs::coded_blocks,
     decode_sides},
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
    {"", "cast e2m1 1x1 f32 round=sr sr_rule={integer,fma}", "N12.3", Inputs::stochastic, stochastic_sides},
    {"elements: ", "cast e2m1 1x1 f32 round=sr sr_rule={integer,fma}", "N12.3", Inputs::drawn_floats,
     element_sides},
    // An element and its scale.
    {"under scales: ",
     "quantize fp8_current 1x128 {bf16,f16,f32} dir=row row_scaled=1 element={e4m3,e5m2} pow2={0,1}",
     "N3.3 N3.4 N3.5 N3.6 N3.7 N3.8 N3.12", Inputs::scaled_elements, policy_sides, kFull},
    {"under scales: ", "quantize fp8_block 1x128 {bf16,f16,f32} dir=row element={e4m3,e5m2} pow2={0,1}",
     "N3.3 N3.4 N3.5 N3.6 N3.7 N3.8", Inputs::scaled_elements, policy_sides, kFull},
    {"under scales: ", "quantize mxfp8 1x32 {bf16,f16,f32} dir=row element={e4m3,e5m2}", kMxfp8,
     Inputs::scaled_elements, policy_sides, kFull},
    {"under scales: ", "quantize mxfp6 1x32 {bf16,f16,f32} dir=row element={e2m3,e3m2}", "N18.1 N18.2 N18.3",
     Inputs::scaled_elements, policy_sides, kFull},
    {"under scales: ", "quantize mxfp4 1x32 {bf16,f16,f32} dir=row", kMxfp4, Inputs::scaled_elements,
     policy_sides, kFull},
    // Tensor amaxes: 6 and 2688, whose scales are 448 and 1; 1, 4/3 and pi, whose quotients round; one that
    // is too small for its scale, the greatest that bf16 has, and the least.
    {"under scales: ",
     "quantize nvfp4 1x16 {bf16,f16,f32} dir=row "
     "amax={6,2688,1,0x3FAAAAAB,0x40490FDB,1e-36,0x7F7F0000,0x00000001}",
     kNvfp4, Inputs::scaled_elements, policy_sides, kFull},
    {"elements: ", "quantize fp8_delayed 1x1 f32 dir=row element={e4m3,e5m2}", "N3.1 N3.8", Inputs::floats,
     vector_sides, kFull},
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

std::vector<CertifyPart> certify_parts(CertifyExtent extent) {
  const bool full = extent == CertifyExtent::full;
  std::vector<CertifyPart> out;
  for (const Row& row : kRows) {
    if (row.least > extent) continue;
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
      part.by_rows = has_rows(row.inputs, *p);
      part.domain = domain_of(row.inputs, *p, extent);
      part.sides = row.sides(full);
      part.sha256 = full;
      if (row.inputs == Inputs::scaled_elements) part.piece = kCertifyPiece / p->x.shape.cols;
      if (row.inputs == Inputs::coded_blocks) part.piece = rows_of_all_codes(*p);
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
