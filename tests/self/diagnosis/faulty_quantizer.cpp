#include "tests/self/diagnosis/faulty_quantizer.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "contract/planes.h"

namespace assay {

namespace {

using enum Switch;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

float as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t as_bits(float f) { return std::bit_cast<uint32_t>(f); }

// A hash of small integers for faults that follow no pattern.
uint32_t hashed(uint64_t a, uint64_t b = 0) {
  uint64_t h = (a * 0x9E3779B97F4A7C15u) ^ (b + 0x632BE59BD9B4E019u) * 0xD6E8FEB86659FD93u;
  h ^= h >> 32, h *= 0xD6E8FEB86659FD93u, h ^= h >> 29, h *= 0x94D049BB133111EBu, h ^= h >> 32;
  return static_cast<uint32_t>(h);
}
bool prime(int64_t n) {
  if (n < 2) return false;
  for (int64_t d = 2; d * d <= n; ++d)
    if (n % d == 0) return false;
  return true;
}

// ---- encodings as tables ------------------------------------------------------------------------

enum class Tie : uint8_t { even, away, zero, odd };
enum class Toward : uint8_t { nearest, zero, away, floor, ceil };

// The magnitudes of one encoding: value[code]; `beyond` is what one code more would be.
struct Magnitudes {
  std::vector<double> value;
  double beyond = 0;
  uint32_t sign = 0, nan = 0, first_normal = 0;

  Magnitudes(int exponent_bits, int mantissa_bits, int bias, uint32_t largest, uint32_t nan_code)
      : sign(1u << (exponent_bits + mantissa_bits)), nan(nan_code), first_normal(1u << mantissa_bits) {
    const auto at = [&](uint32_t code) {
      const int e = static_cast<int>(code >> mantissa_bits), m = static_cast<int>(code & (first_normal - 1));
      return e == 0 ? std::ldexp(m, 1 - bias - mantissa_bits)
                    : std::ldexp(m + static_cast<int>(first_normal), e - bias - mantissa_bits);
    };
    for (uint32_t c = 0; c <= largest; ++c) value.push_back(at(c));
    beyond = at(largest + 1);
  }
  // The code of a finite magnitude, value.size() where it rounds beyond the largest.
  uint32_t round(double a, Toward toward, Tie tie) const {
    if (a >= beyond) return toward == Toward::zero ? largest() : static_cast<uint32_t>(value.size());
    const auto hi = static_cast<uint32_t>(std::upper_bound(value.begin(), value.end(), a) - value.begin());
    const uint32_t lo = hi - 1;
    const double below = value[lo], above = hi < value.size() ? value[hi] : beyond;
    if (a == below || toward == Toward::zero) return lo;
    if (toward == Toward::away) return hi;
    const double middle = (below + above) / 2;
    if (a != middle) return a < middle ? lo : hi;
    const uint32_t even = lo % 2 == 0 ? lo : hi;
    switch (tie) {
      case Tie::even: return even;
      case Tie::odd: return even == lo ? hi : lo;
      case Tie::zero: return lo;
      case Tie::away: return hi;
    }
    return lo;
  }
  uint32_t largest() const { return static_cast<uint32_t>(value.size()) - 1; }
};

const Magnitudes& magnitudes(Encoding e) {
  static const Magnitudes e4m3(4, 3, 7, 0x7E, 0x7F), e5m2(5, 2, 15, 0x7B, 0x7F), e2m3(2, 3, 1, 0x1F, 0x1F),
      e3m2(3, 2, 3, 0x1F, 0x1F), e2m1(2, 1, 1, 7, 7), f16(5, 10, 15, 0x7BFF, 0x7FFF),
      bf16(8, 7, 127, 0x7F7F, 0x7FFF);
  switch (e) {
    case Encoding::e5m2: return e5m2;
    case Encoding::e2m1: return e2m1;
    case Encoding::f16: return f16;
    case Encoding::bf16: return bf16;
    case Encoding::e2m3: return e2m3;
    case Encoding::e3m2: return e3m2;
    case Encoding::e4m3:
    case Encoding::f32:  // never rounded to
    case Encoding::e8m0:
    case Encoding::u8:
    case Encoding::u32: break;
  }
  return e4m3;
}
double largest_value(Encoding e) { return magnitudes(e).value.back(); }

// Through a 16-bit encoding and back; beyond the largest there is infinity, toward zero only of infinities.
float through(float x, Encoding e, Toward toward = Toward::nearest) {
  if (std::isnan(x) || std::isinf(x)) return x;
  const Magnitudes& m = magnitudes(e);
  const uint32_t code = m.round(std::fabs(static_cast<double>(x)), toward, Tie::even);
  const double a = code >= m.value.size() ? INFINITY : m.value[code];
  return std::copysign(static_cast<float>(a), x);
}
bool subnormal(float x) { return x != 0 && std::fabs(x) < FLT_MIN; }

// 2^e for every e that binary32 has, subnormals included.
float power(int e) { return static_cast<float>(std::ldexp(1.0, e)); }
// N2.7 with round=rp overflow=sat, and its neighbours.
int e8m0(float p, bool down, bool nearest) {
  if (std::isnan(p)) return 255;
  if (std::isinf(p)) return 254;
  if (static_cast<double>(p) <= std::ldexp(1.0, -127)) return 0;
  int e = 0;
  const double f = std::frexp(static_cast<double>(p), &e);  // p = f 2^e, f in [1/2, 1)
  int k = f == 0.5 ? e - 1 : e;
  if (down) k = e - 1;
  if (nearest) k = f > 0.75 ? e : e - 1;
  return std::clamp(k + 127, 0, 254);
}

// ---- Philox -------------------------------------------------------------------------------------

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, uint32_t k0, uint32_t k1, int rounds) {
  for (int r = 0; r < rounds; ++r) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9, k1 += 0xBB67AE85;
  }
  return c;
}

// ---- the quantizer ------------------------------------------------------------------------------

struct Matrix {
  int64_t rows = 0, cols = 0;
  std::vector<float> v;
  Matrix(int64_t r, int64_t c) : rows(r), cols(c), v(static_cast<size_t>(r * c)) {}
  float& at(int64_t r, int64_t c) { return v[static_cast<size_t>(r * cols + c)]; }
  float at(int64_t r, int64_t c) const { return v[static_cast<size_t>(r * cols + c)]; }
};
Matrix transposed(const Matrix& m) {
  Matrix t(m.cols, m.rows);
  for (int64_t r = 0; r < m.rows; ++r)
    for (int64_t c = 0; c < m.cols; ++c) t.at(c, r) = m.at(r, c);
  return t;
}

// One block's scale: what is stored, and what its elements are multiplied with, or divided by where
// `divides`.
struct BlockScale {
  uint32_t stored = 0;
  float factor = 1;
  bool divides = false;
  bool zeroes = false;
};

class Run {
 public:
  Run(const Problem& p, const Switches& s, std::span<const ConstBuffer> inputs,
      std::span<const Buffer> outputs)
      : p_(p), on_(s), inputs_(inputs), outputs_(outputs), x_(read()) {}

  void make() {
    for (const Buffer& b : outputs_)
      if (!b.bytes.empty()) std::memset(b.bytes.data(), 0, b.bytes.size());
    for (Direction d : kDirections)
      if (p_.quantizer(d)) quantize(d);
    if (on(ly_directions_swapped) && p_.row && p_.col) {
      const Buffer *a = find(outputs_, "row.data"), *b = find(outputs_, "col.data");
      if (a->bytes.size() == b->bytes.size())
        std::swap_ranges(a->bytes.begin(), a->bytes.end(), b->bytes.begin());
    }
  }

 private:
  const Problem& p_;
  const Switches& on_;
  std::span<const ConstBuffer> inputs_;
  std::span<const Buffer> outputs_;
  const Matrix x_;
  std::optional<float> row_tensor_scale_;
  std::vector<uint32_t> row_stored_;  // scales of the rows, block after block
  std::optional<Matrix> row_values_;  // the dequantized rows

  bool on(Switch s) const { return on_[static_cast<size_t>(s)]; }

  // -- input --------------------------------------------------------------------------------------

  float element(const std::byte* bytes, int64_t i) const {
    if (p_.x.source == Encoding::f32) {
      uint32_t u = 0;
      std::memcpy(&u, bytes + 4 * i, 4);
      return as_float(u);
    }
    uint16_t u = 0;
    std::memcpy(&u, bytes + 2 * i, 2);
    if (p_.x.source == Encoding::bf16) return as_float(uint32_t{u} << 16);
    const uint32_t magnitude = u & 0x7FFF;
    const float a = magnitude > 0x7C00    ? kNaN
                    : magnitude == 0x7C00 ? INFINITY
                                          : static_cast<float>(magnitudes(Encoding::f16).value[magnitude]);
    return u & 0x8000 ? -a : a;
  }

