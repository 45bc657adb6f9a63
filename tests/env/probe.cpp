// The floating-point environment as generated code meets it (N1.1). This file is compiled once for every set
// of flags that tests/env wants to know about; PROBE is the function's name.
#include <cfenv>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/env/probe.h"

namespace assay::env {

namespace {

// A value that the compiler must not know.
template <class T> T opaque(T value) {
  volatile T hidden = value;
  return hidden;
}

struct Findings {
  std::vector<std::string> faults;
  void expect(bool good, const char* what) {
    if (!good) faults.emplace_back(what);
  }
};

// a = 1 + e with e * e half an ulp: fl(a * a) is 1 + 2e, and a * a - (1 + 2e) is 0 in two roundings and e * e
// in one.
template <class T> void contraction(Findings& f, T e, const char* what) {
  const T a = opaque(1 + e), b = opaque(1 + e), c = opaque(-(1 + 2 * e));
  f.expect(opaque(static_cast<T>(a * b + c)) == 0, what);
  f.expect(opaque(static_cast<T>(opaque(-c) - opaque(a) * opaque(b))) == 0, what);
}

template <class T> void subnormals(Findings& f, const char* flushed, const char* taken_as_zero) {
  const T least = opaque(std::numeric_limits<T>::min()), tiny = opaque(std::numeric_limits<T>::denorm_min());
  f.expect(static_cast<T>(opaque(static_cast<T>(least / 2)) * 2) == least &&
               opaque(static_cast<T>(least / 2)) != 0,
           flushed);
  f.expect(opaque(static_cast<T>(least - opaque(static_cast<T>(least / 2)))) != 0, flushed);
  f.expect(tiny > 0 && opaque(static_cast<T>(tiny + tiny)) != 0, taken_as_zero);
  f.expect(opaque(static_cast<T>(tiny * opaque(static_cast<T>(1 / std::numeric_limits<T>::epsilon())))) != 0,
           taken_as_zero);
}

// fl(a / b) of normal significands a, b in [2^(p-1), 2^p) by integers: the quotient, rounded to nearest even.
template <class Wide> Wide integer_quotient(Wide a, Wide b, int p) {
  const int shift = a < b ? p : p - 1;
  const Wide n = a << shift;
  Wide q = n / b;
  const Wide twice = 2 * (n % b);
  if (twice > b || (twice == b && q % 2 == 1)) ++q;
  return q;
}

template <class T, class Wide> void division(Findings& f, const char* what) {
  constexpr int p = std::numeric_limits<T>::digits;
  constexpr uint64_t kTop = uint64_t{1} << (p - 1);
  uint64_t state = 88172645463325252u;
  const auto significand = [&] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return kTop + state % kTop;
  };
  bool good = true;
  for (int i = 0; i < 20000; ++i) {
    const uint64_t a = i % 3 == 0 ? kTop : significand(), b = significand();  // a third of them reciprocals
    const T quotient = opaque(static_cast<T>(a)) / opaque(static_cast<T>(b));
    const Wide expected = integer_quotient<Wide>(a, b, p);
    good = good && std::ldexp(quotient, a < b ? p : p - 1) == static_cast<T>(expected);
  }
  f.expect(good, what);
}

}  // namespace

std::vector<std::string> PROBE() {
  Findings f;
  static_assert(std::numeric_limits<double>::is_iec559 && std::numeric_limits<double>::digits == 53 &&
                sizeof(double) == 8);
  static_assert(std::numeric_limits<float>::is_iec559 && std::numeric_limits<float>::digits == 24 &&
                sizeof(float) == 4);
#ifdef __FAST_MATH__
  f.faults.emplace_back("compiled with -ffast-math");
#endif
  f.expect(FLT_EVAL_METHOD == 0, "float expressions are evaluated in a wider type");

  contraction<float>(f, 0x1p-12f, "contraction: a float product and sum are rounded once");
  contraction<double>(f, 0x1p-27, "contraction: a double product and sum are rounded once");

  subnormals<float>(f, "flush to zero: a subnormal float result is lost",
                    "denormals are zero: a subnormal float operand is taken as zero");
  subnormals<double>(f, "flush to zero: a subnormal double result is lost",
                     "denormals are zero: a subnormal double operand is taken as zero");
  f.expect(opaque(static_cast<float>(opaque(0x1p-149))) != 0,
           "flush to zero: narrowing to a subnormal float loses it");
  f.expect(opaque(static_cast<double>(opaque(0x1p-149f))) == 0x1p-149,
           "denormals are zero: widening a subnormal float loses it");

  f.expect(std::fegetround() == FE_TONEAREST, "rounding mode is not to nearest");
  for (const float sign : {1.0f, -1.0f}) {
    const float one = opaque(sign), half_ulp = opaque(sign * 0x1p-24f), more = opaque(sign * 0x1.8p-23f);
    f.expect(opaque(one + half_ulp) == sign, "rounding: a tie of float sums does not go to even");
    f.expect(opaque(one + more) == sign * (1 + 0x1p-22f),
             "rounding: a float sum is not rounded to the nearest");
    f.expect(opaque(static_cast<float>(opaque(sign * (1 + 0x1p-24)))) == sign,
             "rounding: a tie of narrowing does not go to even");
    f.expect(opaque(static_cast<float>(opaque(sign * (1 + 0x1p-24 + 0x1p-50)))) == sign * (1 + 0x1p-23f),
             "rounding: narrowing is not to the nearest");
    f.expect(opaque(opaque(static_cast<double>(sign)) + opaque(sign * 0x1p-53)) == sign,
             "rounding: a tie of double sums does not go to even");
  }

  // What a compiler may simplify away where it thinks of real numbers.
  const double q = opaque(2.5);
  f.expect((q + 0x1p52) - 0x1p52 == 2, "a double sum and difference are simplified");
  f.expect(opaque(1e30f) + opaque(1.0f) - opaque(1e30f) == 0, "float sums are reassociated");
  const float nan = opaque(std::numeric_limits<float>::quiet_NaN()),
              infinity = opaque(std::numeric_limits<float>::infinity());
  f.expect(nan != nan && !(nan > 0) && !(nan <= 0), "comparisons ignore NaN");
  const float difference = opaque(infinity) - opaque(infinity);
  f.expect(difference != difference, "infinity - infinity is no NaN");
  f.expect(std::signbit(opaque(opaque(-0.0f) * opaque(1.0f))) &&
               std::signbit(opaque(opaque(-0.0f) + opaque(-0.0f))),
           "the sign of zero is lost");

  division<float, uint64_t>(f, "float division is not correctly rounded");
  division<double, unsigned __int128>(f, "double division is not correctly rounded");
  const float scale = opaque(std::numeric_limits<float>::max());
  f.expect(opaque(1.0f / scale) == 0x1p-128f, "the reciprocal of FLT_MAX is not the subnormal 2^-128");
  return f.faults;
}

}  // namespace assay::env
