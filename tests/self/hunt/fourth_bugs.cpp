// The fourth set: quantize and split, and where a bug is found by its name.
#include "tests/self/hunt/fourth_bugs.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "reference/tensor.h"

namespace assay::fourth {

namespace {

using reference::load;
using reference::store;

bool has_format(const Problem& p, FormatId format) {
  for (Direction d : kDirections)
    if (p.quantizer(d) && p.quantizer(d)->format == format) return true;
  return false;
}

// The inputs of a call, some of them replaced.
class Inputs {
 public:
  explicit Inputs(const Call& call) : call_(call), inputs_(call.inputs.begin(), call.inputs.end()) {}
  // The bytes of an input, which can be written from now on.
  Buffer own(size_t i) {
    bytes_.emplace_back(inputs_[i].bytes.begin(), inputs_[i].bytes.end());
    inputs_[i].bytes = bytes_.back();
    return {inputs_[i].plane, bytes_.back()};
  }
  void run() const { Call{call_.problem, inputs_, call_.outputs}.right(); }

 private:
  const Call& call_;
  std::vector<ConstBuffer> inputs_;
  std::vector<std::vector<std::byte>> bytes_;  // moving a vector leaves its bytes where they are
};

// ---- quantize ------------------------------------------------------------------------

bool of_mxfp8(const Problem& p) { return has_format(p, FormatId::mxfp8); }

// Where scale (i, j) of MXFP8 stands: i along the dimension that is not contracted, j along the other one.
int64_t scale_at(const Plane& plane, bool col, int64_t i, int64_t j) {
  if (plane.layout == ScaleLayout::compact) return (col ? j : i) * plane.padded.cols + (col ? i : j);
  const int64_t tiles = (col ? plane.padded.rows : plane.padded.cols) / 4;
  return (i / 128 * tiles + j / 4) * 512 + i % 32 * 16 + i % 128 / 32 * 4 + j % 4;
}

// pytorch/ao#4254 (review): 32 lanes reduce the amax of a 32x32 tile, and only the first of them stores the
// scale. It should stand in all 32 rows, or columns; what lies there besides the first is the cleared buffer.
void square_scale_once(const Call& call) {
  call.right();
  for (Direction d : kDirections) {
    const auto& q = call.problem.quantizer(d);
    if (!q || q->format != FormatId::mxfp8 || !is_square(q->block)) continue;
    const Buffer& scales = call.output(plane_name(d, scale_stem(q->scales)));
    const bool col = d == Direction::col;
    const Shape shape = scales.plane->logical;
    for (int64_t i = 0; i < (col ? shape.cols : shape.rows); ++i)
      for (int64_t j = 0; j < (col ? shape.rows : shape.cols); ++j)
        if (i % 32 != 0) store(scales, scale_at(*scales.plane, col, i, j), 0);
  }
}

bool of_packed_mxfp6(const Problem& p) {
  for (Direction d : kDirections)
    if (const auto& q = p.quantizer(d); q && q->format == FormatId::mxfp6 && is_packed(*q)) return true;
  return false;
}

// torchao's pack_uint6 (docs/numerics.md, N18.4): four codes fill three bytes in the order of a library whose
// kernels read the upper four bits and the lower two apart.
void packed_in_parts(const Call& call) {
  call.right();
  for (Direction d : kDirections) {
    const auto& q = call.problem.quantizer(d);
    if (!q || q->format != FormatId::mxfp6 || !is_packed(*q)) continue;
    const std::span<std::byte> data = call.output(plane_name(d, "data")).bytes;
    for (size_t at = 0; at + 3 <= data.size(); at += 3) {
      const auto byte = [&](size_t i) { return std::to_integer<unsigned>(data[at + i]); };
      const unsigned word = byte(0) | byte(1) << 8 | byte(2) << 16;
      const unsigned a = word & 63, b = word >> 6 & 63, c = word >> 12 & 63, e = word >> 18;
      data[at] = static_cast<std::byte>(a >> 2 << 4 | b >> 2);
      data[at + 1] = static_cast<std::byte>(e >> 2 << 4 | c >> 2);
      data[at + 2] = static_cast<std::byte>((a & 3) << 6 | (b & 3) << 4 | (e & 3) << 2 | (c & 3));
    }
  }
}

bool of_rows_of_fp8(const Problem& p) {
  for (Direction d : kDirections)
    if (const auto& q = p.quantizer(d); q && q->format == FormatId::fp8_current && q->row_scaled)
      return p.col_source == ColSource::original;
  return false;
}

// sgl-project/sglang#13993: the warps of a block quantize eight rows, one each, and keep their scale in one
// place of shared memory, where that of the last row stays. The scales that are stored are right.
void token_scale_shared(const Call& call) {
  constexpr int64_t kRowsOfBlock = 8;
  call.right();
  for (Direction d : kDirections) {
    const auto& q = call.problem.quantizer(d);
    if (!q || q->format != FormatId::fp8_current || !q->row_scaled) continue;
    // A line that is given the scale of each row.
    Problem given = call.problem;
    given.quantizer(d == Direction::row ? Direction::col : Direction::row).reset();
    given.quantizer(d)->format = FormatId::fp8_delayed;
    Rerun rerun(given, call);
    const bool decodes = q->numerics.scale_order != ScaleOrder::encode_first;
    const ConstBuffer scales = reading(call.output(plane_name(d, decodes ? "scale_inv" : "scale")));
    const Buffer own = rerun.input(plane_name(d, "given.scale"));
    const int64_t rows = scales.plane->logical.rows;
    for (int64_t r = 0; r < rows; ++r)
      store(own, r, load(scales, std::min(r / kRowsOfBlock * kRowsOfBlock + kRowsOfBlock, rows) - 1));
    rerun.run();
    rerun.give(plane_name(d, "data"), call);
  }
}

// ---- split ---------------------------------------------------------------------------

bool has_given_value(const Problem& p) {
  for (Direction d : kDirections)
    if (const auto& q = p.quantizer(d); q && (q->format == FormatId::fp8_delayed || q->amax)) return true;
  return false;
}

// NVIDIA/cutlass#3392: the index of the group is 0 by the time that the scale of a group is read, so that all
// members are quantized by the scale, or the amax, that is given for the first.
void value_of_first(const Call& call) {
  Inputs inputs(call);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Plane& plane = *call.inputs[i].plane;
    if (!plane.name.ends_with(".given.scale") && !plane.name.ends_with(".given.amax")) continue;
    const auto& q = call.problem.quantizer(*plane.direction);
    if (q->row_scaled) continue;
    const Buffer own = inputs.own(i);
    for (int64_t m = 1; m < plane.padded.count(); ++m) store(own, m, load(call.inputs[i], 0));
  }
  inputs.run();
}

bool of_mxfp8_columns(const Problem& p) {
  return p.col && p.col->format == FormatId::mxfp8 && p.col->block == Block::b1x32 &&
         p.col_source == ColSource::original &&
         (p.as<Split>()->vary == Vary::none || p.as<Split>()->vary == Vary::first);
}

// pytorch/ao#4062, pytorch/ao#2841: blocks of 32 rows are counted from where a member begins, but a block is
// read to its full length, so that the last one of a member takes its amax over rows of the next member too.
void tail_reads_on(const Call& call) {
  call.right();
  const std::vector<Problem> members = member_problems(call.problem);
  const ConstBuffer& x = call.input("x");
  const Buffer &data = call.output("col.data"),
               &scales = call.output(plane_name(Direction::col, scale_stem(call.problem.col->scales)));
  int64_t total = 0, row = 0;
  for (const Problem& m : members) total += m.x.shape.rows;
  for (size_t m = 0; m < members.size(); row += members[m].x.shape.rows, ++m) {
    Problem longer = members[m];
    const int64_t rows = longer.x.shape.rows, cols = longer.x.shape.cols;
    longer.x.shape.rows = std::min(round_up(rows, 32), total - row);
    if (longer.x.shape.rows == rows || cols == 0) continue;
    longer.row.reset();
    Rerun rerun(longer, call);
    const Buffer own = rerun.input("x");
    const auto from = x.bytes.begin() + static_cast<std::ptrdiff_t>(x.plane->bytes_of(row * cols));
    std::copy_n(from, own.bytes.size(), own.bytes.begin());
    rerun.run();
    const auto put = [&](const Buffer& to, size_t bytes) {
      const size_t at = to.plane->bytes_of(to.plane->members[m].offset);
      std::copy_n(rerun.output(to.plane->name).bytes.begin(), bytes,
                  to.bytes.begin() + static_cast<std::ptrdiff_t>(at));
    };
    put(data, data.plane->bytes_of(rows * cols));
    put(scales, rerun.output(scales.plane->name).bytes.size());
  }
}

bool varies_last(const Problem& p) { return p.as<Split>()->vary == Vary::last; }

// NVIDIA/TransformerEngine#3114 (review): members that differ in their last dimension are taken for column
// slices of one matrix, whose rows are as long as all members together. They lie one after the other.
void column_slices(const Call& call) {
  Inputs inputs(call);
  const std::vector<Shape>& members = call.problem.as<Split>()->members;
  int64_t width = 0;
  for (Shape m : members) width += m.cols;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (call.inputs[i].plane->name != "x") continue;
    const Buffer own = inputs.own(i);
    int64_t first = 0, to = 0;
    for (Shape m : members) {
      for (int64_t r = 0; r < m.rows; ++r)
        for (int64_t c = 0; c < m.cols; ++c) store(own, to++, load(call.inputs[i], r * width + first + c));
      first += m.cols;
    }
  }
  inputs.run();
}

constexpr Bug kBugs[] = {
    {"mxfp8_square_scale_once", "quantize", of_mxfp8, square_scale_once},
    {"mxfp6_packed_in_parts", "quantize", of_packed_mxfp6, packed_in_parts},
    {"fp8_token_scale_shared", "quantize", of_rows_of_fp8, token_scale_shared},
    {"split_value_of_first", "split", has_given_value, value_of_first},
    {"split_tail_reads_on", "split", of_mxfp8_columns, tail_reads_on},
    {"split_column_slices", "split", varies_last, column_slices},
};

}  // namespace

std::span<const Bug> bugs_of_quantize() { return kBugs; }

}  // namespace assay::fourth

namespace assay::third {

const Bug* find_bug(std::string_view name) {
  for (std::span<const Bug> bugs : {fourth::bugs_of_attention(), fourth::bugs_of_gemm(),
                                    fourth::bugs_of_quantize(), fourth::bugs_of_others()})
    for (const Bug& bug : bugs)
      if (bug.name == name) return &bug;
  return nullptr;
}

}  // namespace assay::third
