#include "fast/trace.h"

#include <algorithm>
#include <cstring>

#include "fast/formats/fp8_current_scale.h"
#include "fast/lane/decode.cuh"
#include "fast/lane/fp8_current.cuh"
#include "fast/lane/fp8_block.cuh"
#include "fast/lane/mxfp4.cuh"
#include "fast/move/block_index.cuh"

namespace assay::fast_host {
namespace {

using Steps = std::vector<TraceStep>;

uint32_t element(const ConstBuffer& b, int64_t index) {
  if (b.plane->packed) return std::to_integer<uint32_t>(b.bytes[static_cast<size_t>(index / 2)]) >> (index % 2 * 4) & 0xFu;   // N6.8
  const size_t bytes = static_cast<size_t>(info(b.plane->encoding).bytes());
  uint32_t code = 0;
  std::memcpy(&code, b.bytes.data() + static_cast<size_t>(index) * bytes, bytes);
  return code;
}

class Tracer {
 public:
  Tracer(const Problem& p, std::span<const ConstBuffer> inputs, Direction d, int64_t row, int64_t col)
      : p_(p), inputs_(inputs), d_(d), row_(row), col_(col) {}

  Steps take() {
    const Shape s = p_.x.shape;
    if (row_ < 0 || col_ < 0 || row_ >= s.rows || col_ >= s.cols) return {};
    if (p_.as<Cast>()) cast();
    else if (p_.as<ScaleChain>()) chain();
    else if (p_.as<Quantize>() && p_.quantizer(d_)) quantize(*p_.quantizer(d_));
    else if (p_.as<Dequantize>() && p_.quantizer(d_)) dequantize(*p_.quantizer(d_));
    return steps_;
  }

 private:
  void add(const char* clause, const char* what, Encoding encoding, uint32_t bits) { steps_.push_back({clause, what, encoding, bits}); }
  const ConstBuffer& input(std::string_view name) const { return *find(inputs_, name); }
  const ConstBuffer& input(Direction d, std::string_view name) const { return input(plane_name(d, name)); }

  // Element (r, c) of x, widened.
  uint32_t x(int64_t r, int64_t c) const { return decode_from(p_.x.source, element(input("x"), r * p_.x.shape.cols + c)); }
  uint32_t amax(int64_t r0, int64_t rows, int64_t c0, int64_t cols, bool nan_wins) const {
    uint32_t best = 0;
    for (int64_t r = r0; r < std::min(r0 + rows, p_.x.shape.rows); ++r)
      for (int64_t c = c0; c < std::min(c0 + cols, p_.x.shape.cols); ++c) {
        const uint32_t a = x(r, c) & kAbs;
        if (nan_wins || a <= kInf) best = std::max(best, a);
      }
    return canonical(best);
  }

  void cast() {
    const Cast& op = *p_.as<Cast>();
    const uint32_t wide = x(row_, col_);
    add(info(p_.x.source).bits < 16 ? "N2.8" : "N1.2", "x", Encoding::f32, wide);
    add(op.to == Encoding::e8m0 ? "N2.7" : op.round == Round::rz ? "N2.6" : "N2.1", "y", op.to, encode_to(op.to, wide, op.round, op.overflow));
  }

  void product(const Quantizer& q, const char* clause, uint32_t multiplier) {
    const bool plus = q.numerics.neg_zero == NegZero::plus;
    const uint32_t wide = x(row_, col_);
    const float scaled = plus ? __fmaf_rn(as_float(wide), as_float(multiplier), 0.0f) : __fmul_rn(as_float(wide), as_float(multiplier));
    add("N1.2", "x", Encoding::f32, wide);
    add(plus ? "N5.6" : clause, "scaled value", Encoding::f32, as_bits(scaled));
    add(clause, "code", q.element, encode_to(q.element, as_bits(scaled), Round::rne, Overflow::sat));
  }
  // The amax of the element's block.
  uint32_t block_amax(const Quantizer& q, bool nan_wins) const {
    const bool square = is_square(q.block), rows = d_ == Direction::row;
    const int64_t length = length_of(q.block), r0 = square || !rows ? row_ / length * length : row_, c0 = square || rows ? col_ / length * length : col_;
    return amax(r0, square || !rows ? length : 1, c0, square || rows ? length : 1, nan_wins);
  }
  void mx_block_scale(const Quantizer& q, uint32_t amax_of_block) {
    const bool fp4 = q.format == FormatId::mxfp4;
    const uint32_t scaled = mx_scaled_amax_of(q.element, amax_of_block);
    add(fp4 ? "N15.2" : "N5.2", "scaled amax", Encoding::f32, scaled);
    add("N5.3", "scale", Encoding::e8m0, encode_e8m0(scaled));
    add("N5.4", "multiplier", Encoding::f32, mx_multiplier(encode_e8m0(scaled)));
  }
  uint32_t fp8_scale(const Quantizer& q, uint32_t tensor_amax) {
    const uint32_t scale = current_scale(q, p_.x.source)(tensor_amax);
    add("N3.3", "scale", Encoding::f32, scale);
    add("N3.7", "scale_inv", Encoding::f32, reciprocal(scale));
    return scale;
  }

