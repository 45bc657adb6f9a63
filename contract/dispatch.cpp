#include "contract/dispatch.h"

#include <algorithm>

#include "contract/planes.h"

namespace assay {

namespace {

TeKernel rejected(std::string why) { return {"", std::move(why), {}, {}}; }

// N8.1
TeKernel mxfp8_kernel(const Problem& p, const Quantizer& q) {
  const bool row = p.row.has_value(), col = p.col.has_value();
  const Shape s = p.x.shape;
  if (p.arch == Arch::sm90) return rejected("TransformerEngine's MXFP8 kernels need sm100 or later");
  if (s.cols % 16 != 0)
    return rejected(
        "TransformerEngine's MXFP8 kernels need a multiple of 16 columns (row pitch of a TMA tile)");
  const bool shape_fits =
      (row && !col && s.cols % 128 == 0) || (row && col && s.rows % 32 == 0 && s.cols % 32 == 0);
  const bool eligible =
      !p.as<Quantize>()->noop && p.x.source != Encoding::f32 && q.block == Block::b1x32 && shape_fits;
  if (p.dispatch == Dispatch::specialised && !eligible)
    return rejected(
        "the specialised MXFP8 kernels need bf16 or f16, 1x32 blocks, no noop tensor, and rows alone with "
        "columns % 128 == 0 "
        "or both directions with both sizes % 32 == 0");
  if (!eligible || p.dispatch == Dispatch::generic) return {"mxfp8 generic", "", {}, {}};
  TeKernel k{col ? "mxfp8 specialised, both directions" : "mxfp8 specialised, rows", "", {}, {}};
  k.row.neg_zero = k.col.neg_zero = NegZero::plus;
  const bool sm100_family = p.arch == Arch::sm100;
  if (col && !sm100_family) k.col.nan_amax = NanAmax::propagate;
  return k;
}

// N8.4. What the core kernels and their fallback need, for a tensor of rows x cols whose row direction is
// `row` and column direction `col`.
struct Nvfp4Core {
  bool optimized = false;  // t1d or q2d rather than fb
  std::string name;
  Draw draw = Draw::logical;
};
Nvfp4Core nvfp4_core(const Problem& p, bool square, bool row, bool col) {
  const Shape s = p.x.shape;
  Nvfp4Core k;
  k.optimized = p.x.source == Encoding::bf16 && s.rows % 32 == 0 && s.cols % 32 == 0 &&
                (row || (col && square)) && p.dispatch != Dispatch::fb;
  k.name = !k.optimized ? "fb" : square ? "q2d" : "t1d";
  k.draw = !k.optimized ? Draw::te_fb : square ? Draw::te_q2d : Draw::te_t1d;
  return k;
}

// What the fused kernels of RHT do with NaN and infinity.
void spread_special_values(Numerics& n) {
  n.inf_amax = InfAmax::zero;
  n.nan_tensor_amax = NanTensorAmax::unit;
  n.nan_clamp = NanClamp::propagate;
  n.nan_amax = NanAmax::propagate;
}

TeKernel nvfp4_kernel(const Problem& p) {
  const bool row = p.row.has_value(), col = p.col.has_value(), rht = col && p.col->rht, sr = draws(p);
  const Quantizer& any = row ? *p.row : *p.col;
  const Shape s = p.x.shape;
  auto any_of = [&](auto holds) { return (row && holds(*p.row)) || (col && holds(*p.col)); };
  const bool square = is_square(any.block), row_scaled = any.row_scaled,
             gemm = any_of([](const Quantizer&q) { return q.scales == ScaleLayout::gemm; });
  if (p.arch == Arch::sm90) return rejected("TransformerEngine's NVFP4 kernels need sm100 or later");
  if (s.rows % 16 != 0 || s.cols % 16 != 0)
    return rejected("TransformerEngine's NVFP4 needs multiples of 16 rows and columns");
  if (row && col &&
      (p.row->block != p.col->block || p.row->row_scaled != p.col->row_scaled ||
       p.row->four_over_six != p.col->four_over_six || p.row->e4m3_max != p.col->e4m3_max ||
       p.row->round != p.col->round || p.row->scales != p.col->scales))
    return rejected(
        "TransformerEngine's NVFP4 kernels make both directions in the same way, except for the rotation");
  if (p.dispatch == Dispatch::generic || p.dispatch == Dispatch::specialised)
    return rejected("NVFP4 has the kernels t1d, q2d, fb and rhtrc to force");
  if (row_scaled && !row) return rejected("row-scaled NVFP4 needs row data");

  if (any.four_over_six != FourOverSix::off) {
    if (p.dispatch != Dispatch::automatic) return rejected("four-over-six has one kernel");
    if (gemm) return rejected("the four-over-six kernel writes compact scales");
    if (square && !row) return rejected("four-over-six with 16x16 blocks needs row data");
    if (row_scaled && col) return rejected("row-scaled four-over-six makes only row data");
    return {"nvfp4 four over six", "", {}, {}};
  }

  TeKernel k;
  if (sr) {  // N12.3, N12.5
    const bool hardware = p.arch == Arch::sm100;
    k.row.sr_rule = hardware ? SrRule::integer : SrRule::fma;
    k.row.sr_bytes = hardware ? SrBytes::interleaved : SrBytes::ascending;
    k.col = k.row;
  }
  const bool fits = s.rows % 64 == 0 && s.cols % 128 == 0 && (p.arch == Arch::sm100 || p.arch == Arch::sm110);
  const auto fused = [&] {
    if (!fits) return rejected("rhtrc needs a multiple of 64 rows and of 128 columns, and sm100 or sm110");
    if (sr && p.arch != Arch::sm100) return rejected("rhtrc has no stochastic rounding off sm100");
    k.name = "nvfp4 rhtrc";
    for (Numerics* n : {&k.row, &k.col}) {
      spread_special_values(*n);
      if (sr) n->draw = Draw::te_rhtrc;
    }
    return k;
  };
  if (rht) {
    if (square)
      return rejected(
          "with RHT, TransformerEngine honours 16x16 blocks in some shapes and ignores them in others");
    k.col.rht_sum = RhtSum::tc16;
    if (p.dispatch == Dispatch::rhtrc || (fits && p.dispatch == Dispatch::automatic)) return fused();
    if (gemm) return rejected("without the fused kernel, NVFP4 with RHT writes compact scales");
  }
  // The fused kernel serves rows alone as well; no key of such a line says that a rotation was meant, so it
  // is asked for by name.
  if (p.dispatch == Dispatch::rhtrc) {
    if (col || square || row_scaled || p.x.source != Encoding::bf16)
      return rejected("rhtrc is for col.rht=1, or for unscaled bf16 rows alone in blocks of 1x16");
    return fused();
  }

  // With RHT off the fused path, columns are the rows of the rotated transpose, a launch of their own.
  const Nvfp4Core rows = nvfp4_core(p, square, row || rht, col && !rht);
  if (p.dispatch == Dispatch::t1d && (square || !rows.optimized))
    return rejected("t1d needs bf16, sizes that are multiples of 32, 1x16 blocks and row data");
  if (p.dispatch == Dispatch::q2d && (!square || !rows.optimized))
    return rejected("q2d needs bf16, sizes that are multiples of 32 and 16x16 blocks");
  if (row_scaled && col && !rows.optimized)
    return rejected("row-scaled columns need bf16 and sizes that are multiples of 32");
  if (gemm && rows.name == "t1d") return rejected("t1d writes compact scales");
  if (gemm && rows.name == "q2d" && (s.rows % 128 != 0 || s.cols % 128 != 0))
    return rejected("q2d writes GEMM scales for sizes that are multiples of 128");
  k.name = "nvfp4 " + rows.name + (rht ? ", columns rotated first" : "");
  if (sr) k.row.draw = k.col.draw = rows.draw;
  return k;
}

// N8.5
TeKernel fp8_block_kernel(const Problem& p) {
  for (Direction d : kDirections) {
    if (!p.quantizer(d)) continue;
    if (p.arch != Arch::sm90 && !p.quantizer(d)->pow2)
      return rejected("TransformerEngine's blockwise FP8 needs power-of-two scales from sm100 on");
    if (p.quantizer(d)->scales == ScaleLayout::gemm)
      return rejected("no blockwise FP8 kernel writes GEMM scales: they are converted afterwards");
  }
  if (p.dispatch != Dispatch::automatic) return rejected("blockwise FP8 has no kernel to force");
  TeKernel k{is_square((p.row ? p.row : p.col)->block) ? "fp8_block square" : "fp8_block vector", "", {}, {}};
  k.row.scale_limit = k.col.scale_limit = ScaleLimit::source_max;
  return k;
}

// N8.7
TeKernel group_kernel(const Problem& p) {
  const Split& op = *p.as<Split>();
  if (p.dispatch != Dispatch::automatic) return rejected("a grouped quantize has no kernel to force");
  if (p.row && p.col && p.row->format != p.col->format)
    return rejected("TransformerEngine has no grouped kernel for a pair of formats");
  if (p.row && p.col && p.col_source != ColSource::original)
    return rejected("TransformerEngine has no grouped kernel for columns of dequantized rows");
  const Quantizer& q = p.row ? *p.row : *p.col;
  auto every = [&](auto holds) { return std::all_of(op.members.begin(), op.members.end(), holds); };
  const bool one_width = op.vary == Vary::none || op.vary == Vary::first;
  const bool rows_128 = every([](Shape m) { return m.rows % 128 == 0; }),
             cols_128 = every([](Shape m) { return m.cols % 128 == 0; });
  switch (q.format) {
    case FormatId::identity: return {"copy", "", {}, {}};
    case FormatId::fp8_current: {
      TeKernel k{"group fp8 current", "", {}, {}};
      if (p.arch == Arch::sm90) return k;
      if (!every([](Shape m) { return m.cols % 16 == 0; }))
        return rejected(
            "the sign of a zero depends on its column if the rows of a member are not whole vectors: "
            "columns % 16 == 0");
      k.row.neg_zero = k.col.neg_zero = NegZero::plus;
      return k;
    }
    case FormatId::fp8_block: {
      if (p.arch != Arch::sm90)
        return rejected("TransformerEngine's grouped blockwise FP8 kernel is for sm90");
      if (!one_width || !rows_128 || !every([](Shape m) { return m.cols % 16 == 0; }))
        return rejected(
            "grouped blockwise FP8 needs one number of columns, a multiple of 16, and multiples of 128 rows");
      TeKernel k{"group fp8_block", "", {}, {}};
      k.row.scale_limit = k.col.scale_limit = ScaleLimit::source_max;
      return k;
    }
    case FormatId::mxfp8:
      if (p.arch == Arch::sm90) return rejected("TransformerEngine's MXFP8 kernels need sm100 or later");
      if (!rows_128 || (!one_width && !cols_128))
        return rejected(
            "grouped MXFP8 needs members of multiples of 128 rows, and of 128 columns if the columns vary");
      return {"group mxfp8", "", {}, {}};
    case FormatId::nvfp4: {
      if (p.col && !p.col->rht)
        return rejected("without RHT, TransformerEngine quantizes NVFP4 members one by one");
      if (p.arch != Arch::sm100 && p.arch != Arch::sm110)
        return rejected("TransformerEngine's grouped NVFP4 kernels are for sm100 and sm110");
      const bool rows_64 = every([](Shape m) { return m.rows % 64 == 0; });
      if (!one_width || !rows_64 || !cols_128 || p.x.source != Encoding::bf16 || is_square(q.block))
        return rejected(
            "grouped NVFP4 needs bf16, 1x16 blocks, one number of columns, and multiples of 64 rows and 128 "
            "columns");
      if (draws(p)) return rejected("grouped NVFP4 draws by packed coordinates, which are not modelled");
      if (!p.col) return {"group nvfp4 rows", "", {}, {}};
      TeKernel k{rows_128 ? "group nvfp4 rhtrc" : "group nvfp4 rows, columns rhtc", "", {}, {}};
      if (rows_128) spread_special_values(k.row);
      spread_special_values(k.col);
      k.col.rht_sum = RhtSum::tc16;
      return k;
    }
    case FormatId::fp8_delayed:
    case FormatId::mxfp6:
    case FormatId::mxfp4: break;
  }
  return rejected("TransformerEngine has no grouped kernel for " + std::string(info(q.format).name));
}

}  // namespace

TeKernel te_kernel(const Problem& p) {
  for (Direction d : kDirections)  // N8.2
    if (p.quantizer(d) && info(p.quantizer(d)->format).per_tensor_fp8() && p.quantizer(d)->row_scaled)
      return rejected("TransformerEngine scales per-tensor FP8 by the tensor, not by the row");
  if (p.as<Split>()) return group_kernel(p);
  if (p.as<Swizzle>()) {  // N8.3
    TeKernel k{"nvte_swizzle_scaling_factors", "", {}, {}};
    k.row.swizzle_extent = k.col.swizzle_extent = SwizzleExtent::floor;
    return k;
  }
  if (!p.as<Quantize>()) return {std::string(op_name(p)), "", {}, {}};
  if (p.row && p.col && p.row->format != p.col->format)
    return rejected("TransformerEngine has no single kernel for a pair of formats");
  if (p.row && p.col && p.col_source != ColSource::original)
    return rejected("TransformerEngine has no single kernel for columns of dequantized rows");  // N8.6
  const Quantizer& q = p.row ? *p.row : *p.col;
  switch (q.format) {
    case FormatId::mxfp6: return rejected("TransformerEngine has no MXFP6 kernel");
    case FormatId::mxfp4: return rejected("TransformerEngine has no MXFP4 kernel");
    case FormatId::nvfp4: return nvfp4_kernel(p);
    case FormatId::fp8_block: return fp8_block_kernel(p);
    case FormatId::mxfp8: return mxfp8_kernel(p, q);
    case FormatId::identity: return {"copy", "", {}, {}};
    case FormatId::fp8_delayed:
    case FormatId::fp8_current: break;
  }
  if (!p.row) return rejected("TransformerEngine has no per-tensor FP8 kernel for columns alone");  // N8.2
  if (p.dispatch == Dispatch::specialised)
    return rejected("per-tensor FP8 has no specialised kernel to force: all its kernels agree bit for bit");
  return {p.col ? "fp8 cast_transpose" : "fp8 cast", "", {}, {}};
}

std::string te_rejection(const Problem& p) {
  return p.flavour == Flavour::te ? te_kernel(p).rejected : std::string();
}

}  // namespace assay
