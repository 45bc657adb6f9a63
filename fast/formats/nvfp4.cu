// NVFP4: blocks with the default numerics by kernels of their own, in registers; everything else by direction
// lanes (lane/nvfp4_direction.cuh). Dequantized patch by patch (N10).
#include <algorithm>
#include <iterator>

#include "fast/directions.h"
#include "fast/move/amax.cuh"
#include "fast/move/dequantize.cuh"
#include "fast/move/nvfp4_pair.cuh"
#include "fast/nvfp4_amax.h"
#include "fast/nvfp4_rotated.h"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

// E4M3 codes under the amax of the direction or of the stored row (N10.15).
struct Nvfp4DecodeScale {
  const uint8_t* codes = nullptr;
  const uint32_t* amax = nullptr;
  bool by_line = false;
  Nvfp4Chain chain;
  ASSAY_LANE float operator()(int64_t index, int64_t line) const {
    return chain.decode_multiplier(amax[by_line ? line : 0], codes[index]);
  }
};

// Default numerics, one read. A thread per patch.
template <class S, bool kSquare, bool kDrawn, bool kRow, bool kCol>
__global__ void __launch_bounds__(kThreads, S::kBlocks > 2 ? 2 : S::kBlocks) nvfp4_pair(Nvfp4PairArgs a) {
  if (is_noop(a.noop)) return;
  const Place at = a.place();
  uint32_t words[kPatch][S::kWords];
  load_patch<S, true>(a.x, a.extent, at, words);
  const Nvfp4Chain chain;
  const uint32_t amax = *(kRow ? a.row : a.col).amax;
  Nvfp4Scales tensor = chain.of_tensor(amax);
  if constexpr (kRow) nvfp4_direction<S, true, kSquare, kDrawn>(a.row, a.extent, at, tensor, words);
  if constexpr (kRow && kCol) {  // given amaxes may differ
    if (*a.col.amax != amax) tensor = chain.of_tensor(*a.col.amax);
  }
  if constexpr (kCol) {
    nvfp4_direction<S, false, kSquare, kDrawn>(a.col, a.extent, at, tensor, words);
    __syncthreads();
    store_nvfp4_columns(a.col, a.extent, at);
  }
}

__global__ void nvfp4_clear_amax(const uint32_t* noop, uint32_t* row, uint32_t* col) {
  if (is_noop(noop)) return;
  if (row != nullptr) *row = 0;
  if (col != nullptr) *col = 0;
}

// Which kernel in registers computes what both quantizers ask for. Stochastic rounding and rotated columns
// come with BF16 and blocks of 16, as gradients and their transforms do; everything else is the general
// kernel's.
enum class Tuned : uint8_t { none, nearest, drawn, rotated, rotated_drawn };
Tuned tuned(const Problem& p) {
  const Quantizer& one = p.row ? *p.row : *p.col;
  const bool rotated = p.col && p.col->rht, drawn = one.round == Round::sr;
  for (Direction d : kDirections) {
    const std::optional<Quantizer>& q = p.quantizer(d);
    if (q && (q->numerics != Numerics{} || q->row_scaled || q->four_over_six != FourOverSix::off ||
              q->block != one.block || q->round != one.round))
      return Tuned::none;
  }
  if ((rotated || drawn) && (p.x.source != Encoding::bf16 || is_square(one.block))) return Tuned::none;
  return rotated ? drawn ? Tuned::rotated_drawn : Tuned::rotated : drawn ? Tuned::drawn : Tuned::nearest;
}

template <class S, bool kSquare, bool kDrawn> void launch_nvfp4(const Nvfp4PairArgs& args, const Problem& p) {
  const LaunchConfig config{.name = "nvfp4_pair", .grid = args.extent.tiles(), .block = kThreads};
  if (p.row && p.col) launch(config, nvfp4_pair<S, kSquare, kDrawn, true, true>, args);
  else if (p.row) launch(config, nvfp4_pair<S, kSquare, kDrawn, true, false>, args);
  else launch(config, nvfp4_pair<S, kSquare, kDrawn, false, true>, args);
}

struct Nvfp4ChainArgs {
  Nvfp4Chain chain;
  const uint32_t* pairs = nullptr;
  int64_t count = 0;
  uint32_t *encode_scale = nullptr, *multiplier = nullptr;
  uint8_t* scale_inv = nullptr;
};

// Row i of x is a tensor amax and a block amax (N10.16).
__global__ void __launch_bounds__(kThreads) nvfp4_scale_chain(Nvfp4ChainArgs a) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= a.count) return;
  const Nvfp4Scales scales = a.chain.of_tensor(a.pairs[2 * i]);
  const uint32_t code = a.chain.block_scale(scales, a.pairs[2 * i + 1]);
  a.encode_scale[i] = canonical(as_bits(scales.encode));
  a.scale_inv[i] = uint8_t(code);
  a.multiplier[i] = canonical(as_bits(a.chain.multiplier(scales, code)));
}

