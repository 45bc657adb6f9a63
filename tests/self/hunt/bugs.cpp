#include "tests/self/hunt/bugs.h"

#include <algorithm>
#include <cstddef>

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
};

}  // namespace

const Bug* find_bug(std::string_view name) {
  for (const Bug& bug : kBugs)
    if (bug.name == name) return &bug;
  return nullptr;
}

}  // namespace assay::planted