  Matrix read() const {
    const int64_t m = p_.x.shape.rows, k = p_.x.shape.cols, count = m * k;
    const ConstBuffer* source = find(inputs_, "x");
    Matrix plain(m, k);
    for (int64_t i = 0; i < count; ++i) plain.v[static_cast<size_t>(i)] = element(source->bytes.data(), i);

    Matrix x = plain;
    for (int64_t r = 0; r < m; ++r)
      for (int64_t c = 0; c < k; ++c) {
        int64_t i = r, j = c;
        bool zero = false;
        if (on(in_row_twice) && r == 1) i = 0;
        if (on(in_rows_swapped) && (r ^ 1) < m) i = r ^ 1;
        if (on(in_last_row_zero) && r == m - 1) zero = true;
        if (on(in_tail_columns_zero) && c >= k / 32 * 32) zero = true;
        if (on(in_tail_columns_clamped) && c >= k / 32 * 32) j = std::max<int64_t>(k / 32 * 32 - 1, 0);
        if (on(in_pairs_swapped) && (c ^ 1) < k) j = c ^ 1;
        if (on(in_vector_reversed) && (c | 7) < k) j = c ^ 7;
        if (on(in_lane_zero) && c % 32 == 31) zero = true;
        if (on(in_lane_repeated) && c % 32 == 0 && c + 1 < k) j = c + 1;
        if (on(in_tile_stale) && r >= 32 && r < 64 && c >= 64 && c < 128) j = c - 64;
        if (on(in_tile_zero) && r >= 64 && r < 96 && c >= 32 && c < 64) zero = true;
        if (on(in_tile_transposed) && r / 32 * 32 + 32 <= m && c / 32 * 32 + 32 <= k)
          i = r / 32 * 32 + c % 32, j = c / 32 * 32 + r % 32;
        if (on(in_row_blocks_alias)) i = r % 64;
        if (on(in_column_blocks_alias)) j = c % 128;
        int64_t at = i * k + j;
        if (on(in_stride_rounded)) at = r * round_up(k, 16) + c;
        if (on(in_shifted)) at = r * k + c + 1;
        x.at(r, c) = zero || at >= count ? 0.0f : plain.v[static_cast<size_t>(at)];
      }
    for (int64_t i = 0; i < count; ++i) {
      float& v = x.v[static_cast<size_t>(i)];
      if (on(in_ftz) && subnormal(v)) v = std::copysign(0.0f, v);
      if (on(in_via_f16)) v = through(v, Encoding::f16);
      if (on(in_via_bf16)) v = through(v, Encoding::bf16);
      if (on(in_via_bf16_rz)) v = through(v, Encoding::bf16, Toward::zero);
      if (on(in_nan_zero) && std::isnan(v)) v = 0;
      if (on(in_inf_max) && std::isinf(v))
        v = std::copysign(
            p_.x.source == Encoding::f32 ? FLT_MAX : static_cast<float>(largest_value(p_.x.source)), v);
      if (on(in_nan_to_num) && !std::isfinite(v))
        v = std::isnan(v)
                ? 0.0f
                : std::copysign(
                      p_.x.source == Encoding::f32 ? FLT_MAX : static_cast<float>(largest_value(p_.x.source)),
                      v);
      if (on(in_relu) && v < 0) v = 0;
      if (on(in_sign_lost)) v = std::fabs(v);
      if (on(in_zero_plus) && v == 0) v = 0;
      if (on(in_halved)) v *= 0.5f;
      if (on(o_in_smeared) && i % 7 == 3 && (i + 1) % k != 0)
        v = 0.5f * (v + plain.v[static_cast<size_t>(i + 1)]);
      if (on(o_in_last_bit) && hashed(static_cast<uint64_t>(i)) % 5 == 0)
        v = as_float(as_bits(v) ^ (p_.x.source == Encoding::f32 ? 0x8000 : 0x10000));
    }
    return x;
  }

  // -- random Hadamard transform ------------------------------------------------------------------

  // One group of 16, in place.
  void rotate(float* v, uint16_t mask, int64_t group) const {
    if (on(rht_missing)) return;
    std::array<bool, 16> negative{};
    for (size_t i = 0; i < 16; ++i) {
      const size_t bit = on(rht_signs_reversed) ? 15 - i : on(rht_signs_shifted) ? (i + 1) % 16 : i;
      negative[i] = !on(rht_no_signs) && (((mask >> bit) & 1) != 0) != on(rht_signs_inverted);
      if (on(o_rht_signs_vary)) negative[i] = hashed(static_cast<uint64_t>(group), i) % 2;
    }
    std::array<float, 16> a{};
    for (size_t i = 0; i < 16; ++i) a[i] = negative[i] && !on(rht_signs_after) ? -v[i] : v[i];
    const float norm = on(rht_not_normalised) ? 1.0f : on(rht_normalised_twice) ? 0.0625f : 0.25f;
    std::array<float, 16> y = a;
    for (size_t h = 1; h < (on(rht_stage_missing) ? 8u : 16u); h *= 2)
      for (size_t i = 0; i < 16; ++i)
        if (!(i & h)) {
          const float s = y[i] + y[i + h], t = y[i] - y[i + h];
          y[i] = on(rht_bf16_stages) ? through(s, Encoding::bf16) : s;
          y[i + h] = on(rht_bf16_stages) ? through(t, Encoding::bf16) : t;
        }
    for (size_t j = 0; j < 16; ++j) {
      const size_t from =
          on(rht_bit_reversed) ? ((j & 1) << 3 | (j & 2) << 1 | (j & 4) >> 1 | (j & 8) >> 3) : j;
      float out = y[from] * norm;
      if (on(rht_signs_after) && negative[j]) out = -out;
      if (on(rht_f16)) out = through(out, Encoding::f16);
      else if (!on(rht_no_bf16))
        out = through(out, Encoding::bf16, on(rht_bf16_rz) ? Toward::zero : Toward::nearest);
      v[j] = out;
    }
  }
  void rotate_rows(Matrix& m, uint16_t mask) const {
    for (int64_t r = 0; r < m.rows; ++r)
      for (int64_t c = 0; c + 16 <= m.cols; c += 16) rotate(&m.at(r, c), mask, c / 16);
  }

  // -- amax ---------------------------------------------------------------------------------------

  float tensor_amax(const Matrix& m) const {
    float amax = on(ta_not_reset) ? 16.0f : 0.0f;
    bool nan = false;  // the running amax is NaN
    double sum = 0;
    for (int64_t r = 0; r < m.rows; ++r)
      for (int64_t c = 0; c < m.cols; ++c) {
        if (on(ta_first_row) && r > 0) continue;
        if (on(ta_misses_last_row) && r == m.rows - 1) continue;
        if (on(ta_misses_last_column) && c == m.cols - 1) continue;
        if (on(ta_even_rows) && r % 2) continue;
        if (on(ta_half) && r >= m.rows / 2) continue;
        if (on(ta_lane_missed) && c % 32 == 31) continue;
        const float v = m.at(r, c);
        if ((on(ta_nan) || on(dv_nan_scale)) && std::isnan(v)) return kNaN;
        if (on(ta_nan_restarts) && (nan = std::isnan(v))) amax = 0;
        float a = on(ta_signed) ? v : std::fabs(v);
        if (on(o_ta_median) && c > 0 && c + 1 < m.cols) {
          const float x = std::fabs(m.at(r, c - 1)), z = std::fabs(m.at(r, c + 1));
          a = std::max(std::min(x, a), std::min(std::max(x, a), z));
        }
        if (std::isfinite(a)) sum += a;
        if (a > amax) amax = a;
      }
    if (on(o_ta_mean))
      amax = static_cast<float>(4 * sum / static_cast<double>(std::max<int64_t>(m.rows * m.cols, 1)));
    if (nan) return kNaN;
    if (on(ta_at_most)) amax = std::min(amax, 2.5f);
    return on(ta_bf16) ? through(amax, Encoding::bf16) : amax;
  }

  struct Blocks {
    int64_t height = 1, width = 1, down = 0, across = 0;
    int64_t index(int64_t i, int64_t j) const { return i * across + j; }
  };

