#include "fast/trace.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "fast/formats/fp8_current_scale.h"
#include "fast/gemm_plan.h"
#include "fast/lane/decode.cuh"
#include "fast/lane/fp8_block.cuh"
#include "fast/lane/fp8_current.cuh"
#include "fast/lane/gemm.cuh"
#include "fast/lane/hadamard.cuh"
#include "fast/lane/mx_scale.cuh"
#include "fast/lane/nvfp4.cuh"
#include "fast/lane/philox.cuh"
#include "fast/lane/stochastic.cuh"
#include "fast/move/block_index.cuh"
#include "fast/simt/device_buffer.h"
#include "fast/table.h"

namespace assay::fast_host {
namespace {

using Steps = std::vector<TraceStep>;

uint32_t element(const ConstBuffer& b, int64_t index) {
  if (b.plane->packed) {  // N6.8: a code lies in one byte, or in two
    const int width = b.plane->bits();
    const size_t bit = static_cast<size_t>(index) * static_cast<size_t>(width), at = bit / 8, first = bit % 8;
    uint32_t bits = std::to_integer<uint32_t>(b.bytes[at]);
    if (first + static_cast<size_t>(width) > 8) bits |= std::to_integer<uint32_t>(b.bytes[at + 1]) << 8;
    return bits >> first & ((1u << width) - 1u);
  }
  const size_t bytes = static_cast<size_t>(info(b.plane->encoding).bytes());
  uint32_t code = 0;
  std::memcpy(&code, b.bytes.data() + static_cast<size_t>(index) * bytes, bytes);
  return code;
}

// The clauses in which the microscaling formats differ.
struct MxClauses {
  const char *scaled_amax, *element;
};
MxClauses mx_clauses(FormatId format) {
  switch (format) {
    case FormatId::mxfp8: return {"N5.2", "N5.5"};
    case FormatId::mxfp6: return {"N18.2", "N18.3"};
    case FormatId::mxfp4: return {"N15.2", "N15.3"};
    case FormatId::identity:
    case FormatId::fp8_delayed:
    case FormatId::fp8_current:
    case FormatId::fp8_block:
    case FormatId::nvfp4: break;
  }
  throw std::logic_error(std::string(info(format).name) + " is no microscaling format");
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
    else if (p_.as<Hadamard>()) rotate(*p_.col);
    else if (p_.as<Quantize>() && p_.quantizer(d_)) {
      if (d_ == Direction::col && p_.row && p_.col_source == ColSource::row_dequantized) decode_rows();
      quantize(*p_.quantizer(d_));
    } else if (p_.as<Dequantize>() && p_.quantizer(d_)) dequantize(*p_.quantizer(d_));
    else if (const Gemm* op = p_.as<Gemm>(); op && op->sum == GemmSum::f32_sequential) multiply(*op);
    return steps_;
  }

 private:
  void add(const char* clause, const char* what, Encoding encoding, uint32_t bits) {
    steps_.push_back({clause, what, encoding, bits});
  }
  const ConstBuffer& input(std::string_view name) const { return *find(inputs_, name); }
  const ConstBuffer& input(Direction d, std::string_view name) const { return input(plane_name(d, name)); }

  // Element (r, c) of what this direction quantizes, widened: of x, of the dequantized rows (N13.1), or of
  // either rotated (N11.4).
  uint32_t x(int64_t r, int64_t c) const {
    const size_t at = static_cast<size_t>(r * p_.x.shape.cols + c);
    return seen_.empty() ? decode_from(p_.x.source, element(input("x"), static_cast<int64_t>(at)))
                         : seen_[at];
  }
  uint32_t amax(int64_t r0, int64_t rows, int64_t c0, int64_t cols, bool nan_wins) const {
    uint32_t best = 0;
    for (int64_t r = r0; r < std::min(r0 + rows, p_.x.shape.rows); ++r)
      for (int64_t c = c0; c < std::min(c0 + cols, p_.x.shape.cols); ++c) {
        const uint32_t a = x(r, c) & kAbs;
        if (nan_wins || a <= kInf) best = std::max(best, a);
      }
    return canonical(best);
  }

