// The bugs of the third set that are in quantizers of one tensor.
#include "tests/self/hunt/third_bugs.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "reference/tensor.h"

namespace assay::third {

namespace {

using reference::load;
using reference::store;

uint32_t code_at(const Buffer& b, int64_t i) { return load(ConstBuffer{b.plane, b.bytes}, i); }

// Whether each direction that the line has is of this format, and no direction is made from the other.
bool only(const Problem& p, FormatId format) {
  return (!p.row || p.row->format == format) && (!p.col || p.col->format == format) &&
         p.col_source == ColSource::original;
}

// --------------------------------------------------------------------------------------------------------
// huggingface/transformers#47030 (and sgl-project/sglang#28418): the scale is rounded to a power of two after
// the elements were quantized with the scale that is not rounded. The stored scales are right, and the
// elements do not belong to them.
bool takes_vector_blocks(const Problem& p) {
  const auto fits = [](const std::optional<Quantizer>& q) {
    return !q || (q->block == Block::b1x128 && q->scale_from == ScaleFrom::x);
  };
  return only(p, FormatId::fp8_block) && fits(p.row) && fits(p.col);
}
void scale_rounded_after(const Call& call) {
  call.right();
  Problem unrounded = call.problem;
  for (Direction d : kDirections)
    if (auto& q = unrounded.quantizer(d)) q->pow2 = false, q->scales = ScaleLayout::compact;
  Rerun elements(unrounded, call);
  elements.run();
  for (Direction d : kDirections)
    if (call.problem.quantizer(d)) elements.give(plane_name(d, "data"), call);
}

// --------------------------------------------------------------------------------------------------------
// unslothai/unsloth#8953: the weight of 128x128 tiles is transposed and its scales are not. Here the scales
// of the columns are those of the rows, read one after another into the transposed shape (a `view` where a
// transpose belongs). It shows where there are several tiles in both dimensions.
bool takes_tiles(const Problem& p) {
  const auto fits = [](const std::optional<Quantizer>& q) { return !q || q->block == Block::b128x128; };
  return only(p, FormatId::fp8_block) && fits(p.row) && fits(p.col);
}
void tile_scales_untransposed(const Call& call) {
  call.right();
  if (!call.has_output("col.scale_inv")) return;
  const Buffer& scales = call.output("col.scale_inv");
  const Shape shape = scales.plane->logical, padded = scales.plane->padded;  // tiles of [K, M]
  std::vector<uint32_t> of_rows;                                             // tiles of [M, K], one by one
  for (int64_t m = 0; m < shape.cols; ++m)
    for (int64_t k = 0; k < shape.rows; ++k) of_rows.push_back(code_at(scales, k * padded.cols + m));
  for (int64_t i = 0; i < shape.count(); ++i)
    store(scales, i / shape.cols * padded.cols + i % shape.cols, of_rows[static_cast<size_t>(i)]);
}

// --------------------------------------------------------------------------------------------------------
// tenstorrent/tt-metal#51971: elements that are subnormal in E2M3 or E3M2 are encoded one binade too small,
// because their mantissas are rounded at the wrong bit.
bool takes_mxfp6(const Problem& p) { return only(p, FormatId::mxfp6); }
void subnormals_halved(const Call& call) {
  call.right();
  for (Direction d : kDirections) {
    const auto& q = call.problem.quantizer(d);
    if (!q) continue;
    const Buffer& data = call.output(plane_name(d, "data"));
    const uint32_t normal = q->element == Encoding::e2m3 ? 8 : 4;  // the code of the least normal value
    reference::Bytes codes = reference::bytes(ConstBuffer{data.plane, data.bytes});
    for (int64_t i = 0; i < codes.size(); ++i) {
      const uint32_t code = codes.data()[i], magnitude = code & 0x1F, half = magnitude / 2;
      if (magnitude >= normal) continue;
      const uint32_t rounded = magnitude % 2 == 0 ? half : half + half % 2;  // ties to even
      codes.data()[i] = static_cast<uint8_t>((code & 0x20) | rounded);
    }
    store(data, codes);
  }
}

// --------------------------------------------------------------------------------------------------------
// ROCm/aiter#5537 (and the review of NVIDIA/TransformerEngine#2691): packed FP4 is transposed byte by byte.
// Codes are paired along the rows of x first and the bytes are transposed then, so that a byte of the columns
// holds two neighbours of a row. Where a size is odd the kernel falls back to a right one.
bool takes_mxfp4(const Problem& p) { return only(p, FormatId::mxfp4); }
void bytes_transposed(const Call& call) {
  call.right();
  const Shape x = call.problem.x.shape;
  if (!call.problem.col || x.rows % 2 != 0 || x.cols % 2 != 0) return;
  const Buffer& data = call.output("col.data");  // [K, M], two codes in a byte
  std::vector<uint8_t> codes;
  for (int64_t i = 0; i < x.count(); ++i) codes.push_back(static_cast<uint8_t>(code_at(data, i)));
  const auto of_column = [&](int64_t m, int64_t k) { return codes[static_cast<size_t>(k * x.rows + m)]; };
  for (int64_t pair = 0; pair < x.cols / 2; ++pair)
    for (int64_t m = 0; m < x.rows; ++m)
      data.bytes[static_cast<size_t>(pair * x.rows + m)] =
          static_cast<std::byte>(of_column(m, 2 * pair) | of_column(m, 2 * pair + 1) << 4);
}

// --------------------------------------------------------------------------------------------------------
// A pitfall of hybrid recipes (rows of E4M3, columns of E5M2); a thread with a wrong maximum of E5M2 is
// kohya-ss/musubi-tuner#192. One launch writes both directions, and the columns take the scale of the rows,
// which leads to 448 and not to 57344.
bool takes_current(const Problem& p) {
  const auto fits = [](const std::optional<Quantizer>& q) {
    return !q || (!q->row_scaled && q->numerics.scale_order == ScaleOrder::encode_first);
  };
  return only(p, FormatId::fp8_current) && fits(p.row) && fits(p.col);
}
void one_scale_for_both(const Call& call) {
  call.right();
  if (!call.problem.row || !call.problem.col || call.problem.row->element == call.problem.col->element)
    return;
  Problem columns = call.problem;
  columns.row.reset();
  Quantizer given;
  given.format = FormatId::fp8_delayed;
  given.element = call.problem.col->element;
  given.numerics = call.problem.col->numerics;
  given.numerics.inf_amax = {}, given.numerics.scale_limit = {};
  given.numerics.scale_division = {}, given.numerics.zero_amax = {};
  columns.col = given;
  Rerun of_rows(columns, call);
  const Buffer& scale = call.output("row.scale");
  store(of_rows.input("col.given.scale"), 0, code_at(scale, 0));
  of_rows.run();
  of_rows.give("col.data", call);
  store(call.output("col.scale"), 0, code_at(scale, 0));
  store(call.output("col.scale_inv"), 0, code_at(call.output("row.scale_inv"), 0));
}

// --------------------------------------------------------------------------------------------------------
// marin-community/marin#7659: under gradient accumulation the amax slot is overwritten by the last
// micro-batch, where it should keep the largest amax of all of them.
bool takes_delayed(const Problem& p) { return only(p, FormatId::fp8_delayed); }
void amax_overwritten(const Call& call) {
  call.right();
  Rerun alone(call.problem, call);
  for (Direction d : kDirections)
    if (call.problem.quantizer(d))
      std::ranges::fill(alone.input(plane_name(d, "prior.amax")).bytes, std::byte{0});
  alone.run();
  for (Direction d : kDirections)
    if (call.problem.quantizer(d)) alone.give(plane_name(d, "amax"), call);
}

// --------------------------------------------------------------------------------------------------------
// The review of ROCm/composable_kernel#2355 ("do we get the same rng every call?"): the pass over the columns
// starts at the counter at which the pass over the rows started, so both directions round by the same random
// numbers.
bool takes_drawn(const Problem& p) {
  return only(p, FormatId::nvfp4) &&
         (!p.col || (!p.col->rht && !p.col->amax && p.col->numerics.draw == Draw::logical));
}
void draws_shared(const Call& call) {
  call.right();
  const auto& q = call.problem.col;
  if (!q || q->round != Round::sr) return;
  Problem turned = call.problem;
  std::swap(turned.x.shape.rows, turned.x.shape.cols);
  turned.row = q;
  turned.col.reset();
  Rerun rows(turned, call);
  const ConstBuffer& x = call.input("x");
  const Shape shape = call.problem.x.shape;
  for (int64_t r = 0; r < shape.rows; ++r)
    for (int64_t c = 0; c < shape.cols; ++c)
      store(rows.input("x"), c * shape.rows + r, load(x, r * shape.cols + c));
  rows.run();
  rows.give("row.data", call, "col.data");
}

constexpr std::array kBugs = {
    Bug{"block_scale_rounded_after", "quantize", takes_vector_blocks, scale_rounded_after},
    Bug{"tile_scales_untransposed", "quantize", takes_tiles, tile_scales_untransposed},
    Bug{"mxfp6_subnormals_halved", "quantize", takes_mxfp6, subnormals_halved},
    Bug{"mxfp4_bytes_transposed", "quantize", takes_mxfp4, bytes_transposed},
    Bug{"hybrid_one_scale", "quantize", takes_current, one_scale_for_both},
    Bug{"delayed_amax_overwritten", "quantize", takes_delayed, amax_overwritten},
    Bug{"sr_draws_shared", "quantize", takes_drawn, draws_shared},
};
constexpr Bug kNone{"no_third_slip", "", [](const Problem&) { return true; },
                    [](const Call& call) { call.right(); }};

}  // namespace

std::span<const Bug> bugs_of_quantize() { return kBugs; }

const Bug* find_bug(std::string_view name) {
  if (name == kNone.name) return &kNone;
  for (std::span<const Bug> some : {bugs_of_quantize(), bugs_of_others()})
    for (const Bug& bug : some)
      if (bug.name == name) return &bug;
  return nullptr;
}

}  // namespace assay::third