  float block_amax(const Matrix& m, const Blocks& b, int64_t bi, int64_t bj) const {
    int64_t i0 = bi * b.height, i1 = std::min(i0 + b.height, m.rows), j0 = bj * b.width,
            j1 = std::min(j0 + b.width, m.cols);
    const bool vector = b.height == 1;
    int64_t step = 1;
    if (on(ba_misses_last)) --j1;
    if (on(ba_misses_first)) ++j0;
    if (on(ba_first_half)) j1 = std::min(j1, j0 + b.width / 2);
    if (on(ba_second_half)) j0 += b.width / 2;
    if (on(ba_even)) step = 2;
    if (on(ba_first_only)) i1 = i0 + 1, j1 = std::min(j1, j0 + 1);
    if (on(ba_first_row)) i1 = i0 + 1;
    if (on(ba_leaks_next)) j1 = std::min(j1 + 1, m.cols);
    if (on(ba_double)) j0 = bj / 2 * 2 * b.width, j1 = std::min(j0 + 2 * b.width, m.cols);
    if (on(ba_whole_row)) j0 = 0, j1 = m.cols;
    if (vector && on(ba_square)) i0 = bi / b.width * b.width, i1 = std::min(i0 + b.width, m.rows);
    if (vector && on(ba_row_pair) && (bi ^ 1) < m.rows) i0 = bi ^ 1, i1 = i0 + 1;
    if (vector && on(ba_tile_stale) && bi >= 32 && bi < 64) i0 = bi - 32, i1 = i0 + 1;
    if (vector && on(ba_wrong_axis)) {
      j0 = std::min(j0 + bi % b.width, m.cols - 1), j1 = j0 + 1;
      i0 = bi / b.width * b.width, i1 = std::min(i0 + b.width, m.rows);
    }
    float amax = 0, second = 0;
    bool nan = false;
    const uint32_t left_out =
        hashed(static_cast<uint64_t>(b.index(bi, bj))) % 2
            ? static_cast<uint32_t>(b.width)
            : hashed(static_cast<uint64_t>(bi), static_cast<uint64_t>(bj)) % static_cast<uint32_t>(b.width);
    const auto take = [&](float v) {
      nan = std::isnan(v) || (nan && !on(ba_nan_restarts));
      if (on(ba_nan_restarts) && nan) amax = second = 0;
      const float a = on(ba_signed) ? v : std::fabs(v);
      if (on(ba_inf_ignored) && std::isinf(v)) return;
      if (on(ba_ftz) && subnormal(v)) return;
      if (a > amax) second = amax, amax = a;
      else if (a > second) second = a;
    };
    for (int64_t i = i0; i < i1; ++i)
      for (int64_t j = j0; j < j1; j += step) {
        if (on(o_ba_hash) && static_cast<uint32_t>(j - j0) == left_out) continue;
        take(m.at(i, j));
      }
    if (on(ba_tail_wraps) && vector && bj == b.across - 1 && bi + 1 < m.rows)
      for (int64_t j = 0; j < b.across * b.width - m.cols; ++j) take(m.at(bi + 1, j));
    if ((on(ba_nan) || on(ba_nan_restarts) || on(dv_nan_scale)) && nan) return kNaN;
    if (on(ba_at_most)) amax = std::min(amax, 2.0f);
    if (on(ba_at_least)) amax = std::max(amax, 1e-4f);
    if (on(o_ba_second)) amax = 0.5f * (amax + second);
    return on(ba_bf16) ? through(amax, Encoding::bf16) : amax;
  }

  std::vector<float> block_amaxes(const Matrix& m, const Blocks& b) const {
    std::vector<float> own(static_cast<size_t>(b.down * b.across));
    for (int64_t i = 0; i < b.down; ++i)
      for (int64_t j = 0; j < b.across; ++j) own[static_cast<size_t>(b.index(i, j))] = block_amax(m, b, i, j);
    std::vector<float> used = own;
    for (int64_t i = 0; i < b.down; ++i)
      for (int64_t j = 0; j < b.across; ++j) {
        float& a = used[static_cast<size_t>(b.index(i, j))];
        const auto other = [&](int64_t c) { return own[static_cast<size_t>(b.index(i, c))]; };
        if (on(ba_next_block) && j + 1 < b.across) a = other(j + 1);
        if (on(ba_previous_block) && j > 0) a = other(j - 1);
        if (on(ba_last_stale) && j == b.across - 1 && j > 0) a = other(j - 1);
        if (on(ba_running))
          for (int64_t c = 0; c < j; ++c) a = std::max(a, other(c));
      }
    return used;
  }

  // -- scales -------------------------------------------------------------------------------------

  struct Divided {
    float scale = 1, inverse = 1;
    float unrounded = 1;            // the scale before it was made a power of two
    std::optional<float> factor{};  // of elements, where it is not the scale
    bool divides = false;
  };
  // N3.2 to N3.7.
  Divided divide(float amax, const Quantizer& q) const {
    const float eps = as_float(q.eps);
    float a = amax;
    if (on(dv_eps_added)) a += eps;
    else if (!on(dv_eps_ignored) && a < eps) a = eps;
    if (on(dv_eps_extra) && a < 1e-4f) a = 1e-4f;
    const bool e5m2 = q.element == Encoding::e5m2;
    float max = e5m2 ? 57344.0f : 448.0f;
    if (on(dv_max_240)) max = 240;
    if (on(dv_max_other)) max = e5m2 ? 448.0f : 57344.0f;
    if (on(dv_margin)) max *= 0.5f;
    Divided d;
    if (a == 0 && on(dv_zero_limit)) d.scale = FLT_MAX;
    else if (std::isinf(a) && on(dv_inf_zero)) d.scale = 0;
    else if (!(a == 0 || std::isinf(a) || std::isnan(a))) {
      d.scale = on(dv_reciprocal) ? max * (1.0f / a) : max / a;
      if (on(dv_decode_first)) d.scale = 1.0f / (a / max);
      if (on(dv_stale)) d.scale = 13.25f;
      if (std::isinf(d.scale)) d.scale = FLT_MAX;
      d.unrounded = d.scale;
      if ((q.pow2 && !on(dv_pow2_missing)) || on(dv_pow2_extra)) {
        int e = 0;
        const float f = std::frexp(d.scale, &e);  // scale = f 2^e
        int k = e - 1;
        if (on(dv_pow2_up) && f != 0.5f) k = e;
        if (on(dv_pow2_nearest) && f > 0.75f) k = e;
        d.scale = std::ldexp(1.0f, k);
      }
    }
    d.inverse = 1.0f / d.scale;
    if (on(dv_inv_quotient)) d.inverse = a / max;
    if (on(dv_decode_first) && std::isfinite(a) && a != 0) d.inverse = a / max;
    if (on(dv_inv_ulp) && std::isfinite(d.inverse) && d.inverse != 0)
      d.inverse = as_float(as_bits(d.inverse) - 1);
    if (std::isnan(a) && on(dv_nan_scale)) d.scale = d.inverse = kNaN;
    if (std::isfinite(a) && a != 0) quotients(d, a, max);
    return d;
  }
  // scale_inv and the multiplier by quotients that a compiler made something else of.
  void quotients(Divided& d, float a, float max) const {
    const float product = a * (1.0f / max);
    if (on(dv_product_divided)) d.inverse = product, d.factor = product, d.divides = true;
    if (on(dv_product_inverted)) d.inverse = product, d.factor = 1.0f / product;
    if (on(dv_approximate_divided)) {
      d.inverse = a * as_float(as_bits(1.0f / max) - 1);
      d.factor = d.inverse, d.divides = true;
    }
    if (on(dv_full)) d.inverse = a / max, d.factor = as_float(as_bits(1.0f / d.inverse) - 1);
    if (on(el_rcp_down)) d.factor = as_float(as_bits(1.0f / d.inverse) - 1);
    if (on(el_rcp_up)) d.factor = as_float(as_bits(1.0f / d.inverse) + 1);
    if (on(el_before_pow2)) d.factor = d.unrounded;
    if (on(bs_unrounded_stored)) d.factor = d.scale, d.inverse = 1.0f / d.unrounded;
    if (on(el_stale)) d.factor = 13.25f;
    if (on(el_next_step)) d.factor = d.scale * 0.8125f;
  }
  // N3.11: the scale that is given, and its reciprocal.
  Divided given_scale(float amax, const Quantizer& q) const {
    const Divided own = divide(amax, q);
    Divided d;
    d.scale = on(dl_current) ? own.scale : as_float(q.scale);
    d.inverse = 1.0f / d.scale;
    if (on(dv_inv_ulp)) d.inverse = as_float(as_bits(d.inverse) - 1);
    if (on(dl_codes_current)) d.factor = own.scale;
    if (on(dl_inv_next)) d.factor = d.scale, d.inverse = own.inverse;
    if (on(dl_inv_stale)) d.factor = d.scale, d.inverse = 1.0f / 13.25f;
    if (on(el_stale)) d.factor = 13.25f;
    if (on(el_next_step)) d.factor = d.scale * 0.8125f;
    return d;
  }
  BlockScale divided_block(const Divided& d) const {
    BlockScale b{as_bits(d.inverse), d.scale, false, false};
    if (d.factor) b.factor = *d.factor, b.divides = d.divides;
    if (std::isnan(d.inverse)) b.stored = 0x7FFFFFFF;
    if (on(dv_inv_is_scale) || on(bs_divided_other)) b.stored = as_bits(d.scale);
    if (on(el_inverse)) b.factor = d.inverse;
    if (on(el_twice)) b.factor = d.scale * d.scale;
    if (on(el_unscaled)) b.factor = 1;
    if (on(el_divide_inverse)) b.factor = d.inverse, b.divides = true;
    return b;
  }

