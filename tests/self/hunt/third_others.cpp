// The bugs of the third set that are in other kernels than quantizers of one tensor.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "contract/attention.h"
#include "reference/rounding.h"
#include "reference/scaling.h"
#include "reference/swizzle.h"
#include "reference/tensor.h"
#include "tests/self/hunt/third_bugs.h"

namespace assay::third {

namespace {

using reference::load;
using reference::narrowed;
using reference::store;
using reference::value_of;

uint32_t code_at(const Buffer& b, int64_t i) { return load(ConstBuffer{b.plane, b.bytes}, i); }
bool any(const Problem&) { return true; }
bool is(const std::optional<Quantizer>& q, FormatId format) { return !q || q->format == format; }

// ---- split ----------------------------------------------------------------------------------------------
// The review of NVIDIA/TransformerEngine#3048: the number of a member's 128-row tiles of scales is its number
// of rows divided by 128 and rounded down. The scales of every later member begin too early, over those of a
// member whose rows are no multiple of 128.
bool takes_split_mxfp8(const Problem& p) {
  return is(p.row, FormatId::mxfp8) && is(p.col, FormatId::mxfp8) && p.col_source == ColSource::original;
}
void tiles_floored(const Call& call) {
  call.right();
  const std::vector<Problem> lines = member_problems(call.problem);
  for (Direction d : kDirections) {
    const auto& q = call.problem.quantizer(d);
    if (!q || lines.empty()) continue;
    const Buffer& scales = call.output(plane_name(d, scale_stem(q->scales)));
    const Buffer& offsets = call.output(plane_name(d, "scale_offsets"));
    const std::vector<std::byte> right(scales.bytes.begin(), scales.bytes.end());
    const std::vector<Member>& members = scales.plane->members;
    const Member& last = members.back();
    std::fill_n(scales.bytes.begin(), last.offset + last.padded.count(), std::byte{0});
    int64_t at = 0;
    for (size_t m = 0; m < members.size(); ++m) {
      const int64_t tiles = lines[m].x.shape.rows / 128;
      store(offsets, static_cast<int64_t>(m), static_cast<uint32_t>(at));
      std::copy_n(right.begin() + members[m].offset, members[m].padded.count(), scales.bytes.begin() + at);
      at += tiles * (d == Direction::row ? 128 : 4) * members[m].padded.cols;
    }
    store(offsets, static_cast<int64_t>(members.size()), static_cast<uint32_t>(at));
  }
}

// vllm-project/vllm#54150 and #54974: one global scale is used for all parts of a grouped NVFP4 tensor (there
// for gate and up). The amax of every member is the largest of the group.
bool takes_split_nvfp4(const Problem& p) {
  const auto fits = [](const std::optional<Quantizer>& q) {
    return is(q, FormatId::nvfp4) && (!q || (!q->amax && !q->row_scaled && !q->rht));
  };
  return fits(p.row) && fits(p.col) && p.col_source == ColSource::original;
}
void amax_of_group(const Call& call) {
  call.right();
  Problem given = call.problem;
  for (Direction d : kDirections)
    if (auto& q = given.quantizer(d)) q->amax = F32Bits{0x3F800000};
  Rerun whole(given, call);
  for (Direction d : kDirections) {
    if (!call.problem.quantizer(d)) continue;
    const Buffer& amax = call.output(plane_name(d, "amax"));
    const int64_t members = amax.plane->padded.count();
    double most = 0;
    for (int64_t m = 0; m < members; ++m) most = std::max(most, value_of(Encoding::f32, code_at(amax, m)));
    for (int64_t m = 0; m < members; ++m) {
      store(amax, m, reference::f32_code(most));
      store(whole.input(plane_name(d, "given.amax")), m, reference::f32_code(most));
    }
  }
  whole.run();
  for (Direction d : kDirections) {
    const auto& q = call.problem.quantizer(d);
    if (!q) continue;
    // Of memory beyond the members nothing is written.
    for (const std::string& name : {plane_name(d, scale_stem(q->scales)), plane_name(d, "data")}) {
      const Buffer &from = whole.output(name), &to = call.output(name);
      for (const Member& m : from.plane->members)
        std::copy_n(from.bytes.begin() + static_cast<int64_t>(from.plane->bytes_of(m.offset)),
                    from.plane->bytes_of(m.padded.count()),
                    to.bytes.begin() + static_cast<int64_t>(from.plane->bytes_of(m.offset)));
    }
  }
}

// ---- gemm -----------------------------------------------------------------------------------------------
const Quantizer& quantizer(const Problem& p, Side side) { return p.as<Gemm>()->operand(side).quantizer; }
std::string operand(Side side, std::string_view stem) {
  return std::string(name_of(side)) + "." + std::string(stem);
}

// ml-explore/mlx#3854: K is split in two, and the second half reads the scales of the next group. The data
// are split after the smaller half of the blocks and the scales after the larger, so an odd number of blocks
// is needed; behind the last block stands the padding.
bool takes_gemm_nvfp4(const Problem& p) {
  return quantizer(p, Side::a).format == FormatId::nvfp4 || quantizer(p, Side::b).format == FormatId::nvfp4;
}
void split_k_next_scales(const Call& call) {
  Rerun shifted(call.problem, call);
  for (Side side : kSides) {
    if (quantizer(call.problem, side).format != FormatId::nvfp4) continue;
    const Buffer scales = shifted.input(operand(side, "scale_inv"));
    const int64_t blocks = scales.plane->logical.cols, stride = scales.plane->padded.cols;
    if (blocks % 2 == 0) continue;
    for (int64_t r = 0; r < scales.plane->logical.rows; ++r)
      for (int64_t j = blocks / 2; j < blocks; ++j)
        store(scales, r * stride + j, code_at(scales, r * stride + j + 1));
  }
  shifted.run();
  shifted.give("d", call);
}

// pytorch/pytorch#115144 (and NVIDIA/TensorRT-LLM#17505): the bias is not in the epilogue. It is added to a
// result that was rounded to 16 bits already, and the sum is rounded again.
void bias_after_cast(const Call& call) {
  const Gemm& op = *call.problem.as<Gemm>();
  const Encoding out = call.problem.x.source;
  if (!op.bias || (out != Encoding::bf16 && out != Encoding::f16)) return call.right();
  Problem plain = call.problem;
  plain.as<Gemm>()->bias.reset();
  Rerun unbiased(plain, call);
  unbiased.run();
  const Buffer &d = unbiased.output("d"), &to = call.output("d");
  const ConstBuffer& bias = call.input("bias");
  const reference::Encoder encode(out, Round::rne, Overflow::nosat);
  const Shape shape = to.plane->logical;
  for (int64_t i = 0; i < shape.count(); ++i)
    store(to, i,
          encode(narrowed(value_of(out, code_at(d, i)) + value_of(*op.bias, load(bias, i % shape.cols)))));
}

// mlc-ai/pith-train#74: a tile of FP8 is transposed by an instruction that moves 16 bits, and the bytes
// inside a pair are not put right afterwards. Of each 2x2 elements the two off the diagonal change places, in
// an operand whose columns are read.
bool takes_gemm_fp8(const Problem& p) {
  const auto fits = [&](Side side) {
    const FormatId f = quantizer(p, side).format;
    return f == FormatId::fp8_current || f == FormatId::fp8_delayed;
  };
  return fits(Side::a) && fits(Side::b);
}
void transposed_in_pairs(const Call& call) {
  Rerun swapped(call.problem, call);
  for (Side side : kSides) {
    if (call.problem.as<Gemm>()->direction(side) != Direction::col) continue;
    const Buffer data = swapped.input(operand(side, "data"));  // [outer, K]
    const Shape shape = data.plane->logical;
    for (int64_t r = 0; r + 1 < shape.rows; r += 2)
      for (int64_t c = 0; c + 1 < shape.cols; c += 2)
        std::swap(data.bytes[static_cast<size_t>(r * shape.cols + c + 1)],
                  data.bytes[static_cast<size_t>((r + 1) * shape.cols + c)]);
  }
  swapped.run();
  swapped.give("d", call);
}

// ---- attention ------------------------------------------------------------------------------------------
// bytedance-iaas/sglang#485 (review; also intel/ipex-llm#12619): heads are padded to a multiple of 32
// elements, and the default softmax scale is computed from the padded size.
void scale_of_padded_head(const Call& call) {
  Problem p = call.problem;
  const int64_t depth = attention_sizes(p).depth;
  if (!p.as<Attention>()->softmax_scale && depth % 32 != 0)
    p.as<Attention>()->softmax_scale =
        std::bit_cast<F32Bits>(static_cast<float>(1 / std::sqrt(static_cast<double>(round_up(depth, 32)))));
  call.right_for(p);
}

// The review of sgl-project/sgl-kernel-xpu#252 (and vllm-project/vllm#42580): the descale of V is read as one
// number, though every sequence and head of keys has its own.
bool takes_codes(const Problem& p) { return p.as<Attention>()->codes != AttentionCodes::none; }
void first_descale_of_v(const Call& call) {
  Rerun one(call.problem, call);
  const Buffer descale = one.input("v.descale");
  for (int64_t i = 1; i < descale.plane->padded.count(); ++i) store(descale, i, code_at(descale, 0));
  one.run();
  for (const Buffer& b : call.outputs) one.give(b.plane->name, call);
}

// ---- dequantize -----------------------------------------------------------------------------------------
Direction direction_of(const Problem& p) { return p.row ? Direction::row : Direction::col; }
template <class ScaleOf> void dequantize_by(const Call& call, ScaleOf scale_of) {
  reference::dequantize_each({call.problem, call.inputs, call.outputs, 1}, direction_of(call.problem),
                             scale_of);
}

// NVIDIA/TransformerEngine#3262: an E8M0 scale is expanded by a shift into the exponent field of binary32.
// The code 0 (2^-127) becomes a zero, and the code 255 (NaN) infinity.
bool takes_mxfp8(const Problem& p) { return is(p.row, FormatId::mxfp8) && is(p.col, FormatId::mxfp8); }
void scale_shifted(const Call& call) {
  const Direction d = direction_of(call.problem);
  const ConstBuffer& plane = call.input(plane_name(d, scale_stem(call.problem.quantizer(d)->scales)));
  const bool by_columns = plane.plane->tiles_by_columns();
  const reference::Bytes stored = reference::bytes(plane),
                         scales = plane.plane->layout == ScaleLayout::gemm
                                      ? reference::from_gemm(stored, by_columns)
                                      : stored;
  dequantize_by(call, [&](int64_t i, int64_t j) {
    const uint32_t code = by_columns ? scales(i / 32, j) : scales(i, j / 32);
    return static_cast<double>(std::bit_cast<float>(code << 23));
  });
}

// The review of NVIDIA/TensorRT-Model-Connect#1115: the size of a block is taken to be the size of the data
// divided by the number of scales, rounded up. Where the last block is partial, all blocks come out too
// small, and later elements take the next block's scale.
bool takes_fp8_block(const Problem& p) {
  return is(p.row, FormatId::fp8_block) && is(p.col, FormatId::fp8_block);
}
void size_from_shapes(const Call& call) {
  const Direction d = direction_of(call.problem);
  const Quantizer& q = *call.problem.quantizer(d);
  if (q.scales == ScaleLayout::gemm) return call.right();
  const ConstBuffer& plane = call.input(plane_name(d, "scale_inv"));
  const Shape data = call.input(plane_name(d, "data")).plane->logical, scales = plane.plane->logical;
  const bool tiles = q.block == Block::b128x128;
  const int64_t length = ceil_div(data.cols, std::max<int64_t>(tiles ? scales.cols : scales.rows, 1)),
                height = tiles ? ceil_div(data.rows, std::max<int64_t>(scales.rows, 1)) : 1;
  dequantize_by(call, [&](int64_t i, int64_t j) {
    const int64_t row = tiles ? i / height : j / length, col = tiles ? j / length : i;
    return value_of(Encoding::f32, load(plane, row * plane.plane->padded.cols + col));
  });
}

// ---- swizzle --------------------------------------------------------------------------------------------
// NVIDIA/cutlass#3535: the layout of one operand's scales is built from the other operand's major mode. Tiles
// of 128x4 follow one another down the rows before they go on along K. It shows where there are several tiles
// in both dimensions.
template <class Bytes>
void move_tiles(const Plane& plane, const Bytes& from, std::span<std::byte> to, bool back) {
  const bool columns = plane.tiles_by_columns();
  const int64_t along = columns ? plane.padded.rows / 4 : plane.padded.cols / 4,
                down = columns ? plane.padded.cols / 128 : plane.padded.rows / 128;
  for (int64_t i = 0; i < down; ++i)
    for (int64_t j = 0; j < along; ++j) {
      const int64_t right = (i * along + j) * 512, wrong = (j * down + i) * 512;
      std::copy_n(from.begin() + (back ? wrong : right), 512, to.begin() + (back ? right : wrong));
    }
}
void tiles_down_first(const Call& call) {
  const std::string gemm = plane_name(direction_of(call.problem), "scale_gemm");
  if (call.problem.as<Swizzle>()->inverse) {
    Rerun moved(call.problem, call);
    const Buffer input = moved.input(gemm);
    move_tiles(*input.plane, call.input(gemm).bytes, input.bytes, true);
    moved.run();
    return moved.give(call.outputs[0].plane->name, call);
  }
  call.right();
  const Buffer& out = call.output(gemm);
  const std::vector<std::byte> right(out.bytes.begin(), out.bytes.end());
  move_tiles(*out.plane, right, out.bytes, false);
}

// ---- update ---------------------------------------------------------------------------------------------
// NVIDIA/TransformerEngine#335 (with Megatron-LM#442): the amax that was reduced over the ranks reaches the
// history, and the scale is computed from the amax of this rank alone.
void scale_before_reduction(const Call& call) {
  call.right();
  if (!call.problem.as<Update>()->reduction) return;
  Problem alone = call.problem;
  alone.as<Update>()->reduction = false;
  Rerun local(alone, call);
  local.run();
  local.give("next.scale", call);
}

// ---- adam -----------------------------------------------------------------------------------------------
// databricks/flashoptim#2: states of binary32 are cast to the parameter's encoding on their way to memory.
bool takes_f32_moments(const Problem& p) { return p.as<Adam>()->moments == Encoding::f32; }
void states_through_parameter(const Call& call) {
  call.right();
  const Encoding parameter = call.problem.as<Adam>()->parameter;
  if (parameter == Encoding::f32) return;
  const reference::Encoder encode(parameter, Round::rne, Overflow::nosat);
  for (const char* name : {"next.m", "next.v"}) {
    const Buffer& state = call.output(name);
    for (int64_t i = 0; i < state.plane->padded.count(); ++i) {
      const uint32_t code = encode(value_of(Encoding::f32, code_at(state, i)));
      store(state, i, reference::f32_code(value_of(parameter, code)));
    }
  }
}

// ---- hadamard -------------------------------------------------------------------------------------------
// The review of NVIDIA/TransformerEngine#2177 proposes `hadamard * signs` for `diag(signs) @ hadamard`: that
// negates columns of the matrix, not its rows, so the random signs go to the outputs instead of the inputs.
void signs_on_outputs(const Call& call) {
  Problem plain = call.problem;
  const uint16_t mask = plain.col->sign_mask;
  plain.col->sign_mask = 0;
  call.right_for(plain);
  const Buffer& y = call.output("y");
  const int64_t cols = y.plane->padded.cols;
  for (int64_t i = 0; i < y.plane->padded.count(); ++i) {
    const uint32_t code = code_at(y, i);
    if ((mask >> (i % cols % 16)) % 2 == 1 && (code & 0x7FFF) <= 0x7F80) store(y, i, code ^ 0x8000);
  }
}

constexpr std::array kBugs = {
    Bug{"split_tiles_floored", "split", takes_split_mxfp8, tiles_floored},
    Bug{"split_amax_of_group", "split", takes_split_nvfp4, amax_of_group},
    Bug{"gemm_split_k_scales", "gemm", takes_gemm_nvfp4, split_k_next_scales},
    Bug{"gemm_bias_after_cast", "gemm", any, bias_after_cast},
    Bug{"gemm_transposed_pairs", "gemm", takes_gemm_fp8, transposed_in_pairs},
    Bug{"attention_padded_head", "attention", any, scale_of_padded_head},
    Bug{"attention_first_descale", "attention", takes_codes, first_descale_of_v},
    Bug{"dequantize_shifted_scale", "dequantize", takes_mxfp8, scale_shifted},
    Bug{"dequantize_derived_block", "dequantize", takes_fp8_block, size_from_shapes},
    Bug{"swizzle_tiles_down_first", "swizzle", any, tiles_down_first},
    Bug{"update_local_scale", "update", any, scale_before_reduction},
    Bug{"adam_states_narrowed", "adam", takes_f32_moments, states_through_parameter},
    Bug{"hadamard_signs_after", "hadamard", any, signs_on_outputs},
};

}  // namespace

std::span<const Bug> bugs_of_others() { return kBugs; }

}  // namespace assay::third
