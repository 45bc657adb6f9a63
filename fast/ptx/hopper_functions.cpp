#include "fast/ptx/hopper_functions.h"

#include <array>

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
constexpr std::array kSegments = {
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

// What stands behind the begin of the result's binade, in last places, for a fraction of 23 bits.
uint32_t interpolated(Table t, uint32_t fraction) {
  const Rule rule = rule_of(t);
  const unsigned rest_bits = kFractionBits - rule.segment_bits;
  const Segment& s = kSegments[kFirst[static_cast<size_t>(t)] + (fraction >> rest_bits)];
  const uint32_t x = (fraction & ((1u << rest_bits) - 1)) << (17 - rest_bits);
  const int64_t sum = (int64_t{s.c0} << 15) + int64_t{s.c1} * x + 2 * int64_t{s.twice_c2} * square_cut_off(x);
  return static_cast<uint32_t>((sum + rule.rounding) >> 17);
}

// ---- the functions of a normal number --------------------------------------------------------------------

// A number from its exponent and what stands behind the begin of its binade; beyond the normal ones 0 or an
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

}  // namespace

uint32_t hopper(HopperFunction f, uint32_t operand) {
  const uint32_t sign = operand & kSign, magnitude = operand & ~kSign;
  if (magnitude > kInf) return kNan;
  const bool zero = magnitude <= kFraction;  // a subnormal number is flushed
  const int exponent = static_cast<int>(magnitude >> kFractionBits) - kBias;
  const uint32_t fraction = magnitude & kFraction;
  switch (f) {
    case HopperFunction::rcp:
      if (zero) return sign | kInf;
      return sign | (magnitude == kInf ? 0 : rcp(exponent, fraction));
    case HopperFunction::ex2:
      if (zero) return static_cast<uint32_t>(kBias) << kFractionBits;
      return magnitude == kInf ? (sign ? 0 : kInf) : ex2(sign != 0, exponent, fraction);
    case HopperFunction::rsqrt:
      if (zero) return sign | kInf;
      if (sign) return kNan;
      return magnitude == kInf ? 0 : rsqrt(exponent, fraction);
    case HopperFunction::sqrt:
      if (zero) return sign;
      if (sign) return kNan;
      return magnitude == kInf ? kInf : sqrt(exponent, fraction);
  }
  return kNan;
}

std::optional<uint32_t> hopper_without_ftz(HopperFunction f, uint32_t operand) {
  const auto normal = [](uint32_t v) { return (v & ~kSign) > kFraction && (v & ~kSign) < kInf; };
  if (!normal(operand)) return {};
  const uint32_t result = hopper(f, operand);
  return normal(result) ? std::optional(result) : std::nullopt;
}

}  // namespace assay::ptx