  BlockScale mx_block(float amax, const Quantizer& q) const {
    const bool fp4 = q.format == FormatId::mxfp4;
    double max = fp4 ? 6 : q.element == Encoding::e5m2 ? 57344 : 448;
    if (on(e8_max_240)) max = 240;
    if (on(e8_max_256)) max = fp4 ? 4 : q.element == Encoding::e5m2 ? 32768 : 256;
    if (on(e8_max_other)) max = q.element == Encoding::e5m2 ? 448 : 57344;
    const float reciprocal = 1.0f / static_cast<float>(max);
    const float p = on(e8_rcp_up) ? amax * as_float(as_bits(reciprocal) + 1)
                    : fp4         ? amax / static_cast<float>(max)
                                  : amax * reciprocal;
    int k = e8m0(p, on(e8_down), on(e8_nearest));
    if (on(e8_floor) && std::isfinite(amax)) {
      int e = -126 - 22;
      if (amax != 0) std::frexp(amax, &e);
      k = std::clamp(e - 1 - (fp4 ? 2 : q.element == Encoding::e5m2 ? 15 : 8) + 127, 0, 254);
    }
    const int mantissa = fp4                           ? 1
                         : q.element == Encoding::e5m2 ? 2
                                                       : 3,
              most = fp4                           ? 2
                     : q.element == Encoding::e5m2 ? 15
                                                   : 8;
    if ((on(e8_even) || on(e8_ceil)) && std::isfinite(amax)) {
      int e = -126 - 22;
      const uint32_t up = on(e8_even) ? as_bits(amax) + (1u << (22 - mantissa)) : as_bits(amax) + 0x7FFFFF;
      if (const float a = as_float(up & 0x7F800000); a != 0 && std::isfinite(a)) std::frexp(a, &e);
      k = std::clamp(e - 1 - most + 127, 0, 254);
    }
    if (on(e8_always_up) && k < 254 && p == power(k - 127)) ++k;
    if (on(e8_plus_one) && k < 254) ++k;
    if (on(e8_minus_one) && k > 0 && k < 255) --k;
    if (on(e8_zero_127) && amax == 0) k = 127;
    if (on(e8_at_least_one)) k = std::max(k, 127);
    if (on(e8_code_one)) k = std::max(k, 1);
    return mx_of_code(k, p);
  }
  BlockScale mx_of_code(int k, float p) const {
    BlockScale b{static_cast<uint32_t>(k), k == 255 ? kNaN : power(127 - k), false, false};
    if (on(e8_stored_bias) && k > 0 && k < 255) b.stored = static_cast<uint32_t>(k - 1);
    if (on(e8_stored_reciprocal) && k < 255) b.stored = static_cast<uint32_t>(254 - k);
    if (on(e8_stored_unbiased)) b.stored = static_cast<uint32_t>(k - 127) & 0xFF;
    if (on(el_inverse) && k < 255) b.factor = power(k - 127);
    if (on(el_twice)) b.factor *= b.factor;
    if (on(el_unscaled)) b.factor = 1;
    if (on(el_unrounded_scale)) b.factor = std::min(1.0f / p, FLT_MAX);
    return b;
  }

  float encode_scale(float amax) const {
    const float target = on(ts_256) ? 1536.0f : on(ts_240) ? 1440.0f : on(ts_no_six) ? 448.0f : 2688.0f;
    float s = on(ts_reciprocal) ? target * (1.0f / amax) : on(ts_inverted) ? amax / target : target / amax;
    if (!(s < FLT_MAX)) s = FLT_MAX;
    if (amax == 0 || s == 0) s = 1;
    if (on(ts_ulp) && amax != 0) s = as_float(as_bits(s) - 1);
    if (on(ts_pow2)) {
      int e = 0;
      std::frexp(s, &e);
      s = std::ldexp(1.0f, e - 1);
    }
    return on(ts_unit) ? 1.0f : s;
  }
  BlockScale nvfp4_block(float amax, float tensor_amax, float s) const {
    constexpr float kSixth = 0x1.555556p-3f;  // N10.5: 3E2AAAAB
    const Magnitudes& e4m3 = magnitudes(Encoding::e4m3);
    float v = amax * (s * kSixth);
    const float of_blocks = s;  // the tensor scale that block scales are made with
    if (on(nv_scales_stale)) s = encode_scale(7.25f);
    v = amax * (s * kSixth);
    if (on(sf_product_first)) v = s * (amax * kSixth);
    if (on(sf_quotient)) v = (amax / 6.0f) * s;
    if (on(sf_decode)) v = (amax / 6.0f) / (tensor_amax / 2688.0f);
    if (on(sf_no_sixth)) v = amax * s;
    if (on(sf_four)) v = amax * (s * 0.25f);
    if (!(v < FLT_MAX)) v = FLT_MAX;
    if (on(sf_bf16)) v = through(v, Encoding::bf16);
    if (on(sf_f16)) v = through(v, Encoding::f16);
    s = of_blocks;
    if (on(sf_least_normal)) v = std::max(v, 0x1p-6f);
    const Toward toward = on(sf_rz) ? Toward::zero : on(sf_rp) ? Toward::away : Toward::nearest;
    uint32_t code =
        std::isinf(v) ? e4m3.largest() : e4m3.round(v, toward, on(sf_ties_away) ? Tie::away : Tie::even);
    code = std::min(code, e4m3.largest());
    if (on(sf_max_240)) code = std::min(code, 0x77u);
    if (on(sf_ftz) && code < e4m3.first_normal) code = 0;
    if (on(sf_zero_one) && code == 0) code = 0x38;
    if (on(sf_zero_eighth) && code == 0) code = 0x20;
    if (on(sf_nan_over) && v > 464) return BlockScale{0x7F, kNaN, false, false};
    if (on(sf_plus_one)) code = std::min(code + 1, e4m3.largest());
    if (on(sf_minus_one) && code > 0) --code;
    return nvfp4_of_code(code, v, s);
  }
  BlockScale nvfp4_of_code(uint32_t code, float v, float s) const {
    if (on(nv_codes_stale)) s = encode_scale(7.25f);
    if (on(nv_codes_next)) s *= 0.8125f;
    const float inverse = 1.0f / s;
    const auto sf = static_cast<float>(magnitudes(Encoding::e4m3).value[code]);
    const auto reciprocal = [&](float scale) {
      const float r = 1.0f / (scale * inverse);
      return r < FLT_MAX ? r : FLT_MAX;
    };
    BlockScale b{code, reciprocal(sf), false, false};
    if (on(sf_stored_bias)) b.stored = code >= 8 ? code - 8 : code / 2;
    if (on(el_unrounded_scale)) b.factor = reciprocal(v);
    if (on(el_quotient)) b.factor = std::min(s / sf, FLT_MAX);
    if (on(el_divide) && sf != 0) b.factor = sf * inverse, b.divides = true;
    if (on(el_no_tensor_scale)) b.factor = std::min(1.0f / sf, FLT_MAX);
    if (on(el_inverse)) b.factor = sf * inverse;
    if (on(el_twice)) b.factor = std::min(b.factor * b.factor, FLT_MAX);
    if (on(el_unscaled)) b.factor = 1;
    if (on(el_zero_scale) && code == 0) b.zeroes = true;
    if (on(el_rcp_down) && b.factor < FLT_MAX) b.factor = as_float(as_bits(b.factor) - 1);
    if (on(el_rcp_up) && b.factor < FLT_MAX) b.factor = as_float(as_bits(b.factor) + 1);
    return b;
  }

  // -- codes --------------------------------------------------------------------------------------

