#include "tests/self/hunt/sixth_bugs.h"

#include <cmath>

namespace assay::sixth {

namespace {

using reference::bytes;
using reference::Bytes;

// ---- fp8_delayed --------------------------------------------------------------------------------

bool takes_delayed(const Problem& p) { return all_are(p, FormatId::fp8_delayed); }

// NVIDIA/TransformerEngine#534: the amax is the largest element, not the largest magnitude. Codes are right,
// since their scale is given.
void delayed_amax_signed(const Call& call) {
  call.right();
  Rerun positive(call.problem, call);
  clear(positive.input("x"), [](int64_t, int64_t, float x) { return std::signbit(x); });
  positive.run();
  for (const Direction d : kDirections)
    if (call.problem.quantizer(d)) positive.give(plane_name(d, "amax"), call);
}

// ---- fp8_current --------------------------------------------------------------------------------

bool takes_current(const Problem& p) { return all_are(p, FormatId::fp8_current); }

// flashinfer-ai/flashinfer#2639: scaled elements are clamped to 448 whatever the encoding of the data is. The
// scale of E5M2 data aims at 57344.
void current_e5m2_clamped_at_448(const Call& call) {
  constexpr uint8_t kCodeOf448 = 0x5F, kLargest = 0x7B, kMagnitude = 0x7F;
  call.right();
  for (const Direction d : kDirections) {
    const auto& q = call.problem.quantizer(d);
    if (!q || q->element != Encoding::e5m2) continue;
    recode(call, d, [](float, uint8_t& code) {
      const int magnitude = code & kMagnitude;
      if (magnitude > kCodeOf448 && magnitude <= kLargest)
        code = static_cast<uint8_t>((code & ~kMagnitude) | kCodeOf448);
    });
  }
}

// ---- fp8_block ----------------------------------------------------------------------------------

bool takes_block_rows(const Problem& p) {
  return all_are(p, FormatId::fp8_block) && !p.col && p.row->block == Block::b1x128;
}

// vllm-project/vllm-xpu-kernels#521: the amax is reduced by shuffles among 16 lanes of 16 bytes, which is a
// whole block of a 16-bit source. A block of F32 needs 32 lanes: each half of it is quantized by an amax of
// its own, and the scale of the first half is stored.
void block_half_warp_amax(const Call& call) {
  if (call.problem.x.source != Encoding::f32) return call.right();
  constexpr int64_t kLength = length_of(Block::b1x128);
  const auto is_first = [](int64_t c) { return c % kLength < kLength / 2; };
  Rerun first(call.problem, call), second(call.problem, call);
  clear(first.input("x"), [&](int64_t, int64_t c, float) { return !is_first(c); });
  clear(second.input("x"), [&](int64_t, int64_t c, float) { return is_first(c); });
  first.run();
  second.run();
  first.give(plane_name(Direction::row, scale_stem(call.problem.row->scales)), call);
  Bytes codes = bytes(reading(first.output("row.data"))), others = bytes(reading(second.output("row.data")));
  for (int64_t r = 0; r < codes.rows(); ++r)
    for (int64_t c = 0; c < codes.cols(); ++c)
      if (!is_first(c)) codes(r, c) = others(r, c);
  reference::store(call.output("row.data"), codes);
}

// ---- mxfp8 --------------------------------------------------------------------------------------

bool takes_mxfp8_rows(const Problem& p) { return all_are(p, FormatId::mxfp8) && !p.col; }

// iree-org/iree#20252: the path that reads vectors, which rows of a multiple of 64 elements take, flushes
// codes below the least normal value to a zero of their sign. The scalar path keeps them.
void mxfp8_vector_path_flushes(const Call& call) {
  call.right();
  if (call.problem.x.shape.cols % 64 != 0) return;
  const int fractions = 1 << info(call.problem.row->element).mantissa_bits;
  recode(call, Direction::row, [&](float, uint8_t& code) {
    if ((code & 0x7F) < fractions) code &= 0x80;
  });
}

// ---- nvfp4 --------------------------------------------------------------------------------------

bool takes_nvfp4_finite(const Problem& p) {
  for (const Direction d : kDirections)
    if (const auto& q = p.quantizer(d);
        q && (q->round != Round::rne || q->rht || q->four_over_six != FourOverSix::off || q->amax))
      return false;
  return all_are(p, FormatId::nvfp4) && p.col_source == ColSource::original;
}

// ROCm/hipBLASLt#719: infinite elements take part in no amax, neither the tensor's nor a block's. They are
// cast to the largest code as ever.
void nvfp4_infinities_skipped(const Call& call) {
  Rerun finite(call.problem, call);
  clear(finite.input("x"), [](int64_t, int64_t, float x) { return std::isinf(x); });
  finite.run();
  for (const Buffer& b : call.outputs) finite.give(b.plane->name, call);
  for (const Direction d : kDirections)
    if (call.problem.quantizer(d))
      recode(call, d, [](float x, uint8_t& code) {
        if (std::isinf(x)) code = std::signbit(x) ? 0xF : 0x7;
      });
}

// ---- mxfp6 --------------------------------------------------------------------------------------

bool takes_mxfp6(const Problem& p) {
  return all_are(p, FormatId::mxfp6) && p.col_source == ColSource::original;
}

// tile-ai/tilelang#3024: elements are clamped by min(max(x, -MAX), MAX), whose max drops a NaN, so that a NaN
// becomes the most negative value.
void mxfp6_nan_to_lowest(const Call& call) {
  constexpr uint8_t kLowest = 0x3F;
  call.right();
  for (const Direction d : kDirections)
    if (call.problem.quantizer(d))
      recode(call, d, [](float x, uint8_t& code) {
        if (std::isnan(x)) code = kLowest;
      });
}

// ---- mxfp4 --------------------------------------------------------------------------------------

bool takes_mxfp4(const Problem& p) {
  return all_are(p, FormatId::mxfp4) && p.col_source == ColSource::original;
}

// ROCm/aiter#2247: whole blocks round ties to even; the copy of the code that handles the partial block at
// the end of a row still rounds them away from zero.
void mxfp4_tail_ties_away(const Call& call) {
  constexpr int64_t kLength = length_of(Block::b1x32);
  call.right();
  Problem older = call.problem;
  for (const Direction d : kDirections)
    if (older.quantizer(d)) older.quantizer(d)->numerics.element_ties = ElementTies::away;
  Rerun old(older, call);
  old.run();
  for (const Direction d : kDirections) {
    if (!call.problem.quantizer(d)) continue;
    const Buffer& data = call.output(plane_name(d, "data"));
    const Bytes before = bytes(reading(old.output(data.plane->name)));
    Bytes codes = bytes(reading(data));
    const int64_t whole = data.plane->logical.cols / kLength * kLength;
    for (int64_t r = 0; r < codes.rows(); ++r)
      for (int64_t c = whole; c < data.plane->logical.cols; ++c) codes(r, c) = before(r, c);
    reference::store(data, codes);
  }
}

constexpr Bug kBugs[] = {
    {"delayed_amax_signed", "quantize", takes_delayed, delayed_amax_signed},
    {"current_e5m2_clamped_at_448", "quantize", takes_current, current_e5m2_clamped_at_448},
    {"block_half_warp_amax", "quantize", takes_block_rows, block_half_warp_amax},
    {"mxfp8_vector_path_flushes", "quantize", takes_mxfp8_rows, mxfp8_vector_path_flushes},
    {"nvfp4_infinities_skipped", "quantize", takes_nvfp4_finite, nvfp4_infinities_skipped},
    {"mxfp6_nan_to_lowest", "quantize", takes_mxfp6, mxfp6_nan_to_lowest},
    {"mxfp4_tail_ties_away", "quantize", takes_mxfp4, mxfp4_tail_ties_away},
};

constexpr Bug kNoSlip = {"no_sixth_slip", "", [](const Problem&) { return true; },
                         [](const Call& call) { call.right(); }};

}  // namespace

std::span<const Bug> bugs_of_quantize() { return kBugs; }

}  // namespace assay::sixth

namespace assay::third {

const Bug* find_bug(std::string_view name) {
  if (name == sixth::kNoSlip.name) return &sixth::kNoSlip;
  for (const auto bugs : {sixth::bugs_of_quantize(), sixth::bugs_of_directions(), sixth::bugs_of_split(),
                          sixth::bugs_of_others()})
    for (const Bug& bug : bugs)
      if (bug.name == name) return &bug;
  return nullptr;
}

}  // namespace assay::third
