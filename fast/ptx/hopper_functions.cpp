#include "fast/ptx/hopper_functions.h"

#include <array>
#include <bit>
#include <cmath>

namespace assay::ptx {

namespace {

constexpr uint32_t kSign = 0x80000000u, kInf = 0x7F800000u, kNan = 0x7FFFFFFFu, kFraction = 0x007FFFFFu;
constexpr unsigned kFractionBits = 23;
constexpr int kBias = 127;

// ---- a polynomial for each segment -----------------------------------------------------------------------

enum class Table : uint8_t { rcp, ex2, rsqrt_even, rsqrt_odd, sqrt_even, sqrt_odd };

struct Segment {
  Table table;
  int32_t c0, c1, twice_c2;
};
constexpr Segment kSegments[] = {
// an array of the language: clang 14 deduces no std::array of over 256 elements
#define SEGMENT(table, c0, c1, twice_c2) Segment{Table::table, c0, c1, twice_c2},
#include "fast/ptx/hopper_functions.def"
#undef SEGMENT
};

// The leading bits of the fraction choose the segment; what is added to a sum before it is cut off, in units
// of 2^-17 of a last place. Any of two to four constants gives the recorded bits: this is one of them.
struct Rule {
  unsigned segment_bits;
  int64_t rounding;
};
constexpr Rule rule_of(Table t) {
  return t == Table::rcp ? Rule{7, 8092} : t == Table::ex2 ? Rule{6, 24456} : Rule{6, 32767};
}
constexpr size_t first_of(Table t) {
  size_t n = 0;
  while (kSegments[n].table != t) ++n;
  return n;
}
constexpr bool every_table_is_whole() {
  for (Table t :
       {Table::rcp, Table::ex2, Table::rsqrt_even, Table::rsqrt_odd, Table::sqrt_even, Table::sqrt_odd}) {
    size_t rows = 0;
    for (const Segment& s : kSegments) rows += s.table == t;
    if (rows != size_t{1} << rule_of(t).segment_bits) return false;
    for (size_t n = 0; n < rows; ++n)
      if (kSegments[first_of(t) + n].table != t) return false;
  }
  return true;
}
static_assert(every_table_is_whole());
// The first row of each table: every element asks for one.
constexpr std::array kFirst = {first_of(Table::rcp),        first_of(Table::ex2),
                               first_of(Table::rsqrt_even), first_of(Table::rsqrt_odd),
                               first_of(Table::sqrt_even),  first_of(Table::sqrt_odd)};

// The square of x / 2^17 in units of 2^-15, without the products of two bits of x that weigh less: bit i (of
// weight 2^-i) by itself weighs 2^-2i, and with a later bit j 2^(1-i-j).
int64_t square_cut_off(uint32_t x) {
  int64_t sum = 0;
  for (unsigned i = 1; 2 * i <= 15; ++i)
    if (x >> (17 - i) & 1) sum += (1u << (15 - 2 * i)) + (x >> (i + 1) & ((1u << (16 - 2 * i)) - 1));
  return sum;
}

// The offset from the start of the result's binade, in last places, for a fraction of 23 bits.
uint32_t interpolated(Table t, uint32_t fraction) {
  const Rule rule = rule_of(t);
  const unsigned rest_bits = kFractionBits - rule.segment_bits;
  const Segment& s = kSegments[kFirst[static_cast<size_t>(t)] + (fraction >> rest_bits)];
  const uint32_t x = (fraction & ((1u << rest_bits) - 1)) << (17 - rest_bits);
  const int64_t sum = (int64_t{s.c0} << 15) + int64_t{s.c1} * x + 2 * int64_t{s.twice_c2} * square_cut_off(x);
  return static_cast<uint32_t>((sum + rule.rounding) >> 17);
}

// ---- the functions of a normal number --------------------------------------------------------------------

// A number from its exponent and its offset from the start of its binade; beyond the normal ones 0 or an
// infinity.
uint32_t number(int exponent, uint32_t behind) {
  if (exponent < 1 - kBias) return 0;
  if (exponent > kBias) return kInf;
  return (static_cast<uint32_t>(exponent + kBias) << kFractionBits) + behind;
}

uint32_t rcp(int exponent, uint32_t fraction) {
  return fraction == 0 ? number(-exponent, 0) : number(-exponent - 1, interpolated(Table::rcp, fraction));
}

uint32_t rsqrt(int exponent, uint32_t fraction) {
  if (exponent % 2 != 0) return number(-(exponent - 1) / 2 - 1, interpolated(Table::rsqrt_odd, fraction));
  return fraction == 0 ? number(-exponent / 2, 0)
                       : number(-exponent / 2 - 1, interpolated(Table::rsqrt_even, fraction));
}

uint32_t sqrt(int exponent, uint32_t fraction) {
  return exponent % 2 != 0 ? number((exponent - 1) / 2, interpolated(Table::sqrt_odd, fraction))
                           : number(exponent / 2, interpolated(Table::sqrt_even, fraction));
}

// The operand in fixed point, 23 bits of fraction, cut off. A negative one that is not whole is taken by the
// complement of its bits.
uint32_t ex2(bool negative, int exponent, uint32_t fraction) {
  if (exponent > 7) return negative ? 0 : kInf;
  const uint64_t significand = uint64_t{1} << kFractionBits | fraction;
  const uint64_t fixed = exponent >= 0    ? significand << exponent
                         : exponent < -24 ? 0
                                          : significand >> -exponent;
  const int whole = static_cast<int>(fixed >> kFractionBits);
  const uint32_t part = static_cast<uint32_t>(fixed) & kFraction;
  if (part == 0) return number(negative ? -whole : whole, 0);
  return negative ? number(-whole - 1, interpolated(Table::ex2, kFraction - part))
                  : number(whole, interpolated(Table::ex2, part));
}

// ---- the unit (MUFU) and the products around it ----------------------------------------------------------

enum class Unit : uint8_t { rcp, ex2, rsqrt, sqrt };

// Subnormal operands and results are zeros.
uint32_t unit(Unit f, uint32_t operand) {
  const uint32_t sign = operand & kSign, magnitude = operand & ~kSign;
  if (magnitude > kInf) return kNan;
  const bool zero = magnitude <= kFraction;
  const int exponent = static_cast<int>(magnitude >> kFractionBits) - kBias;
  const uint32_t fraction = magnitude & kFraction;
  switch (f) {
    case Unit::rcp:
      if (zero) return sign | kInf;
      return sign | (magnitude == kInf ? 0 : rcp(exponent, fraction));
    case Unit::ex2:
      if (zero) return static_cast<uint32_t>(kBias) << kFractionBits;
      return magnitude == kInf ? (sign ? 0 : kInf) : ex2(sign != 0, exponent, fraction);
    case Unit::rsqrt:
      if (zero) return sign | kInf;
      if (sign) return kNan;
      return magnitude == kInf ? 0 : rsqrt(exponent, fraction);
    case Unit::sqrt:
      if (zero) return sign;
      if (sign) return kNan;
      return magnitude == kInf ? kInf : sqrt(exponent, fraction);
  }
  return kNan;
}

bool is_small(uint32_t v) { return (v & ~kSign) <= kFraction; }                           // below 2^-126
bool is_large(uint32_t v) { return (v & ~kSign) > 0x7E800000u && (v & ~kSign) <= kInf; }  // above 2^126

uint32_t product(uint32_t a, uint32_t b) {
  const float v = std::bit_cast<float>(a) * std::bit_cast<float>(b);
  return v == v ? std::bit_cast<uint32_t>(v) : kNan;
}
uint32_t scaled(uint32_t a, float power_of_two) { return product(a, std::bit_cast<uint32_t>(power_of_two)); }

// Of subnormal operands, and of a product below 2^-126 before it is rounded, a zero.
uint32_t flushed_product(uint32_t a, uint32_t b) {
  if (is_small(a)) a &= kSign;
  if (is_small(b)) b &= kSign;
  const double exact = static_cast<double>(std::bit_cast<float>(a)) * std::bit_cast<float>(b);
  return exact != 0 && std::fabs(exact) < 0x1p-126 ? (a ^ b) & kSign : product(a, b);
}

// ---- what ptxas makes of the instructions without .ftz ---------------------------------------------------

uint32_t reciprocal(uint32_t x) {
  const float scale = is_small(x) ? 0x1p24f : is_large(x) ? 0x1p-2f : 1.0f;
  return scaled(unit(Unit::rcp, scaled(x, scale)), scale);
}
uint32_t power(uint32_t x) {
  if (!(std::bit_cast<float>(x) < -126.0f)) return unit(Unit::ex2, x);
  const uint32_t root = unit(Unit::ex2, scaled(x, 0.5f));
  return product(root, root);
}
uint32_t root(Unit f, uint32_t x, float back) {
  return is_small(x) ? scaled(unit(f, scaled(x, 0x1p24f)), back) : unit(f, x);
}
// div.full takes large divisors down as well.
uint32_t quotient(bool full, bool ftz, uint32_t a, uint32_t b) {
  const auto times = ftz ? flushed_product : product;
  const auto both = [&](float scale) {
    const auto power_of_two = std::bit_cast<uint32_t>(scale);
    a = times(a, power_of_two), b = times(b, power_of_two);
  };
  if (full && is_large(b)) both(0x1p-2f);
  else if (!ftz && is_small(b)) both(0x1p24f);
  return times(unit(Unit::rcp, b), a);
}

}  // namespace

uint32_t hopper(HopperFunction f, bool ftz, uint32_t a, uint32_t b) {
  switch (f) {
    case HopperFunction::rcp: return ftz ? unit(Unit::rcp, a) : reciprocal(a);
    case HopperFunction::ex2: return ftz ? unit(Unit::ex2, a) : power(a);
    case HopperFunction::rsqrt: return ftz ? unit(Unit::rsqrt, a) : root(Unit::rsqrt, a, 0x1p12f);
    case HopperFunction::sqrt: return ftz ? unit(Unit::sqrt, a) : root(Unit::sqrt, a, 0x1p-12f);
    case HopperFunction::div_approx: return quotient(false, ftz, a, b);
    case HopperFunction::div_full: return quotient(true, ftz, a, b);
  }
  return kNan;
}

}  // namespace assay::ptx
