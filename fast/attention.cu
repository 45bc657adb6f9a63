// Attention by emulation E (N20): casts by the kernels of their formats, products in tiles of 64x64 sums with
// 64 threads, softmax and its gradient with a thread a row and the row's tokens in shared memory, tile by
// tile.
#include <vector>

#include "fast/attention_numbers.h"
#include "fast/attention_online.cuh"
#include "fast/choose.h"
#include "fast/lane/exponential.cuh"
#include "fast/launch.h"
#include "fast/move/attention.cuh"
#include "fast/scratch.h"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

unsigned blocks_for(int64_t count, int64_t per_block) {
  return unsigned((count + per_block - 1) / per_block);
}

// ---- products ------------------------------------------------------------------------

// What becomes of a sum.
enum class Ending : uint8_t { plain, logit, dropped, gradient };

struct ProductArgs {
  AttentionOperand m, n;  // sums of m(line, k) n(line, k); stored [line of m][line of n]
  int64_t batch = 0, heads = 0, k = 0;
  uint16_t* out = nullptr;
  int64_t by_batch = 0, by_head = 0, by_line = 0;
  Ending ending{};
  bool scales_m = false;  // by alpha, before the product (N20.15)
  float alpha = 1, keep_factor = 1;
  AttentionBias bias_rule{};
  const uint16_t* bias = nullptr;  // [heads * lines of m, lines of n]
  const uint8_t* keep = nullptr;   // as the logits
};

template <Encoding N>
ASSAY_DEVICE uint16_t product_ending(const ProductArgs& a, float sum, int64_t b, int64_t h, int64_t m,
                                     int64_t n) {
  if (a.ending == Ending::gradient)  // N20.15
    return nominal_code<N>(__fmul_rn(once_rounded<N>(sum), a.alpha));
  if (a.ending == Ending::dropped) {  // N20.13
    const uint8_t keep = a.keep[((b * a.heads + h) * a.m.lines + m) * a.n.lines + n];
    return nominal_code<N>(keep != 0 ? __fmul_rn(once_rounded<N>(sum), a.keep_factor) : 0.0f);
  }
  if (a.ending == Ending::plain) return nominal_code<N>(sum);
  if (a.bias_rule == AttentionBias::none) return nominal_code<N>(__fmul_rn(sum, a.alpha));  // N20.4
  const float bias = nominal_value<N>(a.bias, (h * a.m.lines + m) * a.n.lines + n);         // N20.5
  if (a.bias_rule == AttentionBias::pre_scale)
    return nominal_code<N>(__fmul_rn(once_rounded<N>(__fadd_rn(once_rounded<N>(sum), bias)), a.alpha));
  return nominal_code<N>(__fadd_rn(once_rounded<N>(__fmul_rn(sum, a.alpha)), bias));
}

template <Encoding N> __global__ void __launch_bounds__(kAttentionThreads) attention_product(ProductArgs g) {
  ASSAY_SHARED_ALIGNED(16, float, a, [kAttentionDepth][kAttentionPitch]);
  ASSAY_SHARED_ALIGNED(16, float, b, [kAttentionDepth][kAttentionPitch]);
  const int64_t across = (g.n.lines + kAttentionTile - 1) / kAttentionTile,
                down = (g.m.lines + kAttentionTile - 1) / kAttentionTile;
  const int64_t head = int64_t(blockIdx.x) / (across * down), tile = int64_t(blockIdx.x) % (across * down);
  const int64_t batch = head / g.heads, h = head % g.heads;
  const int64_t first_m = tile / across * kAttentionTile, first_n = tile % across * kAttentionTile;
  const int my_n = int(threadIdx.x) % 8 * 8, my_m = int(threadIdx.x) / 8 * 8;

  float acc[8][8] = {};  // [m][n]
#pragma unroll 1
  for (int64_t k0 = 0; k0 < g.k; k0 += kAttentionDepth) {
    if (k0 != 0) __syncthreads();
    load_attention_tile<N>(g.m, g.m.first(batch, h), g.k, first_m, k0, g.scales_m, g.alpha, a);
    load_attention_tile<N>(g.n, g.n.first(batch, h), g.k, first_n, k0, false, 1.0f, b);
    __syncthreads();
    const int depth = g.k - k0 < kAttentionDepth ? int(g.k - k0) : kAttentionDepth;
#pragma unroll 1
    for (int k = 0; k < depth; ++k) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float x = a[k][my_m + i];
#pragma unroll
        for (int j = 0; j < 8; ++j) acc[i][j] = accumulate(acc[i][j], x, b[k][my_n + j]);  // N16.2
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int64_t m = first_m + my_m + i, n = first_n + my_n + j;
      if (m < g.m.lines && n < g.n.lines)
        g.out[batch * g.by_batch + h * g.by_head + m * g.by_line + n] =
            product_ending<N>(g, acc[i][j], batch, h, m, n);
    }
}

