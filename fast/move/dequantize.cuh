// Dequantize: codes times scale, narrowed once (N3.10, N5.9), patch by patch as move/patch.cuh spreads them.
#pragma once
#include "fast/choose.h"
#include "fast/lane/encode.cuh"
#include "fast/lane/mxfp8.cuh"
#include "fast/move/patch.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// One scale for the tensor, given as scale_inv.
struct TensorScale {
  const uint32_t* scale_inv = nullptr;
  struct Held {
    float scale;
    ASSAY_LANE float operator()(int, int) const { return scale; }
  };
  ASSAY_DEVICE Held hold(const Extent&, const Place&) const { return {as_float(*scale_inv)}; }
};

// One E8M0 scale per 32 elements along rows, or along columns.
template <bool kColumns>
struct MxScales {
  const uint8_t* codes = nullptr;
  bool gemm = false;
  struct Held {
    float scale[kPatch];
    ASSAY_LANE float operator()(int i, int j) const { return scale[kColumns ? j : i]; }
  };
  ASSAY_DEVICE Held hold(const Extent& extent, const Place& at) const {
    // Items run along the dimension that is not contracted; a patch lies within one block of the other (N6.2, N6.3).
    const int64_t first = kColumns ? at.col : at.row, j = (kColumns ? at.row : at.col) >> 5;
    const int64_t contracted_tiles = ((kColumns ? extent.rows : extent.cols) + kTile - 1) / kTile;
    const int64_t pitch = kColumns ? (extent.cols + kTile - 1) / kTile * kTile : contracted_tiles * 4;
    Held held;
#pragma unroll
    for (int k = 0; k < kPatch; ++k) {
      const int64_t i = first + k;
      held.scale[k] = as_float(mx_scale(codes[gemm ? gemm_index(i, j, contracted_tiles) : kColumns ? j * pitch + i : i * pitch + j]));
    }
    return held;
  }
};

struct DequantizeArgs {
  const uint8_t* data = nullptr;
  void* y = nullptr;
  Extent extent;   // of y
};

// kVector: data 8-byte and y 16-byte aligned, cols a multiple of 8, and rows too where the data are transposed.
template <Encoding E, Encoding Out, class Scales, bool kTransposed, bool kVector>
__global__ void __launch_bounds__(kThreads, 2) dequantize_kernel(DequantizeArgs a, Scales scales) {
  const Place at = my_place(a.extent);
  if (at.rows == 0 || at.cols == 0) return;
  const Extent stored = kTransposed ? Extent{a.extent.cols, a.extent.rows} : a.extent;
  const int rows = kTransposed ? at.cols : at.rows, cols = kTransposed ? at.rows : at.cols;
  const uint8_t* from = a.data + (kTransposed ? at.col * stored.cols + at.row : at.row * stored.cols + at.col);
  uint2 codes[kPatch];
#pragma unroll
  for (int i = 0; i < kPatch; ++i, from += stored.cols) {
    codes[i] = make_uint2(0, 0);
    if constexpr (kVector) {
      if (i < rows) codes[i] = load8_streaming(from);
    } else {
#pragma unroll
      for (int j = 0; j < kPatch; ++j) {
        const uint32_t code = i < rows && j < cols ? uint32_t(from[j]) << (8 * (j & 3)) : 0u;
        if (j < 4) codes[i].x |= code;
        else codes[i].y |= code;
      }
    }
  }
  if constexpr (kTransposed) transpose8(codes);

  const auto scale = scales.hold(a.extent, at);
  constexpr int kBytes = Layout<Out>::kBytes;
  char* to = static_cast<char*>(a.y) + (at.row * a.extent.cols + at.col) * kBytes;
#pragma unroll
  for (int i = 0; i < kPatch; ++i, to += a.extent.cols * kBytes) {
    if (i >= at.rows) continue;
    uint32_t out[kPatch];
#pragma unroll
    for (int j = 0; j < kPatch; ++j) {
      const uint32_t code = ((j < 4 ? codes[i].x : codes[i].y) >> (8 * (j & 3))) & 0xFFu;
      out[j] = encode<Out>(as_bits(__fmul_rn(as_float(decode<E>(code)), scale(i, j))), Round::rne, Overflow::nosat);
    }
    if constexpr (kVector && kBytes == 2) {
      store16(to, make_uint4(out[0] | out[1] << 16, out[2] | out[3] << 16, out[4] | out[5] << 16, out[6] | out[7] << 16));
    } else if constexpr (kVector) {
      store16(to, make_uint4(out[0], out[1], out[2], out[3]));
      store16(to + 16, make_uint4(out[4], out[5], out[6], out[7]));
    } else {
#pragma unroll
      for (int j = 0; j < kPatch; ++j) {
        if (j >= at.cols) continue;
        if constexpr (kBytes == 2) reinterpret_cast<uint16_t*>(to)[j] = uint16_t(out[j]);
        else reinterpret_cast<uint32_t*>(to)[j] = out[j];
      }
    }
  }
}

template <class Scales>
std::string launch_dequantize(const Job& job, Direction d, bool transposed, const Scales& scales) {
  const Problem& p = job.problem;
  const Encoding element = p.quantizer(d)->element;
  const Shape s = p.x.shape;
  const DequantizeArgs args{job.input<uint8_t>(d, "data"), job.output<void>("y"), {s.rows, s.cols}};
  const bool vector = s.cols % kPatch == 0 && (!transposed || s.rows % kPatch == 0) && aligned(8, {args.data}) && aligned(16, {args.y});
  if (s.count() != 0)
    with_source(p.as<Dequantize>()->out, [&](auto out) {
      constexpr Encoding kOut = decltype(out)::kEncoding;
      with_fp8(element, [&](auto e) {
        with_flag(vector, [&](auto v) {
          const LaunchConfig config{.name = "dequantize", .grid = args.extent.tiles(), .block = kThreads};
          if constexpr (std::is_same_v<Scales, TensorScale>) {
            if (transposed) return launch(config, dequantize_kernel<e.value, kOut, Scales, true, v.value>, args, scales);
          }
          launch(config, dequantize_kernel<e.value, kOut, Scales, false, v.value>, args, scales);
        });
      });
    });
  return "dequantize<" + std::string(info(element).name) + ", " + std::string(info(p.as<Dequantize>()->out).name) + "> " +
         std::string(name_of(d)) + (vector ? ", vector" : ", scalar");
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
