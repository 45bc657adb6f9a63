#include "compare/diagnosis/identify/approximate_kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/expected_values.h"

namespace assay {

namespace {

constexpr double kLeastNormal = 0x1p-126, kMost = 0x1.fffffep127,
                 kInf = std::numeric_limits<double>::infinity();

// One rounding to binary32 of a product of two, or of a quotient: 53 bits are enough for both. Flushed, as
// the kernels are built with ftz.
double narrow(double v) {
  const double f = static_cast<double>(static_cast<float>(v));
  return std::fabs(f) < kLeastNormal ? std::copysign(0.0, f) : f;
}

// What an approximate reciprocal of v may be: every float within one unit in the last place of 1 / v.
std::vector<double> reciprocals(double v) {
  if (v == 0 || std::fabs(v) < kLeastNormal) return {kInf};
  if (std::isinf(v)) return {0};
  const double exact = 1 / v;
  if (std::fabs(exact) < kLeastNormal) return {0};
  const float nearest = static_cast<float>(exact);
  std::vector<double> out;
  for (const float f : {std::nextafterf(nearest, 0), nearest,
                        std::nextafterf(nearest, std::numeric_limits<float>::infinity())}) {
    const double unit = std::ldexp(1.0, std::ilogb(exact) - 23);
    if (std::fabs(static_cast<double>(f) - exact) <= unit) out.push_back(static_cast<double>(f));
  }
  return out;
}

// Nearest code of a grid to |v|, ties to the even one, saturating; NaN gives `nan`.
class Grid {
 public:
  Grid(Encoding e, uint32_t nan) : nan_(nan) {
    for (uint32_t c = 0; c <= info(e).max_finite; ++c) values_.push_back(value_of(e, c));
  }
  uint32_t nearest(double v) const {
    if (std::isnan(v)) return nan_;
    v = std::fabs(v);
    const auto above = std::lower_bound(values_.begin(), values_.end(), v);
    if (above == values_.end()) return static_cast<uint32_t>(values_.size() - 1);
    const uint32_t hi = static_cast<uint32_t>(above - values_.begin());
    if (*above == v || hi == 0) return hi;
    const double up = *above - v, down = v - values_[hi - 1];
    return up < down || (up == down && hi % 2 == 0) ? hi : hi - 1;
  }
  double value(uint32_t code) const { return values_[code]; }

