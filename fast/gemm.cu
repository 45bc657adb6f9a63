// Gemm, summed in sequence (N16.2): tiles of 64x64 outputs, 64 threads with 8x8 outputs each. Each operand is
// decoded on its way into shared memory, so that an element is decoded once for 64 products of it.
#include <bit>

#include "fast/choose.h"
#include "fast/gemm_plan.h"
#include "fast/lane/gemm.cuh"
#include "fast/move/operand.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

struct GemmArgs {
  GemmOperand a, b;
  const uint32_t *amax_a = nullptr, *amax_b = nullptr;  // of N16.9
  bool by_row_a = false, by_row_b = false;
  RowScaled rows{};
  GemmEpilogue epilogue;
  const void *c = nullptr, *bias = nullptr;
  Encoding bias_encoding{};
  void* d = nullptr;
  bool vector_d = false;
};

ASSAY_DEVICE float load_wide(Encoding e, const void* p, int64_t i) {
  if (e == Encoding::f32) return as_float(load_element<4>(p, i));
  const uint32_t code = load_element<2>(p, i);
  return as_float(e == Encoding::bf16 ? decode<Encoding::bf16>(code) : decode<Encoding::f16>(code));
}
ASSAY_DEVICE void load_eight_floats(const float* from, float (&out)[8]) {
#pragma unroll
  for (int j = 0; j < 8; j += 4) {
    const uint4 v = load16(from + j);
    out[j] = as_float(v.x), out[j + 1] = as_float(v.y), out[j + 2] = as_float(v.z),
    out[j + 3] = as_float(v.w);
  }
}

template <Encoding Out> __global__ void __launch_bounds__(kGemmThreads) gemm_sequence(GemmArgs g) {
  ASSAY_SHARED_ALIGNED(16, float, a, [kGemmDepth][kGemmPitch]);
  ASSAY_SHARED_ALIGNED(16, float, b, [kGemmDepth][kGemmPitch]);
  const int64_t across = (g.a.lines + kGemmTile - 1) / kGemmTile, tile_n = int64_t(blockIdx.x) / across,
                tile_m = int64_t(blockIdx.x) - tile_n * across;
  const int64_t first_m = tile_m * kGemmTile, first_n = tile_n * kGemmTile;
  const int my_m = int(threadIdx.x) % 8 * 8, my_n = int(threadIdx.x) / 8 * 8;

  float acc[8][8] = {};  // [n][m]
#pragma unroll 1
  for (int64_t k0 = 0; k0 < g.a.k; k0 += kGemmDepth) {
    if (k0 != 0) __syncthreads();
    load_tile(g.a, first_m, k0, a);
    load_tile(g.b, first_n, k0, b);
    __syncthreads();
    const int depth = g.a.k - k0 < kGemmDepth ? int(g.a.k - k0) : kGemmDepth;
#pragma unroll 1
    for (int k = 0; k < depth; ++k) {
      float mine_a[8], mine_b[8];
      load_eight_floats(&a[k][my_m], mine_a);
      load_eight_floats(&b[k][my_n], mine_b);
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) acc[i][j] = accumulate(acc[i][j], mine_a[j], mine_b[i]);
    }
  }

  const int64_t m = first_m + my_m;
  const int columns = inside(m, g.a.lines);
  float bias[8], amax_a[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    bias[j] = g.epilogue.adds_bias && j < columns ? load_wide(g.bias_encoding, g.bias, m + j) : 0.0f;
    amax_a[j] = g.rows != RowScaled::none && j < columns ? as_float(g.amax_a[g.by_row_a ? m + j : 0]) : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int64_t n = first_n + my_n + i;
    if (n >= g.b.lines || columns == 0) continue;
    const float amax_b = g.rows != RowScaled::none ? as_float(g.amax_b[g.by_row_b ? n : 0]) : 0.0f;
    uint32_t codes[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float v = times_amaxes(g.rows, acc[i][j], amax_a[j], amax_b);
      const float c =
          g.epilogue.adds_c && j < columns
              ? as_float(decode<Out>(load_element<Layout<Out>::kBytes>(g.c, n * g.a.lines + m + j)))
              : 0.0f;
      codes[j] = encode<Out>(as_bits(g.epilogue(v, c, bias[j])), Round::rne,
                             Layout<Out>::kBytes == 1 ? Overflow::sat : Overflow::nosat);
    }
    if (g.vector_d && columns == 8) {
      store_eight<Layout<Out>::kBytes>(g.d, n * g.a.lines + m, codes);
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j)
        if (j < columns) store_element<Layout<Out>::kBytes>(g.d, n * g.a.lines + m + j, codes[j]);
    }
  }
}

