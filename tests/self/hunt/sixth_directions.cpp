// Bugs of kernels that make both directions, or columns: what one direction owes to the other.
#include <algorithm>
#include <string>

#include "tests/self/hunt/sixth_bugs.h"

namespace assay::sixth {

namespace {

using reference::bytes;
using reference::Bytes;

void give_columns(const Rerun& from, const Call& call) {
  for (const Buffer& b : call.outputs)
    if (b.plane->direction == Direction::col) from.give(b.plane->name, call);
}

bool is_plain(const Quantizer& q) { return q.numerics == Numerics{}; }

// ---- hybrid pairs -------------------------------------------------------------------------------

bool takes_kept_columns(const Problem& p) {
  return p.row && p.col && p.col->format == FormatId::identity && p.row->format != FormatId::identity &&
         p.col_source == ColSource::original && is_plain(*p.row) && is_plain(*p.col);
}

// NVIDIA/TransformerEngine#2644: the columns of a pair are kept in high precision, but what is kept is the
// quantized rows dequantized, not x.
void pair_identity_from_rows(const Call& call) {
  call.right();
  Problem other = call.problem;
  other.col_source = ColSource::row_dequantized;
  Rerun rerun(other, call);
  rerun.run();
  give_columns(rerun, call);
}

bool takes_requantized(const Problem& p) {
  return p.row && p.col && p.row->format == FormatId::nvfp4 && !p.row->amax &&
         p.col->format != FormatId::identity && !p.col->rht && p.col_source == ColSource::row_dequantized &&
         is_plain(*p.row) && is_plain(*p.col);
}

// flashinfer-ai/flashinfer#5128: the columns are quantized from the dequantized rows, whose values stay in
// binary32 registers and are not rounded to the source's encoding.
void pair_columns_from_f32(const Call& call) {
  call.right();
  Problem reader = call.problem;
  reader.op = Dequantize{Encoding::f32, CodesFrom::quantized};
  reader.col.reset();
  reader.col_source = ColSource::original;
  Rerun dequantized(reader, call);
  for (const std::string& name : {std::string("row.amax"), std::string("row.data"),
                                  plane_name(Direction::row, scale_stem(reader.row->scales))})
    std::ranges::copy(call.output(name).bytes, dequantized.input(name).bytes.begin());
  dequantized.run();

  Problem columns = call.problem;
  columns.x.source = Encoding::f32;
  columns.row.reset();
  columns.col_source = ColSource::original;
  Rerun quantized(columns, call);
  std::ranges::copy(dequantized.output("y").bytes, quantized.input("x").bytes.begin());
  quantized.run();
  give_columns(quantized, call);
}

// ---- one format in both directions --------------------------------------------------------------

bool takes_block_pair(const Problem& p) {
  return p.row && p.col && all_are(p, FormatId::fp8_block) && p.col_source == ColSource::original &&
         p.row->scales == ScaleLayout::compact && p.col->scales == ScaleLayout::compact;
}

// PrimeIntellect-ai/prime-rl#3112: whether scales are powers of two is set for each direction, but the kernel
// takes the rows' setting for the columns too.
void block_columns_take_row_pow2(const Call& call) {
  Problem other = call.problem;
  other.col->pow2 = other.row->pow2;
  Rerun rerun(other, call);
  rerun.run();
  for (const Buffer& b : call.outputs) rerun.give(b.plane->name, call);
}

bool takes_mxfp8_pair(const Problem& p) {
  return p.row && p.col && all_are(p, FormatId::mxfp8) && p.col_source == ColSource::original &&
         p.col->scales == ScaleLayout::gemm;
}

// NVIDIA/cutlass#3535: the address of a column scale in the GEMM layout is made with the number of tiles
// along K that the row scales have. What that puts behind the plane's end is not written.
void mxfp8_columns_in_row_tiles(const Call& call) {
  call.right();
  Problem compact = call.problem;
  compact.col->scales = ScaleLayout::compact;
  Rerun rerun(compact, call);
  rerun.run();
  const Buffer &from = rerun.output("col.scale_inv"), &to = call.output("col.scale_gemm");
  const Bytes scales = bytes(reading(from));
  const int64_t tiles = ceil_div(ceil_div(call.problem.x.shape.cols, length_of(Block::b1x32)), 4);
  std::ranges::fill(to.bytes, std::byte{0});
  for (int64_t j = 0; j < from.plane->logical.rows; ++j)
    for (int64_t i = 0; i < from.plane->logical.cols; ++i) {
      const int64_t at = (i / 128 * tiles + j / 4) * 512 + i % 32 * 16 + i % 128 / 32 * 4 + j % 4;
      if (at < std::ssize(to.bytes)) to.bytes[static_cast<size_t>(at)] = std::byte{scales(j, i)};
    }
}

bool takes_drawn_columns(const Problem& p) {
  return all_are(p, FormatId::nvfp4) && p.col && p.col->round == Round::sr && !p.col->rht && !p.col->amax &&
         p.col->four_over_six == FourOverSix::off && p.col_source == ColSource::original;
}

// karpathy/llm.c#597: the counter of the random bits has no direction in it, so columns draw the bits that
// rows have drawn for the block of the same number.
void nvfp4_columns_draw_as_rows(const Call& call) {
  call.right();
  const Shape shape = call.problem.x.shape;
  Problem turned = call.problem;
  turned.x.shape = {shape.cols, shape.rows};
  turned.row = turned.col;
  turned.col.reset();
  Rerun rerun(turned, call);
  const ConstBuffer& x = call.input("x");
  const Buffer transposed = rerun.input("x");
  for (int64_t r = 0; r < shape.rows; ++r)
    for (int64_t c = 0; c < shape.cols; ++c)
      reference::store(transposed, c * shape.rows + r, reference::load(x, r * shape.cols + c));
  rerun.run();
  for (const Buffer& b : call.outputs)
    if (b.plane->direction == Direction::col)
      rerun.give("row" + b.plane->name.substr(b.plane->name.find('.')), call, b.plane->name);
}

constexpr Bug kBugs[] = {
    {"pair_identity_from_rows", "quantize", takes_kept_columns, pair_identity_from_rows},
    {"pair_columns_from_f32", "quantize", takes_requantized, pair_columns_from_f32},
    {"block_columns_take_row_pow2", "quantize", takes_block_pair, block_columns_take_row_pow2},
    {"mxfp8_columns_in_row_tiles", "quantize", takes_mxfp8_pair, mxfp8_columns_in_row_tiles},
    {"nvfp4_columns_draw_as_rows", "quantize", takes_drawn_columns, nvfp4_columns_draw_as_rows},
};

}  // namespace

std::span<const Bug> bugs_of_directions() { return kBugs; }

}  // namespace assay::sixth