// ---- softmax -------------------------------------------------------------------------

// N20.6.
struct Mask {
  Tokens q, kv;
  AttentionMask rule{};
  int64_t left = -1, right = -1;

  // The keys that query i of sequence b sees are [first, last].
  struct Seen {
    int64_t first = 0, last = -1;
    bool padding = false;
    ASSAY_LANE bool operator()(int64_t j) const { return j >= first && j <= last; }
  };
  ASSAY_DEVICE Seen seen(int64_t b, int64_t i) const {
    const int64_t queries = q.length(b), keys = kv.length(b);
    Seen s{0, keys - 1, i >= queries};
    if (s.padding) return {0, -1, true};
    const int64_t own = rule == AttentionMask::causal_bottom_right ? i + keys - queries : i;
    if (rule != AttentionMask::none && own < s.last) s.last = own;
    if (right >= 0 && own + right < s.last) s.last = own + right;
    if (left >= 0 && own - left > s.first) s.first = own - left;
    return s;
  }
};

struct SoftmaxArgs {
  const uint16_t *p = nullptr, *ds = nullptr;
  uint16_t* out = nullptr;  // S, or dP
  int64_t rows = 0, heads = 0;
  Mask mask;
  ExpRule exp{};
  float keep_factor = 1;
  const uint8_t* keep = nullptr;
};

inline constexpr int kRowThreads = 64, kRowTile = 64;
using RowTile = uint16_t[kRowThreads][kRowTile + 2];  // a pitch that spreads a column over the banks

// Columns first .. + 63 of the block's rows, from global memory to shared or back. Rows beyond the last are
// zeros: their threads read them like the others.
ASSAY_DEVICE void load_rows(const uint16_t* from, int64_t first_row, int64_t rows, int64_t first,
                            int64_t cols, RowTile& tile) {
#pragma unroll 1
  for (int r = 0; r < kRowThreads; ++r) {
    const int64_t row = first_row + r, col = first + threadIdx.x;
    if (col < cols) tile[r][threadIdx.x] = row < rows ? from[row * cols + col] : uint16_t(0);
  }
}
ASSAY_DEVICE void store_rows(uint16_t* to, int64_t first_row, int64_t rows, int64_t first, int64_t cols,
                             const RowTile& tile) {
#pragma unroll 1
  for (int r = 0; r < kRowThreads; ++r) {
    const int64_t row = first_row + r, col = first + threadIdx.x;
    if (row < rows && col < cols) to[row * cols + col] = tile[r][threadIdx.x];
  }
}

// Calls on(j, this thread's row of the tile) for the columns of every tile, by all threads together.
template <class On>
ASSAY_DEVICE void over_tiles(const uint16_t* from, int64_t first_row, const SoftmaxArgs& a, RowTile& tile,
                             On on) {
  const int64_t cols = a.mask.kv.count;
#pragma unroll 1
  for (int64_t first = 0; first < cols; first += kRowTile) {
    __syncthreads();
    load_rows(from, first_row, a.rows, first, cols, tile);
    __syncthreads();
    on(first, int(cols - first < kRowTile ? cols - first : kRowTile));
  }
}

// The largest logit of a row and the sum of its exponentials (N20.7).
struct RowStatistics {
  float most = 0, sum = 0;
};