// Whether x and all codes and scales lie so that whole vectors can be read and written.
bool vectors(const Job& job) {
  const Problem& p = job.problem;
  const Shape s = p.x.shape;
  bool all = s.cols % kPatch == 0 && (!p.col || s.rows % kPatch == 0) && aligned(16, {job.input<void>("x")});
  for (const Direction d : kDirections)
    if (const std::optional<Quantizer>& q = p.quantizer(d))
      all &= aligned(4, {job.output<uint8_t>(d, "data"), job.output<uint8_t>(d, scale_stem(q->scales))});
  return all;
}

bool needs_amax(const Problem& p) {
  return std::any_of(std::begin(kDirections), std::end(kDirections), [&](Direction d) {
    const std::optional<Quantizer>& q = p.quantizer(d);
    return q && q->format == FormatId::nvfp4 && !q->amax;
  });
}

}  // namespace

Nvfp4Amaxes::Nvfp4Amaxes(const Job& job)
    : found_(needs_amax(job.problem) ? 2 * sizeof(uint32_t) : 0, Contents::zeros) {
  for (const Direction d : kDirections) {
    const std::optional<Quantizer>& q = job.problem.quantizer(d);
    if (!q || q->format != FormatId::nvfp4) continue;
    const int i = index(d);
    if (q->amax) amax_[i] = job.input(d, "given.amax");
    else amax_[i] = raised_[i] = found_.as<uint32_t>() + i;
  }
}

void Nvfp4Amaxes::find(const Job& job) const {
  with_source(job.problem.x.source, [&](auto source) {
    launch_amax<decltype(source)>(job.input<void>("x"), job.problem.x.shape.count(), job.input("noop"),
                                  raised_[0], raised_[1]);
  });
}

void Nvfp4Amaxes::store_for_nothing(const Job& job) {
  launch({.name = "nvfp4_clear_amax", .grid = 1, .block = 1}, nvfp4_clear_amax, job.input("noop"),
         job.output(Direction::row, "amax"), job.output(Direction::col, "amax"));
}

std::string quantize_nvfp4(const Job& job) {
  const Problem& p = job.problem;
  const Shape s = p.x.shape;
  const Tuned kernel = tuned(p);
  if (kernel == Tuned::none || !vectors(job) || job.policy == Policy::general)
    return quantize_directions(job);
  const Nvfp4Amaxes amaxes(job);
  auto target = [&](Direction d) -> Nvfp4Target {
    const std::optional<Quantizer>& q = p.quantizer(d);
    if (!q) return {};
    return {job.output<uint8_t>(d, "data"), job.output<uint8_t>(d, scale_stem(q->scales)),
            q->scales == ScaleLayout::gemm, amaxes.of(d),
            job.output(d, "amax"),          q->round == Round::sr ? BlockDraws::of(p, d) : BlockDraws{}};
  };
  const Nvfp4PairArgs args{job.input<void>("x"),   job.input("noop"),
                           {s.rows, s.cols},       target(Direction::row),
                           target(Direction::col), p.col ? uint32_t{p.col->sign_mask} : 0u,
                           amaxes.computed()};
  const bool rotated = kernel == Tuned::rotated || kernel == Tuned::rotated_drawn;
  if (s.count() == 0) {
    if (amaxes.computed()) Nvfp4Amaxes::store_for_nothing(job);
  } else {
    if (amaxes.raised(Direction::col) != nullptr && p.col->rht)
      launch_nvfp4_rotated_amax(args, amaxes.raised(Direction::row), amaxes.raised(Direction::col));
    else if (amaxes.computed()) amaxes.find(job);
    if (rotated) launch_nvfp4_rotated(args, kernel == Tuned::rotated_drawn);
    else if (kernel == Tuned::drawn) launch_nvfp4<Source<Encoding::bf16>, false, true>(args, p);
    else
      with_source(p.x.source, [&](auto source) {
        with_flag(is_square((p.row ? p.row : p.col)->block),
                  [&](auto square) { launch_nvfp4<decltype(source), square.value, false>(args, p); });
      });
  }
  return std::string(amaxes.computed() ? "amax, " : "") + (rotated ? "nvfp4_rotated_pair<" : "nvfp4_pair<") +
         directions(p) + "> " + how(p);
}

std::string dequantize_nvfp4(const Job& job) {
  const Direction d = job.problem.row ? Direction::row : Direction::col;
  const Quantizer& q = *job.problem.quantizer(d);
  const Nvfp4DecodeScale rule{job.input<uint8_t>(d, scale_stem(q.scales)), job.input(d, "amax"), q.row_scaled,
                              Nvfp4Chain::of(q, job.problem.x.source)};
  return dequantize_blocks<FormatId::nvfp4>(job, rule);
}

std::string scale_chain_nvfp4(const Job& job) {
  const Nvfp4ChainArgs args{Nvfp4Chain::of(*job.problem.row, job.problem.x.source),
                            job.input("x"),
                            job.problem.x.shape.rows,
                            job.output("encode_scale"),
                            job.output("multiplier"),
                            job.output<uint8_t>("scale_inv")};
  if (args.count != 0)
    launch({.name = "nvfp4_scale_chain",
            .grid = unsigned((args.count + kThreads - 1) / kThreads),
            .block = kThreads},
           nvfp4_scale_chain, args);
  return "nvfp4_scale_chain";
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