  // The columns of this Problem see the rows quantized and dequantized, by the kernels (N13.1).
  void decode_rows() {
    Problem rows = p_;
    rows.col.reset();
    rows.col_source = ColSource::original;
    Problem back = rows;
    back.op = Dequantize{p_.x.source, CodesFrom::quantized};
    std::vector<Plane> made = output_planes(rows), wanted = input_planes(back), result = output_planes(back);
    std::vector<simt::DeviceBuffer> memory;
    std::vector<DevicePlane> in, quantized, out;
    memory.reserve(inputs_.size() + made.size() + wanted.size() + 1);
    auto place = [&](const Plane* plane, std::span<const std::byte> bytes) {
      memory.emplace_back(plane->bytes(), plane->name);
      if (!bytes.empty()) std::memcpy(memory.back().data(), bytes.data(), bytes.size());
      return DevicePlane{plane, memory.back().data()};
    };
    for (const ConstBuffer& b : inputs_) in.push_back(place(b.plane, b.bytes));
    for (const Plane& plane : made) quantized.push_back(place(&plane, {}));
    run({rows, in, quantized});
    std::vector<DevicePlane> read;
    for (const Plane& plane : wanted) {
      const auto same = std::find_if(quantized.begin(), quantized.end(),
                                     [&](const DevicePlane& q) { return q.plane->name == plane.name; });
      if (same != quantized.end()) read.push_back(*same);
      else read.push_back(place(&plane, input("row.given.amax").bytes));  // a given amax is no output
    }
    out.push_back(place(&result[0], {}));
    run({back, read, out});
    const ConstBuffer y{&result[0], {static_cast<const std::byte*>(out[0].data), result[0].bytes()}};
    std::vector<uint32_t> decoded(static_cast<size_t>(p_.x.shape.count()));
    for (size_t i = 0; i < decoded.size(); ++i)
      decoded[i] = decode_from(p_.x.source, element(y, static_cast<int64_t>(i)));
    seen_ = std::move(decoded);
    add("N13.1", "element of the dequantized rows", p_.x.source, element(y, row_ * p_.x.shape.cols + col_));
  }

  // What the columns see from here on is rotated (N11.4).
  void rotate(const Quantizer& q) {
    const Shape s = p_.x.shape;
    const Rht rht{true, q.sign_mask, q.numerics.rht_sum};
    std::vector<uint32_t> turned(static_cast<size_t>(s.count()));
    for (int64_t c = 0; c < s.cols; ++c)
      for (int64_t r0 = 0; r0 < s.rows; r0 += 16) {
        uint32_t group[16];
        for (int i = 0; i < 16; ++i) group[i] = x(r0 + i, c);
        if (c == col_ && r0 == row_ / 16 * 16)
          for (int i = 0; i < 16; ++i)
            add("N11.1", "leaf", Encoding::f32, rht_leaf(group[i], q.sign_mask, i));
        rotate_group(rht, group);
        for (int i = 0; i < 16; ++i) turned[static_cast<size_t>((r0 + i) * s.cols + c)] = group[i];
      }
    seen_ = std::move(turned);
    add("N11.3", "rotated element", Encoding::bf16, x(row_, col_) >> 16);
  }

  void cast() {
    const Cast& op = *p_.as<Cast>();
    const uint32_t wide = x(row_, col_);
    if (op.round == Round::sr) {
      const uint32_t byte = element(input("bits"), row_ * p_.x.shape.cols + col_);
      add("N1.2", "x", Encoding::f32, wide);
      add("N12.3", "random byte", Encoding::u8, byte);
      return add("N12.3", "y", op.to,
                 op.sr_rule == SrRule::fma ? stochastic_fma(wide, byte) : stochastic_integer(wide, byte));
    }
    add(info(p_.x.source).bits < 16 ? "N2.8" : "N1.2", "x", Encoding::f32, wide);
    add(op.to == Encoding::e8m0 ? "N2.7"
        : op.round == Round::rz ? "N2.6"
                                : "N2.1",
        "y", op.to, encode_to(op.to, wide, op.round, op.overflow));
  }

