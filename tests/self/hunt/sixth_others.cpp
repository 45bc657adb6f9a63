// Bugs of gemms, of a swizzle and of a dequantize.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "tests/self/hunt/sixth_bugs.h"

namespace assay::sixth {

namespace {

using reference::bytes;
using reference::Bytes;

// ---- gemm ---------------------------------------------------------------------------------------

bool operands_are(const Problem& p, FormatId format) {
  const Gemm& op = *p.as<Gemm>();
  return op.a.quantizer.format == format && op.b.quantizer.format == format;
}

bool takes_block_gemm(const Problem& p) { return operands_are(p, FormatId::fp8_block); }

// meta-pytorch/MSLK#503: scales are applied when the loop over steps of 32 along K enters another block of
// 128, or at a step that is cut short. If K is a multiple of 32, the partial block at its end meets neither
// and keeps the scale 1.
void gemm_last_block_unscaled(const Call& call) {
  constexpr uint32_t kOne = 0x3F800000;
  constexpr int64_t kBlock = length_of(Block::b1x128), kStep = 32;
  const Gemm& op = *call.problem.as<Gemm>();
  if (op.k % kStep != 0 || op.k % kBlock == 0) return call.right();
  Rerun rerun(call.problem, call);
  for (const Side side : kSides) {
    const Buffer scales = rerun.input(std::string(name_of(side)) + ".scale_inv");
    const bool square = is_square(op.operand(side).quantizer.block);
    const Shape shape = scales.plane->logical;
    const int64_t pitch = scales.plane->padded.cols;
    for (int64_t i = 0; i < (square ? shape.rows : shape.cols); ++i)
      reference::store(scales, square ? i * pitch + shape.cols - 1 : (shape.rows - 1) * pitch + i, kOne);
  }
  rerun.run();
  rerun.give("d", call);
}

bool takes_nvfp4_gemm(const Problem& p) {
  const Gemm& op = *p.as<Gemm>();
  return operands_are(p, FormatId::nvfp4) && !op.a.quantizer.row_scaled && !op.b.quantizer.row_scaled;
}

// vllm-project/vllm#54150: one global scale serves both operands, that of a.
void gemm_one_global_scale(const Call& call) {
  Rerun rerun(call.problem, call);
  std::ranges::copy(call.input("a.amax").bytes, rerun.input("b.amax").bytes.begin());
  rerun.run();
  rerun.give("d", call);
}

// ---- swizzle ------------------------------------------------------------------------------------

bool takes_tiles(const Problem& p) {
  const Quantizer& q = p.row ? *p.row : *p.col;
  return !p.as<Swizzle>()->inverse && (q.format == FormatId::mxfp4 || q.format == FormatId::nvfp4) &&
         all_are(p, q.format);
}

// NVIDIA/Fuser#4745: tiles of 128 rows and 4 scales are moved in pairs. If their number along K is odd, the
// last one goes through older code that copies the rows of the tile as they stand.
void swizzle_odd_tile_copied(const Call& call) {
  constexpr size_t kTile = 512;
  call.right();
  const Buffer& to = call.outputs[0];
  const size_t tiles = static_cast<size_t>(to.plane->padded.cols) / 4,
               bands = static_cast<size_t>(to.plane->padded.rows) / 128;
  if (tiles % 2 == 0) return;
  for (size_t band = 0; band < bands; ++band) {
    const std::span<std::byte> tile = to.bytes.subspan((band * tiles + tiles - 1) * kTile, kTile);
    std::array<std::byte, kTile> right;
    std::ranges::copy(tile, right.begin());
    for (size_t row = 0; row < 128; ++row)
      for (size_t j = 0; j < 4; ++j) tile[row * 4 + j] = right[row % 32 * 16 + row / 32 * 4 + j];
  }
}

// ---- dequantize ---------------------------------------------------------------------------------

bool takes_mxfp4_codes(const Problem& p) {
  return all_are(p, FormatId::mxfp4) && (p.row ? *p.row : *p.col).scales == ScaleLayout::compact;
}

// sgl-project/sglang#25519: the test for the scale that is NaN compares the decoded value with 128 where it
// should compare the code with 255. A scale of 128 becomes NaN, and the code 255 becomes infinity.
void dequantize_scale_of_128_nan(const Call& call) {
  constexpr uint8_t kCodeOf128 = 134, kNan = 255;
  const Direction d = call.problem.row ? Direction::row : Direction::col;
  const ConstBuffer& given = call.input(plane_name(d, "scale_inv"));
  Rerun rerun(call.problem, call);
  for (std::byte& scale : rerun.input(plane_name(d, "scale_inv")).bytes)
    if (scale == std::byte{kCodeOf128}) scale = std::byte{kNan};
  rerun.run();
  rerun.give("y", call);

  const Bytes scales = bytes(given), codes = bytes(call.input(plane_name(d, "data")));
  const Buffer& y = call.output("y");
  const EncodingInfo& out = info(y.plane->encoding);
  const uint32_t sign = 1u << (out.bits - 1);
  const Shape shape = call.problem.x.shape;
  for (int64_t r = 0; r < shape.rows; ++r)
    for (int64_t c = 0; c < shape.cols; ++c) {
      const auto [i, j] = d == Direction::row ? std::pair{r, c} : std::pair{c, r};
      const bool zero = codes(i, j) % 8 == 0;  // zero times infinity is NaN, as it stands
      if (scales(i, j / length_of(Block::b1x32)) != kNan || zero) continue;
      reference::store(y, r * shape.cols + c, out.infinity | (codes(i, j) >= 8 ? sign : 0));
    }
}

constexpr Bug kBugs[] = {
    {"gemm_last_block_unscaled", "gemm", takes_block_gemm, gemm_last_block_unscaled},
    {"gemm_one_global_scale", "gemm", takes_nvfp4_gemm, gemm_one_global_scale},
    {"swizzle_odd_tile_copied", "swizzle", takes_tiles, swizzle_odd_tile_copied},
    {"dequantize_scale_of_128_nan", "dequantize", takes_mxfp4_codes, dequantize_scale_of_128_nan},
};

}  // namespace

std::span<const Bug> bugs_of_others() { return kBugs; }

}  // namespace assay::sixth
