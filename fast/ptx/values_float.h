// What floating-point instructions make of their operands: one function object for each rule
// (9.7.3, 9.7.4, 9.7.6). Values of binary32 are floats with their bits; 16-bit formats are codes.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "fast/ptx/rounding.h"

namespace assay::ptx {

inline float canonical(float v) { return v != v ? nan32() : v; }
inline double canonical(double v) { return v != v ? as_double(kNan64) : v; }
// .ftz: a subnormal number becomes zero of its sign.
inline float flush(float v) {
  return (bits_of(v) & 0x7F800000u) == 0 ? as_float(bits_of(v) & 0x80000000u) : v;
}
// .sat: into [0, 1]; a NaN becomes +0.
inline float saturate(float v) { return v > 0.0f ? (v < 1.0f ? v : 1.0f) : 0.0f; }

// The result, or, if it is a NaN, the NaN that hardware gives. In binary32 that is the canonical NaN. In
// binary64 it is the last operand that is a NaN, made quiet, or FFF8000000000000 if no operand is, as an H100
// has it for sums, products and fused ones.
template <class... Operands> float or_nan(float v, Operands...) { return canonical(v); }
template <class... Operands> double or_nan(double v, Operands... operands) {
  constexpr uint64_t kQuiet = 0x0008000000000000ull, kOfNoOperand = 0xFFF8000000000000ull;
  if (v == v) return v;
  uint64_t bits = 0;
  for (const double o : {operands...})
    if (o != o) bits = bits_of(o) | kQuiet;
  return as_double(bits ? bits : kOfNoOperand);
}

// 9.7.3.3 to 9.7.3.7 with .rn and no other modifier: the host's own operation, rounded once.
struct AddF {
  template <class T> T operator()(T a, T b) const { return or_nan(a + b, a, b); }
};
struct SubF {
  template <class T> T operator()(T a, T b) const { return or_nan(a - b, a, b); }
};
struct MulF {
  template <class T> T operator()(T a, T b) const { return or_nan(a * b, a, b); }
};
struct FmaF {
  template <class T> T operator()(T a, T b, T c) const { return or_nan(std::fma(a, b, c), a, b, c); }
};
struct DivF {  // no GPU was asked which of two NaN a quotient keeps: the first is assumed
  template <class T> T operator()(T a, T b) const { return or_nan(a / b, b, a); }
};
// div.approx.f32 (9.7.3.8): beyond 2^126 the reciprocal of a divisor is zero, so that an infinity divided by
// it is NaN and all else is zero.
struct DivApproxF {
  float operator()(float a, float b) const {
    const bool vanishes = std::isfinite(b) && std::fabs(b) > 0x1p126f;
    return vanishes ? or_nan(a * std::copysign(0.0f, b), a, b) : DivF{}(a, b);
  }
};
struct RcpF {
  template <class T> T operator()(T a) const { return or_nan(T(1) / a, a); }
};
struct SqrtF {
  template <class T> T operator()(T a) const { return or_nan(std::sqrt(a), a); }
};

// The exact results in binary64, rounded to odd where they do not fit: what the directed roundings and the
// 16-bit formats are rounded from.
inline double exact_add(double a, double b) { return sum_to_odd(a, b); }
inline double exact_mul(double a, double b) { return a * b; }  // of two floats: fits
inline double exact_fma(double a, double b, double c) { return sum_to_odd(a * b, c); }
inline double exact_div(double a, double b) {
  const double q = a / b;
  if (!std::isfinite(q) || q == 0 || std::isinf(b)) return q;
  const double rest = std::fma(-q, b, a);  // exact; its sign times that of b says where the quotient lies
  return to_odd(q, std::signbit(b) ? -rest : rest);
}
inline double exact_sqrt(double a) {
  const double r = std::sqrt(a);
  return !std::isfinite(r) || r == 0 ? r : to_odd(r, std::fma(-r, r, a));
}

// Any rounding, .ftz and .sat. The exact result decides whether .ftz makes it zero: a product that would
// round up to the least normal number becomes zero. An H100 does so for mul; the others are taken to follow
// it.
struct FloatMode {
  Rounding rounding = Rounding::rn;
  bool ftz = false, sat = false;
  float in(float v) const { return ftz ? flush(v) : v; }
  float out(float v) const { return sat ? saturate(v) : canonical(v); }
  // Zero as a sum of numbers of both signs is +0, and -0 under .rm (IEEE 754, 6.3).
  float add(float a, float b) const {
    a = in(a), b = in(b);
    return out(with_zero(exact_add(a, b), a, b));
  }
  float sub(float a, float b) const { return add(a, b != b ? b : -b); }
  float mul(float a, float b) const { return out(rounded(exact_mul(in(a), in(b)))); }
  float fma(float a, float b, float c) const {
    const double product = exact_mul(in(a), in(b));
    c = in(c);
    return out(with_zero(sum_to_odd(product, c), product, c));
  }
  float div(float a, float b) const { return out(rounded(exact_div(in(a), in(b)))); }
  float rcp(float a) const { return div(1.0f, a); }
  float sqrt(float a) const { return out(rounded(exact_sqrt(in(a)))); }