  // The element rule says the same as the conversions of the default Numerics, in integers.
  uint32_t scaled_value(const Quantizer& q, const char* clause, ElementFactor by) {
    const uint32_t wide = x(row_, col_), y = ElementRule::of(q, by.divides).scaled(wide, by);
    add("N1.2", "x", Encoding::f32, wide);
    const NegZero zero = q.numerics.neg_zero;
    const char* says = zero == NegZero::plus ? "N5.6" : zero == NegZero::minus ? "N17.4" : clause;
    add(says, by.divides ? "divided value" : "scaled value", Encoding::f32, y);
    return y;
  }
  void code_of(const Quantizer& q, const char* clause, ElementFactor by) {
    const ElementRule rule = ElementRule::of(q, by.divides);
    uint32_t y = scaled_value(q, clause, by);
    if (rule.pre_round != PreRound::none) add("N17.3", "rounded first", Encoding::f32, y = rule.rounded(y));
    const uint32_t cast = rule.cast(y), stored = rule.stored(y, cast);
    const char* says = rule.has_nan_code(y)               ? "N17.16"
                       : stored != cast                   ? "N17.4"
                       : rule.ties != ElementTies::even   ? "N17.1"
                       : rule.overflow == Overflow::nosat ? "N17.2"
                                                          : clause;
    add(says, "code", q.element, stored);
  }
  // The amax of the element's block.
  uint32_t block_amax(const Quantizer& q, bool nan_wins) const {
    const bool square = is_square(q.block), rows = d_ == Direction::row;
    const int64_t length = length_of(q.block), r0 = square || !rows ? row_ / length * length : row_,
                  c0 = square || rows ? col_ / length * length : col_;
    return amax(r0, square || !rows ? length : 1, c0, square || rows ? length : 1, nan_wins);
  }
  void mx_block_scale(const Quantizer& q, uint32_t amax_of_block) {
    const MxScaleRule rule = MxScaleRule::of(q);
    const MxScale by = rule.rounding;
    if (by == MxScale::up || by == MxScale::down || by == MxScale::nearest)
      add(mx_clauses(q.format).scaled_amax, "scaled amax", Encoding::f32,
          mx_scaled_amax_of(q.element, amax_of_block));
    const bool infinite = (amax_of_block & kAbs) == kInf && rule.inf_is_nan;
    add(infinite            ? "N17.7"
        : by == MxScale::up ? "N5.3"
                            : "N17.6",
        "scale", Encoding::e8m0, rule(amax_of_block));
    add("N5.4", "multiplier", Encoding::f32, rule.multiplier(steps_.back().bits));
  }
  ElementFactor fp8_scale(const Quantizer& q, uint32_t tensor_amax) {
    const CurrentScale rule = current_scale(q, p_.x.source);
    const Fp8Scales s = rule(tensor_amax);
    const bool first = rule.order == ScaleOrder::encode_first,
               divides = rule.order == ScaleOrder::decode_divide;
    const bool divided = rule.quotient.by == ScaleDivision::divide,
               rounds = rule.quotient.by == ScaleDivision::in_source;
    if (!first) add(divided ? "N17.5" : "N17.14", "scale_inv", Encoding::f32, s.scale_inv);
    add(rounds || (first && !divided) ? "N17.14" : first ? "N3.3" : "N17.5", "scale", Encoding::f32, s.scale);
    if (first) add(rounds ? "N17.14" : "N3.7", "scale_inv", Encoding::f32, s.scale_inv);
    return {as_float(divides ? s.scale_inv : s.scale), divides};
  }

