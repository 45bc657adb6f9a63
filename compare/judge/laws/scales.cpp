#include "compare/judge/laws/scales.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/places.h"
#include "compare/judge/laws/scale_rules.h"

namespace assay {

namespace {

// What is given for the block of stored element (i, j): a code of the plane (N17.12). `given` lies as compact
// scales do.
uint32_t given_code(const Quantizer& q, const PlaneData& given, bool transposed, int64_t i, int64_t j) {
  Plane plane = given.plane;
  plane.transposed = transposed;
  const int64_t n = length_of(q.block);
  return code_at(
      given.plane, given.bytes,
      is_square(q.block) ? scale_index(q, plane, i / n * n, j / n * n) : scale_index(q, plane, i, j));
}

// A given scale as its plane has it: itself, or its exponent (N9.6).
uint32_t as_stored(uint32_t given, const Quantizer& q, const Plane& scales) {
  return q.format == FormatId::fp8_block && scales.layout == ScaleLayout::gemm ? given >> 23 & 0xFF : given;
}

struct Largest {
  double amax = 0;
  bool nan = false;
};

Largest given_amax(uint32_t code) {
  const double amax = value_of(Encoding::f32, code);
  return {amax, std::isnan(amax)};
}

// The largest magnitude in a block of stored elements; nothing where no law says what one of them is.
std::optional<Largest> largest_of_block(const ScaledValues& scaled, const Region& block) {
  Largest out;
  for (int64_t r = block.row0; r < block.row1; ++r)
    for (int64_t c = block.col0; c < block.col1; ++c) {
      const std::optional<double> v = scaled.element(r, c);
      if (!v) return {};
      out.nan |= std::isnan(*v);
      if (std::fabs(*v) > out.amax) out.amax = std::fabs(*v);
    }
  return out;
}

// The scales of one direction, looked at block by block.
struct BlockScales {
  LawRecord& laws;
  const Quantizer& q;
  const ScaledValues& scaled;
  const PlaneData &scales, &data;
  const PlaneData* given;
  bool begun = false;