 private:
  std::vector<double> values_;
  uint32_t nan_;
};

// What the multiplier is where the block's scale is zero.
enum class ZeroScale : uint8_t { zero, infinite, most };

// The recipe behind a row of approximates().
struct Kernel {
  Approximate row;
  bool sixth;  // NVFP4: the scale is S * (b * rcp(6)); else b * (S * fl(1/6))
  bool inner;  // NVFP4: rcp(s * rcp(S)); else rcp(s * fl(1/S))
  ZeroScale zero;
  bool given =
      false;  // NVFP4: the amax is P (nvfp4_scale=given_product): S is rcp(P), and the multiplier rcp(s * P)
};
// clang-format off
const std::array kKernels = {
    Kernel{{"vllm.kernel", FormatId::nvfp4, "vllm.nvfp4", "vLLM's NVFP4 kernels; QuTLASS on sm_120", "vLLM csrc/quantization/fp4/nvfp4_utils.cuh"}, true, true, ZeroScale::zero},
    Kernel{{"flashinfer.fast", FormatId::nvfp4, "vllm.nvfp4", "FlashInfer's NVFP4 kernels without te_exact", "FlashInfer csrc/quantization_utils.cuh"}, true, true, ZeroScale::infinite},
    Kernel{{"flashinfer.kv_cache", FormatId::nvfp4, "flashinfer.kv_cache", "FlashInfer's nvfp4_kv_quantize", "FlashInfer csrc/fp4_kv_quantization.cu"}, true, true, ZeroScale::infinite, true},
    Kernel{{"torchao.cutedsl", FormatId::nvfp4, "", "torchao's CuTeDSL kernel of NVFP4 training", "torchao prototype NVFP4 training kernels"}, false, false, ZeroScale::most},
    Kernel{{"flashinfer.mx", FormatId::mxfp8, "", "FlashInfer's MXFP8 kernels", "FlashInfer csrc/quantization_utils.cuh"}, false, false, ZeroScale::zero},
    Kernel{{"flashinfer.mx", FormatId::mxfp4, "", "FlashInfer's MXFP4 kernels", "FlashInfer csrc/quantization_utils.cuh"}, false, false, ZeroScale::zero},
};
// clang-format on

// A sign that no multiplier gives.
constexpr uint32_t kNoCode = ~0u;

// What one block shows: its scale code and amax, and its elements with the codes that came.
struct Element {
  double x;
  uint32_t code;  // without its sign
};
struct BlockSeen {
  uint32_t scale = 0;
  double amax = 0;
  bool special = false;
  std::vector<Element> elements;
};

// The least of wrong_of(value) over what a value may be: one choice has to explain all that it takes part in.
template <class WrongOf> int64_t least_wrong(const std::vector<double>& allowed, WrongOf wrong_of) {
  int64_t least = -1;
  for (const double value : allowed) {
    const int64_t wrong = wrong_of(value);
    if (least < 0 || wrong < least) least = wrong;
  }
  return std::max<int64_t>(least, 0);
}

// Elements that the best multiplier of `allowed` leaves unexplained.
int64_t outside(const std::vector<const BlockSeen*>& blocks, const std::vector<double>& allowed,
                const Grid& grid) {
  return least_wrong(allowed, [&](double m) {
    int64_t wrong = 0;
    for (const BlockSeen* b : blocks)
      for (const Element& e : b->elements) wrong += grid.nearest(narrow(e.x * m)) != e.code;
    return wrong;
  });
}

std::vector<BlockSeen> blocks_of(const Problem& p, Direction d, const PlaneData& x, const PlaneData& scale,
                                 const PlaneData& data) {
  const Quantizer& q = *p.quantizer(d);
  const int64_t rows = data.plane.logical.rows, cols = data.plane.logical.cols;
  std::map<int64_t, BlockSeen> blocks;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) {
      const int64_t at = scale_index(q, scale.plane, i, j);
      BlockSeen& b = blocks[at];
      const double v = value_of(x.plane.encoding, code_at(x.plane, x.bytes,
                                                          data.plane.transposed ? index_of(x.plane, j, i)
                                                                                : index_of(x.plane, i, j)));
      b.scale = code_at(scale.plane, scale.bytes, at);
      if (!std::isfinite(v)) b.special = true;
      b.amax = std::max(b.amax, std::fabs(v));
      const uint32_t sign = 1u << (info(q.element).bits - 1);
      const uint32_t code = code_at(data.plane, data.bytes, index_of(data.plane, i, j));
      const bool turned = (code & ~sign) != 0 && ((code & sign) != 0) != std::signbit(v);
      b.elements.push_back({v, turned ? kNoCode : code & ~sign});
    }
  std::vector<BlockSeen> out;
  for (auto& [at, b] : blocks)
    if (!b.special) out.push_back(std::move(b));
  return out;
}

// By scale code: the same operand gives the same reciprocal.
std::map<uint32_t, std::vector<const BlockSeen*>> by_scale(const std::vector<BlockSeen>& blocks) {
  std::map<uint32_t, std::vector<const BlockSeen*>> out;
  for (const BlockSeen& b : blocks) out[b.scale].push_back(&b);
  return out;
}

// ---- NVFP4 ------------------------------------------------------------------------------------------------

const Grid& e4m3() {
  static const Grid grid(Encoding::e4m3, 0x7F);
  return grid;
}

// Scales that no reciprocal of 6, with one of the `encodes` that S may be, gives.
int64_t nvfp4_scales_outside(const Kernel& kernel, const std::vector<BlockSeen>& blocks,
                             const std::vector<double>& encodes) {
  const std::vector<double> sixths = kernel.sixth ? reciprocals(6) : std::vector<double>{narrow(1.0 / 6)};
  return least_wrong(encodes, [&](double encode) {
    return least_wrong(sixths, [&](double sixth) {
      int64_t wrong = 0;
      for (const BlockSeen& b : blocks) {
        const double v = kernel.sixth ? narrow(encode * narrow(b.amax * sixth))
                                      : std::min(narrow(b.amax * narrow(encode * sixth)), kMost);
        wrong += e4m3().nearest(v) != b.scale;
      }
      return wrong;
    });
  });
}

// Codes of the blocks with one scale code that no multiplier gives, where the tensor scale's reciprocal is
// `decode`.
int64_t nvfp4_codes_outside(const Kernel& kernel, uint32_t code, const std::vector<const BlockSeen*>& members,
                            double decode) {
  static const Grid e2m1(Encoding::e2m1, 7);
  if (code == 0x7F) return 0;
  if (code == 0 && kernel.zero == ZeroScale::infinite) {
    // 0 * inf is NaN and codes as 7, but a block of zeros is multiplied by 0.
    int64_t wrong = 0;
    for (const BlockSeen* b : members) wrong += outside({b}, {b->amax == 0 ? 0.0 : kInf}, e2m1);
    return wrong;
  }
  std::vector<double> allowed = reciprocals(narrow(e4m3().value(code & 0x7F) * decode));
  for (double& m : allowed)
    if (std::isinf(m)) m = kernel.zero == ZeroScale::zero ? 0 : kernel.zero == ZeroScale::most ? kMost : kInf;
  return outside(members, allowed, e2m1);
}

void judge_nvfp4(const Kernel& kernel, const std::vector<BlockSeen>& blocks, double amax, Consistency& out) {
  const double encode = amax == 0 ? 1 : std::min(narrow(2688 / amax), kMost);  // N10.2
  out.scales_outside +=
      nvfp4_scales_outside(kernel, blocks, kernel.given ? reciprocals(amax) : std::vector<double>{encode});
  const auto groups = by_scale(blocks);
  const std::vector<double> decodes = kernel.given   ? std::vector<double>{amax}
                                      : kernel.inner ? reciprocals(encode)
                                                     : std::vector<double>{narrow(1 / encode)};
  out.codes_outside += least_wrong(decodes, [&](double decode) {
    int64_t wrong = 0;
    for (const auto& [code, members] : groups) wrong += nvfp4_codes_outside(kernel, code, members, decode);
    return wrong;
  });
}

// ---- MXFP8 and MXFP4 --------------------------------------------------------------------------------------

void judge_mx(const Kernel& kernel, const std::vector<BlockSeen>& blocks, Encoding element,
              Consistency& out) {
  const Grid grid(element, info(element).nan);
  out.scales_outside += least_wrong(reciprocals(value_of(element, info(element).max_finite)), [&](double r) {
    int64_t wrong = 0;
    for (const BlockSeen& b : blocks) {
      const double v = narrow(b.amax * r);
      uint32_t want = 0;
      while (want < 254 && std::ldexp(1.0, static_cast<int>(want) - 127) < v) ++want;  // N5.3
      wrong += want != b.scale;
    }
    return wrong;
  });
  const double of_zero = kernel.row.format == FormatId::mxfp8 ? 0.0 : 1.0;
  for (const auto& [code, members] : by_scale(blocks)) {
    if (code == 0xFF) continue;
    const double s = std::ldexp(1.0, static_cast<int>(code) - 127);
    out.codes_outside += outside(members, code == 0 ? std::vector<double>{of_zero} : reciprocals(s), grid);
  }
}

// ---- one direction ----------------------------------------------------------------------------------------

// Whether a kernel quantizes like this at all.
bool takes(const Kernel& kernel, const Quantizer& q) {
  return q.format == kernel.row.format && q.round == Round::rne && !q.rht && !q.row_scaled &&
         q.four_over_six == FourOverSix::off && !is_square(q.block) &&
         kernel.given == (q.numerics.nvfp4_scale == Nvfp4Scale::given_product);
}

double amax_of(const PlaneData& x, const Quantizer& q) {
  if (q.amax) return static_cast<double>(std::bit_cast<float>(*q.amax));
  double amax = 0;
  for (int64_t i = 0; i < x.plane.logical.count(); ++i)
    amax = std::max(amax, std::fabs(value_of(x.plane.encoding, code_at(x.plane, x.bytes, i))));
  return amax;
}

// Adds what one direction shows. False where that cannot be decided.
bool judge_direction(const Kernel& kernel, const Problem& p, Direction d, const PlaneData& x,
                     const std::vector<PlaneData>& got, Consistency& out) {
  const Quantizer& q = *p.quantizer(d);
  const PlaneData* scale = find_plane(got, plane_name(d, scale_stem(q.scales)));
  const PlaneData* data = find_plane(got, plane_name(d, "data"));
  if (!takes(kernel, q) || !scale || !data) return false;
  const std::vector<BlockSeen> blocks = blocks_of(p, d, x, *scale, *data);
  out.scales_of += static_cast<int64_t>(blocks.size());
  for (const BlockSeen& b : blocks) out.codes_of += static_cast<int64_t>(b.elements.size());
  if (q.format != FormatId::nvfp4) {
    judge_mx(kernel, blocks, q.element, out);
    return true;
  }
  const double amax = amax_of(x, q);
  if (!std::isfinite(amax)) return false;
  if (const PlaneData* came = find_plane(got, plane_name(d, "amax")))
    out.amaxes_outside += value_of(Encoding::f32, code_at(came->plane, came->bytes, 0)) != amax;
  judge_nvfp4(kernel, blocks, amax, out);
  return true;
}

}  // namespace

const std::vector<Approximate>& approximates() {
  static const std::vector<Approximate> rows = [] {
    std::vector<Approximate> out;
    for (const Kernel& k : kKernels) out.push_back(k.row);
    return out;
  }();
  return rows;
}

Consistency consistent(const Approximate& row, const Problem& p, const std::vector<PlaneData>& inputs,
                       const std::vector<PlaneData>& got) {
  const auto same = [&](const Kernel& k) { return k.row.name == row.name && k.row.format == row.format; };
  const auto kernel = std::find_if(kKernels.begin(), kKernels.end(), same);
  const PlaneData* x = find_plane(inputs, "x");
  if (kernel == kKernels.end() || !x || !p.as<Quantize>() || p.col_source == ColSource::row_dequantized)
    return {};
  Consistency out;
  for (Direction d : kDirections) {
    if (!p.quantizer(d)) continue;
    if (!judge_direction(*kernel, p, d, *x, got, out)) return {};
    out.decided = true;
  }
  return out;
}

}  // namespace assay
