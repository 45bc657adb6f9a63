// The fifth set: ops other than quantize, split, gemm and attention.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "reference/hadamard.h"
#include "reference/rounding.h"
#include "reference/tensor.h"
#include "tests/self/hunt/fifth_bugs.h"

namespace assay::fifth {

namespace {

using reference::Decoder;
using reference::Encoder;
using reference::f32_code;
using reference::load;
using reference::power_of_two;
using reference::store;
using reference::Values;
using reference::values;

bool any_line(const Problem&) { return true; }

Direction direction_of(const Problem& p) { return p.row ? Direction::row : Direction::col; }

// ---- dequantize ----------------------------------------------------------------------

bool of_nvfp4_compact(const Problem& p) {
  const Quantizer& q = *p.quantizer(direction_of(p));
  return q.format == FormatId::nvfp4 && q.scales == ScaleLayout::compact && !q.amax;
}

// 1bit-MONSTER/1bit-MONSTER#300, ooples/AiDotNet.Tensors#801 (review): an E4M3 scale of exponent 0 is decoded
// as (1 + m/8) 2^-7, as if it had the leading one of other exponents. 00 is 0.
void scales_with_leading_one(const Call& call) {
  call.right();
  const Direction d = direction_of(call.problem);
  const ConstBuffer &amax = call.input(plane_name(d, "amax")),
                    &scales = call.input(plane_name(d, "scale_inv"));
  const ConstBuffer& data = call.input(plane_name(d, "data"));
  const Buffer& y = call.output("y");
  const bool smaller = call.problem.quantizer(d)->e4m3_max == E4m3Max::m256;
  const float inverse = std::bit_cast<float>(smaller ? 0x3A2AAAABu : 0x39C30C31u);  // 1 / (6 * F)
  const Decoder value(Encoding::e2m1);
  const Encoder code(y.plane->encoding, Round::rne, Overflow::nosat);
  for (int64_t i = 0; i < data.plane->logical.rows; ++i)
    for (int64_t j = 0; j < data.plane->logical.cols; ++j) {
      const uint32_t scale = load(scales, i * scales.plane->padded.cols + j / 16);
      if (scale % 128 == 0 || scale % 128 > 7) continue;
      const float decoded = static_cast<float>(8 + scale % 8) / 1024 * (scale < 128 ? 1.0f : -1.0f);
      const float a = std::bit_cast<float>(load(amax, amax.plane->logical.rows > 1 ? i : 0));
      const float g = decoded * a * inverse;
      const float product = static_cast<float>(value(load(data, i * data.plane->padded.cols + j))) * g;
      const int64_t at = d == Direction::row ? i * y.plane->padded.cols + j : j * y.plane->padded.cols + i;
      store(y, at, y.plane->encoding == Encoding::f32 ? f32_code(product) : code(product));
    }
}

// ---- swizzle -------------------------------------------------------------------------

bool of_few_rows(const Problem& p) {
  const Quantizer& q = *p.quantizer(direction_of(p));
  return q.format != FormatId::fp8_block && !p.as<Swizzle>()->inverse;
}

// flashinfer-ai/flashinfer#4574: up to 64 rows are few enough for another kernel, whose tiles have 8 rows of
// 4 scales. The buffer is as large as ever.
void tiles_of_8(const Call& call) {
  call.right();
  const Buffer& scales = call.output(plane_name(direction_of(call.problem), "scale_gemm"));
  const bool down = scales.plane->tiles_by_columns();
  const Shape logical = scales.plane->logical, padded = scales.plane->padded;
  const int64_t rows = down ? logical.cols : logical.rows, blocks = down ? logical.rows : logical.cols;
  const int64_t tiles = (down ? padded.rows : padded.cols) / 4;
  if (rows > 64) return;
  const std::vector<std::byte> at(scales.bytes.begin(), scales.bytes.end());
  std::fill(scales.bytes.begin(), scales.bytes.end(), std::byte{0});
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < blocks; ++j)
      scales.bytes[static_cast<size_t>((i / 8 * tiles + j / 4) * 32 + i % 8 * 4 + j % 4)] =
          at[static_cast<size_t>(j / 4 * 512 + i % 32 * 16 + i / 32 * 4 + j % 4)];
}

// ---- hadamard ------------------------------------------------------------------------

bool of_butterflies(const Problem& p) {
  return p.quantizer(Direction::col)->numerics.rht_sum == RhtSum::butterfly;
}

// ROCm/TransformerEngine#509 (review): the amax is that of the binary32 results, before they are stored as
// BF16.
void amax_before_bf16(const Call& call) {
  call.right();
  const uint16_t signs = call.problem.quantizer(Direction::col)->sign_mask;
  const Values x = values(call.input("x"), 1);
  float amax = 0;
  for (int64_t c = 0; c < x.cols(); ++c)
    for (int64_t r = 0; r < x.rows(); r += 16) {
      std::array<float, 16> v;
      for (int i = 0; i < 16; ++i)
        v[static_cast<size_t>(i)] = static_cast<float>(reference::input_sign(signs, i)) * x(r + i, c);
      for (size_t h = 1; h < 16; h *= 2)
        for (size_t i = 0; i < 16; ++i) {
          if (i / h % 2 == 1) continue;
          const float a = v[i], b = v[i + h];
          v[i] = a + b;
          v[i + h] = a - b;
        }
      for (float sum : v) amax = std::max(amax, std::abs(sum * 0.25f));  // a NaN is left out
    }
  store(call.output("amax"), 0, f32_code(amax));
}

// ---- cast ----------------------------------------------------------------------------

bool of_f32_to_bf16(const Problem& p) {
  return p.as<Cast>()->to == Encoding::bf16 && p.as<Cast>()->round == Round::rne &&
         p.x.source == Encoding::f32;
}

// gorse-io/gorse#1240, dotnet/runtime#130583: a NaN is rounded like a number, by half a place that is added
// to its bits. It keeps its upper payload, or becomes an infinity, or runs over to a zero.
void nan_rounded_on(const Call& call) {
  call.right();
  const ConstBuffer& x = call.input("x");
  for (int64_t i = 0; i < x.plane->padded.count(); ++i) {
    const uint32_t bits = load(x, i);
    if ((bits & 0x7FFFFFFF) > 0x7F800000)
      store(call.output("y"), i, (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  }
}

// ---- scale_chain ---------------------------------------------------------------------

bool of_e8m0_chains(const Problem& p) {
  const FormatId format = p.quantizer(direction_of(p))->format;
  return p.x.source == Encoding::f32 &&
         (format == FormatId::mxfp8 || format == FormatId::mxfp6 || format == FormatId::mxfp4);
}

// sgl-project/sglang#31210: the exponent is read from the bits, rounded up and kept from 1 to 254. A zero and
// a tiny amax have the code 01, and a NaN has FE.
void exponents_from_one(const Call& call) {
  call.right();
  const Buffer& codes = call.output("scale_inv");
  for (int64_t i = 0; i < codes.plane->padded.count(); ++i) {
    const uint32_t code = load(reading(codes), i);
    const uint32_t kept = std::clamp(code, 1u, 254u);
    if (kept == code) continue;
    store(codes, i, kept);
    store(call.output("multiplier"), i, f32_code(power_of_two(127 - static_cast<int>(kept))));
    store(call.output("decoded"), i, f32_code(power_of_two(static_cast<int>(kept) - 127)));
  }
}

// ---- adam ----------------------------------------------------------------------------

// flagos-ai/FlagGems#4988: with l2 the decay is taken from the parameter, as with adamw, and the moments
// never see it.
void decay_decoupled(const Call& call) {
  Problem other = call.problem;
  if (other.as<Adam>()->decay << 1 == 0) return call.right();
  other.as<Adam>()->decoupling = WeightDecay::adamw;
  call.right_for(other);
}

constexpr Bug kOthers[] = {
    {"dequantize_scales_with_leading_one", "dequantize", of_nvfp4_compact, scales_with_leading_one},
    {"swizzle_tiles_of_8", "swizzle", of_few_rows, tiles_of_8},
    {"hadamard_amax_before_bf16", "hadamard", of_butterflies, amax_before_bf16},
    {"cast_nan_rounded_on", "cast", of_f32_to_bf16, nan_rounded_on},
    {"scale_chain_exponents_from_one", "scale_chain", of_e8m0_chains, exponents_from_one},
    {"adam_decay_decoupled", "adam", any_line, decay_decoupled},
};

}  // namespace

std::span<const Bug> bugs_of_others() { return kOthers; }

}  // namespace assay::fifth
