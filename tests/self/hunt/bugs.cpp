#include "tests/self/hunt/bugs.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace assay::planted {

namespace {

Problem as_it_is(const Problem& p) { return p; }

// Changes the numerics of both directions.
template <class Change> Problem with_numerics(const Problem& p, Change change) {
  Problem out = p;
  for (Direction d : kDirections)
    if (out.quantizer(d)) change(*out.quantizer(d), d);
  return out;
}

Problem truncates(const Problem& p) {
  return with_numerics(p, [](Quantizer& q, Direction) {
    if (q.numerics.mx_scale == MxScale::up) q.numerics.mx_scale = MxScale::down;
  });
}

Problem drops_nan(const Problem& p) {
  return with_numerics(p, [](Quantizer& q, Direction) { q.numerics.nan_amax = NanAmax::ignore; });
}

Problem ties_away_in_columns(const Problem& p) {
  return with_numerics(p, [](Quantizer& q, Direction d) {
    if (d == Direction::col && q.numerics.element_ties == ElementTies::even)
      q.numerics.element_ties = ElementTies::away;
  });
}

Problem rounds_f32_twice(const Problem& p) {
  return with_numerics(p, [&](Quantizer& q, Direction) {
    if (p.x.source == Encoding::f32 && q.numerics.pre_round == PreRound::none)
      q.numerics.pre_round = PreRound::bf16;
  });
}

// Padding of the row scales holds what was there: the next kernel reads it.
void leaves_padding(const Problem&, std::span<const Buffer> outputs) {
  const Buffer* scales = find<Buffer>(outputs, "row.scale_inv");
  if (!scales) return;
  const Plane& plane = *scales->plane;
  for (int64_t r = 0; r < plane.padded.rows; ++r)
    for (int64_t c = 0; c < plane.padded.cols; ++c)
      if (r >= plane.logical.rows || c >= plane.logical.cols)
        scales->bytes[static_cast<size_t>(r * plane.padded.cols + c)] = std::byte{0x7F};
}

// The number of blocks is cols / 32: the last block of a row that is no multiple has no scale.
void floors_the_blocks(const Problem& p, std::span<const Buffer> outputs) {
  const Buffer* scales = find<Buffer>(outputs, "row.scale_inv");
  if (!scales || p.x.shape.cols % 32 == 0) return;
  for (int64_t r = 0; r < scales->plane->logical.rows; ++r)
    scales->bytes[static_cast<size_t>(r * scales->plane->padded.cols + p.x.shape.cols / 32)] = std::byte{0};
}

// After a member without elements, the scales of the next one are those of nothing.
void loses_a_member(const Problem& p, std::span<const Buffer> outputs) {
  const Buffer* scales = find<Buffer>(outputs, "row.scale_inv");
  if (!scales || !p.as<Split>()) return;
  const std::vector<Member>& members = scales->plane->members;
  for (size_t m = 1; m < members.size(); ++m)
    if (p.as<Split>()->members[m - 1].count() == 0 && members[m].padded.count() > 0) {
      const size_t at = scales->plane->bytes_of(members[m].offset), bytes = scales->plane->bytes_of(1);
      std::fill_n(scales->bytes.begin() + static_cast<ptrdiff_t>(at), bytes, std::byte{0});
    }
}

// The columns' data are stored in the order of the rows.
void forgets_to_transpose(const Problem&, std::span<const Buffer> outputs) {
  const Buffer* data = find<Buffer>(outputs, "col.data");
  if (!data || data->plane->packed || data->plane->padded.count() == 0) return;
  const std::vector<std::byte> right(data->bytes.begin(), data->bytes.end());
  const size_t rows = static_cast<size_t>(data->plane->padded.rows),
               cols = static_cast<size_t>(data->plane->padded.cols);
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < cols; ++c) data->bytes[c * rows + r] = right[r * cols + c];
}

// The columns are gradients to this kernel: it gives them E5M2, whatever is asked.
Problem columns_in_e5m2(const Problem& p) {
  Problem out = p;
  if (out.col && out.col->element == Encoding::e4m3) out.col->element = Encoding::e5m2;
  return out;
}

// A rank takes its own amax where the amax of all ranks was given.
Problem forgets_the_reduction(const Problem& p) {
  Problem out = p;
  if (Update* update = out.as<Update>()) update->reduction = false;
  return out;
}

Problem rotates_without_signs(const Problem& p) {
  Problem out = p;
  if (out.col && out.col->rht) out.col->sign_mask = 0;
  return out;
}

Problem casts_unclamped(const Problem& p) {
  return with_numerics(p,
                       [](Quantizer& q, Direction) { q.numerics.element_overflow = ElementOverflow::nan; });
}

// The branch that draws was compiled out: its codes are zeros.
void draws_nothing(const Problem& p, std::span<const Buffer> outputs) {
  for (Direction d : kDirections)
    if (p.quantizer(d) && p.quantizer(d)->round == Round::sr)
      if (const Buffer* data = find<Buffer>(outputs, std::string(name_of(d)) + ".data"))
        std::fill(data->bytes.begin(), data->bytes.end(), std::byte{0});
}