template <Encoding N> ASSAY_DEVICE float masked_logit(const Mask::Seen& seen, int64_t j, uint16_t code) {
  return seen(j) ? as_float(decode<N>(code)) : -10000.0f;  // N20.6
}
// e_j, N20.7.
template <Encoding N>
ASSAY_DEVICE float exponential_at(const SoftmaxArgs& a, const Mask::Seen& seen, float most, int64_t j,
                                  uint16_t code) {
  return exponential(a.exp, __fadd_rn(masked_logit<N>(seen, j, code), as_float(as_bits(most) ^ kSign)));
}
template <Encoding N>
ASSAY_DEVICE RowStatistics row_statistics(const SoftmaxArgs& a, int64_t first_row, const Mask::Seen& seen,
                                          RowTile& tile) {
  RowStatistics s{as_float(kInf | kSign), 0.0f};
  bool nan = false;
  over_tiles(a.p, first_row, a, tile, [&](int64_t first, int count) {
    for (int c = 0; c < count; ++c) {
      const float x = masked_logit<N>(seen, first + c, tile[threadIdx.x][c]);
      nan = nan || is_nan(as_bits(x));
      s.most = fmaxf(s.most, x);
    }
  });
  if (nan) s.most = as_float(kNan);
  over_tiles(a.p, first_row, a, tile, [&](int64_t first, int count) {
    for (int c = 0; c < count; ++c)
      s.sum = __fadd_rn(s.sum, exponential_at<N>(a, seen, s.most, first + c, tile[threadIdx.x][c]));
  });
  return s;
}

// What the threads of a block share of their rows: nothing but the tile; a thread beyond the last row sees no
// key.
ASSAY_DEVICE Mask::Seen my_row(const SoftmaxArgs& a, int64_t row) {
  return row < a.rows ? a.mask.seen(row / a.mask.q.count / a.heads, row % a.mask.q.count)
                      : Mask::Seen{0, -1, true};
}

template <Encoding N> __global__ void __launch_bounds__(kRowThreads) attention_softmax(SoftmaxArgs a) {
  ASSAY_SHARED(uint16_t, logits, [kRowThreads][kRowTile + 2]);
  ASSAY_SHARED(uint16_t, results, [kRowThreads][kRowTile + 2]);
  const int64_t first_row = int64_t(blockIdx.x) * kRowThreads, row = first_row + threadIdx.x;
  const Mask::Seen seen = my_row(a, row);
  const RowStatistics s = row_statistics<N>(a, first_row, seen, logits);
  over_tiles(a.p, first_row, a, logits, [&](int64_t first, int count) {
    for (int c = 0; c < count; ++c) {
      float v = __fdiv_rn(exponential_at<N>(a, seen, s.most, first + c, logits[threadIdx.x][c]), s.sum);
      if (a.keep != nullptr && row < a.rows)  // N20.10
        v = a.keep[row * a.mask.kv.count + first + c] != 0 ? __fmul_rn(once_rounded<N>(v), a.keep_factor)
                                                           : 0.0f;
      results[threadIdx.x][c] = seen.padding ? uint16_t(0) : nominal_code<N>(v);
    }
    __syncthreads();
    store_rows(a.out, first_row, a.rows, first, a.mask.kv.count, results);
  });
}

// N20.14: S is made once more from the logits, as it was before it was rounded.
template <Encoding N>
__global__ void __launch_bounds__(kRowThreads) attention_softmax_gradient(SoftmaxArgs a) {
  ASSAY_SHARED(uint16_t, logits, [kRowThreads][kRowTile + 2]);
  ASSAY_SHARED(uint16_t, gradients, [kRowThreads][kRowTile + 2]);
  const int64_t first_row = int64_t(blockIdx.x) * kRowThreads, row = first_row + threadIdx.x;
  const Mask::Seen seen = my_row(a, row);
  const RowStatistics s = row_statistics<N>(a, first_row, seen, logits);
  const auto probability = [&](int64_t j, int c) {
    return __fdiv_rn(exponential_at<N>(a, seen, s.most, j, logits[threadIdx.x][c]), s.sum);
  };
  const auto both = [&](auto on) {
    over_tiles(a.p, first_row, a, logits, [&](int64_t first, int count) {
      load_rows(a.ds, first_row, a.rows, first, a.mask.kv.count, gradients);
      __syncthreads();
      on(first, count);
    });
  };
  float total = 0.0f;
  both([&](int64_t first, int count) {
    for (int c = 0; c < count; ++c)
      total = __fadd_rn(total,
                        __fmul_rn(as_float(decode<N>(gradients[threadIdx.x][c])), probability(first + c, c)));
  });
  both([&](int64_t first, int count) {
    for (int c = 0; c < count; ++c) {
      const float ds = as_float(decode<N>(gradients[threadIdx.x][c])),
                  v = __fmul_rn(probability(first + c, c), __fadd_rn(ds, as_float(as_bits(total) ^ kSign)));
      gradients[threadIdx.x][c] = seen(first + c) ? nominal_code<N>(v) : uint16_t(0);
    }
    __syncthreads();
    store_rows(a.out, first_row, a.rows, first, a.mask.kv.count, gradients);
  });
}

