// Dequantize: codes times scale, narrowed once (N3.10, N5.9, N9.5), patch by patch as move/patch.cuh spreads
// them.
#pragma once
#include "fast/choose.h"
#include "fast/lane/encode.cuh"
#include "fast/lane/mxfp6.cuh"
#include "fast/lane/value_pairs.cuh"
#include "fast/move/block_index.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// The scales of the elements of a patch. rule(index, line) is the binary32 factor of the block of stored row
// `line` whose scale is entry `index` of the scale plane; formats without blocks have no index.
template <bool kColumns, class Rule> struct BlockScales {
  Rule rule;
  BlockIndex index;
  struct Held {
    float scale[kPatch];
    ASSAY_LANE float operator()(int i, int j) const { return scale[kColumns ? j : i]; }
  };
  // A patch is 8 lines, and lies within one block of each.
  ASSAY_DEVICE Held hold(const Extent&, const Place& at) const {
    const int64_t first = kColumns ? at.col : at.row, element = kColumns ? at.row : at.col;
    const int lines = kColumns ? at.cols : at.rows;
    Held held;
#pragma unroll
    for (int k = 0; k < kPatch; ++k)
      held.scale[k] = k < lines ? rule(index(first + k, element), first + k) : 0.0f;
    return held;
  }
};

// E8M0 codes (N5.9).
struct E8m0Scale {
  const uint8_t* codes = nullptr;
  ASSAY_LANE float operator()(int64_t index, int64_t) const { return as_float(mx_scale(codes[index])); }
};

struct DequantizeArgs {
  const uint8_t* data = nullptr;
  void* y = nullptr;
  Extent extent;  // of y
};

// The 8 codes of 4 bits of a word as bytes (N6.8).
ASSAY_LANE uint2 spread_nibbles(uint32_t word) {
  auto four = [](uint32_t half) {
    half = (half | half << 8) & 0x00FF00FFu;
    return (half | half << 4) & 0x0F0F0F0Fu;
  };
  return make_uint2(four(word & 0xFFFFu), four(word >> 16));
}

// The codes of a patch of the stored data, one a byte, from kBits bits each: `rows` rows of `cols` codes from
// (row, col) on.
template <int kBits, bool kVector>
ASSAY_DEVICE void load_codes(const uint8_t* data, int64_t stored_cols, int64_t row, int64_t col, int rows,
                             int cols, uint2 (&codes)[kPatch]) {
  constexpr int kShift = kBits == 4 ? 1 : kBits == 6 ? 2 : 0;  // 2^kShift codes fill whole bytes,
  constexpr int kGroup = kBits == 4 ? 1 : kBits == 6 ? 3 : 1;  // so many of them
  static_assert(kBits == 4 || kBits == 6 || kBits == 8);
  const auto bytes_of = [](int64_t n) { return ((n + (1 << kShift) - 1) >> kShift) * kGroup; };
  const int64_t pitch = bytes_of(stored_cols);
  const int bytes = int(bytes_of(cols));
  const uint8_t* from = data + row * pitch + bytes_of(col);  // col is a multiple of 8
#pragma unroll
  for (int i = 0; i < kPatch; ++i, from += pitch) {
    uint32_t words[2] = {};
    if constexpr (kVector && kBits == 4) {
      if (i < rows) words[0] = *reinterpret_cast<const uint32_t*>(from);
    } else if constexpr (kVector && kBits == 8) {
      if (i < rows) {
        const uint2 v = load8_streaming(from);
        words[0] = v.x, words[1] = v.y;
      }
    } else {
#pragma unroll
      for (int b = 0; b < kBits; ++b)
        if (i < rows && b < bytes) words[b >> 2] |= uint32_t(from[b]) << (8 * (b & 3));
    }
    if constexpr (kBits == 4) codes[i] = spread_nibbles(words[0]);
    else if constexpr (kBits == 6)
      codes[i] = make_uint2(spread_sixes(words[0]), spread_sixes(words[0] >> 24 | words[1] << 8));
    else codes[i] = make_uint2(words[0], words[1]);
  }
}