// What is stored for the GEMM is the scale itself.
void stores_the_scale(const Problem&, std::span<const Buffer> outputs) {
  for (const char* d : {"row", "col"}) {
    const Buffer* scale = find<Buffer>(outputs, std::string(d) + ".scale");
    const Buffer* inverse = find<Buffer>(outputs, std::string(d) + ".scale_inv");
    if (scale && inverse && scale->bytes.size() == inverse->bytes.size())
      std::copy(scale->bytes.begin(), scale->bytes.end(), inverse->bytes.begin());
  }
}

// Elements are divided by their block's scale also where it underflowed to zero: every code is that of an
// infinity.
void divides_by_zero(const Problem& p, std::span<const Buffer> outputs) {
  const Buffer* data = find<Buffer>(outputs, "row.data");
  const Buffer* scales = find<Buffer>(outputs, "row.scale_inv");
  if (!data || !scales || p.row->block != Block::b1x16) return;
  const int64_t pitch = data->plane->padded.cols, scale_pitch = scales->plane->padded.cols;
  for (int64_t r = 0; r < p.x.shape.rows; ++r)
    for (int64_t c = 0; c < p.x.shape.cols; ++c)
      if (scales->bytes[static_cast<size_t>(r * scale_pitch + c / 16)] == std::byte{0})
        data->bytes[static_cast<size_t>((r * pitch + c) / 2)] |= std::byte{7} << (c % 2 * 4);
}

// The scales for the GEMM stand in the order of the rows: the argument that asks for the other layout is not
// read.
void ignores_the_layout(const Problem&, std::span<const Buffer> outputs) {
  const Buffer* scales = find<Buffer>(outputs, "row.scale_gemm");
  if (!scales) return;
  const std::vector<std::byte> right(scales->bytes.begin(), scales->bytes.end());
  const int64_t cols = scales->plane->padded.cols;
  for (int64_t i = 0; i < scales->plane->padded.rows; ++i)
    for (int64_t j = 0; j < cols; ++j) {
      const int64_t tile = i / 128 * (cols / 4) + j / 4;
      const int64_t at = tile * 512 + i % 32 * 16 + i % 128 / 32 * 4 + j % 4;
      scales->bytes[static_cast<size_t>(i * cols + j)] = right[static_cast<size_t>(at)];
    }
}

using F = FormatId;
constexpr Bug kBugs[] = {
    {"padding", "NVIDIA/TransformerEngine#3070", "quantize", F::mxfp8, as_it_is, leaves_padding},
    {"last_block", "NVIDIA/TransformerEngine#3048", "quantize", F::mxfp8, as_it_is, floors_the_blocks},
    {"truncated_scale", "vllm-project/vllm#43557", "quantize", F::mxfp4, truncates, nullptr},
    {"dropped_nan", "vllm-project/vllm#41427", "quantize", F::nvfp4, drops_nan, nullptr},
    {"old_ties", "ROCm/aiter#2247", "quantize", F::mxfp4, ties_away_in_columns, nullptr},
    {"empty_member", "NVIDIA/TransformerEngine#3317", "split", F::fp8_block, as_it_is, loses_a_member},
    {"rounded_twice", "FlashML-org/FreeToken#85", "quantize", F::fp8_current, rounds_f32_twice, nullptr},
    {"not_transposed", "ROCm/TransformerEngine#665", "quantize", F::fp8_current, as_it_is,
     forgets_to_transpose},
    {"sr_zeros", "NVIDIA/TransformerEngine#3281", "quantize", F::nvfp4, as_it_is, draws_nothing},
    {"uninverted_scale", "modular/modular#6600", "quantize", F::fp8_current, as_it_is, stores_the_scale},
    {"tiny_scale", "flashinfer-ai/flashinfer#2440", "quantize", F::nvfp4, as_it_is, divides_by_zero},
    {"layout_ignored", "flashinfer-ai/flashinfer#4950", "quantize", F::mxfp8, as_it_is, ignores_the_layout},
    {"e5m2_columns", "NVIDIA-NeMo/Megatron-Bridge#638", "quantize", F::mxfp8, columns_in_e5m2, nullptr},
    {"no_reduction", "NVIDIA/TransformerEngine#335", "update", F::fp8_delayed, forgets_the_reduction,
     nullptr},
    {"rht_unsigned", "NVIDIA/TransformerEngine#2555", "quantize", F::nvfp4, rotates_without_signs, nullptr},
    {"unclamped_cast", "NVIDIA/Model-Optimizer#1633", "quantize", F::fp8_delayed, casts_unclamped, nullptr},
};

}  // namespace

const Bug* find_bug(std::string_view name) {
  for (const Bug& bug : kBugs)
    if (bug.name == name) return &bug;
  return nullptr;
}

}  // namespace assay::planted
