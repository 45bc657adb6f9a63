// fp8_block: FP8 elements, one F32 scale for every 128 along the contracted dimension, or for every tile of
// 128x128. Columns are stored transposed, so that both directions read alike.
#include <algorithm>
#include <optional>

#include "reference/blocks.h"
#include "reference/formats/format.h"
#include "reference/mx.h"
#include "reference/scaling.h"
#include "reference/swizzle.h"

namespace assay::reference {

namespace {

constexpr int64_t kBlock = length_of(Block::b1x128);
constexpr int64_t kCopies = kBlock / length_of(Block::b1x32);  // N9.6: of each scale along a row

// Per block (r / height, c / 128) the value that a reader multiplies by.
Values compact_from(const ConstBuffer& plane, Block block, int threads) {
  const Values stored = values(plane, threads);
  return is_square(block) ? stored : transposed(stored, threads);  // N9.4: 1x128 scales are block-major
}
void store_compact(const Buffer& plane, const Values& scale_inv, Block block, int threads) {
  store(plane, is_square(block) ? scale_inv : transposed(scale_inv, threads));  // N9.4
}

// N9.6: the exponent field, with the sign and the mantissa dropped; 0 below the normal values, 255 for
// infinity and NaN.
uint8_t exponent_code(double scale_inv) {
  const double magnitude = std::abs(scale_inv);
  if (!(magnitude < kInfinity)) return 255;
  if (magnitude < power_of_two(-126)) return 0;
  int exponent;
  std::frexp(magnitude, &exponent);  // in [2^(exponent-1), 2^exponent)
  return static_cast<uint8_t>(exponent - 1 + 127);
}

// N9.6: for each stored row its blocks' codes, four times each; and the value of the first copy.
void store_gemm(const Buffer& plane, const Values& scale_inv, Block block) {
  Bytes codes(plane.plane->logical.rows, plane.plane->logical.cols);
  for (int64_t r = 0; r < codes.rows(); ++r)
    for (int64_t c = 0; c < codes.cols(); ++c)
      codes(r, c) = exponent_code(scale_inv(r / height_of(block), c / kCopies));
  store_scales(plane, codes);
}
Bytes codes_from_gemm(const ConstBuffer& plane) {
  return from_gemm(bytes(plane), plane.plane->tiles_by_columns());
}
Values scale_inv_from_gemm(const ConstBuffer& plane, Block block) {
  const Bytes codes = codes_from_gemm(plane);
  Values scale_inv(ceil_div(plane.plane->logical.rows, height_of(block)),
                   plane.plane->logical.cols / kCopies);
  for (int64_t r = 0; r < scale_inv.rows(); ++r)
    for (int64_t c = 0; c < scale_inv.cols(); ++c)
      scale_inv(r, c) = static_cast<float>(decoded_scale(codes(r * height_of(block), c * kCopies)));  // exact
  return scale_inv;
}

Chain chain_of_block(const Values& x, const Span& s, const GivenBlocks& given, const Run& run, Direction d) {
  const Quantizer& q = run.quantizer(d);
  if (const std::optional<uint32_t> scale = given.scale(s))
    return chain_from(value_of(Encoding::f32, *scale), q, run.problem.x.source);  // N17.12
  return chain_of(given.amax(x, s, NanAmax::ignore), q, run.problem.x.source);    // N9.1, N9.2
}

// N17.12: given scales are moved, NaN payloads and all (N1.3).
void move_given(const ConstBuffer& given, const Buffer& plane) {
  std::fill(plane.bytes.begin(), plane.bytes.end(), std::byte{0});  // N6.4
  const Shape shape = given.plane->logical;
  for (int64_t i = 0; i < shape.count(); ++i)
    store(plane, i / shape.cols * plane.plane->padded.cols + i % shape.cols, load(given, i));
}

void quantize(const Run& run, Direction d) {
  const Quantizer& q = run.quantizer(d);
  const Values x = seen(run, d);  // N9.3: columns from x, not from the rows
  const ElementCast cast(q);
  const GivenBlocks given(run, d);
  const int64_t height = height_of(q.block);
  Values scale_inv(ceil_div(x.rows(), height), ceil_div(x.cols(), kBlock));
  Bytes codes(x.rows(), x.cols());
  for_blocks(x, q.block, run.threads, [&](const Span& s) {
    const Chain chain = chain_of_block(x, s, given, run, d);
    scale_inv(s.r / height, s.c / kBlock) = static_cast<float>(chain.scale_inv);  // exact
    for (int64_t r = s.r; r < s.r_end; ++r)
      cast.codes(&x(r, s.c), s.c_end - s.c, chain.factor, &codes(r, s.c));  // N9.3
  });
  store(run.output(d, "data"), codes);  // N6.1
  const Buffer& plane = run.output(d, scale_stem(q.scales));
  if (q.scales == ScaleLayout::gemm) store_gemm(plane, scale_inv, q.block);
  else if (q.scale_from == ScaleFrom::scale) move_given(given.plane(), plane);
  else store_compact(plane, scale_inv, q.block, run.threads);
}

// The factor of the stored element (i, j): of its block (N9.4), or as MXFP8 has it (N9.6).
class DecodeScales {
 public:
  DecodeScales(const Run& run, Direction d) : height_(height_of(run.quantizer(d).block)) {
    const ConstBuffer& plane = run.input(d, scale_stem(run.quantizer(d).scales));
    if (plane.plane->layout == ScaleLayout::gemm) codes_ = codes_from_gemm(plane);
    else scale_inv_ = compact_from(plane, run.quantizer(d).block, run.threads);
  }
  // In GEMM layout alone.
  std::optional<uint32_t> code(int64_t i, int64_t j) const {
    if (codes_.size() == 0) return std::nullopt;
    return codes_(i, j / length_of(Block::b1x32));
  }
  double operator()(int64_t i, int64_t j) const {
    const std::optional<uint32_t> k = code(i, j);
    return k ? decoded_scale(*k) : scale_inv_(i / height_, j / kBlock);
  }