// kVector: codes of a patch's stored row aligned to their size, y 16-byte aligned, cols a multiple of 8, and
// rows too where the data are transposed.
template <Encoding E, int kBits, Encoding Out, class Scales, bool kTransposed, bool kVector>
__global__ void __launch_bounds__(kThreads, 2) dequantize_kernel(DequantizeArgs a, Scales scales) {
  const Place at = my_place(a.extent);
  if (at.rows == 0 || at.cols == 0) return;
  uint2 codes[kPatch];
  if constexpr (kTransposed) {
    load_codes<kBits, kVector>(a.data, a.extent.rows, at.col, at.row, at.cols, at.rows, codes);
    transpose8(codes);
  } else {
    load_codes<kBits, kVector>(a.data, a.extent.cols, at.row, at.col, at.rows, at.cols, codes);
  }

  const auto scale = scales.hold(a.extent, at);
  constexpr int kBytes = Layout<Out>::kBytes;
  char* to = static_cast<char*>(a.y) + (at.row * a.extent.cols + at.col) * kBytes;
#pragma unroll
  for (int i = 0; i < kPatch; ++i, to += a.extent.cols * kBytes) {
    if (i >= at.rows) continue;
    // Of elements of 16 bits each word holds two.
    uint32_t out[kPatch];
#pragma unroll
    for (int j = 0; j < kPatch; j += 2) {
      const uint32_t pair = (j < 4 ? codes[i].x : codes[i].y) >> (8 * (j & 3));
      const ValuePair v = values_of_pair<E>(pair);
      const float lo = __fmul_rn(v.lo, scale(i, j)), hi = __fmul_rn(v.hi, scale(i, j + 1));
      if constexpr (kBytes == 2) out[j / 2] = narrowed_pair<Out>(lo, hi);
      else out[j] = encode<Out>(as_bits(lo)), out[j + 1] = encode<Out>(as_bits(hi));
    }
    if constexpr (kVector) {
      store16(to, make_uint4(out[0], out[1], out[2], out[3]));
      if constexpr (kBytes == 4) store16(to + 16, make_uint4(out[4], out[5], out[6], out[7]));
    } else {
#pragma unroll
      for (int j = 0; j < kPatch; ++j) {
        if (j >= at.cols) continue;
        if constexpr (kBytes == 2)
          reinterpret_cast<uint16_t*>(to)[j] = uint16_t(out[j / 2] >> (16 * (j & 1)));
        else reinterpret_cast<uint32_t*>(to)[j] = out[j];
      }
    }
  }
}

// Calls f(Constant<element>{}, Constant<bits>{}) with the element and the bits that it takes in the data, for
// each element and packing that the row of F in formats.def allows; false where it allows no such element.
template <FormatId F, class Call> bool with_stored_element(const Quantizer& q, const Call& f) {
  bool known = false;
  const auto one = [&](auto element) {
    constexpr Encoding kElement = decltype(element)::value;
    if constexpr (has_word(info(F).elements, info(kElement).name)) {
      constexpr int kBits = info(kElement).bits, kWhole = 8 * info(kElement).bytes();
      if (q.element != kElement) return;
      known = true;
      if constexpr (kBits != kWhole && has_word(info(F).packings, word_of(Packing::packed)))
        if (is_packed(q)) return f(element, Constant<kBits>{});
      if constexpr (has_word(info(F).packings, word_of(Packing::bytes))) f(element, Constant<kWhole>{});
    }
  };
#define ENCODING(name, ...) one(Constant<Encoding::name>{});
#include "contract/encodings.def"
#undef ENCODING
  return known;
}

// The codes may be of any element of F. kTransposed: the stored data are [cols, rows] (N6.1).
template <FormatId F, bool kTransposed, class Scales>
std::string launch_dequantize(const Job& job, Direction d, const Scales& scales) {
  const Problem& p = job.problem;
  const Encoding element = p.quantizer(d)->element;
  const Shape s = p.x.shape;
  const DequantizeArgs args{job.input<uint8_t>(d, "data"), job.output<void>("y"), {s.rows, s.cols}};
  const size_t bytes = is_packed(*p.quantizer(d)) && info(element).bits == 4 ? kPatch / 2 : kPatch;
  const bool vector = s.cols % kPatch == 0 && (!kTransposed || s.rows % kPatch == 0) &&
                      aligned(bytes, {args.data}) && aligned(16, {args.y});
  const LaunchConfig config{.name = "dequantize", .grid = args.extent.tiles(), .block = kThreads};
  if (s.count() != 0)
    with_source(p.as<Dequantize>()->out, [&](auto out) {
      with_flag(vector, [&](auto v) {
        const bool known = with_stored_element<F>(*p.quantizer(d), [&](auto e, auto bits) {
          launch(
              config,
              dequantize_kernel<e.value, bits.value, decltype(out)::kEncoding, Scales, kTransposed, v.value>,
              args, scales);
        });
        if (!known) throw std::runtime_error("no kernel reads " + std::string(info(element).name));
      });
    });
  return "dequantize<" + std::string(info(element).name) + ", " +
         std::string(info(p.as<Dequantize>()->out).name) + "> " + std::string(name_of(d)) +
         (vector ? ", vector" : ", scalar");
}

// A format with blocks. F decides how columns are stored and which elements there are.
template <FormatId F, class Rule> std::string dequantize_blocks(const Job& job, const Rule& rule) {
  constexpr bool kTransposed = info(F).column_data == ColumnData::transposed;
  const Problem& p = job.problem;
  const Direction d = p.row ? Direction::row : Direction::col;
  const BlockIndex index = block_index(*p.quantizer(d), p.x.shape, d, p.quantizer(d)->scales);
  auto launched = [&](auto columns) {
    const BlockScales<columns.value, Rule> scales{rule, index};
    return launch_dequantize<F, (columns.value && kTransposed)>(job, d, scales);
  };
  return d == Direction::row ? launched(Constant<false>{}) : launched(Constant<true>{});
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