  uint32_t code(float y, const Quantizer& q, int64_t i, int64_t j) const {
    Encoding element = q.element;
    if (on(c_other_element) && element != Encoding::e2m1)
      element = element == Encoding::e4m3 ? Encoding::e5m2 : Encoding::e4m3;
    const Magnitudes& m = magnitudes(element);
    const bool negative = std::signbit(y), fp8 = element != Encoding::e2m1;
    if (on(c_inf_nan) && std::isinf(y) && fp8) return m.nan;
    if (std::isnan(y)) {
      if (on(c_nan_zero)) return 0;
      if (on(c_nan_max)) return m.largest();
      return m.nan | ((on(c_nan_sign) && negative) || (on(c_nan_negative) && fp8) ? m.sign : 0);
    }
    double a = std::fabs(static_cast<double>(y));
    if (on(c_nan_above_max) && fp8 && a > m.value.back()) return m.nan | (negative ? m.sign : 0);
    if (on(c_fnuz) && fp8) a = a * 2;  // a bias of one more: the same pattern means half as much
    Toward toward = on(c_rz) ? Toward::zero : on(c_up) ? Toward::away : Toward::nearest;
    if (on(c_floor)) toward = negative ? Toward::away : Toward::zero;
    if (on(c_ceil)) toward = negative ? Toward::zero : Toward::away;
    Tie tie = on(c_away) ? Tie::away : on(c_ties_zero) ? Tie::zero : on(c_ties_odd) ? Tie::odd : Tie::even;
    if (on(o_c_row_rounding)) {
      const uint32_t h = hashed(static_cast<uint64_t>(i)) % 3;
      toward = h == 0 ? Toward::zero : h == 1 ? Toward::away : Toward::nearest;
    }
    if (on(sr_foreign) && a < m.value.back()) {
      const uint32_t low = m.round(a, Toward::zero, Tie::even);
      const double part = (a - m.value[low]) / (m.value[low + 1] - m.value[low]);
      const uint32_t draw = hashed(static_cast<uint64_t>(i) << 32 | static_cast<uint64_t>(j), p_.x.fill.seed);
      a = m.value[low + (draw * 0x1p-32 < part ? 1 : 0)];
    }
    uint32_t c = std::isinf(a) ? static_cast<uint32_t>(m.value.size()) : m.round(a, toward, tie);
    if (c > m.largest()) {
      if (on(c_nan_overflow) && fp8)
        return (element == Encoding::e5m2 ? 0x7Cu : 0x7Fu) | (negative ? m.sign : 0);
      c = m.largest();
    }
    if (on(c_sat_240) && element == Encoding::e4m3) c = std::min(c, 0x77u);
    if (on(c_sat_below)) c = std::min(c, m.largest() - 1);
    if (on(c_ftz) && c < m.first_normal) c = 0;
    if (on(c_drop_neg_zero) && c == 0) return 0;
    if (on(c_sign_lost)) return c;
    if (on(c_plus_zero_minus) && y == 0) return m.sign;
    return c | (negative ? m.sign : 0);
  }

  // N12.2: the 16 bytes of one block of draws, byte e for its element e.
  std::array<uint8_t, 16> draws(int64_t i, int64_t group, int64_t rows, int64_t groups, Direction d) const {
    Rng rng = p_.rng;
    if (on(sr_offset_one)) rng.offset += 1;
    if (on(sr_offset_four)) rng.offset += 4;
    if (on(sr_offset_ignored)) rng.offset = 0;
    if (on(sr_seed_plus_one)) rng.seed += 1;
    uint64_t block = static_cast<uint64_t>(i * groups + group);
    if (on(sr_block_by_columns)) block = static_cast<uint64_t>(group * rows + i);
    if (on(sr_block_plus_one)) ++block;
    uint32_t direction = d == Direction::col ? 1 : 0;
    if (on(sr_other_direction)) direction ^= 1;
    uint32_t k0 = static_cast<uint32_t>(rng.seed), k1 = static_cast<uint32_t>(rng.seed >> 32);
    if (on(sr_key_swapped)) std::swap(k0, k1);
    const std::array<uint32_t, 4> w =
        philox({static_cast<uint32_t>(rng.offset), static_cast<uint32_t>(rng.offset >> 32),
                static_cast<uint32_t>(block),
                (static_cast<uint32_t>(block >> 32) & 0x3FFF) | rng.member << 14 | direction << 31},
               k0, k1, on(sr_rounds_7) ? 7 : 10);
    std::array<uint8_t, 16> out{};
    for (uint32_t e = 0; e < 16; ++e) {
      uint32_t word = e / 4, byte = e % 4;
      if (on(sr_low_word)) word = 0;
      if (on(sr_words_reversed)) word = 3 - word;
      if (on(sr_bytes_reversed)) byte = 3 - byte;
      if (on(sr_bytes_interleaved)) byte = byte == 1 ? 2 : byte == 2 ? 1 : byte;
      if (on(sr_one_byte)) byte = 0;
      out[e] = static_cast<uint8_t>(w[word] >> (8 * byte));
      if (on(sr_complement)) out[e] = static_cast<uint8_t>(~out[e]);
    }
    return out;
  }
  uint32_t stochastic(float y, uint8_t byte) const {
    const Magnitudes& m = magnitudes(Encoding::e2m1);
    if (std::isnan(y)) return 7;
    const double a = std::fabs(static_cast<double>(y));
    uint32_t c = 7;
    if (on(sr_fma)) {
      const float magnitude = static_cast<float>(a);
      if (a < 6) {
        const auto step = [](float v) { return v >= 4 ? 2.0f : v >= 2 ? 1.0f : 0.5f; };
        const float t = std::fma(static_cast<float>(byte) / 256.0f, step(magnitude), magnitude);
        const float value = std::min(std::floor(t / step(t)) * step(t), 6.0f);
        c = static_cast<uint32_t>(std::find(m.value.begin(), m.value.end(), value) - m.value.begin());
      }
    } else if (a < 6) {
      c = m.round(a, Toward::zero, Tie::even);
      const double f = (a - m.value[c]) / (m.value[c + 1] - m.value[c]);
      if (static_cast<int>(std::floor(256 * f)) + byte >= 256) ++c;
    }
    if (on(c_sat_below)) c = std::min(c, 6u);
    if (on(c_ftz) && c < 2) c = 0;
    if ((on(c_drop_neg_zero) && c == 0) || on(c_sign_lost)) return c;
    return c | (std::signbit(y) ? 8u : 0u);
  }

  // -- one direction ------------------------------------------------------------------------------

  // Elements of another tensor, and of this one a step before.
  float foreign(const Matrix& m, int64_t i, int64_t j) const {
    const uint32_t h = hashed(static_cast<uint64_t>(i) << 32 | static_cast<uint64_t>(j), 77 + p_.x.fill.seed);
    return 0.9f * m.v[h % m.v.size()];
  }
  float step_before(const Matrix& m, int64_t i, int64_t j) const {
    const uint32_t h = hashed(static_cast<uint64_t>(i) << 32 | static_cast<uint64_t>(j), 99 + p_.x.fill.seed);
    const float v = m.at(i, j) * (1 + 0.08f * (static_cast<float>(h % 2001) / 1000.0f - 1));
    return p_.x.source == Encoding::f32 ? v : through(v, p_.x.source);
  }
  // What the direction quantizes in place of its own elements.
  void replace(Matrix& v, bool col) const {
    const Matrix own = v;
    for (int64_t i = 0; i < v.rows; ++i)
      for (int64_t j = 0; j < v.cols; ++j) {
        if ((col && on(col_foreign)) || (on(rg_foreign_rows) && i >= 64 && i < 96))
          v.at(i, j) = foreign(own, i, j);
        if (col ? on(col_stale) : on(row_stale)) v.at(i, j) = step_before(own, i, j);
      }
    if (col && on(col_of_row_codes) && row_values_) v = transposed(*row_values_);
  }
  // The dequantized rows, rounded to x's encoding (N14.3), for columns that are made of them.
  void keep_values(const Quantizer& q, const Matrix& v, const Blocks& b,
                   const std::vector<BlockScale>& scales, const std::vector<uint8_t>& codes) {
    const Magnitudes& m = magnitudes(q.element);
    const bool mx = q.format == FormatId::mxfp8 || q.format == FormatId::mxfp4;
    Matrix values(v.rows, v.cols);
    for (int64_t i = 0; i < v.rows; ++i)
      for (int64_t j = 0; j < v.cols; ++j) {
        const uint32_t c = codes[static_cast<size_t>(i * v.cols + j)],
                       stored = scales[static_cast<size_t>(b.index(i / b.height, j / b.width))].stored;
        const auto a = static_cast<float>(m.value[std::min(c & (m.sign - 1), m.largest())]);
        const float decode = mx ? power(static_cast<int>(stored) - 127) : as_float(stored),
                    value = a * decode;
        values.at(i, j) = std::copysign(p_.x.source == Encoding::f32 ? value : through(value, p_.x.source),
                                        c & m.sign ? -1.0f : 1.0f);
      }
    row_values_ = std::move(values);
  }