  void check(const Region& block) {
    const uint32_t from = given ? given_code(q, *given, data.plane.transposed, block.row0, block.col0) : 0;
    const std::optional<Largest> largest = given ? given_amax(from) : largest_of_block(scaled, block);
    if (!largest) return;
    if (!begun) laws.begin("range");
    begun = true;
    const int64_t at = scale_index(q, scales.plane, block.row0, block.col0);
    const uint32_t k = code_at(scales.plane, scales.bytes, at);
    const Place place = place_of(scales.plane, at);
    if (q.scale_from == ScaleFrom::scale) {
      constexpr auto kMessage = "the scale that is given is stored as it is (N17.12)";
      if (k != as_stored(from, q, scales.plane))
        laws.breach(scales, place.row, place.col, [] { return std::string(kMessage); });
      return;
    }
    const auto of_tensor = q.format == FormatId::nvfp4 ? scaled.tensor_scales(block.row0) : std::nullopt;
    const Encoding e = scales.plane.encoding;
    if (scale_fits(q, laws.problem.x.source, of_tensor, k, e, largest->amax, largest->nan)) return;
    laws.breach(scales, place.row, place.col, [&] {
      return fmt::format("a block whose largest magnitude is {} has the scale {}", number_text(largest->amax),
                         value_text(e, k));
    });
  }
};

// The largest magnitude of the tensor, or of each stored row of it; nothing where no law says what an element
// is (N3.1, N3.12, N10.1, N10.9).
std::optional<std::vector<double>> largest(Shape stored, bool each_row, const ScaledValues& scaled) {
  std::vector<double> amax(static_cast<size_t>(each_row ? stored.rows : 1), 0);
  for (int64_t i = 0; i < stored.rows; ++i)
    for (int64_t j = 0; j < stored.cols; ++j) {
      const std::optional<double> v = scaled.element(i, j);
      if (!v) return {};
      double& most = amax[each_row ? static_cast<size_t>(i) : 0];
      if (std::fabs(*v) > most) most = std::fabs(*v);
    }
  return amax;
}

void check_stored_amax(LawRecord& laws, const PlaneData& stored, const std::vector<double>& amax) {
  for (size_t i = 0; i < amax.size(); ++i)
    if (const int64_t row = static_cast<int64_t>(i); value(stored, row, 0) != amax[i])
      laws.breach(stored, row, 0, [&] {
        return fmt::format("the largest magnitude is {}, stored is {}", number_text(amax[i]),
                           value_text(Encoding::f32, code(stored, row, 0)));
      });
}

// The one of two scales that is the inverse of the other (N3.7, N17.14).
void check_inverse(LawRecord& laws, const Quantizer& q, const PlaneData& scale, const PlaneData& scale_inv,
                   int64_t r, int64_t c) {
  const double s = value(scale, r, c), i = value(scale_inv, r, c);
  const double want = Division(q, laws.problem.x.source).rounded(1 / s);
  if (std::isnan(want) ? !std::isnan(i) : i != want)
    laws.breach(scale_inv, r, c,
                [&] { return fmt::format("1 / {} gave {}", number_text(s), number_text(i)); });
}

// N3.3, N3.4, N3.6, N17.5, N17.14: the one of the two scales that is made of the amax.
void check_current_scale(LawRecord& laws, Direction d, const Quantizer& q, const PlaneData& scale,
                         const PlaneData& scale_inv, int64_t row) {
  const double amax =
      value(q.amax ? laws.in(plane_name(d, "given.amax")) : laws.out(plane_name(d, "amax")), row, 0);
  const double eps = value_of(Encoding::f32, q.eps), a = amax < eps ? eps : amax;
  const bool encodes = q.numerics.scale_order == ScaleOrder::encode_first;
  const Division division(q, laws.problem.x.source);
  const double most = value_of(q.element, info(q.element).max_finite);
  const double want = encodes ? division.encode(most, a) : division.decode(a, most);
  const PlaneData& made = encodes ? scale : scale_inv;
  const double got = value(made, row, 0);
  const auto good = [&] {
    if (a == 0 && q.numerics.zero_amax == ZeroAmax::divided)
      return encodes ? std::isinf(got) : got == 0;  // N17.15
    if (a == 0 && q.numerics.zero_amax == ZeroAmax::epsilon) {
      const double epsilon = source_epsilon(laws.problem.x.source);
      return got == (encodes ? 1 / epsilon : epsilon);
    }
    if (a == 0 || std::isnan(a) || (std::isinf(a) && q.numerics.inf_amax == InfAmax::unit)) return got == 1;
    if (!encodes && want == 0 && q.numerics.zero_amax == ZeroAmax::epsilon)  // N17.15: of a d, not of a scale
      return got == source_epsilon(laws.problem.x.source);
    if (!(a > 0) || std::isinf(a) || std::isinf(want) || (q.pow2 && want < 0x1p-126)) return true;
    if (!q.pow2) return got == want;
    return encodes ? got <= want && 2 * got > want : got >= want && got < 2 * want;
  };
  if (!good())
    laws.breach(made, row, 0, [&] {
      return fmt::format("the amax {} has the {} {}", number_text(amax), encodes ? "scale" : "decode scale",
                         number_text(got));
    });
}

// Where the tensor amax and S are ordinary numbers (N10.2 to N10.8).
void check_nvfp4_chain(LawRecord& laws) {
  const Quantizer& q = *laws.problem.row;
  const PlaneData &x = laws.in("x"), &encode = laws.out("encode_scale"), &scale = laws.out("scale_inv"),
                  &multiplier = laws.out("multiplier");
  for (int64_t r = 0; r < laws.problem.x.shape.rows; ++r) {
    const bool unit = q.numerics.nvfp4_scale == Nvfp4Scale::unit;  // N17.8: S = P = 1
    const double a = value(x, r, 0), b = value(x, r, 1), s = value(encode, r, 0), sf = value(scale, r, 0);
    const auto t = tensor_scales(a, q, laws.problem.x.source);
    if (!(a > 0) || !t || std::isnan(b) || std::signbit(b)) continue;
    if (s != t->encode)
      laws.breach(encode, r, 0, [&] {
        return fmt::format("the tensor amax {} has the encode scale {}", number_text(a), number_text(s));
      });
    if (!nvfp4_scale_fits(q, laws.problem.x.source, *t, code(scale, r, 0), b))
      laws.breach(scale, r, 0, [&] {
        return fmt::format("the block amax {} has the scale {}", number_text(b), number_text(sf));
      });
    const Multiplier rule = q.numerics.multiplier;
    const bool divides = divides_elements(rule);
    const bool zero = sf == 0 && q.numerics.zero_multiplier != ZeroMultiplier::limit;
    if (rule != Multiplier::reciprocal && rule != Multiplier::bf16_quotient && s > 0x1p100 && !unit)
      continue;  // P is subnormal, and may be 0
    if (rule == Multiplier::reciprocal && std::isinf(static_cast<float>(1 / s)))
      continue;  // given_product: the decode scale overflows (N10.7)
    if (std::isnan(sf) || (reads_decode(rule) && t->decode == 0)) continue;  // nothing is claimed (N10.8)
    const double by = reads_decode(rule) ? 1 / t->decode : t->encode;
    const std::optional<bool> vanishes = inverts_infinity(rule, sf / by);
    if (!vanishes) continue;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const double m = value(multiplier, r, 0);
    const double ideal = zero ? static_cast<double>(zero_scale_multiplier(q.numerics.zero_multiplier))
                         : rule == Multiplier::divide_twice ? sf
                         : divides                          ? sf / by
                         : sf == 0                          ? kInfinity
                         : *vanishes                        ? 0
                                                            : by / sf;  // N10.8, N17.10
    const bool coarse = rule == Multiplier::bf16_quotient;
    const double step = coarse ? 0x1p-133 : 0x1p-149;  // between subnormal numbers
    const double slack = coarse ? 0x1p-8 : s > 0x1p100 ? 0x1p-15 : 0x1p-21;
    const bool good = ideal == 0           ? m == 0
                      : ideal > 0x1.fep127 ? m >= 0x1.fcp127
                                           : std::fabs(m - ideal) <= slack * ideal + step;
    if (!good)
      laws.breach(multiplier, r, 0, [&] {
        return fmt::format("encode scale {} and scale {} have the multiplier {}", number_text(s),
                           number_text(sf), number_text(m));
      });
  }
}

}  // namespace

void check_block_scales(LawRecord& laws, Direction d, const Quantizer& q, const ScaledValues& scaled) {
  const PlaneData &scales = scale_plane(d, q, laws.outputs), &data = laws.out(plane_name(d, "data"));
  const char* name = q.scale_from == ScaleFrom::amax ? "given.block_amax" : "given.scale_inv";
  const PlaneData* given = q.scale_from == ScaleFrom::x ? nullptr : &laws.in(plane_name(d, name));
  BlockScales blocks{laws, q, scaled, scales, data, given};
  const Shape stored = data.plane.logical;
  const int64_t n = length_of(q.block);
  const bool down = scales.plane.tiles_by_columns();  // stored as they are: blocks run down
  const int64_t high = is_square(q.block) || down ? n : 1, wide = is_square(q.block) || !down ? n : 1;
  for (int64_t i = 0; i < stored.rows; i += high)
    for (int64_t j = 0; j < stored.cols; j += wide)
      blocks.check({i, std::min(i + high, stored.rows), j, std::min(j + wide, stored.cols)});
}

void check_tensor_amax(LawRecord& laws, Direction d, const Quantizer& q, const ScaledValues& scaled) {
  const PlaneData* stored = find_plane(laws.outputs, plane_name(d, "amax"));
  if (!stored) return;
  const auto amax = largest(laws.out(plane_name(d, "data")).plane.logical, q.row_scaled, scaled);
  if (!amax) return;
  laws.begin("range");
  check_stored_amax(laws, *stored, *amax);
}

// N17.5: a decode scale that is given is stored as it is.
static void check_given_decode(LawRecord& laws, const PlaneData& given, const PlaneData& stored,
                               int64_t row) {
  const double want = value(given, row, 0), got = value(stored, row, 0);
  if (std::isnan(want) ? std::isnan(got) : got == want) return;
  laws.breach(stored, row, 0, [&] {
    return fmt::format("the decode scale {} is given, stored is {}", number_text(want), number_text(got));
  });
}

void check_tensor_scales(LawRecord& laws, Direction d, const Quantizer& q, const ScaledValues& scaled) {
  laws.begin("range");
  const PlaneData* stored = find_plane(laws.outputs, plane_name(d, "amax"));
  if (auto amax = stored ? largest(laws.out(plane_name(d, "data")).plane.logical, q.row_scaled, scaled)
                         : std::nullopt) {
    bool free = false;  // a NaN prior or given amax decides by clauses that need no law
    if (q.format == FormatId::fp8_delayed) {
      for (size_t row = 0; row < amax->size(); ++row) {
        const double prior = value(laws.in(plane_name(d, "prior.amax")), static_cast<int64_t>(row), 0);
        free |= std::isnan(prior) || std::signbit(prior);
        (*amax)[row] = std::max((*amax)[row], prior);
      }
    }
    if (!free) check_stored_amax(laws, *stored, *amax);
  }
  const PlaneData& scale = q.format == FormatId::fp8_delayed ? laws.in(plane_name(d, "given.scale"))
                                                             : laws.out(plane_name(d, "scale"));
  const PlaneData& scale_inv = laws.out(plane_name(d, "scale_inv"));
  for (int64_t row = 0; row < scale_inv.plane.logical.rows; ++row) {
    const bool decodes = q.numerics.scale_order != ScaleOrder::encode_first;
    if (q.format == FormatId::fp8_delayed && decodes) check_given_decode(laws, scale, scale_inv, row);
    else if (decodes) check_inverse(laws, q, scale_inv, scale, row, 0);  // N17.5
    else check_inverse(laws, q, scale, scale_inv, row, 0);
    if (q.format == FormatId::fp8_current) check_current_scale(laws, d, q, scale, scale_inv, row);
  }
}

void check_scale_chain(LawRecord& laws) {
  const Quantizer& q = *laws.problem.row;
  const Shape s = laws.problem.x.shape;
  laws.begin("range");
  if (q.format == FormatId::nvfp4) return check_nvfp4_chain(laws);
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t c = 0; c < s.cols; ++c) {
      if (info(q.format).scale == Encoding::f32) {
        if (q.numerics.scale_order == ScaleOrder::encode_first)
          check_inverse(laws, q, laws.out("scale"), laws.out("scale_inv"), r, c);
        else check_inverse(laws, q, laws.out("scale_inv"), laws.out("scale"), r, c);  // N17.5
        continue;
      }
      if (laws.problem.x.source == Encoding::f32) {  // N5.3, N17.6, N17.7; a NaN amax gives FF
        const double amax = std::fabs(value(laws.in("x"), r, c));
        const uint32_t k = code(laws.out("scale_inv"), r, c);
        if (std::isnan(amax)
                ? k != 0xFF
                : !scale_fits(q, laws.problem.x.source, std::nullopt, k, Encoding::e8m0, amax, false))
          laws.breach(laws.out("scale_inv"), r, c, [&] {
            return fmt::format("the amax {} has the scale {}", number_text(amax),
                               value_text(Encoding::e8m0, k));
          });
      }
      // Codes 1 to 253 have an exact reciprocal, and so do 0 and 254 with a subnormal (N5.4, N5.9).
      const double m = value(laws.out("multiplier"), r, c), s_dec = value(laws.out("decoded"), r, c);
      const bool flushed = s_dec == 0x1p-127 && q.numerics.zero_amax == ZeroAmax::divided;  // N17.15
      if (flushed ? !std::isinf(m) : std::isnan(m) != std::isnan(s_dec) || (!std::isnan(m) && m * s_dec != 1))
        laws.breach(laws.out("decoded"), r, c, [&] {
          return fmt::format("multiplier {} and decoded scale {} are not reciprocal", number_text(m),
                             number_text(s_dec));
        });
    }
}

}  // namespace assay
