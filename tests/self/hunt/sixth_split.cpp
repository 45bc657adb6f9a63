// Bugs of kernels for grouped tensors.
#include <algorithm>
#include <vector>

#include "tests/self/hunt/sixth_bugs.h"

namespace assay::sixth {

namespace {

const Split& op_of(const Call& call) { return *call.problem.as<Split>(); }

// The bytes of member m in a grouped plane.
std::span<std::byte> member_bytes(const Buffer& b, size_t m) {
  return b.bytes.subspan(b.plane->bytes_of(b.plane->members[m].offset), member_plane(*b.plane, m).bytes());
}

bool takes_rows_of_experts(const Problem& p) {
  const Split& op = *p.as<Split>();
  return all_are(p, FormatId::fp8_current) && p.col && (op.vary == Vary::none || op.vary == Vary::first);
}

// NVIDIA/TransformerEngine#3114: column data are transposed as one tensor of all rows, not member by member.
void split_columns_as_one(const Call& call) {
  call.right();
  if (!call.has_output("col.data")) return;  // there are no members
  const Buffer& data = call.output("col.data");
  const std::vector<std::byte> right(data.bytes.begin(), data.bytes.end());
  int64_t rows = 0, before = 0;
  for (const Shape& member : op_of(call).members) rows += member.rows;
  for (size_t m = 0; m < op_of(call).members.size(); ++m) {
    const Shape member = op_of(call).members[m];
    for (int64_t c = 0; c < member.cols; ++c)
      for (int64_t r = 0; r < member.rows; ++r)
        data.bytes[static_cast<size_t>(c * rows + before + r)] =
            right[static_cast<size_t>(data.plane->members[m].offset + c * member.rows + r)];
    before += member.rows;
  }
}

bool takes_mxfp4(const Problem& p) { return all_are(p, FormatId::mxfp4); }

// ROCm/aiter#3212: members of fewer than 32 rows go through a kernel for small batches, which still takes the
// scale from the floored exponent of the amax.
void split_small_members_floored(const Call& call) {
  call.right();
  Problem older = call.problem;
  for (const Direction d : kDirections)
    if (older.quantizer(d)) older.quantizer(d)->numerics.mx_scale = MxScale::floor;
  Rerun old(older, call);
  old.run();
  for (const Buffer& b : call.outputs)
    for (size_t m = 0; m < b.plane->members.size(); ++m)
      if (op_of(call).members[m].rows < 32)
        std::ranges::copy(member_bytes(old.output(b.plane->name), m), member_bytes(b, m).begin());
}

bool takes_nvfp4(const Problem& p) { return all_are(p, FormatId::nvfp4); }

// NVIDIA/TransformerEngine#2898: the data planes are filled with zeros up to their capacity, where memory
// beyond the members is to keep its bytes.
void split_spare_cleared(const Call& call) {
  call.right();
  for (const Buffer& b : call.outputs)
    if (b.plane->name.ends_with(".data") && b.plane->padding == Padding::untouched)
      std::ranges::fill(b.bytes.subspan(b.plane->bytes_of(b.plane->logical.cols)), std::byte{0});
}

bool takes_blocks_of_experts(const Problem& p) {
  for (const Direction d : kDirections)
    if (const auto& q = p.quantizer(d); q && (q->block != Block::b1x128 || q->scales != ScaleLayout::compact))
      return false;
  return all_are(p, FormatId::fp8_block);
}

// NVIDIA/TransformerEngine#1431: the scales of a member's second and later blocks along K follow those before
// them directly, although a line of scales is padded to a multiple of 4.
void split_scales_unaligned(const Call& call) {
  call.right();
  constexpr size_t kBytes = 4;
  for (const Buffer& b : call.outputs) {
    if (!b.plane->name.ends_with(".scale_inv")) continue;
    for (size_t m = 0; m < b.plane->members.size(); ++m) {
      const Plane plane = member_plane(*b.plane, m);
      const std::span<std::byte> to = member_bytes(b, m);
      const std::vector<std::byte> right(to.begin(), to.end());
      const size_t pitch = static_cast<size_t>(plane.padded.cols) * kBytes,
                   length = static_cast<size_t>(plane.logical.cols) * kBytes;
      std::ranges::fill(to, std::byte{0});
      for (size_t block = 0; block < static_cast<size_t>(plane.logical.rows); ++block)
        std::ranges::copy(std::span(right).subspan(block * pitch, length),
                          to.subspan(block * length).begin());
    }
  }
}

constexpr Bug kBugs[] = {
    {"split_columns_as_one", "split", takes_rows_of_experts, split_columns_as_one},
    {"split_small_members_floored", "split", takes_mxfp4, split_small_members_floored},
    {"split_spare_cleared", "split", takes_nvfp4, split_spare_cleared},
    {"split_scales_unaligned", "split", takes_blocks_of_experts, split_scales_unaligned},
};

}  // namespace

std::span<const Bug> bugs_of_split() { return kBugs; }

}  // namespace assay::sixth