  void quantize(Direction d) {
    const Quantizer& q = *p_.quantizer(d);
    const bool col = d == Direction::col;
    // Stored rows in the order of the contraction: x, or its transpose.
    Matrix v = col ? transposed(x_) : x_;
    if (!on(rg_foreign_rows)) replace(v, col);
    const bool rotated = q.rht && col;
    if (rotated && on(rht_wrong_axis)) {
      Matrix along = x_;
      rotate_rows(along, q.sign_mask);
      v = transposed(along);
    } else if (rotated || (!col && on(rht_rows_too) && p_.col && p_.col->rht)) {
      rotate_rows(v, rotated ? q.sign_mask : p_.col->sign_mask);
    }

    const bool by_rows =
        q.format == FormatId::fp8_current && q.row_scaled;  // N3.12: a block is a whole stored row
    const bool delayed = q.format == FormatId::fp8_delayed,
               per_tensor = delayed || (q.format == FormatId::fp8_current && !by_rows),
               nvfp4 = q.format == FormatId::nvfp4,
               mx = q.format == FormatId::mxfp8 || q.format == FormatId::mxfp4;
    Blocks b;
    switch (q.block) {
      case Block::b1x16: b.width = 16; break;
      case Block::b16x16: b.width = b.height = 16; break;
      case Block::b1x32: b.width = 32; break;
      case Block::b32x32: b.width = b.height = 32; break;
      case Block::b1x128: b.width = 128; break;
      case Block::b128x128: b.width = b.height = 128; break;
      default:
        b.width = std::max<int64_t>(v.cols, 1), b.height = by_rows ? 1 : std::max<int64_t>(v.rows, 1);
        break;
    }
    if (b.height > 1 && !per_tensor &&
        on(ba_vector)) {  // square blocks not known: each row has its own scale
      b.height = 1;
    }
    b.down = ceil_div(v.rows, b.height), b.across = by_rows ? 1 : ceil_div(v.cols, b.width);
    const bool square = q.block == Block::b128x128;
    const int64_t square_height = square ? 128 : 1;  // of the stored scales

    std::vector<BlockScale> scales(static_cast<size_t>(std::max<int64_t>(b.down * b.across, 1)));
    float amax = 0, s = 1;
    if (per_tensor || nvfp4) {
      const bool given = q.amax && !on(ta_given_ignored);
      const bool of_x =
          (!rotated && !on(col_foreign) && !on(col_stale) && !on(col_of_row_codes) && !on(row_stale)) ||
          on(ta_of_x);
      amax = given ? as_float(*q.amax) : tensor_amax(of_x ? x_ : v);
      float stored = amax;
      if (delayed && !on(ta_prior_ignored)) stored = std::max(stored, as_float(q.prior_amax));
      if (on(ta_stored_eps) && stored < as_float(q.eps)) stored = as_float(q.eps);
      if (on(ta_stored_encode)) stored = 2688.0f / stored;
      if (const Buffer* out = find(outputs_, plane_name(d, "amax")))
        put(*out, 0, std::isnan(stored) ? 0x7FFFFFFF : as_bits(stored));
    }
    if (on(rg_foreign_rows)) replace(v, col);
    if (per_tensor) {
      Divided t = delayed ? given_scale(amax, q) : divide(amax, q);
      if (on(el_local) && q.amax) t.factor = divide(tensor_amax(v), q).scale;
      scales[0] = divided_block(t);
      if (const Buffer* out = find(outputs_, plane_name(d, "scale")))
        put(*out, 0, as_bits(on(dv_scale_is_inv) ? t.inverse : t.scale));
    } else {
      if (nvfp4) {
        s = encode_scale(on(nv_both_stale) ? 7.25f : on(ts_local) ? tensor_amax(v) : amax);
        if (!col) row_tensor_scale_ = s;
        if (col && on(ts_of_row) && row_tensor_scale_) s = *row_tensor_scale_;
      }
      std::vector<float> amaxes = block_amaxes(v, b);
      if (on(ba_one_for_all) && !amaxes.empty())
        std::fill(amaxes.begin(), amaxes.end(), *std::max_element(amaxes.begin(), amaxes.end()));
      const float whole = s;
      float of_half = s;
      if (nvfp4 && on(ta_expert)) {
        Matrix half = v;
        half.v.erase(half.v.begin(), half.v.begin() + v.rows / 2 * v.cols), half.rows -= v.rows / 2;
        of_half = encode_scale(tensor_amax(half));
      }
      for (size_t i = 0; i < amaxes.size(); ++i) {
        s = static_cast<int64_t>(i) / b.across >= b.down / 2 ? of_half : whole;
        scales[i] = mx      ? mx_block(amaxes[i], q)
                    : nvfp4 ? nvfp4_block(amaxes[i], amax, s)
                            : divided_block(divide(amaxes[i], q));
        if (by_rows) {
          const Divided t = divide(amaxes[i], q);
          if (const Buffer* out = find(outputs_, plane_name(d, "amax")))
            put(*out, static_cast<int64_t>(i), std::isnan(amaxes[i]) ? 0x7FFFFFFF : as_bits(amaxes[i]));
          if (const Buffer* out = find(outputs_, plane_name(d, "scale")))
            put(*out, static_cast<int64_t>(i), as_bits(on(dv_scale_is_inv) ? t.inverse : t.scale));
        }
        outside_scale(scales[i], static_cast<int64_t>(i), b, amaxes[i], q, s);
      }
    }
    for (BlockScale& scale : scales) {
      if (on(el_half)) scale.factor *= scale.divides ? 2.0f : 0.5f;
      if (on(el_double)) scale.factor *= scale.divides ? 0.5f : 2.0f;
      if (on(el_bf16_multiplier)) scale.factor = through(scale.factor, Encoding::bf16);
    }

    std::vector<uint8_t> codes(v.v.size());
    const bool draws_here =
        (q.round == Round::sr && !on(sr_missing)) || (q.format == FormatId::nvfp4 && on(sr_extra));
    const int64_t groups = ceil_div(v.cols, int64_t{16});
    for (int64_t i = 0; i < v.rows; ++i) {
      std::array<uint8_t, 16> bytes{};
      for (int64_t j = 0; j < v.cols; ++j) {
        if (draws_here && j % 16 == 0) bytes = draws(i, j / 16, v.rows, groups, d);
        int64_t bi = i / b.height, bj = j / b.width;
        if (on(el_next_scale) && bj + 1 < b.across) ++bj;
        if (on(el_previous_scale) && bj > 0) --bj;
        if (on(el_row_pair_scale) && (bi ^ 1) < b.down) bi ^= 1;
        if (on(rg_rows_used) && b.height == 1 && bi >= 64 && bi < 96) bi -= 64;
        const BlockScale& scale = scales[static_cast<size_t>(b.index(bi, bj))];
        const float x = v.at(i, j);
        float y = scale.zeroes ? x * 0.0f : scale.divides ? x / scale.factor : x * scale.factor;
        if (on(el_plus_zero) && x == 0) y = 0;
        if (on(el_bf16)) y = through(y, Encoding::bf16);
        if (on(el_f16)) y = through(y, Encoding::f16);
        if (on(el_f16_rz)) y = through(y, Encoding::f16, Toward::zero);
        if (on(o_el_sine)) y += 0.07f * y * static_cast<float>((j * 5) % 23 - 11) / 11.0f;
        if (on(o_el_cubic))
          y *= 1.0f + 0.15f * (y * y) / (y * y + static_cast<float>(largest_value(q.element)));
        if (on(o_el_dither))
          y += 0.1f * y *
               (static_cast<float>(hashed(static_cast<uint64_t>(i), static_cast<uint64_t>(j)) % 2001) /
                    1000.0f -
                1.0f);
        if (on(o_el_blend) && j % b.width > 0) y = 0.9f * y + 0.1f * (v.at(i, j - 1) * scale.factor);
        if (on(o_el_hash_blocks) && hashed(static_cast<uint64_t>(bi), static_cast<uint64_t>(bj)) % 3 == 0)
          y *= 0.96f;
        codes[static_cast<size_t>(i * v.cols + j)] = static_cast<uint8_t>(
            draws_here ? stochastic(y, bytes[static_cast<size_t>(j % 16)]) : code(y, q, i, j));
      }
    }
    if (!col && on(col_of_row_codes)) keep_values(q, v, b, scales, codes);
    spoil(codes, v, b, q);

    // Stored scales: a matrix of rows by blocks; square blocks repeat theirs, but 128x128.
    const int64_t scale_rows = square ? ceil_div(v.rows, square_height) : v.rows;
    const bool plain_square = !per_tensor && b.height > 1 && !square;
    std::vector<uint32_t> stored(static_cast<size_t>(per_tensor ? 1 : scale_rows * b.across));
    if (per_tensor) {
      stored[0] = scales[0].stored;
      put(*find(outputs_, plane_name(d, "scale_inv")), 0, stored[0]);
    } else {
      for (int64_t i = 0; i < scale_rows; ++i)
        for (int64_t j = 0; j < b.across; ++j) {
          int64_t bi = square ? (b.height == 1 ? i * 128 : i) : i / b.height, bj = j;
          if (on(bs_stored_next) && bj + 1 < b.across) ++bj;
          if (on(bs_stored_row_pair) && (bi ^ 1) < b.down) bi ^= 1;
          if (on(bs_row_of_tile_first) && b.height == 1) bi = bi / 32 * 32;
          if ((on(rg_rows_scales) || on(rg_rows_both)) && b.height == 1 && bi >= 64 && bi < 96) bi -= 64;
          if (on(rg_halves_scales)) bi = (bi + b.down / 2) % b.down;
          if (on(rg_cols_scales)) bj %= std::max<int64_t>(b.across / 2, 1);
          uint32_t& out = stored[static_cast<size_t>(i * b.across + j)];
          out = scales[static_cast<size_t>(b.index(bi, bj))].stored;
          if (on(bs_not_repeated) && plain_square && i % b.height) out = 0;
          if (on(bs_tail_missing) && v.cols % b.width && j == b.across - 1) out = 0;
          if (on(rg_foreign_scales) && b.height == 1 && bi >= 64 && bi < 96)
            out =
                scales[hashed(static_cast<uint64_t>(b.index(bi, bj)), p_.x.fill.seed) % scales.size()].stored;
          if (on(o_ly_scales_permuted)) {
            const int64_t from =
                (j + 1 + hashed(static_cast<uint64_t>(i)) % static_cast<uint32_t>(b.across)) % b.across;
            out = scales[static_cast<size_t>(b.index(bi, from))].stored;
          }
        }
      if (col && on(bs_other_direction) && row_stored_.size() == stored.size()) stored = row_stored_;
      if (!col) row_stored_ = stored;
      if (by_rows)
        for (int64_t i = 0; i < scale_rows; ++i)
          put(*find(outputs_, plane_name(d, "scale_inv")), i, stored[static_cast<size_t>(i)]);
      else write_scales(d, q, stored, scale_rows, b.across);
    }
    write_data(d, q, codes, v.rows, v.cols);
  }

