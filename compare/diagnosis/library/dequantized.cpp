// A dequantize (N3.10, N5.9, N9.5, N10.15): what comes out where a code, its scale or the product is read or
// rounded another way.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/arithmetic/factors.h"
#include "compare/arithmetic/places.h"
#include "compare/diagnosis/library/rows.h"

namespace assay {

namespace {

using Planes = std::vector<PlaneData>;

// What a dequantize reads, and for each element of y the place of its code, scale and amax. `order`: the
// place of a scale in its plane's bytes, or nothing for the right one.
using Order = int64_t (*)(const Plane& plane, Place place);
struct Read {
  const PlaneData *data = nullptr, *scales = nullptr, *amax = nullptr;
  Shape shape;
  std::vector<int64_t> code_at, scale_at, amax_at;  // [shape]
};

// Gives each element of y that an element of `plane` belongs to the place of that element.
std::vector<int64_t> spread(const Problem& p, const Plane& plane, Order order) {
  std::vector<int64_t> out(static_cast<size_t>(p.x.shape.count()), 0);
  for (int64_t r = 0; r < plane.logical.rows; ++r)
    for (int64_t c = 0; c < plane.logical.cols; ++c) {
      const Place place{false, r, c};
      const Region region = region_of(&p, plane, place);
      const int64_t at = order ? order(plane, place) : index_of(plane, r, c);
      for (int64_t i = region.row0; i < std::min(region.row1, p.x.shape.rows); ++i)
        for (int64_t j = region.col0; j < std::min(region.col1, p.x.shape.cols); ++j)
          out[static_cast<size_t>(i * p.x.shape.cols + j)] = at;
    }
  return out;
}

Read read_of(const Problem& p, const Planes& inputs, Order order) {
  Read out;
  out.shape = p.x.shape;
  for (const PlaneData& plane : inputs) {
    const std::string& name = plane.plane.name;
    if (name.ends_with(".data")) out.data = &plane, out.code_at = spread(p, plane.plane, nullptr);
    if (name.ends_with(".amax")) out.amax = &plane, out.amax_at = spread(p, plane.plane, nullptr);
    if (name.ends_with(".scale_inv") || name.ends_with(".scale_gemm"))
      out.scales = &plane, out.scale_at = spread(p, plane.plane, order);
  }
  return out;
}

// Scales by a block that is as long as the tensor divided by its number of blocks, rounded up: too short
// where the last block is not whole.
void derive_blocks(Read& read, const Quantizer& q, bool rows) {
  const int64_t length = length_of(q.block), height = is_square(q.block) ? length : 1;
  const Shape of = read.shape, unit = rows ? Shape{height, length} : Shape{length, height};
  const auto derived = [](int64_t n, int64_t whole) {
    return std::max<int64_t>(ceil_div(n, std::max<int64_t>(ceil_div(n, whole), 1)), 1);
  };
  const Shape wrong{derived(of.rows, unit.rows), derived(of.cols, unit.cols)};
  const std::vector<int64_t> right = read.scale_at;
  for (int64_t i = 0; i < of.rows; ++i)
    for (int64_t j = 0; j < of.cols; ++j)
      read.scale_at[static_cast<size_t>(i * of.cols + j)] =
          right[static_cast<size_t>(i / wrong.rows * unit.rows * of.cols + j / wrong.cols * unit.cols)];
}

// Codes by bytes whose low half is an element of the first half of a block, and whose high half is one of the
// second. A block that is not whole is read as it should be.
void in_halves(Read& read, const Quantizer& q, bool) {
  const int64_t block = length_of(q.block), pitch = read.data->plane.padded.cols, half = block / 2;
  for (int64_t& at : read.code_at) {
    const int64_t column = at % pitch, begin = column / block * block, place = column - begin;
    if (begin + block <= pitch) at += place % half * 2 + place / half - place;
  }
}

// One element of y: the values that it is made of.
struct Element {
  Encoding element, scales;
  uint32_t code, scale_code;
  double scale;
  double amax;  // of NVFP4
  bool has_amax;
  double range;  // F * 6 (N10.13)
  double value() const { return value_of(element, code); }
  // What the code is multiplied by.
  double factor() const { return has_amax ? f32_of(f32_of(scale * amax) * f32_of(1 / range)) : scale; }
};
double product(const Element& e) { return f32_of(e.value() * e.factor()); }

struct Row {
  const char *id, *title, *clause;
  Stage stage;
  double (*value)(const Element&);
  uint32_t (*out)(Encoding, double) = nearest_code;
  Order order = nullptr;
  int64_t flip = 0;                                              // bits of a code's place that are turned
  void (*change)(Read&, const Quantizer&, bool rows) = nullptr;  // the places, after `order`
};

// The E8M0 code in the place of an exponent: 00 is 0, and FF an infinity.
double as_exponent_field(const Element& e) {
  const double scale = e.scale_code == 0      ? 0
                       : e.scale_code == 0xFF ? std::numeric_limits<double>::infinity()
                                              : e.scale;
  return f32_of(e.value() * scale);
}
uint32_t flushed(Encoding to, double v) {
  return nearest_code(to, is_subnormal(to, value_of(to, nearest_code(to, v))) ? std::copysign(0.0, v) : v);
}
int64_t without_padding(const Plane& plane, Place at) { return at.row * plane.logical.cols + at.col; }
int64_t row_after_row(const Plane& plane, Place at) { return at.row * plane.padded.cols + at.col; }

constexpr Row kRows[] = {
    {"scale.inverted", "codes are divided by the scale", "N3.10", Stage::block_scale,
     [](const Element& e) { return f32_of(e.value() / e.factor()); }},
    {"scale.left_out", "codes are not scaled", "N3.10", Stage::block_scale,
     [](const Element& e) { return e.value(); }},
    {"scale.first", "the first scale of the plane serves everywhere", "N6.1", Stage::layout, product,
     nearest_code, [](const Plane&, Place) { return int64_t{0}; }},
    {"result.truncated", "the result is rounded toward zero", "N2.1", Stage::code, product, truncated_code},
    {"result.flushed", "subnormal results become zeros", "N2.1", Stage::code, product, flushed},
    {"result.through_bf16", "the product is rounded to bf16 first", "N2.1", Stage::code,
     [](const Element& e) { return bf16_of(product(e)); }},
};
constexpr Row kExponentRow = {
    "scale.exponent_field", "the scale's code is placed in an exponent field: 00 gives 0, and FF an infinity",
    "N2.8", Stage::block_scale, as_exponent_field};
// Reads the scale FF, which is NaN, as an infinity, and a scale of the value `nan` as NaN.
template <int nan> double as_value(const Element& e) {
  Element other = e;
  if (e.scale_code == 0xFF) other.scale = std::numeric_limits<double>::infinity();
  if (nan > 0 && e.scale == nan) other.scale = std::numeric_limits<double>::quiet_NaN();
  return product(other);
}
constexpr Row kNanScaleRows[] = {
    {"scale.nan_as_infinity", "the scale FF, which is NaN, is read as an infinity", "N2.8",
     Stage::block_scale, as_value<0>},
    {"scale.nan_by_value=128",
     "a scale of 128 is taken for NaN, and the code FF for an infinity: the test compares the value and not "
     "the code",
     "N2.8", Stage::block_scale, as_value<128>},
};
// A scale of E4M3 whose exponent field is 0, with a fraction of the other kind: `leading` times 8 and the
// fraction, times a power of two.
template <int leading, int exponent> double as_normal(const Element& e) {
  Element other = e;
  const auto fraction = static_cast<int>(e.scale_code & 7);
  if ((e.scale_code >> 3 & 15) == 0 && fraction > 0)
    other.scale = std::copysign(std::ldexp(8 * leading + fraction, exponent - 3), e.scale);
  return product(other);
}
constexpr Row kSubnormalScaleRows[] = {
    {"scale.leading_one", "subnormal scales of E4M3 are read as (1 + m / 8) * 2^-7, with a leading one",
     "N2.1", Stage::block_scale, as_normal<1, -7>},
    {"scale.leading_one_of_least",
     "subnormal scales of E4M3 are read as (1 + m / 8) * 2^-6, as the least exponent", "N2.1",
     Stage::block_scale, as_normal<1, -6>},
    {"scale.subnormal_halved", "subnormal scales of E4M3 are read as m / 8 * 2^-7, half of what they are",
     "N2.1", Stage::block_scale, as_normal<0, -7>},
    {"scale.flushed", "subnormal scales of E4M3 are read as zeros", "N2.1", Stage::block_scale,
     [](const Element& e) {
       Element other = e;
       if ((e.scale_code >> 3 & 15) == 0) other.scale = 0;
       return product(other);
     }},
};
constexpr Row kUnpaddedRow = {"scale.unpadded", "scales are read as if their rows had no padding",
                              "N6.2",           Stage::layout,
                              product,          nearest_code,
                              without_padding};
constexpr Row kCompactRow = {"scale.compact", "scales in GEMM layout are read row after row",
                             "N6.3",          Stage::layout,
                             product,         nearest_code,
                             row_after_row};
constexpr Row kNibblesRow = {"code.nibbles_swapped",
                             "the two codes of a byte are read in the other order",
                             "N6.8",
                             Stage::packing,
                             product,
                             nearest_code,
                             nullptr,
                             1};
constexpr Row kDerivedRow = {
    .id = "scale.block_derived",
    .title =
        "a block is taken to be as long as the tensor divided by its number of blocks, though the last is "
        "not whole",
    .clause = "N9.1",
    .stage = Stage::block_scale,
    .value = product,
    .change = derive_blocks};
constexpr Row kHalvesRow = {.id = "code.halves",
                            .title = "a byte is read as two elements half a block apart, as GGUF packs them",
                            .clause = "N6.8",
                            .stage = Stage::packing,
                            .value = product,
                            .change = in_halves};
constexpr Row kScaleRows[] = {
    {"scale.in_bf16", "scales are rounded to bf16 before they multiply", "N3.10", Stage::block_scale,
     [](const Element& e) { return f32_of(e.value() * bf16_of(e.scale)); }},
    {"scale.in_f16", "scales are rounded to f16 before they multiply", "N3.10", Stage::block_scale,
     [](const Element& e) {
       return f32_of(e.value() * value_of(Encoding::f16, nearest_code(Encoding::f16, e.scale)));
     }},
};
constexpr Row kAmaxRows[] = {
    {"amax.left_out", "the tensor's amax takes no part", "N10.15", Stage::tensor_scale,
     [](const Element& e) { return f32_of(e.value() * e.scale); }},
    {"amax.first", "amax / (F * 6) comes first, and the block's scale is multiplied by it", "N10.15",
     Stage::tensor_scale,
     [](const Element& e) { return f32_of(e.value() * f32_of(e.scale * f32_of(e.amax / e.range))); }},
    {"amax.last", "code and block scale are multiplied first, and by amax / (F * 6) then", "N10.15",
     Stage::tensor_scale,
     [](const Element& e) { return f32_of(f32_of(e.value() * e.scale) * f32_of(e.amax / e.range)); }},
    {"amax.divided", "the product with the amax is divided by F * 6", "N10.15", Stage::tensor_scale,
     [](const Element& e) { return f32_of(e.value() * f32_of(f32_of(e.scale * e.amax) / e.range)); }},
    {"amax.without_six", "the amax is divided by F alone, not by F * 6", "N10.15", Stage::tensor_scale,
     [](const Element& e) {
       return f32_of(e.value() * f32_of(f32_of(e.scale * e.amax) * f32_of(6 / e.range)));
     }},
};

// Makes y anew.
void remake(const Row& row, const Problem& p, const Planes& inputs, Planes& made) {
  Read read = read_of(p, inputs, row.order);
  if (!read.data) return;
  const Quantizer& q = *p.quantizer(p.row ? Direction::row : Direction::col);
  if (row.change) row.change(read, q, p.row.has_value());
  PlaneData& y = made.front();
  for (int64_t n = 0; n < read.shape.count(); ++n) {
    const auto at = static_cast<size_t>(n);
    Element e{};
    e.element = read.data->plane.encoding;
    e.code = code_at(read.data->plane, read.data->bytes, read.code_at[at] ^ row.flip);
    e.scale = 1;
    if (read.scales) {
      e.scales = read.scales->plane.encoding;
      e.scale_code = code_at(read.scales->plane, read.scales->bytes, read.scale_at[at]);
      e.scale = value_of(e.scales, e.scale_code);
    }
    e.has_amax = read.amax && q.format == FormatId::nvfp4;
    e.amax = e.has_amax
                 ? value_of(Encoding::f32, code_at(read.amax->plane, read.amax->bytes, read.amax_at[at]))
                 : 1;
    e.range = full_range(q);
    set_code(y.plane, y.bytes, n, row.out(y.plane.encoding, row.value(e)));
  }
}

}  // namespace

std::vector<Hypothesis> dequantize_hypotheses(const Problem& problem) {
  std::vector<Hypothesis> out;
  if (!problem.as<Dequantize>()) return out;
  const auto add = [&](const Row& row) {
    Hypothesis h;
    h.id = std::string("dequantize.") + row.id;
    h.title = row.title;
    h.stage = row.stage;
    h.clause = row.clause;
    h.remake = [row](const Problem& p, const Planes& inputs, Planes& made) { remake(row, p, inputs, made); };
    out.push_back(std::move(h));
  };
  const std::vector<Plane> inputs = input_planes(problem);
  const auto scales = std::find_if(inputs.begin(), inputs.end(), [](const Plane& p) {
    return p.name.ends_with(".scale_inv") || p.name.ends_with(".scale_gemm");
  });
  if (scales != inputs.end()) {
    for (const Row& row : kRows) add(row);
    if (scales->encoding == Encoding::e8m0) {
      add(kExponentRow);
      for (const Row& row : kNanScaleRows) add(row);
    }
    if (scales->encoding == Encoding::e4m3)
      for (const Row& row : kSubnormalScaleRows) add(row);
    if (scales->encoding == Encoding::f32)
      for (const Row& row : kScaleRows) add(row);
    if (scales->layout == ScaleLayout::gemm) add(kCompactRow);
    else if (scales->padded.cols != scales->logical.cols) add(kUnpaddedRow);
  }
  const Quantizer& q = *problem.quantizer(problem.row ? Direction::row : Direction::col);
  if (info(q.format).has_blocks()) add(kDerivedRow);
  if (q.format == FormatId::nvfp4)
    for (const Row& row : kAmaxRows) add(row);
  if (std::any_of(inputs.begin(), inputs.end(), [](const Plane& p) { return p.packed && p.bits() == 4; }))
    add(kNibblesRow), add(kHalvesRow);
  return out;
}

}  // namespace assay
