#include "contract/dispatch.h"

#include "contract/planes.h"

namespace assay {

namespace {

TeKernel rejected(std::string why) { return {"", std::move(why), {}, {}}; }

// N8.1
TeKernel mxfp8_kernel(const Problem& p, const Quantizer& q) {
  const bool row = p.row.has_value(), col = p.col.has_value();
  const Shape s = p.x.shape;
  if (p.arch == Arch::sm90) return rejected("TransformerEngine's MXFP8 kernels need sm100 or later");
  if (s.cols % 16 != 0) return rejected("TransformerEngine's MXFP8 kernels need a multiple of 16 columns (row pitch of a TMA tile)");
  const bool shape_fits = (row && !col && s.cols % 128 == 0) || (row && col && s.rows % 32 == 0 && s.cols % 32 == 0);
  const bool eligible = !p.as<Quantize>()->noop && p.x.source != Encoding::f32 && q.block == Block::b1x32 && shape_fits;
  if (p.dispatch == Dispatch::specialised && !eligible)
    return rejected("the specialised MXFP8 kernels need bf16 or f16, 1x32 blocks, no noop tensor, and rows alone with columns % 128 == 0 "
                    "or both directions with both sizes % 32 == 0");
  if (!eligible || p.dispatch == Dispatch::generic) return {"mxfp8 generic", "", {}, {}};
  TeKernel k{col ? "mxfp8 specialised, both directions" : "mxfp8 specialised, rows", "", {}, {}};
  k.row.neg_zero = k.col.neg_zero = NegZero::plus;
  const bool sm100_family = p.arch == Arch::sm100;
  if (col && !sm100_family) k.col.nan_amax = NanAmax::propagate;
  return k;
}

}  // namespace

TeKernel te_kernel(const Problem& p) {
  if (p.as<Swizzle>()) {   // N8.3
    TeKernel k{"nvte_swizzle_scaling_factors", "", {}, {}};
    k.row.swizzle_extent = k.col.swizzle_extent = SwizzleExtent::floor;
    return k;
  }
  if (!p.as<Quantize>()) return {std::string(op_name(p)), "", {}, {}};
  if (p.row && p.col && p.row->format != p.col->format) return rejected("TransformerEngine has no single kernel for a pair of formats");
  const Quantizer& q = p.row ? *p.row : *p.col;
  if (q.format == FormatId::mxfp8) return mxfp8_kernel(p, q);
  if (q.format == FormatId::identity) return {"copy", "", {}, {}};
  if (!p.row) return rejected("TransformerEngine has no per-tensor FP8 kernel for columns alone");   // N8.2
  if (p.dispatch == Dispatch::specialised) return rejected("per-tensor FP8 has no specialised kernel to force: all its kernels agree bit for bit");
  return {p.col ? "fp8 cast_transpose" : "fp8 cast", "", {}, {}};
}

}  // namespace assay