  void outside_scale(BlockScale& scale, int64_t index, const Blocks& b, float amax, const Quantizer& q,
                     float s) const {
    const int64_t row = index / b.across;
    int64_t digits = 0;
    for (int64_t n = row; n > 0; n /= 10) digits += n % 10;
    int step = 0;
    if (on(o_bs_prime) && prime(index)) step = 1;
    if (on(o_bs_digits) && digits % 2) step = -1;
    if (on(o_bs_popcount) && std::popcount(as_bits(amax)) % 2) step = 1;
    if (step && q.format == FormatId::nvfp4) {
      const auto code = static_cast<uint32_t>(std::clamp(static_cast<int>(scale.stored) + step, 0, 0x7E));
      scale = nvfp4_of_code(code, static_cast<float>(magnitudes(Encoding::e4m3).value[code]), s);
    } else if (step && (q.format == FormatId::mxfp8 || q.format == FormatId::mxfp4)) {
      scale = mx_of_code(std::clamp(static_cast<int>(scale.stored) + step, 0, 254), 1);
    } else if (step) {
      const float f = step > 0 ? 0.5f : 2.0f;
      scale.factor *= f, scale.stored = as_bits(as_float(scale.stored) / f);
    }
    if (on(o_bs_hash) && hashed(static_cast<uint64_t>(index)) % 9 == 0 && scale.stored > 0) --scale.stored;
  }

  // What goes wrong with codes once they are made.
  void spoil(std::vector<uint8_t>& codes, const Matrix& v, const Blocks& b, const Quantizer& q) const {
    const std::vector<uint8_t> right = codes;
    const uint32_t sign = magnitudes(q.element).sign, most = magnitudes(q.element).largest();
    const auto larger = [&](uint8_t c) {
      return static_cast<uint8_t>((c & sign) | std::min((c & (sign - 1)) + 1, most));
    };
    for (int64_t i = 0; i < v.rows; ++i)
      for (int64_t j = 0; j < v.cols; ++j) {
        const auto at = static_cast<size_t>(i * v.cols + j);
        uint8_t& c = codes[at];
        if (on(c_last_column_zero) && j == v.cols - 1) c = 0;
        if (on(c_last_row_zero) && i == v.rows - 1) c = 0;
        if (on(c_lane_repeated) && j % 32 == 31) c = right[at - 1];
        const auto from = [&](int64_t r, int64_t k) { return right[static_cast<size_t>(r * v.cols + k)]; };
        if (on(rg_tile_codes) && i >= 32 && i < 64 && j >= 64 && j < 128 && v.rows >= 128)
          c = from(i + 64, j - 64);
        if (on(rg_rows_codes) && i >= 48 && i < 64) c = from(i - 32, j);
        if (on(rg_halves_codes)) c = from((i + v.rows / 2) % v.rows, j);
        if (on(rg_rows_both) && i >= 64 && i < 96) c = from(i - 64, j);
        if (on(c_tile_zero) && i >= 32 && i < 64 && j >= 64 && j < 96) c = 0;
        if (on(o_c_every_37) && at % 37 == 36) c ^= 1;
        if (on(o_c_noise) && hashed(at) % 100 == 0) c = larger(c);
        if (on(o_c_like_neighbour) && j > 0 && right[at] == right[at - 1]) c = larger(c);
        if (on(o_c_triangular)) {
          const auto n = static_cast<size_t>((std::sqrt(8.0 * static_cast<double>(at) + 1) - 1) / 2);
          if (n * (n + 1) / 2 == at) c = static_cast<uint8_t>(c ^ sign);
        }
      }
    if (!on(o_c_after_max) && !on(o_c_parity)) return;
    const int64_t width = std::min<int64_t>(b.width, 32);
    for (int64_t i = 0; i < v.rows; ++i)
      for (int64_t j0 = 0; j0 < v.cols; j0 += width) {
        const int64_t j1 = std::min(j0 + width, v.cols);
        int64_t top = j0;
        unsigned parity = 0;
        for (int64_t j = j0; j < j1; ++j) {
          const uint8_t c = right[static_cast<size_t>(i * v.cols + j)];
          parity ^= c & 1u;
          if ((c & (sign - 1)) > (right[static_cast<size_t>(i * v.cols + top)] & (sign - 1))) top = j;
        }
        if (on(o_c_after_max) && top + 1 < j1)
          codes[static_cast<size_t>(i * v.cols + top + 1)] =
              larger(right[static_cast<size_t>(i * v.cols + top + 1)]);
        if (on(o_c_parity) && parity) codes[static_cast<size_t>(i * v.cols + j1 - 1)] ^= 1;
      }
  }

  // -- layout -------------------------------------------------------------------------------------

  static void put(const Buffer& out, int64_t at, uint32_t bits) {
    const auto bytes = static_cast<size_t>(info(out.plane->encoding).bytes()),
               offset = static_cast<size_t>(at) * bytes;
    if (at >= 0 && offset + bytes <= out.bytes.size()) std::memcpy(out.bytes.data() + offset, &bits, bytes);
  }