 private:
  float rounded(double exact) const {
    constexpr double kLeastNormal = 0x1p-126;
    if (ftz && std::fabs(exact) < kLeastNormal) return std::copysign(0.0f, static_cast<float>(exact));
    return round_f32(exact, rounding);
  }
  float with_zero(double sum, double a, double b) const {
    if (sum == 0 && rounding == Rounding::rm && (std::signbit(a) || std::signbit(b))) return -0.0f;
    return rounded(sum);
  }
};

// 9.7.3.9, 9.7.3.10: the payload of a NaN is unspecified.
struct AbsF {
  float operator()(float a) const { return a != a ? nan32() : as_float(bits_of(a) & 0x7FFFFFFFu); }
  double operator()(double a) const { return as_double(bits_of(a) & 0x7FFFFFFFFFFFFFFFull); }
};
struct NegF {
  float operator()(float a) const { return a != a ? nan32() : as_float(bits_of(a) ^ 0x80000000u); }
  double operator()(double a) const { return as_double(bits_of(a) ^ 0x8000000000000000ull); }
};
// 9.7.3.2: b with the sign of a.
struct Copysign {
  float operator()(float a, float b) const {
    return as_float((bits_of(b) & 0x7FFFFFFFu) | (bits_of(a) & 0x80000000u));
  }
  double operator()(double a, double b) const {
    return as_double((bits_of(b) & 0x7FFFFFFFFFFFFFFFull) | (bits_of(a) & 0x8000000000000000ull));
  }
};

// 9.7.3.11, 9.7.3.12: a NaN loses, or wins with .NaN; -0 lies below +0. Of equal numbers only zeros differ in
// bits, in the sign alone. Written without branches, so that compilers make vector code of it.
template <bool kNanWins> struct MinF {
  template <class T> T operator()(T a, T b) const {
    T v = a < b ? a : b;
    v = a == b ? std::bit_cast<T>(bits_of(a) | bits_of(b)) : v;
    return nan_or(a, b, v);
  }
  template <class T> static T nan_or(T a, T b, T v) {
    v = b != b ? a : v;  // and of a NaN alone in a the comparison gave b
    return canonical(kNanWins && ((a != a) | (b != b)) ? a + b : v);
  }
};
template <bool kNanWins> struct MaxF {
  template <class T> T operator()(T a, T b) const {
    T v = a > b ? a : b;
    v = a == b ? std::bit_cast<T>(bits_of(a) & bits_of(b)) : v;
    return MinF<kNanWins>::nan_or(a, b, v);
  }
};
// Three operands (8.8): one after the other.
template <class Rule> struct Nested {
  float operator()(float a, float b, float c) const { return Rule{}(Rule{}(a, b), c); }
};
// .abs of three operands: of their magnitudes.
template <class Rule> struct Magnitudes {
  template <class... T> float operator()(T... v) const {
    return Rule{}(as_float(bits_of(v) & 0x7FFFFFFFu)...);
  }
};
// .xorsign.abs: of the magnitudes, with the product of the signs.
template <class Rule> struct XorSign {
  float operator()(float a, float b) const {
    const float v = Rule{}(as_float(bits_of(a) & 0x7FFFFFFFu), as_float(bits_of(b) & 0x7FFFFFFFu));
    return v != v ? v : as_float(bits_of(v) | ((bits_of(a) ^ bits_of(b)) & 0x80000000u));
  }
};
// .ftz before and behind a rule. Where results are rounded, FloatMode says which are zero.
template <class Rule> struct Flushed {
  template <class... T> float operator()(T... v) const { return flush(Rule{}(flush(v)...)); }
};
template <> struct Flushed<MulF> {
  float operator()(float a, float b) const { return FloatMode{Rounding::rn, true}.mul(a, b); }
};
template <> struct Flushed<FmaF> {
  float operator()(float a, float b, float c) const { return FloatMode{Rounding::rn, true}.fma(a, b, c); }
};
template <> struct Flushed<DivF> {
  float operator()(float a, float b) const { return FloatMode{Rounding::rn, true}.div(a, b); }
};

// 9.7.3.8 and 9.7.3.13 to 9.7.3.22 with .approx or .full: the ISA gives bounds. These give the nearest value,
// and the special values of the ISA.
struct RsqrtF {
  float operator()(float a) const {
    return canonical(static_cast<float>(1.0 / std::sqrt(static_cast<double>(a))));
  }
};
struct Ex2F {
  float operator()(float a) const { return canonical(static_cast<float>(std::exp2(static_cast<double>(a)))); }
};
struct Lg2F {
  float operator()(float a) const {
    return canonical(static_cast<float>(a == 0 ? -INFINITY : std::log2(static_cast<double>(a))));
  }
};
struct SinF {
  float operator()(float a) const { return canonical(static_cast<float>(std::sin(static_cast<double>(a)))); }
};
struct CosF {
  float operator()(float a) const { return canonical(static_cast<float>(std::cos(static_cast<double>(a)))); }
};
struct TanhF {
  float operator()(float a) const { return canonical(static_cast<float>(std::tanh(static_cast<double>(a)))); }
};

// 9.7.4: one rounding of the exact result to the format. Operands and result are codes of 16 bits.
struct HalfMode {
  const SmallFormat& format;
  bool ftz = false, sat = false, relu = false;
  float in(uint32_t code) const {
    const float v = decode(code, format);
    return ftz && std::fabs(v) < least_normal() ? std::copysign(0.0f, v) : v;
  }
  uint32_t out(double v) const {
    if (sat) v = v > 0 ? (v < 1 ? v : 1.0) : 0.0;
    const uint32_t code = encode(v, format, {Rounding::rn, false, relu});
    const uint32_t body = code & 0x7FFFu;
    return ftz && body >> format.mantissa == 0 ? code & 0x8000u : code;
  }
  uint32_t add(uint32_t a, uint32_t b) const { return out(exact_add(in(a), in(b))); }
  uint32_t sub(uint32_t a, uint32_t b) const { return out(exact_add(in(a), -static_cast<double>(in(b)))); }
  uint32_t mul(uint32_t a, uint32_t b) const { return out(exact_mul(in(a), in(b))); }
  uint32_t fma(uint32_t a, uint32_t b, uint32_t c) const { return out(exact_fma(in(a), in(b), in(c))); }

