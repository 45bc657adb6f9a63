// Quantizers that were written without sight of Assay's sources or of its search, from docs/numerics.md and
// public threads, each library with one slip: the second set of `ci/hunted` (README.md). Without a slip every
// line passes that it runs.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "contract/assay_plugin.h"
#include "tests/self/hunt/unseen_codes.h"
#include "tests/self/hunt/unseen_lines.h"

namespace unseen {
namespace {

// ---- tensors --------------------------------------------------------------------------------------------

struct Matrix {
  i64 rows = 0, cols = 0;
  std::vector<float> v;
  float at(i64 r, i64 c) const { return v[static_cast<size_t>(r * cols + c)]; }
  Matrix transposed() const {
    Matrix t{cols, rows, std::vector<float>(v.size())};
    for (i64 r = 0; r < rows; ++r)
      for (i64 c = 0; c < cols; ++c) t.v[static_cast<size_t>(c * rows + r)] = at(r, c);
    return t;
  }
};

Matrix load(const assay_plane& x) {
  Matrix m{x.rows, x.cols, std::vector<float>(static_cast<size_t>(x.rows * x.cols))};
  const char* from = static_cast<const char*>(x.data);
  const std::string e = x.encoding;
  for (size_t i = 0; i < m.v.size(); ++i) {
    if (e == "f32") {
      std::memcpy(&m.v[i], from + 4 * i, 4);
    } else {
      u16 h;
      std::memcpy(&h, from + 2 * i, 2);
      m.v[i] = e == "bf16" ? number(static_cast<u32>(h) << 16) : from_f16(h);
    }
  }
  return m;
}

const assay_plane* find(const assay_plane* p, size_t n, const std::string& name) {
  for (size_t i = 0; i < n; ++i)
    if (name == p[i].name) return &p[i];
  return nullptr;
}

void put(const assay_plane& p, i64 i, float v) {
  const u32 b = nan(v) ? kNan : bits(v);
  std::memcpy(static_cast<char*>(p.data) + 4 * i, &b, 4);
}
float get32(const assay_plane& p, i64 i) {
  float v;
  std::memcpy(&v, static_cast<const char*>(p.data) + 4 * i, 4);
  return v;
}
void clear(const assay_plane& p) {
  if (p.bytes) std::memset(p.data, 0, p.bytes);
}
u8* bytes(const assay_plane& p) { return static_cast<u8*>(p.data); }

// Where the scale of (i, j) stands in the tensor cores' order; `tiles` of 4 along j.
i64 tile_place(i64 i, i64 j, i64 tiles) {
  return ((i / 128) * tiles + j / 4) * 512 + (i % 32) * 16 + ((i % 128) / 32) * 4 + j % 4;
}

// An amax that ignores NaN, or that a NaN makes NaN.
struct Amax {
  bool propagate = false, found = false;
  float value = 0;
  void add(float v) {
    if (nan(v)) found = true;
    else if (magnitude(v) > value) value = magnitude(v);
  }
  float get() const { return propagate && found ? number(kNan) : value; }
};

// ---- MXFP8 ----------------------------------------------------------------------------------------------

int scale_up(float p) {  // N5.3
  if (nan(p)) return 255;
  if (infinite(p)) return 254;
  const u32 b = bits(p);
  const int exponent = static_cast<int>(b >> 23);
  const u32 fraction = b & 0x7FFFFF;
#ifdef SUBNORMAL_SCALE
  int k = exponent + (fraction != 0);
#else
  int k = exponent;
  if (fraction && !(exponent == 0 && fraction <= 0x400000)) ++k;
#endif
  return k > 254 ? 254 : k;
}

int scale_floor(float amax, int emax) {  // N17.6
  if (amax == 0) return 0;
  int e;
  std::frexp(amax, &e);
  const int k = e - 1 - emax + 127;
  return k < 0 ? 0 : k > 254 ? 254 : k;
}

int mx_code(float amax, const Small& t, const Line& line, const std::string& d) {
  if (nan(amax)) return 255;
  if (infinite(amax)) return line.get("mx_inf", d) == "nan" ? 255 : 254;
  if (line.get("mx_scale", d) == "floor") return scale_floor(amax, t.bias == 7 ? 8 : 15);
  return scale_up(amax * (1.0f / t.max));
}

float keep_zero(float y, float x, float m, bool plus) {  // N5.6
  if (plus && !nan(y) && (x == 0 || m == 0)) return 0.0f;
  return y;
}

void mxfp8(const Line& line, const Matrix& x, const assay_plane* out, size_t n) {
  for (const std::string d : {"row", "col"}) {
    if (!line.has(d)) continue;
    const bool gemm = line.get("scales", d) == "gemm", column = d == "col",
               square = line.get("block", d) == "32x32";
    const assay_plane& scales = *find(out, n, d + (gemm ? ".scale_gemm" : ".scale_inv"));
    const assay_plane& data = *find(out, n, d + ".data");
    const Small& t = line.get("element", d) == "e5m2" ? kE5M2 : kE4M3;
    const bool plus = line.get("neg_zero", d) == "plus";
#ifdef UNSATURATED
    const bool saturate = line.get("mx_scale", d) != "floor";
#else
    const bool saturate = true;
#endif
    const i64 high = square || column ? 32 : 1, wide = square || !column ? 32 : 1;
    const i64 j_extent = cdiv(column ? x.rows : x.cols, 32);
#ifdef PADDING_LEFT
    if (column && !gemm) {
      // every scale is stored below; only the rows behind the last block are cleared
      for (i64 i = cdiv(x.rows, 32) * scales.padded_cols; i < scales.padded_rows * scales.padded_cols; ++i)
        bytes(scales)[i] = 0;
    } else {
      clear(scales);
    }
#else
    clear(scales);
#endif
#ifdef TILES_FLOORED
    const i64 tiles = j_extent >= 4 ? j_extent / 4 : 1;
#else
    const i64 tiles = cdiv(j_extent, 4);
#endif
    float staged[32] = {};
    for (i64 r0 = 0; r0 < x.rows; r0 += high)
      for (i64 c0 = 0; c0 < x.cols; c0 += wide) {
        const i64 r1 = std::min(r0 + high, x.rows), c1 = std::min(c0 + wide, x.cols);
        Amax amax;
        amax.propagate = line.get("nan_amax", d) == "propagate";
#ifdef STALE_TAIL
        if (!column && !square) {
          for (i64 c = c0; c < c1; ++c) staged[c - c0] = x.at(r0, c);
          for (float v : staged) amax.add(v);
        } else
#endif
          for (i64 r = r0; r < r1; ++r)
            for (i64 c = c0; c < c1; ++c) amax.add(x.at(r, c));
        (void)staged;
        const int k = mx_code(amax.get(), t, line, d);
        const float m = inverse_power(k);
        // the scale of every line of the block that has one of its own
        const i64 lines = square ? (column ? c1 - c0 : r1 - r0) : 1;
        for (i64 l = 0; l < lines; ++l) {
          const i64 i = (column ? c0 : r0) + l, j = (column ? r0 : c0) / 32;
          if (gemm) bytes(scales)[tile_place(i, j, tiles)] = static_cast<u8>(k);
          else
            bytes(scales)[column ? j * scales.padded_cols + i : i * scales.padded_cols + j] =
                static_cast<u8>(k);
        }
        for (i64 r = r0; r < r1; ++r)
          for (i64 c = c0; c < c1; ++c) {
            const float v = x.at(r, c);
            bytes(data)[r * x.cols + c] = to_fp8(keep_zero(v * m, v, m, plus), t, saturate);
          }
      }
  }
}

// ---- FP8 with binary32 scales ---------------------------------------------------------------------------

struct Scale {
  float encode, decode;
};

Scale fp8_scale(float amax, float max, const Line& line, const std::string& d, bool block) {
  const float eps = line.real("eps", d);
  const float a = amax < eps ? eps : amax;
  float s;
  const bool special = a == 0 || nan(a) || (infinite(a) && line.get("inf_amax", d) != "zero");
  if (special) {
    s = 1;
  } else {
    s = max / a;
#ifdef INFINITE_QUOTIENT
    if (infinite(s) && !block)
#else
    (void)block;
    if (infinite(s))
#endif
    {
      s = kMaxFloat;
      if (line.get("scale_limit", d) == "source_max")
        s = line.source == "bf16" ? number(0x7F7F0000) : line.source == "f16" ? 65504.0f : kMaxFloat;
    }
    if (line.get("pow2", d) == "1") s = number(bits(s) & 0xFF800000);
  }
  return {s, 1.0f / s};
}

u8 fp8_element(float v, float s, const Small& t, bool plus, bool block) {
  float y = keep_zero(v * s, v, s, plus);
#ifdef THROUGH_F16
  if (block && !nan(y)) y = from_f16(to_f16(y));
#endif
  (void)block;
  return to_fp8(y, t);
}

#ifdef RACING_AMAX
// Two workers over halves of the tensor; each compares and stores what it has found so far.
float racing_amax(const std::vector<float>& v) {
  static volatile u32 shared;
  shared = 0;
  std::atomic<int> ready{0};
  auto half = [&](size_t from, size_t to) {
    float a = 0;
    ++ready;
    while (ready.load() < 2) std::this_thread::yield();
    for (size_t i = from; i < to; ++i)
      if (!nan(v[i]) && magnitude(v[i]) > a) a = magnitude(v[i]);
    const u32 seen = shared;
    std::this_thread::yield();
    if (bits(a) > seen) shared = bits(a);
  };
  std::thread other(half, v.size() / 2, v.size());
  half(0, v.size() / 2);
  other.join();
  return number(shared);
}
#endif

void fp8_current(const Line& line, const Matrix& x, const assay_plane* in, size_t inputs,
                 const assay_plane* out, size_t n) {
  for (const std::string d : {"row", "col"}) {
    if (!line.has(d)) continue;
    const Matrix s = d == "col" ? x.transposed() : x;
    const Small& t = line.get("element", d) == "e5m2" ? kE5M2 : kE4M3;
    const bool by_row = line.get("row_scaled", d) == "1", plus = line.get("neg_zero", d) == "plus";
    const assay_plane* amaxes = find(out, n, d + ".amax");
    const assay_plane* given = find(in, inputs, d + ".given.amax");
    const assay_plane &scales = *find(out, n, d + ".scale"), &inverses = *find(out, n, d + ".scale_inv"),
                      &data = *find(out, n, d + ".data");
    const i64 groups = by_row ? s.rows : 1, rows = by_row ? 1 : s.rows;
    for (i64 g = 0; g < groups; ++g) {
      float amax;
      if (given) {
        amax = get32(*given, 0);
      } else {
        Amax a;
        for (i64 r = g * rows; r < (g + 1) * rows; ++r)
#ifdef FIRST_4096
          for (i64 c = 0; c < (by_row ? std::min<i64>(s.cols, 4096) : s.cols); ++c) a.add(s.at(r, c));
#else
          for (i64 c = 0; c < s.cols; ++c) a.add(s.at(r, c));
#endif
        amax = a.get();
#ifdef NAN_WINS
        if (!by_row && a.found) amax = number(kNan);  // atomicMax on the patterns
#endif
#ifdef RACING_AMAX
        if (!by_row) amax = racing_amax(s.v);
#endif
      }
      const Scale k = fp8_scale(amax, t.max, line, d, false);
      if (amaxes) put(*amaxes, g, amax);
      put(scales, g, k.encode);
      put(inverses, g, k.decode);
      for (i64 r = g * rows; r < (g + 1) * rows; ++r)
        for (i64 c = 0; c < s.cols; ++c)
          bytes(data)[r * s.cols + c] = fp8_element(s.at(r, c), k.encode, t, plus, false);
    }
  }
}

void fp8_block(const Line& line, const Matrix& x, const assay_plane* out, size_t n) {
  for (const std::string d : {"row", "col"}) {
    if (!line.has(d)) continue;
    const Matrix s = d == "col" ? x.transposed() : x;
    const Small& t = line.get("element", d) == "e5m2" ? kE5M2 : kE4M3;
    const bool plus = line.get("neg_zero", d) == "plus", gemm = line.get("scales", d) == "gemm",
               tile = line.get("block", d) == "128x128";
    const assay_plane& scales = *find(out, n, d + (gemm ? ".scale_gemm" : ".scale_inv"));
    const assay_plane& data = *find(out, n, d + ".data");
    clear(scales);
    const i64 high = tile ? 128 : 1, blocks = cdiv(s.cols, 128);
    for (i64 r0 = 0; r0 < s.rows; r0 += high)
      for (i64 j = 0; j < blocks; ++j) {
        const i64 r1 = std::min(r0 + high, s.rows), c0 = 128 * j, c1 = std::min(c0 + 128, s.cols);
        Amax a;
        for (i64 r = r0; r < r1; ++r)
          for (i64 c = c0; c < c1; ++c) a.add(s.at(r, c));
        const Scale k = fp8_scale(a.get(), t.max, line, d, true);
        if (gemm) {
          for (i64 r = r0; r < r1; ++r)
            for (i64 q = 0; q < 4; ++q)
              bytes(scales)[tile_place(r, 4 * j + q, blocks)] = static_cast<u8>(bits(k.decode) >> 23);
        } else if (tile) {
          put(scales, (r0 / 128) * scales.padded_cols + j, k.decode);
        } else {
#ifdef SCALES_BY_ROWS
          if (d == "col") put(scales, r0 * blocks + j, k.decode);
          else
#endif
            put(scales, j * scales.padded_cols + r0, k.decode);
        }
        for (i64 r = r0; r < r1; ++r)
          for (i64 c = c0; c < c1; ++c)
            bytes(data)[r * s.cols + c] = fp8_element(s.at(r, c), k.encode, t, plus, true);
      }
  }
}

// ---- NVFP4 ----------------------------------------------------------------------------------------------

u8 to_e2m1(float y) {
  if (nan(y)) return 7;
#ifdef SIGN_OF_ZERO
  const int sign = y < 0 ? 8 : 0;
#else
  const int sign = bits(y) >> 31 ? 8 : 0;
#endif
  const float a = magnitude(y);
  int code = 0;
  if (a > 0.25f) code = 1;
  if (a >= 0.75f) code = 2;
  if (a > 1.25f) code = 3;
  if (a >= 1.75f) code = 4;
#ifdef ONE_TIE
  if (a >= 2.5f) code = 5;
#else
  if (a > 2.5f) code = 5;
#endif
  if (a >= 3.5f) code = 6;
  if (a > 5.0f) code = 7;
  return static_cast<u8>(sign | code);
}

constexpr float kGrid[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

u8 to_e2m1_random(float y, unsigned byte) {  // N12.3, integer
  if (nan(y)) return 7;
  const bool negative = bits(y) >> 31;
  const float a = magnitude(y);
  if (a >= 6) return negative ? 15 : 7;
  int lo = 0;
  while (lo < 6 && kGrid[lo + 1] <= a) ++lo;
  const double f = (static_cast<double>(a) - kGrid[lo]) / (static_cast<double>(kGrid[lo + 1]) - kGrid[lo]);
#ifdef SIGNED_DRAW
  // floor of the signed value plus noise: of a negative value the fraction counts from below
  if (negative) {
    if (f != 0 && static_cast<int>(std::floor(256 * (1 - f))) + static_cast<int>(byte) < 256) ++lo;
    return static_cast<u8>(8 | lo);
  }
#endif
  if (static_cast<int>(std::floor(256 * f)) + static_cast<int>(byte) >= 256) ++lo;
  return static_cast<u8>((negative ? 8 : 0) | lo);
}

void philox(u32 c[4], u32 k0, u32 k1) {
  for (int round = 0; round < 10; ++round) {
    const u64 a = static_cast<u64>(0xD2511F53u) * c[0], b = static_cast<u64>(0xCD9E8D57u) * c[2];
    const u32 x = static_cast<u32>(b >> 32) ^ c[1] ^ k0, z = static_cast<u32>(a >> 32) ^ c[3] ^ k1;
    c[0] = x, c[1] = static_cast<u32>(b), c[2] = z, c[3] = static_cast<u32>(a);
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
}

Matrix rotate(const Matrix& s, unsigned mask) {  // N11, butterfly
  Matrix y = s;
  for (i64 r = 0; r < s.rows; ++r)
    for (i64 c = 0; c + 16 <= s.cols; c += 16) {
      float v[16];
      for (int i = 0; i < 16; ++i)
        v[i] = mask >> i & 1 ? number(bits(s.at(r, c + i)) ^ 0x80000000u) : s.at(r, c + i);
      for (int h = 1; h < 16; h *= 2)
        for (int i = 0; i < 16; ++i)
          if (!(i & h)) {
            const float a = v[i], b = v[i + h];
            v[i] = a + b;
            v[i + h] = a - b;
          }
      for (int i = 0; i < 16; ++i)
        y.v[static_cast<size_t>(r * s.cols + c + i)] = number(static_cast<u32>(to_bf16(v[i] * 0.25f)) << 16);
    }
  return y;
}

float encode_scale(float A, const Line& line, const std::string& d) {  // N10.2
  if (nan(A)) return line.get("nan_tensor_amax", d) == "unit" ? 1.0f : kMaxFloat;
  if (infinite(A) && line.get("inf_amax", d) == "zero") return 0;
  if (A == 0) return 1;
  float q = 2688.0f / A;
  if (!(q < kMaxFloat)) q = kMaxFloat;
  return q == 0 ? 1.0f : q;
}

void nvfp4(const Line& line, const Matrix& x, const assay_plane* in, size_t inputs, const assay_plane* out,
           size_t n) {
  u64 rng[3] = {};
  std::sscanf(line.get("rng").c_str(), "%lu,%lu,%lu", &rng[0], &rng[1], &rng[2]);
  for (const std::string d : {"row", "col"}) {
    if (!line.has(d)) continue;
    Matrix s = d == "col" ? x.transposed() : x;
    const Matrix before = s;
    if (d == "col" && line.get("rht", d) == "1")
      s = rotate(s, static_cast<unsigned>(std::strtoul(line.get("sign_mask", d).c_str(), nullptr, 0)));
    const bool by_row = line.get("row_scaled", d) == "1", plus = line.get("neg_zero", d) == "plus",
               gemm = line.get("scales", d) == "gemm";
    const bool tile = line.get("block", d) == "16x16", random = line.get("round", d) == "sr";
    const assay_plane* amaxes = find(out, n, d + ".amax");
    const assay_plane* given = find(in, inputs, d + ".given.amax");
    const assay_plane& scales = *find(out, n, d + (gemm ? ".scale_gemm" : ".scale_inv"));
    const assay_plane& data = *find(out, n, d + ".data");
    clear(scales);
    clear(data);
    const i64 blocks = cdiv(s.cols, 16), tiles = cdiv(blocks, 4), pitch = data.padded_cols / 2;
    std::vector<float> A(static_cast<size_t>(by_row ? s.rows : 1));
#ifdef UNROTATED_AMAX
    const Matrix& measured = before;
#else
    const Matrix& measured = s;
#endif
    for (size_t g = 0; g < A.size(); ++g) {
      if (given) {
        A[g] = get32(*given, 0);
        continue;
      }
      Amax a;
      for (i64 r = by_row ? static_cast<i64>(g) : 0; r < (by_row ? static_cast<i64>(g) + 1 : s.rows); ++r)
        for (i64 c = 0; c < s.cols; ++c) a.add(measured.at(r, c));
      A[g] = a.get();
      if (amaxes) put(*amaxes, static_cast<i64>(g), A[g]);
    }
    const i64 high = tile ? 16 : 1;
    for (i64 r0 = 0; r0 < s.rows; r0 += high)
      for (i64 j = 0; j < blocks; ++j) {
        const i64 r1 = std::min(r0 + high, s.rows), c0 = 16 * j, c1 = std::min(c0 + 16, s.cols);
        Amax a;
        a.propagate = line.get("nan_amax", d) == "propagate";
        for (i64 r = r0; r < r1; ++r)
          for (i64 c = c0; c < c1; ++c) a.add(s.at(r, c));
        for (i64 r = r0; r < r1; ++r) {
          const float S = encode_scale(A[by_row ? static_cast<size_t>(r) : 0], line, d);
          const float m = S * number(0x3E2AAAAB);
          float v = a.get() * m;
          if (!(v < kMaxFloat)) v = kMaxFloat;
          const u8 sf = to_fp8(v, kE4M3);
          const float D = 1.0f / S;
          float q = 1.0f / (from_small(sf, kE4M3) * D);
          if (!(q < kMaxFloat)) q = kMaxFloat;
          bytes(scales)[gemm ? tile_place(r, j, tiles) : r * scales.padded_cols + j] = sf;
          u32 word[4] = {};
          if (random) {
            const u64 block = static_cast<u64>(r * blocks + j);
            word[0] = static_cast<u32>(rng[1]), word[1] = static_cast<u32>(rng[1] >> 32),
            word[2] = static_cast<u32>(block);
            word[3] = (static_cast<u32>(block >> 32) & 0x3FFF) | static_cast<u32>(rng[2]) << 14 |
                      (d == "col" ? 0x80000000u : 0u);
            philox(word, static_cast<u32>(rng[0]), static_cast<u32>(rng[0] >> 32));
          }
          for (i64 c = c0; c < c1; ++c) {
            const float e = s.at(r, c);
            const float y = keep_zero(e * q, e, q, plus);
            const u8 code =
                random ? to_e2m1_random(y, word[(c % 16) / 4] >> (8 * (c % 4)) & 255) : to_e2m1(y);
            u8& byte = bytes(data)[r * pitch + c / 2];
            byte = static_cast<u8>(byte | (c % 2 ? code << 4 : code));
          }
        }
      }
  }
}

// ---- dequantize -----------------------------------------------------------------------------------------

void store(const assay_plane& y, i64 i, float v) {
  const std::string e = y.encoding;
  if (e == "f32") {
    put(y, i, v);
  } else {
    const u16 h = e == "bf16" ? to_bf16(v) : to_f16(v);
    std::memcpy(static_cast<char*>(y.data) + 2 * i, &h, 2);
  }
}

float e8m0(u8 k) {
#ifdef EXPONENT_FIELD
  return number(static_cast<u32>(k) << 23);
#else
  return power(k);
#endif
}

void dequantize(const Line& line, const assay_plane* in, size_t n, const assay_plane& y) {
  const std::string d = line.has("col") ? "col" : "row";
  const bool gemm = line.get("scales", d) == "gemm", mx = line.format == "mxfp8",
             four = line.format == "nvfp4";
  const bool turned = d == "col" && !mx;
  const assay_plane* scales = find(in, n, d + (gemm ? ".scale_gemm" : ".scale_inv"));
  const assay_plane& data = *find(in, n, d + ".data");
  const assay_plane* amaxes = find(in, n, d + ".amax");
  const Small& t = four ? kE2M1 : std::string(data.encoding) == "e5m2" ? kE5M2 : kE4M3;
  const i64 R = data.rows, C = data.cols;
  for (i64 i = 0; i < R; ++i)
    for (i64 j = 0; j < C; ++j) {
      float s;
      if (mx) {
        const bool column = d == "col";
        const i64 a = column ? j : i, b = (column ? i : j) / 32, tiles = cdiv(cdiv(column ? R : C, 32), 4);
        s = e8m0(bytes(*scales)[gemm     ? tile_place(a, b, tiles)
                                : column ? b * scales->padded_cols + a
                                         : a * scales->padded_cols + b]);
      } else if (four) {
        const i64 b = j / 16;
        const u8 sf =
            bytes(*scales)[gemm ? tile_place(i, b, cdiv(cdiv(C, 16), 4)) : i * scales->padded_cols + b];
        s = from_small(sf, kE4M3) * get32(*amaxes, amaxes->rows > 1 ? i : 0) * number(0x39C30C31);
      } else if (line.format == "fp8_block") {
        if (gemm) s = power(bytes(*scales)[tile_place(i, j / 32, cdiv(C, 128))]);
        else if (line.get("block", d) == "128x128")
          s = get32(*scales, (i / 128) * scales->padded_cols + j / 128);
        else s = get32(*scales, (j / 128) * scales->padded_cols + i);
      } else {
        s = get32(*scales, scales->rows > 1 ? i : 0);
      }
      int code;
      if (four) code = bytes(data)[i * (data.padded_cols / 2) + j / 2] >> (j % 2 ? 4 : 0) & 15;
      else code = bytes(data)[i * C + j];
      store(y, turned ? j * R + i : i * C + j, from_small(code, t) * s);
    }
}

}  // namespace
}  // namespace unseen

extern "C" {

using namespace unseen;

uint32_t assay_plugin_abi(void) { return ASSAY_PLUGIN_ABI; }
const char* assay_plugin_name(void) { return "unseen"; }

int assay_plugin_supports(const char* text, char* why, size_t size) {
  const Line line(text);
  const auto* table = known(line.op, line.format);
  if (!table) return std::snprintf(why, size, "not %s %s", line.op.c_str(), line.format.c_str()), 0;
  for (const auto& [key, value] : line.words) {
    std::string plain = key;
    if (plain.rfind("row.", 0) == 0 || plain.rfind("col.", 0) == 0) plain = plain.substr(4);
    const auto it = table->find(plain);
    if (it == table->end() || (!it->second.empty() && !it->second.count(value)))
      return std::snprintf(why, size, "not %s=%s", key.c_str(), value.c_str()), 0;
  }
  return 1;
}

int assay_plugin_run(const char* text, const assay_plane* in, size_t inputs, const assay_plane* out,
                     size_t outputs, char* message, size_t size) {
  const Line line(text);
  if (line.op == "dequantize") return dequantize(line, in, inputs, out[0]), 0;
  const assay_plane* x = find(in, inputs, "x");
  if (!x) return std::snprintf(message, size, "no plane x"), 1;
  const Matrix m = load(*x);
  if (line.format == "mxfp8") mxfp8(line, m, out, outputs);
  else if (line.format == "fp8_current") fp8_current(line, m, in, inputs, out, outputs);
  else if (line.format == "fp8_block") fp8_block(line, m, out, outputs);
  else nvfp4(line, m, in, inputs, out, outputs);
  return 0;
}
}
