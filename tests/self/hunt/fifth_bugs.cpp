// The fifth set: quantize and split, and where a bug is found by its name.
#include "tests/self/hunt/fifth_bugs.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "reference/rounding.h"
#include "reference/tensor.h"

namespace assay::fifth {

namespace {

using reference::f32_code;
using reference::load;
using reference::store;
using reference::Values;
using reference::values;

bool has_format(const Problem& p, FormatId format) {
  for (Direction d : kDirections)
    if (p.quantizer(d) && p.quantizer(d)->format == format) return true;
  return false;
}

// ---- quantize ------------------------------------------------------------------------

bool of_nvfp4_with_amax(const Problem& p) {
  for (Direction d : kDirections) {
    const auto& q = p.quantizer(d);
    if (q && (q->format != FormatId::nvfp4 || q->row_scaled || q->amax || q->rht)) return false;
  }
  return p.col_source == ColSource::original;
}

// vllm-project/vllm#20578 (review): the tensor's amax is the largest element and not the largest magnitude.
// The amaxes of blocks are right.
void largest_element(const Call& call) {
  const Values x = values(call.input("x"), 1);
  float largest = 0;
  for (float v : x.reshaped()) largest = v > largest ? v : largest;
  Problem given = call.problem;
  for (Direction d : kDirections)
    if (given.quantizer(d)) given.quantizer(d)->amax = f32_code(largest);
  Rerun rerun(given, call);
  for (Direction d : kDirections) {
    const std::string name = plane_name(d, "given.amax");
    if (rerun.has_input(name)) store(rerun.input(name), 0, f32_code(largest));
  }
  rerun.run();
  for (const Buffer& b : call.outputs)
    if (b.plane->name.ends_with(".amax")) store(b, 0, f32_code(largest));
    else rerun.give(b.plane->name, call);
}

bool of_fp8_vectors(const Problem& p) {
  for (Direction d : kDirections) {
    const auto& q = p.quantizer(d);
    if (q && q->format == FormatId::fp8_block && !is_square(q->block) && q->scales == ScaleLayout::compact)
      return true;
  }
  return false;
}

// pytorch/ao#4186: a tile has 32 rows, and its lanes past the last row store a scale too, that of an amax of
// 0. The scales lie without a gap, so these stand where the next block of columns has its first rows.
void lanes_past_the_edge(const Call& call) {
  call.right();
  for (Direction d : kDirections) {
    const auto& q = call.problem.quantizer(d);
    if (!q || q->format != FormatId::fp8_block || is_square(q->block) || q->scales != ScaleLayout::compact)
      continue;
    const Buffer& scales = call.output(plane_name(d, "scale_inv"));
    const int64_t blocks = scales.plane->logical.rows, rows = scales.plane->logical.cols;
    const int64_t stride = scales.plane->padded.cols;
    for (int64_t j = 0; j < blocks; ++j)
      for (int64_t lane = rows; lane < round_up(rows, 32); ++lane)
        if (j * stride + lane < blocks * stride) store(scales, j * stride + lane, f32_code(1));
  }
}

bool of_mxfp6(const Problem& p) {
  for (Direction d : kDirections) {
    const auto& q = p.quantizer(d);
    if (q && (q->format != FormatId::mxfp6 || q->scale_from != ScaleFrom::x ||
              q->numerics.mx_scale != MxScale::up || q->numerics.nan_amax != NanAmax::ignore))
      return false;
  }
  return p.col_source == ColSource::original;
}

// microsoft/onnxruntime#32122 (review): the exponent of a fraction from 0.5 to 1 is taken for the logarithm
// rounded up. It is one more where the quotient of the amax is a power of two, so such a block's scale is
// doubled.
void exact_powers_doubled(const Call& call) {
  Problem given = call.problem;
  for (Direction d : kDirections)
    if (given.quantizer(d)) given.quantizer(d)->scale_from = ScaleFrom::amax;
  Rerun rerun(given, call);
  const Values x = values(call.input("x"), 1);
  for (Direction d : kDirections) {
    if (!given.quantizer(d)) continue;
    const float most = given.quantizer(d)->element == Encoding::e2m3 ? 7.5f : 28.0f;
    const Buffer amaxes = rerun.input(plane_name(d, "given.block_amax"));
    const Values lines = d == Direction::row ? x : Values(x.transpose());
    const int64_t blocks = ceil_div(lines.cols(), 32);
    for (int64_t i = 0; i < lines.rows(); ++i)
      for (int64_t j = 0; j < blocks; ++j) {
        float amax = 0;
        for (int64_t c = 32 * j; c < std::min<int64_t>(32 * j + 32, lines.cols()); ++c)
          amax = std::max(amax, std::abs(lines(i, c)));  // a NaN is left out
        int exponent = 0;
        if (std::isfinite(amax) && std::frexp(amax / most, &exponent) == 0.5f) amax *= 2;
        store(amaxes, i * amaxes.plane->padded.cols + j, f32_code(amax));
      }
  }
  rerun.run();
  for (const Buffer& b : call.outputs) rerun.give(b.plane->name, call);
}

bool of_mxfp4_gemm(const Problem& p) {
  for (Direction d : kDirections) {
    const auto& q = p.quantizer(d);
    if (q && q->format == FormatId::mxfp4 && q->scales == ScaleLayout::gemm) return true;
  }
  return false;
}

// ROCm/aiter#2900: 128 rows of scales take as many bytes as they have without padding, so that from the
// second 128 rows on all stand too early unless the number of blocks is a multiple of 4.
void row_groups_close(const Call& call) {
  call.right();
  for (Direction d : kDirections) {
    const auto& q = call.problem.quantizer(d);
    if (!q || q->format != FormatId::mxfp4 || q->scales != ScaleLayout::gemm) continue;
    const Buffer& scales = call.output(plane_name(d, "scale_gemm"));
    const int64_t blocks = scales.plane->logical.cols, tiles = scales.plane->padded.cols / 4;
    const std::vector<std::byte> at(scales.bytes.begin(), scales.bytes.end());
    std::fill(scales.bytes.begin(), scales.bytes.end(), std::byte{0});
    for (int64_t i = 0; i < scales.plane->logical.rows; ++i)
      for (int64_t j = 0; j < blocks; ++j) {
        const int64_t within = j / 4 * 512 + i % 32 * 16 + i % 128 / 32 * 4 + j % 4;
        scales.bytes[static_cast<size_t>(i / 128 * 128 * blocks + within)] =
            at[static_cast<size_t>(i / 128 * tiles * 512 + within)];
      }
  }
}

bool of_nvfp4_draws(const Problem& p) { return has_format(p, FormatId::nvfp4) && draws(p); }

// arrayfire/arrayfire#2007: the offset of 64 bits passes through a word of 32 on its way to the generator.
void low_word_of_offset(const Call& call) {
  Problem low = call.problem;
  low.rng.offset &= 0xFFFFFFFF;
  call.right_for(low);
}

// ---- split ---------------------------------------------------------------------------

bool any_line(const Problem&) { return true; }

// sgl-project/sglang#8457, ROCm/aiter#4482: one warp sums the sizes of 32 members, and its last sum is not
// carried to the next 32. Only the sum of all is right.
void offsets_of_32(const Call& call) {
  call.right();
  for (const Buffer& b : call.outputs) {
    if (!b.plane->name.ends_with("offsets")) continue;
    const int64_t members = b.plane->logical.cols - 1;
    for (int64_t first = (members - 1) / 32 * 32; first >= 32; first -= 32) {
      const uint32_t before = load(reading(b), first);
      for (int64_t m = first; m < std::min(first + 32, members); ++m)
        store(b, m, load(reading(b), m) - before);
    }
  }
}

bool of_given_scales(const Problem& p) {
  for (Direction d : kDirections) {
    const auto& q = p.quantizer(d);
    if (q && (q->format != FormatId::fp8_delayed || q->row_scaled)) return false;
  }
  return true;
}

// openvdb/fvdb-core#325: a row looks for its member in the offsets and takes the first that begins where it
// may. An empty member before it begins at the same place, so elements are multiplied by that member's scale.
void scale_of_empty(const Call& call) {
  call.right();
  const Split& split = *call.problem.as<Split>();
  Rerun rerun(call.problem, call);
  for (Direction d : kDirections) {
    if (!call.problem.quantizer(d)) continue;
    const Buffer scales = rerun.input(plane_name(d, "given.scale"));
    int64_t first = -1;  // of the empty members before this one
    for (size_t m = 0; m < split.members.size(); ++m) {
      const auto at = static_cast<int64_t>(m);
      if (split.members[m].count() == 0) {
        if (first < 0) first = at;
        continue;
      }
      if (first >= 0) store(scales, at, load(reading(scales), first));
      first = -1;
    }
  }
  rerun.run();
  for (const Buffer& b : call.outputs) {
    if (!b.plane->name.ends_with(".data")) continue;
    for (const Member& m : b.plane->members) {  // memory beyond the members stays
      const size_t at = b.plane->bytes_of(m.offset), size = b.plane->bytes_of(m.padded.count());
      std::ranges::copy(rerun.output(b.plane->name).bytes.subspan(at, size), b.bytes.subspan(at).begin());
    }
  }
}

constexpr Bug kQuantize[] = {
    {"nvfp4_largest_element", "quantize", of_nvfp4_with_amax, largest_element},
    {"fp8_block_lanes_past_edge", "quantize", of_fp8_vectors, lanes_past_the_edge},
    {"mxfp6_exact_powers_doubled", "quantize", of_mxfp6, exact_powers_doubled},
    {"mxfp4_row_groups_close", "quantize", of_mxfp4_gemm, row_groups_close},
    {"sr_low_word_of_offset", "quantize", of_nvfp4_draws, low_word_of_offset},
    {"split_offsets_of_32", "split", any_line, offsets_of_32},
    {"split_scale_of_empty", "split", of_given_scales, scale_of_empty},
};

constexpr Bug kNoSlip = {"no_fifth_slip", "", any_line, [](const Call& call) { call.right(); }};

}  // namespace

std::span<const Bug> bugs_of_quantize() { return kQuantize; }

}  // namespace assay::fifth

namespace assay::third {

const Bug* find_bug(std::string_view name) {
  if (name == fifth::kNoSlip.name) return &fifth::kNoSlip;
  for (const auto bugs : {fifth::bugs_of_quantize(), fifth::bugs_of_attention(), fifth::bugs_of_gemm(),
                          fifth::bugs_of_others()})
    for (const Bug& b : bugs)
      if (b.name == name) return &b;
  return nullptr;
}

}  // namespace assay::third