 private:
  float least_normal() const { return std::ldexp(1.0f, format.least_exponent); }
};
template <class Rule> uint32_t half_select(uint32_t a, uint32_t b, const SmallFormat& f) {
  return encode(Rule{}(decode(a, f), decode(b, f)), f, {});
}

// 9.7.6.1, 9.7.6.2: comparisons of numbers are false for a NaN, those with u are true.
enum class Compare : uint8_t { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };
template <Compare kCompare> struct Compared {
  template <class T> bool operator()(T a, T b) const {
    if constexpr (kCompare == Compare::eq) return a == b;
    if constexpr (kCompare == Compare::ne) return a < b || a > b;
    if constexpr (kCompare == Compare::lt) return a < b;
    if constexpr (kCompare == Compare::le) return a <= b;
    if constexpr (kCompare == Compare::gt) return a > b;
    if constexpr (kCompare == Compare::ge) return a >= b;
    if constexpr (kCompare == Compare::equ) return !(a < b || a > b);
    if constexpr (kCompare == Compare::neu) return a != b;
    if constexpr (kCompare == Compare::ltu) return !(a >= b);
    if constexpr (kCompare == Compare::leu) return !(a > b);
    if constexpr (kCompare == Compare::gtu) return !(a <= b);
    if constexpr (kCompare == Compare::geu) return !(a < b);
    if constexpr (kCompare == Compare::num) return a == a && b == b;
    if constexpr (kCompare == Compare::nan) return a != a || b != b;
  }
};

// 9.7.3.1.
enum class Test : uint8_t { finite, infinite, number, notanumber, normal, subnormal };
template <class T> bool test_property(Test test, T v) {
  const int kind = std::fpclassify(v);
  switch (test) {
    case Test::finite: return std::isfinite(v);
    case Test::infinite: return kind == FP_INFINITE;
    case Test::number: return kind != FP_NAN;
    case Test::notanumber: return kind == FP_NAN;
    case Test::normal: return kind == FP_NORMAL || kind == FP_ZERO;  // as the ISA says
    case Test::subnormal: return kind == FP_SUBNORMAL;
  }
  return false;
}

}  // namespace assay::ptx