// ---- the whole -----------------------------------------------------------------------

template <Encoding N> class AttentionRun {
 public:
  explicit AttentionRun(const Job& job)
      : job_(job),
        op_(*job.problem.as<Attention>()),
        n_(attention_sizes(job.problem)),
        alpha_(softmax_scale(op_, n_.depth)),
        logits_(n_.rows() * n_.kv),
        qkv_(size_t(n_.rows() + 2 * n_.kv_rows()) * size_t(n_.depth) * 2),
        s_(op_.slot(AttentionSlot::s).format == FormatId::identity ? 0 : size_t(logits_) * 2),
        result_(size_t(n_.rows() * n_.depth) * 2) {}

  void forward();
  void backward();
  void online();
  void online_gradient(const uint16_t* d_o);

 private:
  uint16_t* q() { return qkv_.as<uint16_t>(); }
  uint16_t* k() { return q() + n_.rows() * n_.depth; }
  uint16_t* v() { return k() + n_.kv_rows() * n_.depth; }
  uint16_t* plane(std::string_view name) const { return job_.output<uint16_t>(name); }
  bool casts(AttentionSlot slot) const { return op_.slot(slot).format != FormatId::identity; }

  Tokens tokens(AttentionTensor t) const {
    const bool q = t == AttentionTensor::q;
    return {token_order(op_.layout), q ? n_.q : n_.kv, n_.batch,
            job_.input(q ? "cu_seqlens_q" : "cu_seqlens_kv")};
  }
  MoveArgs move(AttentionTensor t, const uint16_t* from, uint16_t* to) const {
    const AttentionPart held = part_of(op_.layout, t);
    const bool q = t == AttentionTensor::q;
    MoveArgs a{from, to, tokens(t), q ? n_.heads : n_.kv_heads, n_.depth};
    a.tensors = held.tensors, a.which = held.which, a.within_heads = held.within_heads;
    a.count = (q ? n_.rows() : n_.kv_rows()) * n_.depth;
    return a;
  }
  MoveArgs move_result(const uint16_t* from, uint16_t* to) const {
    MoveArgs a{from, to, tokens(AttentionTensor::q), n_.heads, n_.depth};
    a.count = n_.rows() * n_.depth;
    return a;
  }
  template <class Kernel> void start(const char* name, Kernel kernel, const MoveArgs& a) const {
    if (a.count != 0)
      launch({.name = name, .grid = blocks_for(a.count, kThreads), .block = kThreads}, kernel, a);
  }
  void gather(AttentionTensor t, uint16_t* to) const {
    if (op_.codes == AttentionCodes::e4m3) return descale<Encoding::e4m3>(t, to);
    if (op_.codes == AttentionCodes::e5m2) return descale<Encoding::e5m2>(t, to);
    start("attention_gather", attention_gather<false>,
          move(t, job_.input<uint16_t>(part_of(op_.layout, t).plane), to));
  }
  template <Encoding E> void descale(AttentionTensor t, uint16_t* to) const {
    const bool q = t == AttentionTensor::q;
    DescaleArgs a{move(t, nullptr, to), job_.input<uint8_t>(part_of(op_.layout, t).plane)};
    a.descales = job_.input<float>(q ? "q.descale" : t == AttentionTensor::k ? "k.descale" : "v.descale");
    a.group = q ? n_.repeats() : 1;
    if (a.move.count != 0)
      launch({.name = "attention_descale", .grid = blocks_for(a.move.count, kThreads), .block = kThreads},
             attention_descale<N, E>, a);
  }
  void scatter(AttentionTensor t, const uint16_t* from) const {
    MoveArgs a = move(t, from, plane("grad." + part_of(op_.layout, t).plane));
    if (t != AttentionTensor::q) a.repeats = n_.repeats();
    start("attention_scatter", attention_scatter<N, false>, a);
  }

  // N20.3: writes the cast's planes, and to y what they dequantize to.
  void cast(const AttentionCast& cast, const uint16_t* x, uint16_t* y) const;
  // x itself where the slot casts nothing.
  const uint16_t* cast_slot(AttentionSlot slot, const uint16_t* x, Scratch& y) const {
    if (!casts(slot)) return x;
    cast(attention_casts(job_.problem, slot)[0], x, y.as<uint16_t>());
    return y.as<uint16_t>();
  }
  // Three tensors that lie one after the other.
  void cast_three(AttentionSlot slot, const uint16_t* x, uint16_t* y) const {
    for (const AttentionCast& one : attention_casts(job_.problem, slot)) {
      cast(one, x, y);
      x += one.line.x.shape.count(), y += one.line.x.shape.count();
    }
  }

  ProductArgs product(Ending ending, int64_t k, uint16_t* out) const {
    ProductArgs a;
    a.batch = n_.batch, a.heads = n_.heads, a.k = k, a.out = out, a.ending = ending, a.alpha = alpha_;
    return a;
  }
  // [heads, tokens, depth] with tokens or elements as lines; `repeats`: heads share them.
  AttentionOperand by_tokens(const uint16_t* x, int64_t heads, int64_t tokens) const {
    return {x, heads * tokens * n_.depth, tokens * n_.depth, n_.depth, 1, n_.heads / heads, tokens};
  }
  AttentionOperand by_elements(const uint16_t* x, int64_t heads, int64_t tokens) const {
    return {x, heads * tokens * n_.depth, tokens * n_.depth, 1, n_.depth, n_.heads / heads, n_.depth};
  }
  AttentionOperand weights(const uint16_t* x, bool by_query) const {  // S or dP
    return {x, n_.heads * n_.q * n_.kv, n_.q * n_.kv, by_query ? n_.kv : 1, by_query ? 1 : n_.kv,
            1, by_query ? n_.q : n_.kv};
  }
  AttentionOperand result(const uint16_t* x, bool by_query) const {  // dO, in the order of O
    const int64_t token = n_.batch * n_.heads * n_.depth;
    return {x, n_.heads * n_.depth,       n_.depth, by_query ? token : 1, by_query ? 1 : token,
            1, by_query ? n_.q : n_.depth};
  }
  void stored_by_tokens(ProductArgs& a, int64_t tokens, int64_t width) const {
    a.by_batch = n_.heads * tokens * width, a.by_head = tokens * width, a.by_line = width;
  }
  void start(const char* name, const ProductArgs& a) const {
    const int64_t tiles = ((a.m.lines + kAttentionTile - 1) / kAttentionTile) *
                          ((a.n.lines + kAttentionTile - 1) / kAttentionTile);
    if (tiles != 0)
      launch({.name = name, .grid = unsigned(tiles * n_.batch * n_.heads), .block = kAttentionThreads},
             attention_product<N>, a);
  }
  SoftmaxArgs softmax(uint16_t* out) const {
    SoftmaxArgs a;
    a.p = plane("p"), a.out = out, a.rows = n_.rows(), a.heads = n_.heads;
    a.mask = {tokens(AttentionTensor::q), tokens(AttentionTensor::k), op_.mask, op_.window_left,
              op_.window_right};
    a.exp = op_.exp, a.keep_factor = keep_factor(op_), a.keep = job_.input<uint8_t>("keep");
    return a;
  }
  LaunchConfig rows(const char* name) const {
    return {.name = name, .grid = blocks_for(n_.rows(), kRowThreads), .block = kRowThreads};
  }

  const Job& job_;
  const Attention& op_;
  AttentionSizes n_;
  float alpha_;
  int64_t logits_;
  Scratch qkv_, s_, result_;
  const uint16_t* s_hat_ = nullptr;
};

