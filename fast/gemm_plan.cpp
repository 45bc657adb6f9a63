#include "fast/gemm_plan.h"

#include <algorithm>
#include <bit>

#include "contract/dispatch.h"
#include "contract/planes.h"

namespace assay {
namespace {

// Stages of 32, 64 and 128 elements of k, as many as fit.
constexpr int kStages32 = 34, kStages64 = 35, kStages128 = 36;

Error no(std::string why) { return {std::move(why), 0, ""}; }
std::string shape_text(int64_t m, int64_t n, int64_t k) {
  return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
}

// Times a power of two, any order of roundings gives the same.
bool power_of_two(F32Bits bits) {
  return (bits & 0x007FFFFF) == 0 && (bits & 0x7F800000) != 0 && (bits & 0x7F800000) != 0x7F800000;
}

LtScale scale_of(const Quantizer& q) {
  if (info(q.format).per_tensor_fp8()) return q.row_scaled ? LtScale::outer_vector : LtScale::tensor;
  if (q.format == FormatId::fp8_block)
    return is_square(q.block) ? LtScale::block_128x128 : LtScale::vector_128;
  return LtScale::none;
}

LtOperand operand_of(const Gemm& g, Side side) {
  const Quantizer& q = g.operand(side).quantizer;
  const bool col = g.direction(side) == Direction::col;
  if (through_bf16(q)) return {Encoding::bf16, LtScale::none, true, col};  // N16.12: shaped as the tensor
  return {q.element, scale_of(q), false, col && info(q.format).column_data == ColumnData::as_is};
}

// Which C and D cuBLASLt takes with these operands.
std::optional<Error> refused_types(const LtPlan& p) {
  const bool fp8 = p.a.scale != LtScale::none, rows = p.a.scale == LtScale::outer_vector,
             blocks = fp8 && !rows && p.a.scale != LtScale::tensor;
  const std::string out(info(p.out).name);
  if (fp8 && p.a.encoding == Encoding::e5m2 && p.b.encoding == Encoding::e5m2)
    return no("cuBLASLt multiplies no two operands of e5m2");
  if (rows != (p.b.scale == LtScale::outer_vector))
    return no(
        "cuBLASLt takes a scale for each row in both operands or in neither: row_scaled=1, or a.row_scaled=0 "
        "b.row_scaled=0");
  const bool narrow = info(p.out).bits == 8;
  if (narrow && rows)
    return no("cuBLASLt writes no " + out + " from a scale for each row: out=bf16, f16 or f32");
  if (narrow && blocks)
    return no("cuBLASLt writes no " + out + " from blockwise scales: out=bf16, f16 or f32");
  if (narrow && !fp8) return no("cuBLASLt writes " + out + " from FP8 operands only: out=bf16, f16 or f32");
  if (p.out == Encoding::e5m2 && p.a.encoding == p.b.encoding)
    return no("cuBLASLt writes e5m2 where one operand is e5m2 only: out=e4m3");
  if (p.tf32 && p.out != Encoding::f32)
    return no("cuBLASLt multiplies in TF32 into f32 only, found out=" + out);
  if (!fp8 && !p.tf32 && p.out != Encoding::f32 && p.out != p.a.encoding)
    return no("cuBLASLt writes " + std::string(info(p.a.encoding).name) + " or f32 here, found out=" + out);
  return {};
}

// Rows of 16 bytes, and what the blockwise scales ask for.
std::optional<Error> refused_sizes(const LtPlan& p) {
  const std::string shape = shape_text(p.m, p.n, p.k);
  if (p.m > 0 && p.n > 0 && p.k == 0) return no("cuBLASLt takes no K of 0");
  const int64_t of_k = 16 / info(p.a.encoding).bytes(), of_m = 16 / info(p.out).bytes();
  if (p.k % of_k != 0)
    return no("cuBLASLt needs rows of 16 bytes: K a multiple of " + std::to_string(of_k) + ", found " +
              shape);
  if (p.m % of_m != 0)
    return no("cuBLASLt needs rows of 16 bytes: M a multiple of " + std::to_string(of_m) + ", found " +
              shape);
  if (p.a.scale != LtScale::vector_128 && p.a.scale != LtScale::block_128x128) return {};
  const int64_t of_n = p.b.scale == LtScale::vector_128 ? 8 : 4;  // 1x128 scales of b are rows of n
  if (p.m % 8 != 0 || p.n % of_n != 0)
    return no("cuBLASLt needs M a multiple of 8 and N of " + std::to_string(of_n) +
              " under blockwise scales, found " + shape);
  return {};
}

// N16.8 rounds after each step. Whether cuBLASLt does is known where no more than one step could be fused
// with another (N16.13).
std::string unknown_order(const Gemm& g, const LtPlan& p) {
  const bool scaled = p.a.scale != LtScale::none, adds = g.reads_c() || p.bias;
  if (p.a.scale == LtScale::outer_vector)
    return "in which order cuBLASLt multiplies the sum and the scales of a row and of a column is not known";
  if (g.reads_c() && p.bias) return "whether cuBLASLt adds c or the bias first is not known";
  if (adds && (scaled || g.multiplies()))
    return "whether cuBLASLt rounds between the product and the sum with c or a bias is not known";
  if (g.reads_c() && !power_of_two(g.beta))
    return "whether cuBLASLt rounds beta * c is not known where beta is no power of two";
  if (scaled && !power_of_two(g.alpha))
    return "in which order cuBLASLt multiplies alpha and the scales is not known where alpha is no power of "
           "two";
  return "";
}

}  // namespace

Support kernel_sums(const Problem& p) {
  const Gemm* g = p.as<Gemm>();
  if (!g || g->sum == GemmSum::f32_sequential) return {};
  if (g->sum == GemmSum::exact)
    return {false, "the kernels sum in binary32: the exact sum is the reference's"};
  return {false,
          "the kernels sum in sequence: the tensor cores' sums are the reference's and cuBLASLt's (--subject "
          "cublaslt)"};
}

Result<LtPlan> lt_plan(const Problem& problem) {
  const Gemm* g = problem.as<Gemm>();
  if (!g) return no("cuBLASLt only multiplies: gemm, found " + std::string(op_name(problem)));
  LtPlan p;
  p.m = problem.x.shape.cols, p.n = problem.x.shape.rows, p.k = g->k;
  p.a = operand_of(*g, Side::a), p.b = operand_of(*g, Side::b);
  p.out = problem.x.source;
  p.alpha = std::bit_cast<float>(g->alpha), p.beta = g->reads_c() ? std::bit_cast<float>(g->beta) : 0.0f;
  p.bias = g->bias.has_value();
  switch (g->sum) {
    case GemmSum::f32_sequential:
    case GemmSum::exact:
      return no(
          "cuBLASLt sums on tensor cores: sum=hopper_fp8_split, hopper_fp8_fast, hopper_f16 or hopper_tf32");
    case GemmSum::hopper_fp8_split:
    case GemmSum::hopper_fp8_fast: p.stages = {kStages128}; break;
    case GemmSum::hopper_f16: p.stages = {kStages64, kStages128}; break;
    case GemmSum::hopper_tf32: p.stages = {kStages32, kStages64}; break;
  }
  p.tf32 = g->sum == GemmSum::hopper_tf32;
  p.fast_accumulation = g->sum == GemmSum::hopper_fp8_fast;
  if (auto error = refused_types(p)) return *error;
  if (p.bias && *g->bias != p.out)
    return no("cuBLASLt's bias has the encoding of d, " + std::string(info(p.out).name) + ", found " +
              std::string(info(*g->bias).name));
  for (Side side : {Side::a, Side::b})
    if (leaves_amax_out(g->operand(side)))
      return no("cuBLASLt multiplies no row by an amax of its own: nvfp4 of row_scaled=1 is the reference's");
  if (auto error = refused_sizes(p)) return *error;
  p.unpinned = unknown_order(*g, p);
  return p;
}

std::string to_text(const LtConfig& c) {
  const struct {
    const char* name;
    int value;
  } parts[] = {{"algo", c.algorithm},      {"tile", c.tile},         {"splitk", c.split_k},
               {"reduction", c.reduction}, {"swizzle", c.swizzling}, {"custom", c.custom},
               {"stages", c.stages},       {"inner", c.inner_shape}, {"cluster", c.cluster_shape}};
  std::string out;
  for (const auto& part : parts)
    out += (out.empty() ? "" : " ") + std::string(part.name) + " " + std::to_string(part.value);
  return out;
}

std::optional<size_t> lt_choice(const LtPlan& plan, const std::vector<LtConfig>& offered) {
  for (size_t i = 0; i < offered.size(); ++i) {
    const LtConfig& c = offered[i];
    const bool known = std::find(plan.stages.begin(), plan.stages.end(), c.stages) != plan.stages.end();
    if (c.algorithm == kLtAlgorithm && c.split_k <= 1 && c.reduction == 0 && known) return i;
  }
  return {};
}

}  // namespace assay