GemmOperand operand(const Job& job, Side side, bool without_amax) {
  const Gemm& op = *job.problem.as<Gemm>();
  const Direction d = op.direction(side);
  const Quantizer& q = op.operand(side).quantizer;
  const Shape s = operand_problem(job.problem, side).x.shape;
  const Geometry geometry_of = geometry(q, s, d);
  const auto plane = [&](std::string_view stem) {
    return job.input<void>(std::string(name_of(side)) + "." + std::string(stem));
  };

  GemmOperand o;
  o.data = plane("data"), o.scales = plane("scale_inv");
  o.lines = d == Direction::row ? s.rows : s.cols, o.k = op.k;
  o.along_k = d == Direction::row || geometry_of.transposed;
  o.pitch = geometry_of.data_padded.cols;
  o.element = q.element;
  o.bits = is_packed(q) ? info(q.element).bits : 8 * info(q.element).bytes();
  const size_t octet = size_t(o.bits);  // bytes of 8 elements
  o.vector = o.pitch % 8 == 0 && aligned(octet < 16 ? octet : 16, {o.data});
  if (info(q.format).family == Family::nvfp4) {
    o.factor = Factor::two_level, o.chain = Nvfp4Chain::of(q, job.problem.x.source);
    o.amax = without_amax ? nullptr : static_cast<const uint32_t*>(plane("amax"));
  } else if (geometry_of.has_scale) {
    o.factor = info(q.format).per_tensor_fp8()                ? q.row_scaled ? Factor::line : Factor::tensor
               : geometry_of.scale_encoding == Encoding::e8m0 ? Factor::e8m0
                                                              : Factor::f32;
  }
  if (info(q.format).has_blocks()) o.index = block_index(q, s, d, ScaleLayout::compact);
  return o;
}

}  // namespace

std::string run_gemm(const Job& job) {
  const Problem& p = job.problem;
  const Gemm& op = *p.as<Gemm>();
  if (const Support s = kernel_sums(p); !s.yes) throw std::runtime_error(s.why);
  GemmArgs g;
  g.by_row_a = leaves_amax_out(op.a), g.by_row_b = leaves_amax_out(op.b);
  g.rows = g.by_row_a && g.by_row_b   ? RowScaled::both
           : g.by_row_a || g.by_row_b ? RowScaled::one
                                      : RowScaled::none;
  g.a = operand(job, Side::a, g.rows != RowScaled::none),
  g.b = operand(job, Side::b, g.rows != RowScaled::none);
  g.amax_a = job.input("a.amax"), g.amax_b = job.input("b.amax");
  g.epilogue = {std::bit_cast<float>(op.alpha), std::bit_cast<float>(op.beta), op.multiplies(), op.reads_c(),
                op.bias.has_value()};
  g.c = job.input<void>("c"), g.bias = job.input<void>("bias"),
  g.bias_encoding = op.bias.value_or(Encoding::f32);
  g.d = job.output<void>("d");
  g.vector_d = g.a.lines % 8 == 0 && aligned(16, {g.d});
  const int64_t tiles = ((g.a.lines + kGemmTile - 1) / kGemmTile) * ((g.b.lines + kGemmTile - 1) / kGemmTile);
  const LaunchConfig config{.name = "gemm_sequence", .grid = unsigned(tiles), .block = kGemmThreads};
  if (p.x.shape.count() != 0) {
    switch (p.x.source) {
      case Encoding::f32: launch(config, gemm_sequence<Encoding::f32>, g); break;
      case Encoding::bf16: launch(config, gemm_sequence<Encoding::bf16>, g); break;
      case Encoding::f16: launch(config, gemm_sequence<Encoding::f16>, g); break;
      case Encoding::e4m3: launch(config, gemm_sequence<Encoding::e4m3>, g); break;
      case Encoding::e5m2: launch(config, gemm_sequence<Encoding::e5m2>, g); break;
      case Encoding::e2m3:
      case Encoding::e3m2:
      case Encoding::e2m1:
      case Encoding::e8m0:
      case Encoding::u8:
      case Encoding::u32: throw std::runtime_error("no gemm makes " + std::string(info(p.x.source).name));
    }
  }
  return "gemm_sequence<" + std::string(info(p.x.source).name) + ">, a " +
         (g.a.vector ? "vector" : "scalar") + ", b " + (g.b.vector ? "vector" : "scalar") + ", d " +
         (g.vector_d ? "vector" : "scalar");
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