 private:
  int64_t height_;
  Bytes codes_;
  Values scale_inv_;
};

void dequantize(const Run& run, Direction d) {
  const DecodeScales scale_of(run, d);
  dequantize_each(run, d, [&](int64_t i, int64_t j) { return scale_of(i, j); });  // N9.5
}

// N9.6: more than a move, because the scales change their encoding.
void swizzle(const Run& run, Direction d) {
  const Block block = run.quantizer(d).block;
  if (run.problem.as<Swizzle>()->inverse)
    store_compact(run.output(d, "scale_inv"), scale_inv_from_gemm(run.input(d, "scale_gemm"), block), block,
                  run.threads);
  else
    store_gemm(run.output(d, "scale_gemm"), compact_from(run.input(d, "scale_inv"), block, run.threads),
               block);
}

std::vector<TraceStep> trace_quantize(const Run& run, Direction d, const Values& x, const GivenBlocks& given,
                                      int64_t r, int64_t c) {
  const Quantizer& q = run.quantizer(d);
  const Span s = block_at(x, r, c, q.block);
  const Chain chain = chain_of_block(x, s, given, run, d);
  std::vector<TraceStep> steps;
  if (given.scale(s))
    steps = {value_step("N17.12", "decode scale (given)", chain.scale_inv),
             value_step("N17.5", "scale", chain.scale)};
  else
    steps = trace_chain(given.amax(x, s, NanAmax::ignore), q, run.problem.x.source,
                        q.scale_from == ScaleFrom::amax ? " of the block (given)"
                        : is_square(q.block)            ? " of the 128x128 block"
                                                        : " of the block");
  for (TraceStep& step : trace_element(x(r, c), chain.factor, q, "N9.3")) steps.push_back(std::move(step));
  return steps;
}

Tracer trace(const Run& run, Direction d) {
  if (run.problem.as<Dequantize>())
    return [=, scale_of = DecodeScales(run, d)](int64_t row, int64_t col) {
      const auto [i, j] = stored_at(*run.input(d, "data").plane, row, col);
      std::vector<TraceStep> steps;
      if (const auto k = scale_of.code(i, j)) steps.push_back(code_step("N9.6", "scale", Encoding::e8m0, *k));
      return trace_dequantize(run, d, row, col, std::move(steps), scale_of(i, j), "N9.5");
    };
  if (run.problem.as<ScaleChain>()) return trace_divided_scale_chain(run);
  return [=, x = seen(run, d), given = GivenBlocks(run, d)](int64_t row, int64_t col) {
    const auto [r, c] = seen_at(d, row, col);
    return trace_quantize(run, d, x, given, r, c);
  };
}

}  // namespace

const Format formats::fp8_block = {.quantize = quantize,
                                   .dequantize = dequantize,
                                   .scale_chain = divided_scale_chain,
                                   .swizzle = swizzle,
                                   .trace = trace};

}  // namespace assay::reference