  void write_scales(Direction d, const Quantizer& q, const std::vector<uint32_t>& stored, int64_t rows,
                    int64_t blocks) const {
    const bool gemm = q.scales == ScaleLayout::gemm, block = q.format == FormatId::fp8_block,
               square = q.block == Block::b128x128;
    const Buffer& out = *find(outputs_, plane_name(d, scale_stem(q.scales)));
    const int64_t out_rows =
                      gemm && square ? (d == Direction::row ? p_.x.shape.rows : p_.x.shape.cols) : rows,
                  out_cols = gemm && block ? 4 * blocks : blocks;
    const bool transposed = !gemm && ((q.format == FormatId::mxfp8 && d == Direction::col) ||
                                      (block && !square));  // [j][i] where compact
    const bool mx_col = q.format == FormatId::mxfp8 && d == Direction::col;
    for (int64_t i = 0; i < out_rows; ++i)
      for (int64_t j = 0; j < out_cols; ++j) {
        uint32_t bits = stored[static_cast<size_t>((gemm && square ? i / 128 : i) * blocks +
                                                   (gemm && block ? j / 4 : j))];
        if (gemm && block) bits = (bits >> 23) & 0xFF;  // N9.6
        const bool swizzled = gemm ? !on(ly_swizzle_missing) : on(ly_swizzle_extra);
        int64_t at = 0;
        if (swizzled) {
          const int64_t tiles = round_up(out_cols, int64_t{4}) / 4,
                        tile = on(ly_swizzle_tiles) ? j / 4 * ceil_div(out_rows, int64_t{128}) + i / 128
                                                    : i / 128 * tiles + j / 4;
          at = tile * 512 + i % 32 * 16 + i % 128 / 32 * 4 + j % 4;
          if (on(ly_swizzle_inner)) at = tile * 512 + i % 32 * 16 + j % 4 * 4 + i % 128 / 32;
          if (on(ly_swizzle_8x4)) at = (i / 8 * tiles + j / 4) * 32 + i % 8 * 4 + j % 4;
          if (on(ly_swizzle_twice)) {
            const int64_t pitch = 4 * tiles, r = at / pitch, c = at % pitch;
            at = (r / 128 * tiles + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4;
          }
          if (on(ly_swizzle_rows)) at = tile * 512 + i % 128 / 4 * 16 + i % 4 * 4 + j % 4;
        } else {
          const bool by_columns = transposed || (gemm && mx_col);
          // What the other index counts: rows of a compact buffer and their padding.
          int64_t stride = gemm ? (mx_col ? round_up(out_rows, int64_t{128}) : round_up(out_cols, int64_t{4}))
                                : out.plane->padded.cols;
          if (on(ly_scale_stride)) stride = by_columns ? out_rows : out_cols;
          at = by_columns ? j * stride + i : i * stride + j;
          if (on(ly_scales_transposed))
            at = by_columns ? i * out.plane->padded.rows + j : j * out.plane->padded.rows + i;
          if (on(ly_block_major_missing) && block && !square) at = i * out_cols + j;
        }
        if (on(ly_scale_shifted)) ++at;
        if (on(ly_scale_words)) at ^= 3;
        put(out, at, bits);
      }
  }

  void write_data(Direction d, const Quantizer& q, const std::vector<uint8_t>& codes, int64_t rows,
                  int64_t cols) const {
    const Buffer& out = *find(outputs_, plane_name(d, "data"));
    const bool as_is = d == Direction::col && q.format == FormatId::mxfp8;
    const int64_t stored_rows = as_is ? cols : rows, stored_cols = as_is ? rows : cols;
    std::vector<uint8_t> placed(codes.size());
    for (int64_t r = 0; r < stored_rows; ++r)
      for (int64_t c = 0; c < stored_cols; ++c) {
        int64_t i = r, j = c, to = r * stored_cols + c;
        if (on(ly_data_rows_swapped) && (r ^ 1) < stored_rows) i = r ^ 1;
        if (on(ly_data_shifted)) i = (r + stored_rows - 1) % stored_rows;
        if (on(ly_tiles_swapped) && (c ^ 32) < stored_cols) j = c ^ 32;
        if (on(ly_data_words) && (c | 3) < stored_cols) j = c ^ 3;
        if (on(ly_data_transposed)) to = c * stored_rows + r;
        if (on(ly_data_tiles16)) to = (r / 16 * (stored_cols / 16) + c / 16) * 256 + r % 16 * 16 + c % 16;
        if (on(ly_data_vnni)) to = r / 2 * 2 * stored_cols + c * 2 + r % 2;
        if (on(ly_data_vnni4)) to = r / 4 * 4 * stored_cols + c * 4 + r % 4;
        if (on(o_ly_rows_permuted) && (r | 31) < stored_rows) {
          std::array<int64_t, 32> order{};
          std::iota(order.begin(), order.end(), int64_t{0});
          std::sort(order.begin(), order.end(), [](int64_t a, int64_t b) {
            return hashed(static_cast<uint64_t>(a)) < hashed(static_cast<uint64_t>(b));
          });
          i = r / 32 * 32 + order[static_cast<size_t>(r % 32)];
        }
        if (on(ly_zigzag) && (r / 16 + c / 16) % 2 && (c | 15) < stored_cols) j = c ^ 15;
        placed[static_cast<size_t>(to)] = codes[static_cast<size_t>(as_is ? j * cols + i : i * cols + j)];
      }
    if (!out.plane->packed) {
      if (!placed.empty()) std::memcpy(out.bytes.data(), placed.data(), placed.size());
      return;
    }
    const int64_t width = ceil_div(stored_cols, int64_t{2});
    for (int64_t r = 0; r < stored_rows; ++r)
      for (int64_t n = 0; n < width; ++n) {
        const auto at = [&](int64_t c) {
          return c < stored_cols ? placed[static_cast<size_t>(r * stored_cols + c)] : uint8_t{0};
        };
        uint8_t low = at(2 * n), high = at(2 * n + 1);
        if (on(pk_halves)) low = at(n / 8 * 16 + n % 8), high = at(n / 8 * 16 + n % 8 + 8);
        if (on(pk_gguf)) low = at(n / 16 * 32 + n % 16), high = at(n / 16 * 32 + n % 16 + 16);
        if (on(pk_interleaved)) {
          constexpr std::array kOrder = {0, 2, 4, 6, 1, 3, 5, 7};
          const auto slot = static_cast<size_t>(2 * n % 8);
          low = at(2 * n / 8 * 8 + kOrder[slot]), high = at(2 * n / 8 * 8 + kOrder[slot + 1]);
        }
        if (on(pk_low_repeated)) high = low;
        if (on(pk_high_missing)) high = 0;
        if (on(pk_nibbles_swapped)) std::swap(low, high);
        int64_t to = n;
        if (on(pk_bytes_reversed) && (n | 3) < width) to = n ^ 3;
        if (on(pk_words_swapped) && (n | 3) < width) to = n ^ 2;
        if (on(o_pk_xor) && (r * width + n) % 11 == 4) std::swap(low, high);
        out.bytes[static_cast<size_t>(r * width + to)] = static_cast<std::byte>(low | high << 4);
      }
  }
};

class FaultyQuantizer : public Subject {
 public:
  explicit FaultyQuantizer(const Switches& s) : on_(s) {}
  std::string_view name() const override { return "faulty"; }
  Support supports(const Problem& p) const override {
    if (!p.as<Quantize>() || noop_of(p))
      return {false, "the faulty quantizer runs quantize, without a noop flag"};
    if (p.x.source != Encoding::f32 && p.x.source != Encoding::bf16 && p.x.source != Encoding::f16)
      return {false, "the faulty quantizer reads f32, bf16 and f16"};
    if (p.row && p.col && p.col_source != ColSource::original)
      return {false, "the faulty quantizer makes columns from x"};
    for (Direction d : kDirections)
      if (const auto& q = p.quantizer(d)) {
        if (q->format == FormatId::identity) return {false, "the faulty quantizer has no such format"};
        if (q->four_over_six != FourOverSix::off || (q->row_scaled && q->format == FormatId::nvfp4) ||
            q->scale_from != ScaleFrom::x)
          return {false,
                  "the faulty quantizer has neither four_over_six nor NVFP4 with row_scaled nor scale_from"};
        if (q->numerics != Numerics{}) return {false, "the faulty quantizer has default numerics"};
      }
    return {};
  }
  Served run(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
             const Environment&) override {
    Run(p, on_, inputs, outputs).make();
    return {"tables", 0};
  }

 private:
  const Switches on_;
};

}  // namespace

std::optional<Switches> parse_switches(std::string_view text) {
  static const std::map<std::string_view, size_t> names = [] {
    std::map<std::string_view, size_t> m;
    for (size_t i = 0; i < std::size(kSwitches); ++i) m.emplace(kSwitches[i].name, i);
    return m;
  }();
  Switches s;
  if (text == "none") return s;
  while (!text.empty()) {
    const size_t end = std::min(text.find('+'), text.size());
    const auto it = names.find(text.substr(0, end));
    if (it == names.end()) return std::nullopt;
    s.set(it->second);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return s;
}

std::unique_ptr<Subject> make_faulty_quantizer(const Switches& s) {
  return std::make_unique<FaultyQuantizer>(s);
}

}  // namespace assay