template <Encoding N>
void AttentionRun<N>::cast(const AttentionCast& cast, const uint16_t* x, uint16_t* y) const {
  const std::vector<Plane> read = input_planes(cast.line), made = output_planes(cast.line);
  std::vector<DevicePlane> inputs, outputs;
  for (const Plane& p : read)
    inputs.push_back({&p, p.name == "x"
                              ? const_cast<uint16_t*>(x)
                              : const_cast<uint16_t*>(job_.input<uint16_t>(plane_of_cast(cast, p.name)))});
  for (const Plane& p : made) outputs.push_back({&p, plane(plane_of_cast(cast, p.name))});
  run(Job{cast.line, inputs, outputs, job_.policy});

  Problem back = cast.line;
  back.op = Dequantize{N, CodesFrom::quantized};
  const std::vector<Plane> stored = input_planes(back), given = output_planes(back);
  std::vector<DevicePlane> from;
  for (const Plane& p : stored) from.push_back({&p, plane(plane_of_cast(cast, p.name))});
  const DevicePlane to{&given[0], y};
  run(Job{back, from, std::span(&to, 1), job_.policy});
}

template <Encoding N> void AttentionRun<N>::forward() {
  gather(AttentionTensor::q, q());
  gather(AttentionTensor::k, k());
  gather(AttentionTensor::v, v());
  cast_three(AttentionSlot::qkv, q(), q());

  ProductArgs p = product(Ending::logit, n_.depth, plane("p"));
  p.m = by_tokens(q(), n_.heads, n_.q), p.n = by_tokens(k(), n_.kv_heads, n_.kv);
  p.bias_rule = op_.bias, p.bias = job_.input<uint16_t>("bias");
  stored_by_tokens(p, n_.q, n_.kv);
  start("attention_logits", p);
  if (logits_ != 0) launch(rows("attention_softmax"), attention_softmax<N>, softmax(plane("s")));
  s_hat_ = cast_slot(AttentionSlot::s, plane("s"), s_);

  // N20.11.
  ProductArgs o = product(Ending::plain, n_.kv, plane("o"));
  o.m = weights(s_hat_, true), o.n = by_elements(v(), n_.kv_heads, n_.kv);
  o.by_batch = n_.heads * n_.depth, o.by_head = n_.depth, o.by_line = n_.batch * n_.heads * n_.depth;
  if (op_.sums == AttentionSums::online) online();
  else start("attention_result", o);
  const uint16_t* o_hat = cast_slot(AttentionSlot::o, plane("o"), result_);
  start("attention_scatter", attention_scatter<N, true>, move_result(o_hat, plane("out")));
}