  // Element (i, j) of the stored data where these are transposed in columns, and their shape.
  uint32_t stored(int64_t i, int64_t j) const { return d_ == Direction::row ? x(i, j) : x(j, i); }
  Shape stored_shape() const {
    return d_ == Direction::row ? p_.x.shape : Shape{p_.x.shape.cols, p_.x.shape.rows};
  }
  // The amax of the tensor, or of stored row i (N3.12, N10.9).
  uint32_t scope_amax(const Quantizer& q, int64_t i) const {
    if (q.amax) return element(input(d_, "given.amax"), 0);
    const Shape s = p_.x.shape;
    if (!q.row_scaled) return amax(0, s.rows, 0, s.cols, false);
    return d_ == Direction::row ? amax(i, 1, 0, s.cols, false) : amax(0, s.rows, i, 1, false);
  }
  void tensor_scales(const Nvfp4Chain& chain, const Nvfp4Scales& t) {
    const bool divided = chain.quotient.by == ScaleDivision::divide || chain.scale == Nvfp4Scale::unit;
    add(divided ? "N10.2" : "N17.14", "encode scale", Encoding::f32, canonical(as_bits(t.encode)));
    add("N10.7", "decode scale", Encoding::f32, canonical(as_bits(t.decode)));
    const bool by_p = chain.by == Multiplier::decode_reciprocal || chain.by == Multiplier::divide_product ||
                      chain.by == Multiplier::product_reciprocal || chain.by == Multiplier::divide_twice;
    if (by_p || chain.scale == Nvfp4Scale::decode || chain.scale == Nvfp4Scale::decode_product ||
        chain.scale == Nvfp4Scale::given_product || chain.scale == Nvfp4Scale::decode_first)
      add(divided ? "N17.8" : "N17.14", "amax / (6 F)", Encoding::f32, canonical(as_bits(t.decode_first)));
  }
  uint32_t nvfp4_block_scale(const Nvfp4Chain& chain, const Nvfp4Scales& t, uint32_t amax_of_block) {
    const bool folded = chain.scale == Nvfp4Scale::folded;
    if (folded) add("N10.5", "scale multiplier", Encoding::f32, canonical(as_bits(t.factor)));
    const bool sixths = chain.scale == Nvfp4Scale::quotient_first || chain.scale == Nvfp4Scale::decode ||
                        chain.scale == Nvfp4Scale::unit;
    const bool rounds = sixths && chain.quotient.by == ScaleDivision::in_source;
    add(chain.floor == Nvfp4Floor::least_normal ? "N17.9"
        : rounds                                ? "N17.14"
        : folded                                ? "N10.6"
                                                : "N17.8",
        "scaled amax", Encoding::f32, canonical(chain.scaled_amax(t, amax_of_block)));
    const bool vanishes = chain.floor == Nvfp4Floor::one || chain.floor == Nvfp4Floor::eighth;
    add(vanishes                         ? "N17.9"
        : chain.round != ScaleRound::rne ? "N17.11"
                                         : "N10.6",
        "scale", Encoding::e4m3, chain.block_scale(t, amax_of_block));
    return steps_.back().bits;
  }
  // The error of a scale over stored row i of the element's block (N10.11, N10.12).
  float row_error(const Quantizer& q, const FourOverSixRule& rule, const Nvfp4Chain& chain,
                  const Nvfp4Scales& t, uint32_t scale, int64_t i, int64_t j0) const {
    const ElementRule element = ElementRule::of(q, false);
    const float multiplier = chain.multiplier(t, scale), value = as_float(decode<Encoding::e4m3>(scale));
    float err = 0;
    for (int64_t j = j0; j < std::min(j0 + 16, stored_shape().cols); ++j) {
      const uint32_t wide = stored(i, j);
      err = rule.add(err, chain, t, value, wide, element.code(wide, {multiplier, false}));
    }
    return err;
  }
  float block_error(const Quantizer& q, const FourOverSixRule& rule, const Nvfp4Chain& chain,
                    const Nvfp4Scales& t, uint32_t scale, int64_t i, int64_t j0) const {
    if (!is_square(q.block)) return row_error(q, rule, chain, t, scale, i, j0);
    float sums[16] = {};
    for (int64_t k = 0, i0 = i / 16 * 16; k < 16 && i0 + k < stored_shape().rows; ++k)
      sums[k] = row_error(q, rule, chain, t, scale, i0 + k, j0);
    for (int h = 8; h > 0; h /= 2)
      for (int k = 0; k < h; ++k) sums[k] = __fadd_rn(sums[k], sums[k + h]);  // N10.13
    return sums[0];
  }
  uint32_t four_over_six_scale(const Quantizer& q, const Nvfp4Chain& chain, const Nvfp4Scales& t,
                               uint32_t amax_of_block, int64_t i, int64_t j) {
    const FourOverSixRule rule = FourOverSixRule::of(q);
    const uint32_t six = rule.scale(t, amax_of_block, false), four = rule.scale(t, amax_of_block, true);
    const float error_of_six = block_error(q, rule, chain, t, six, i, j / 16 * 16),
                error_of_four = block_error(q, rule, chain, t, four, i, j / 16 * 16);
    add("N10.10", "scale for 6", Encoding::e4m3, six);
    add("N10.10", "scale for 4", Encoding::e4m3, four);
    const char* clause = rule.fast ? "N10.12" : "N10.11";
    add(clause, "error of the scale for 6", Encoding::f32, as_bits(error_of_six));
    add(clause, "error of the scale for 4", Encoding::f32, as_bits(error_of_four));
    add("N10.11", "scale", Encoding::e4m3, error_of_four < error_of_six ? four : six);
    return steps_.back().bits;
  }
  void quantize_nvfp4(const Quantizer& q) {
    if (q.rht) rotate(q);
    const int64_t i = d_ == Direction::row ? row_ : col_, j = d_ == Direction::row ? col_ : row_;
    const Nvfp4Chain chain = Nvfp4Chain::of(q, p_.x.source);
    const uint32_t tensor_amax = scope_amax(q, i);
    add(q.row_scaled ? "N10.9" : "N10.1", q.row_scaled ? "amax of the stored row" : "tensor amax",
        Encoding::f32, tensor_amax);
    const Nvfp4Scales t = chain.of_tensor(tensor_amax);
    tensor_scales(chain, t);
    const uint32_t amax_of_block = block_amax(q, q.numerics.nan_amax == NanAmax::propagate);
    add("N10.4", "block amax", Encoding::f32, amax_of_block);
    const bool one = q.four_over_six == FourOverSix::off;
    const uint32_t scale = one ? nvfp4_block_scale(chain, t, amax_of_block)
                               : four_over_six_scale(q, chain, t, amax_of_block, i, j);
    const ElementFactor by = element_factor(chain, t, scale);
    if (q.round != Round::sr) return code_of(q, by.divides ? "N17.10" : "N10.9", by);
    const uint32_t y = scaled_value(q, by.divides ? "N17.10" : "N10.9", by);
    const Shape s = stored_shape();
    const uint2 words =
        Draws::of(p_, d_).eight(Draws::block(i, j, s.cols), i, j / 8 * 8, s.rows, s.cols, p_.rng.member);
    const uint32_t byte = ((j & 4) != 0 ? words.y : words.x) >> (8 * (j & 3)) & 0xFFu;
    add(q.numerics.draw == Draw::logical ? "N12.2" : "N12.4", "random byte", Encoding::u8, byte);
    const uint32_t drawn =
        q.numerics.sr_rule == SrRule::fma ? stochastic_fma(y, byte) : stochastic_integer(y, byte);
    const uint32_t stored = ElementRule::of(q, by.divides).stored(drawn);
    add(stored != drawn ? "N17.4" : "N12.3", "code", q.element, stored);
  }
  // What the elements under a block scale are multiplied or divided by.
  ElementFactor element_factor(const Nvfp4Chain& chain, const Nvfp4Scales& t, uint32_t scale) {
    const ElementFactor by = chain.factor(t, scale);
    const bool usual =
        !chain.zeroes(scale) && (chain.by == Multiplier::reciprocal || chain.by == Multiplier::bf16_quotient);
    add(usual ? "N10.8" : "N17.10", by.divides ? "divisor" : "multiplier", Encoding::f32,
        canonical(as_bits(by.value)));
    return by;
  }

