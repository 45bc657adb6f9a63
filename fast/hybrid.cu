// NVFP4 beside MXFP8 or MXFP4, default numerics, BF16, in registers: each direction is the side that it would
// be beside one of its own format (N13). Other pairs go through direction lanes.
#include "fast/hybrid.h"

#include "fast/directions.h"
#include "fast/move/mxfp4_side.cuh"
#include "fast/move/nvfp4_pair.cuh"
#include "fast/nvfp4_amax.h"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

using Bf16 = Source<Encoding::bf16>;

// NVFP4 under the amax of its tensor.
struct Nvfp4Side : NoSide {
  static constexpr FormatId kFormat = FormatId::nvfp4;
  static constexpr bool kTileCodes = true, kSecondPass = true, kWide = true;
  Nvfp4Target goes;

  template <class S, bool kRows>
  ASSAY_DEVICE void encode(const Extent& extent, const Place& at,
                           const uint32_t (&words)[kPatch][S::kWords]) const {
    const Nvfp4Chain chain;
    nvfp4_direction<S, kRows, false, false>(goes, extent, at, chain.of_tensor(*goes.amax), words);
  }
  ASSAY_DEVICE void store_columns(const Extent& extent, const Place& at) const {
    store_nvfp4_columns(goes, extent, at);
  }
};

// Rows of MXFP8 beside columns of MXFP4 spill: one of the two is NVFP4.
template <class Row, class Col>
inline constexpr bool kOneNvfp4 = (Row::kFormat == FormatId::nvfp4) != (Col::kFormat == FormatId::nvfp4);

// Whether a quantizer is one that has a side here.
bool has_side(const Quantizer& q) {
  const bool format =
      q.format == FormatId::mxfp8 || q.format == FormatId::mxfp4 || q.format == FormatId::nvfp4;
  return format && q.numerics == Numerics{} && !is_square(q.block) && !q.rht && !q.row_scaled &&
         q.round == Round::rne && q.four_over_six == FourOverSix::off;
}

// Calls f with the side of one direction.
template <class F> void with_side(const Job& job, Direction d, const Nvfp4Amaxes& amaxes, F&& f) {
  const Quantizer& q = *job.problem.quantizer(d);
  const Target to = block_target(job, d);
  if (q.format == FormatId::mxfp4) return f(Mxfp4Side{to});
  if (q.format == FormatId::mxfp8)
    return with_fp8(q.element, [&](auto element) { f(Mxfp8Side<element.value, false>{to, {}}); });
  Nvfp4Side side;
  side.goes = {to.data, to.scales, to.gemm, amaxes.of(d), job.output(d, "amax"), {}};
  f(side);
}

// What vectors need, whichever the sides are.
bool vectors(const Job& job) {
  const Shape s = job.problem.x.shape;
  const Target row = block_target(job, Direction::row), col = block_target(job, Direction::col);
  return s.cols % kPatch == 0 && s.rows % kPatch == 0 && aligned(16, {job.input<void>("x")}) &&
         aligned(8, {row.data, col.data}) && aligned(4, {row.scales, col.scales});
}

}  // namespace

std::string quantize_hybrid(const Job& job) {
  const Problem& p = job.problem;
  if (job.policy == Policy::general || p.x.source != Encoding::bf16 || p.col_source != ColSource::original ||
      !has_side(*p.row) || !has_side(*p.col) || !vectors(job) ||
      (p.row->format == FormatId::nvfp4) == (p.col->format == FormatId::nvfp4))
    return quantize_directions(job);

  const Nvfp4Amaxes amaxes(job);
  if (amaxes.computed() && p.x.shape.count() == 0) Nvfp4Amaxes::store_for_nothing(job);
  else if (amaxes.computed()) amaxes.find(job);
  with_side(job, Direction::row, amaxes, [&]<class Row>(const Row& row) {
    with_side(job, Direction::col, amaxes, [&]<class Col>(const Col& col) {
      if constexpr (kOneNvfp4<Row, Col>) launch_block_pair<Bf16>("hybrid_pair", job, row, col);
    });
  });
  const auto name = [&](Direction d) { return std::string(info(p.quantizer(d)->format).name); };
  return (amaxes.computed() ? "amax, " : "") + std::string("block_pair<") + name(Direction::row) + " row, " +
         name(Direction::col) + " col> " + how(p);
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