// N20.19: O once more from the logits, in an order of its own.
template <Encoding N> void AttentionRun<N>::online() {
  if (n_.rows() == 0) return;
  const Quantizer& slot = op_.slot(AttentionSlot::s);
  const SoftmaxArgs row = softmax(nullptr);
  const int64_t group = n_.repeats();
  Scratch sums(size_t(n_.rows() * n_.depth) * 4);
  OnlineArgs a;
  a.p = row.p, a.v = v(), a.keep = row.keep, a.keep_factor = row.keep_factor, a.exp = row.exp;
  a.sums = sums.as<float>(), a.out = plane("o");
  a.rows = row.rows, a.heads = row.heads, a.repeats = group, a.depth = n_.depth;
  a.computes_scale = slot.format == FormatId::fp8_current;
  if (slot.format == FormatId::fp8_delayed) a.scale = job_.input<float>("s.given.scale");
  if (slot.element == Encoding::e5m2) {
    a.largest_code = 57344;
    launch(rows("attention_online"), attention_online<N, Encoding::e5m2, Mask>, a, row.mask);
  } else {
    launch(rows("attention_online"), attention_online<N, Encoding::e4m3, Mask>, a, row.mask);
  }
}

// N20.19: the gradient of the logits by S and D of its own.
template <Encoding N> void AttentionRun<N>::online_gradient(const uint16_t* d_o) {
  if (logits_ == 0) return;
  const SoftmaxArgs row = softmax(nullptr);
  OnlineGradientArgs a;
  a.p = row.p, a.ds = plane("ds"), a.o = plane("o"), a.d_o = d_o, a.out = plane("dp");
  a.rows = row.rows, a.heads = row.heads, a.depth = n_.depth, a.exp = row.exp;
  launch(rows("attention_online_gradient"), attention_online_gradient<N, Mask>, a, row.mask);
}