  void quantize(const Quantizer& q) {
    const Shape s = p_.x.shape;
    switch (q.format) {
      case FormatId::identity: return add("N7.1", "x", p_.x.source, element(input("x"), row_ * s.cols + col_));
      case FormatId::mxfp8: case FormatId::mxfp4: {
        const bool nan_wins = q.numerics.nan_amax == NanAmax::propagate;
        const uint32_t amax_of_block = block_amax(q, nan_wins);
        add(is_square(q.block) ? "N5.8" : nan_wins ? "N5.7" : "N5.1", "block amax", Encoding::f32, amax_of_block);
        mx_block_scale(q, amax_of_block);
        return product(q, q.format == FormatId::mxfp4 ? "N15.3" : "N5.5", steps_.back().bits);
      }
      case FormatId::fp8_block: {
        add("N9.1", "block amax", Encoding::f32, block_amax(q, false));
        return product(q, "N9.3", fp8_scale(q, steps_.back().bits));
      }
      case FormatId::fp8_current: {
        const uint32_t tensor_amax = q.amax ? element(input(d_, "given.amax"), 0) : amax(0, s.rows, 0, s.cols, false);
        add("N3.1", "tensor amax", Encoding::f32, tensor_amax);
        return product(q, "N3.8", fp8_scale(q, tensor_amax));
      }
      case FormatId::fp8_delayed: {
        const uint32_t scale = element(input(d_, "given.scale"), 0);
        add("N3.11", "given scale", Encoding::f32, scale);
        add("N3.7", "scale_inv", Encoding::f32, reciprocal(scale));
        return product(q, "N3.8", scale);
      }
    }
  }

  void dequantize(const Quantizer& q) {
    const Shape s = p_.x.shape;
    const ConstBuffer& data = input(d_, "data");
    const bool rows = d_ == Direction::row;
    const int64_t pitch = data.plane->padded.cols;
    const uint32_t code = element(data, data.plane->transposed ? col_ * pitch + row_ : row_ * pitch + col_);
    if (q.format == FormatId::identity) return add("N7.1", "y", q.element, code);
    add("N2.8", "value", Encoding::f32, decode_from(q.element, code));
    const uint32_t value = steps_.back().bits;
    const bool blocks = info(q.format).has_blocks(), e8m0 = input(d_, scale_stem(q.scales)).plane->encoding == Encoding::e8m0;
    const int64_t index = blocks ? block_index(q, s, d_, q.scales)(rows ? row_ : col_, rows ? col_ : row_) : 0;
    const uint32_t stored = element(input(d_, scale_stem(q.scales)), index), scale = e8m0 ? mx_scale(stored) : stored;
    const char* clause = e8m0 ? "N5.9" : blocks ? "N9.5" : "N3.10";
    add(clause, "scale", Encoding::f32, scale);
    add(clause, "product", Encoding::f32, as_bits(__fmul_rn(as_float(value), as_float(scale))));
    const Encoding out = p_.as<Dequantize>()->out;
    add(clause, "y", out, canonical(steps_.back().bits) == kNan ? info(out).nan : encode_to(out, steps_.back().bits, Round::rne, Overflow::nosat));
  }

  void chain() {
    const Quantizer& q = *p_.row;
    const uint32_t given = element(input("x"), row_ * p_.x.shape.cols + col_);
    if (info(q.format).scale == Encoding::f32) {
      add("N3.1", "amax", Encoding::f32, given);
      fp8_scale(q, given);
    } else if (p_.x.source == Encoding::e8m0) {
      add("N5.3", "scale", Encoding::e8m0, given);
      add("N5.4", "multiplier", Encoding::f32, mx_multiplier(given));
      add("N5.9", "decoded", Encoding::f32, mx_scale(given));
    } else {
      add("N5.1", "amax", Encoding::f32, given);
      mx_block_scale(q, given);
    }
  }

  const Problem& p_;
  std::span<const ConstBuffer> inputs_;
  Direction d_;
  int64_t row_, col_;
  Steps steps_;
};

}  // namespace

Steps trace(const Problem& p, std::span<const ConstBuffer> inputs, Direction d, int64_t row, int64_t col) {
  return Tracer(p, inputs, d, row, col).take();
}

}  // namespace assay::fast_host