  void quantize(const Quantizer& q) {
    const Shape s = p_.x.shape;
    switch (q.format) {
      case FormatId::identity:
        return add("N7.1", "x", p_.x.source,
                   seen_.empty() ? element(input("x"), row_ * s.cols + col_) : steps_.back().bits);  // N13.1
      case FormatId::mxfp8:
      case FormatId::mxfp6:
      case FormatId::mxfp4: {
        const bool nan_wins = q.numerics.nan_amax == NanAmax::propagate;
        const uint32_t amax_of_block = block_amax(q, nan_wins);
        add(is_square(q.block) ? "N5.8"
            : nan_wins         ? "N5.7"
                               : "N5.1",
            "block amax", Encoding::f32, amax_of_block);
        mx_block_scale(q, amax_of_block);
        return code_of(q, mx_clauses(q.format).element, {as_float(steps_.back().bits), false});
      }
      case FormatId::fp8_block: {
        add("N9.1", "block amax", Encoding::f32, block_amax(q, false));
        return code_of(q, "N9.3", fp8_scale(q, steps_.back().bits));
      }
      case FormatId::fp8_current: {
        const uint32_t found = scope_amax(q, d_ == Direction::row ? row_ : col_);
        add("N3.1", q.row_scaled ? "amax of the stored row" : "tensor amax", Encoding::f32, found);  // N3.12
        return code_of(q, "N3.8", fp8_scale(q, found));
      }
      case FormatId::nvfp4: return quantize_nvfp4(q);
      case FormatId::fp8_delayed: {
        const int64_t line = q.row_scaled ? d_ == Direction::row ? row_ : col_ : 0;  // N3.12
        const uint32_t number = element(input(d_, "given.scale"), line);
        const bool decodes = q.numerics.scale_order != ScaleOrder::encode_first,
                   divides = q.numerics.scale_order == ScaleOrder::decode_divide;
        add(decodes ? "N17.5" : "N3.11", decodes ? "given decode scale" : "given scale", Encoding::f32,
            number);
        if (!divides)
          add(decodes ? "N17.5" : "N3.7", decodes ? "scale" : "scale_inv", Encoding::f32, reciprocal(number));
        const uint32_t factor = decodes && !divides ? reciprocal(number) : number;
        return code_of(q, "N3.8", {as_float(factor), divides});
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
    const bool blocks = info(q.format).has_blocks(),
               e8m0 = input(d_, scale_stem(q.scales)).plane->encoding == Encoding::e8m0;
    const int64_t line = rows ? row_ : col_,
                  index = blocks         ? block_index(q, s, d_, q.scales)(line, rows ? col_ : row_)
                          : q.row_scaled ? line
                                         : 0;
    const uint32_t stored = element(input(d_, scale_stem(q.scales)), index);
    uint32_t scale = e8m0 ? mx_scale(stored) : stored;
    const char* clause = e8m0 ? "N5.9" : blocks ? "N9.5" : "N3.10";
    if (q.format == FormatId::nvfp4) {
      clause = "N10.15";
      add(clause, "amax", Encoding::f32, element(input(d_, "amax"), q.row_scaled ? line : 0));
      const uint32_t amax_of_line = steps_.back().bits;
      add(clause, "block scale", Encoding::e4m3, stored);
      scale = canonical(as_bits(Nvfp4Chain::of(q, p_.x.source).decode_multiplier(amax_of_line, stored)));
    }
    add(clause, "scale", Encoding::f32, scale);
    add(clause, "product", Encoding::f32, as_bits(__fmul_rn(as_float(value), as_float(scale))));
    const Encoding out = p_.as<Dequantize>()->out;
    add(clause, "y", out,
        canonical(steps_.back().bits) == kNan
            ? info(out).nan
            : encode_to(out, steps_.back().bits, Round::rne, Overflow::nosat));
  }

  // What d(n, m) reads of an operand, k by k: the elements dequantized to binary32, under amaxes of 1 where
  // an operand is row-scaled (N16.9).
  std::vector<uint32_t> line_of(const Gemm& op, Side side, bool without_amax) const {
    const Direction d = op.direction(side);
    const Problem p = operand_dequantize(p_, side);
    const int64_t line = side == Side::a ? col_ : row_;
    const std::vector<Plane> planes = input_planes(p);
    std::vector<std::byte> ones;
    std::vector<ConstBuffer> read;
    for (const Plane& plane : planes) {
      const std::string stem = plane.name.substr(plane.name.find('.'));
      read.push_back({&plane, input(std::string(name_of(side)) + stem).bytes});
      if (stem != ".amax" || !without_amax) continue;
      ones.resize(plane.bytes());
      for (size_t i = 0; i < ones.size(); i += sizeof kOne) std::memcpy(&ones[i], &kOne, sizeof kOne);
      read.back().bytes = ones;
    }
    std::vector<uint32_t> out;
    for (int64_t k = 0; k < op.k; ++k) {
      const TraceStep y =
          Tracer(p, read, d, d == Direction::row ? line : k, d == Direction::row ? k : line).take().back();
      out.push_back(decode_from(y.encoding, y.bits));
    }
    return out;
  }
  void multiply(const Gemm& op) {
    const bool by_row_a = leaves_amax_out(op.a), by_row_b = leaves_amax_out(op.b),
               scaled = by_row_a || by_row_b;
    const std::vector<uint32_t> a = line_of(op, Side::a, scaled), b = line_of(op, Side::b, scaled);
    float v = 0;
    for (size_t k = 0; k < a.size(); ++k) v = accumulate(v, as_float(a[k]), as_float(b[k]));
    auto number = [&](const char* clause, const char* what) {
      add(clause, what, Encoding::f32, canonical(as_bits(v)));
    };
    number("N16.2", "sum");
    if (scaled) {
      const float amax_a = as_float(element(input("a.amax"), by_row_a ? col_ : 0)),
                  amax_b = as_float(element(input("b.amax"), by_row_b ? row_ : 0));
      v = times_amaxes(by_row_a && by_row_b ? RowScaled::both : RowScaled::one, v, amax_a, amax_b);
      number("N16.9", "times the amaxes");
    }
    const int64_t at = row_ * p_.x.shape.cols + col_;
    const float c = op.reads_c() ? as_float(decode_from(p_.x.source, element(input("c"), at))) : 0.0f;
    const float bias = op.bias ? as_float(decode_from(*op.bias, element(input("bias"), col_))) : 0.0f;
    // One part of the epilogue after the other, as it would do them at once.
    const GemmEpilogue whole{std::bit_cast<float>(op.alpha), std::bit_cast<float>(op.beta), op.multiplies(),
                             op.reads_c(), op.bias.has_value()};
    const auto step = [&](bool there, GemmEpilogue one, const char* what) {
      if (!there) return;
      v = one(v, c, bias);
      number("N16.8", what);
    };
    step(whole.multiplies, {whole.alpha, whole.beta, true, false, false}, "times alpha");
    step(whole.adds_c, {whole.alpha, whole.beta, false, true, false}, "plus beta c");
    step(whole.adds_bias, {whole.alpha, whole.beta, false, false, true}, "plus bias");
    add("N16.8", "code", p_.x.source,
        encode_to(p_.x.source, as_bits(v), Round::rne,
                  info(p_.x.source).bits == 8 ? Overflow::sat : Overflow::nosat));
  }

  void chain() {
    const Quantizer& q = *p_.row;
    if (q.format == FormatId::nvfp4) {
      const Nvfp4Chain chain = Nvfp4Chain::of(q, p_.x.source);
      const uint32_t tensor_amax = element(input("x"), 2 * row_),
                     amax_of_block = element(input("x"), 2 * row_ + 1);
      add("N10.16", "tensor amax", Encoding::f32, tensor_amax);
      const Nvfp4Scales t = chain.of_tensor(tensor_amax);
      tensor_scales(chain, t);
      add("N10.16", "block amax", Encoding::f32, amax_of_block);
      element_factor(chain, t, nvfp4_block_scale(chain, t, amax_of_block));
      return;
    }
    const uint32_t given = element(input("x"), row_ * p_.x.shape.cols + col_);
    if (info(q.format).scale == Encoding::f32) {
      add("N3.1", "amax", Encoding::f32, given);
      fp8_scale(q, given);
    } else if (p_.x.source == Encoding::e8m0) {
      add("N5.3", "scale", Encoding::e8m0, given);
      add("N5.4", "multiplier", Encoding::f32, MxScaleRule::of(q).multiplier(given));
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
  std::vector<uint32_t> seen_;  // where it is not x
  Steps steps_;
};

}  // namespace

Steps trace(const Problem& p, std::span<const ConstBuffer> inputs, Direction d, int64_t row, int64_t col) {
  return Tracer(p, inputs, d, row, col).take();
}

}  // namespace assay::fast_host