template <Encoding N> void AttentionRun<N>::backward() {
  uint16_t* const d_o = result_.as<uint16_t>();
  start("attention_gather", attention_gather<true>, move_result(job_.input<uint16_t>("do"), d_o));
  if (casts(AttentionSlot::d_o)) cast(attention_casts(job_.problem, AttentionSlot::d_o)[0], d_o, d_o);

  // N20.12.
  ProductArgs dv = product(Ending::plain, n_.q, plane("dv"));
  dv.m = weights(s_hat_, false), dv.n = result(d_o, false);
  stored_by_tokens(dv, n_.kv, n_.depth);
  start("attention_dv", dv);

  ProductArgs ds = product(op_.dropout != 0 ? Ending::dropped : Ending::plain, n_.depth, plane("ds"));
  ds.m = result(d_o, true), ds.n = by_tokens(v(), n_.kv_heads, n_.kv);
  ds.keep = job_.input<uint8_t>("keep"), ds.keep_factor = keep_factor(op_);
  stored_by_tokens(ds, n_.q, n_.kv);
  start("attention_ds", ds);

  SoftmaxArgs gradient = softmax(plane("dp"));
  gradient.ds = plane("ds"), gradient.keep = nullptr;
  if (op_.sums == AttentionSums::online) online_gradient(d_o);
  else if (logits_ != 0) launch(rows("attention_softmax_gradient"), attention_softmax_gradient<N>, gradient);
  const uint16_t* dp_hat = cast_slot(AttentionSlot::dp, plane("dp"), s_);

  const bool before = op_.bias == AttentionBias::pre_scale;  // N20.15
  ProductArgs dq = product(before ? Ending::plain : Ending::gradient, n_.kv, plane("dq"));
  dq.m = weights(dp_hat, true), dq.n = by_elements(k(), n_.kv_heads, n_.kv), dq.scales_m = before;
  stored_by_tokens(dq, n_.q, n_.depth);
  start("attention_dq", dq);
  ProductArgs dk = product(before ? Ending::plain : Ending::gradient, n_.q, plane("dk"));
  dk.m = weights(dp_hat, false), dk.n = by_elements(q(), n_.heads, n_.q), dk.scales_m = before;
  stored_by_tokens(dk, n_.kv, n_.depth);
  start("attention_dk", dk);

  const int64_t of_q = n_.rows() * n_.depth, of_kv = n_.repeated_rows() * n_.depth;
  Scratch all(size_t(of_q + 2 * of_kv) * 2);
  uint16_t* const to = all.as<uint16_t>();
  const auto copy = [&](const char* name, uint16_t* at, int64_t count) {
    MoveArgs a{plane(name), at, {TokenOrder::batch_first, count, 1, nullptr}, 1, 1};
    a.count = count;
    start("attention_copy", attention_gather<false>, a);
  };
  copy("dq", to, of_q), copy("dk", to + of_q, of_kv), copy("dv", to + of_q + of_kv, of_kv);
  cast_three(AttentionSlot::dqkv, to, to);
  scatter(AttentionTensor::q, to);
  scatter(AttentionTensor::k, to + of_q);
  scatter(AttentionTensor::v, to + of_q + of_kv);
}

}  // namespace

std::string run_attention(const Job& job) {
  const auto go = [&]<Encoding N>(Constant<N>) {
    AttentionRun<N> attention(job);
    attention.forward();
    if (job.problem.as<Attention>()->backward) attention.backward();
  };
  const bool bf16 = job.problem.x.source == Encoding::bf16;
  if (bf16) go(Constant<Encoding::bf16>{});
  else go(Constant<Encoding::f16>{});
  return std::string("attention ") + (bf16 ? "bf16" : "f16");
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
