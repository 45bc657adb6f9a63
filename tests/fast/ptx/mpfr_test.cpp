// Arithmetic against MPFR under every rounding that an instruction may name: edges_of_format with each other,
// halfway cases, subnormal numbers, NaN, and seeded operands, of which ASSAY_PTX_OPERANDS says how many for
// each operation (ci/ptx_long asks for 10^8).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/fast/ptx/every_pattern.h"
#include "tests/fast/ptx/harness.h"
#if ASSAY_HAVE_MPFR
#include <mpfr.h>
#endif

namespace assay::ptx {
namespace {

struct FloatFormat {
  const char* type;
  int bits, fraction, bias;
  uint64_t nan;  // what a result that is NaN must be; 0: any NaN
  int exponent_bits() const { return bits - 1 - fraction; }
  uint64_t infinity() const { return ((uint64_t{1} << exponent_bits()) - 1) << fraction; }
  uint64_t mask() const { return bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; }
  uint64_t sign() const { return uint64_t{1} << (bits - 1); }
  bool is_nan(uint64_t v) const { return (v & ~sign() & mask()) > infinity(); }
};
constexpr FloatFormat kBinary32{"f32", 32, 23, 127, 0x7FFFFFFF}, kBinary64{"f64", 64, 52, 1023, 0},
    kHalf{"f16", 16, 10, 15, 0x7FFF}, kBrain{"bf16", 16, 7, 127, 0x7FFF};

struct ExactOperation {
  const char* name;
  size_t sources;
  const FloatFormat* format;
  bool four;                          // roundings; else .rn alone
  const FloatFormat* from = nullptr;  // of the source of a conversion
  const FloatFormat& source() const { return from ? *from : *format; }
};
constexpr ExactOperation kExactOperations[] = {{"add", 2, &kBinary32, true},
                                               {"sub", 2, &kBinary32, true},
                                               {"mul", 2, &kBinary32, true},
                                               {"div", 2, &kBinary32, true},
                                               {"fma", 3, &kBinary32, true},
                                               {"rcp", 1, &kBinary32, true},
                                               {"sqrt", 1, &kBinary32, true},
                                               {"add", 2, &kBinary64, true},
                                               {"sub", 2, &kBinary64, true},
                                               {"mul", 2, &kBinary64, true},
                                               {"div", 2, &kBinary64, true},
                                               {"fma", 3, &kBinary64, true},
                                               {"rcp", 1, &kBinary64, true},
                                               {"sqrt", 1, &kBinary64, true},
                                               {"add", 2, &kHalf, false},
                                               {"sub", 2, &kHalf, false},
                                               {"mul", 2, &kHalf, false},
                                               {"fma", 3, &kHalf, false},
                                               {"add", 2, &kBrain, false},
                                               {"sub", 2, &kBrain, false},
                                               {"mul", 2, &kBrain, false},
                                               {"fma", 3, &kBrain, false},
                                               {"cvt", 1, &kHalf, true, &kBinary32},
                                               {"cvt", 1, &kBrain, true, &kBinary32},
                                               {"cvt", 1, &kHalf, true, &kBinary64},
                                               {"cvt", 1, &kBrain, true, &kBinary64}};

// Zeros, the ends of the subnormal and of the normal numbers, powers of two, ones beside them, halves of the
// last place, infinity and NaN, each with its neighbours.
std::vector<uint64_t> edges_of_format(const FloatFormat& f) {
  const uint64_t one = uint64_t{1} << f.fraction, ulp = 1, bias = static_cast<uint64_t>(f.bias);
  std::vector<uint64_t> out;
  for (const uint64_t v : {uint64_t{0}, one / 2, one, 2 * one, bias * one, (bias - 1) * one, (bias + 1) * one,
                           bias * one + one / 2, (bias - static_cast<uint64_t>(f.fraction) - 1) * one,
                           (bias + static_cast<uint64_t>(f.fraction)) * one,
                           (bias + static_cast<uint64_t>(f.fraction) + 1) * one, f.infinity() - one,
                           f.infinity(), f.infinity() + one / 2})
    for (const uint64_t near : {v - ulp, v, v + ulp})
      for (const uint64_t sign : {uint64_t{0}, f.sign()}) out.push_back((near & ~f.sign() & f.mask()) | sign);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// Operands [first, first + count) of a sequence: of every four one has any bits, one an exponent near its
// neighbour's, one few bits set, so that results lie on halves, and one a subnormal number.
std::vector<Column> drawn_operands(const ExactOperation& o, uint64_t seed, size_t count) {
  const FloatFormat& f = o.source();
  std::vector<Column> c(o.sources, Column{f.bits, std::vector<uint64_t>(count)});
  Draw draw{seed};
  const uint64_t fraction = (uint64_t{1} << f.fraction) - 1, exponents = f.infinity() >> f.fraction;
  for (size_t n = 0; n < count; ++n) {
    uint64_t last = 0;
    for (size_t k = 0; k < o.sources; ++k) {
      const uint64_t bits = draw();
      uint64_t v = bits & f.mask();
      if (k && n % 4 == 1)
        v = (v & ~f.infinity()) | ((((last & f.infinity()) >> f.fraction) + (bits >> 60) % 5 - 2) & exponents)
                                      << f.fraction;
      if (n % 4 == 2) v &= ~(fraction >> (bits >> 58) % 6);
      if (n % 4 == 3 && (bits >> 57 & 1)) v &= ~f.infinity();
      // About the range of the result, and about halves of its last place.
      if (o.from && n % 4 < 3) {
        const FloatFormat& to = *o.format;
        const auto lowest = static_cast<uint64_t>(std::max(f.bias - to.bias - to.fraction - 3, 0)),
                   range = static_cast<uint64_t>(2 * to.bias + to.fraction + 8);
        v = (v & ~f.infinity()) | std::min(lowest + (bits >> 40) % range, exponents) << f.fraction;
        if (n % 4) v &= ~(fraction >> (to.fraction + static_cast<int>((bits >> 58) % 3)));
      }
      c[k].values[n] = last = v;
    }
  }
  return c;
}

#if ASSAY_HAVE_MPFR
constexpr struct {
  const char* name;
  mpfr_rnd_t mode;
} kMpfrModes[] = {{"rn", MPFR_RNDN}, {"rz", MPFR_RNDZ}, {"rm", MPFR_RNDD}, {"rp", MPFR_RNDU}};

// One operation, rounded once to a format.
class Exact {
 public:
  explicit Exact(const ExactOperation& o) : o_(o), f_(*o.format) {
    for (auto& x : x_) mpfr_init2(x, 53);
    mpfr_init2(result_, f_.fraction + 1);
    narrow_range();
  }
  ~Exact() {
    for (auto& x : x_) mpfr_clear(x);
    mpfr_clear(result_);
    whole_range();
  }
  Exact(const Exact&) = delete;
  Exact& operator=(const Exact&) = delete;

  uint64_t operator()(const std::vector<Column>& c, size_t n, mpfr_rnd_t mode) {
    if (o_.from) whole_range();
    for (size_t k = 0; k < o_.sources; ++k) mpfr_set_d(x_[k], value(c[k].values[n], o_.source()), MPFR_RNDN);
    const std::string_view name = o_.name;
    int above = 0;
    if (o_.from) {
      above = mpfr_set(result_, x_[0], mode);
      narrow_range();
      above = mpfr_check_range(result_, above, mode);
    } else if (name == "add") above = mpfr_add(result_, x_[0], x_[1], mode);
    else if (name == "sub") above = mpfr_sub(result_, x_[0], x_[1], mode);
    else if (name == "mul") above = mpfr_mul(result_, x_[0], x_[1], mode);
    else if (name == "div") above = mpfr_div(result_, x_[0], x_[1], mode);
    else if (name == "fma") above = mpfr_fma(result_, x_[0], x_[1], x_[2], mode);
    else if (name == "rcp") above = mpfr_ui_div(result_, 1, x_[0], mode);
    else above = mpfr_sqrt(result_, x_[0], mode);
    mpfr_subnormalize(result_, above, mode);
    return code(mpfr_get_d(result_, MPFR_RNDN));
  }

 private:
  // MPFR counts exponents from a significand below 1.
  void narrow_range() const {
    mpfr_set_emin(2 - f_.bias - f_.fraction);
    mpfr_set_emax(f_.bias + 1);
  }
  static void whole_range() {
    mpfr_set_emin(mpfr_get_emin_min());
    mpfr_set_emax(mpfr_get_emax_max());
  }
  static double value(uint64_t v, const FloatFormat& f) {
    if (f.bits == 64) return std::bit_cast<double>(v);
    // The fields of a double: every value of the smaller formats is a normal one there.
    const uint64_t sign = v >> (f.bits - 1), exponent = (v & f.infinity()) >> f.fraction,
                   fraction = v & ((uint64_t{1} << f.fraction) - 1);
    double size =
        std::ldexp(static_cast<double>(exponent ? fraction + (uint64_t{1} << f.fraction) : fraction),
                   static_cast<int>(exponent ? exponent : 1) - f.bias - f.fraction);
    if ((v & f.infinity()) == f.infinity()) size = fraction ? std::nan("") : HUGE_VAL;
    return sign ? -size : size;
  }
  // Of a value that the format has.
  uint64_t code(double v) const {
    if (v != v) return f_.nan ? f_.nan : 0x7FF8000000000000ull;
    const uint64_t bits = std::bit_cast<uint64_t>(v), sign = bits >> 63 ? f_.sign() : 0;
    if (f_.bits == 64) return bits;
    const double size = std::fabs(v);
    if (size == 0) return sign;
    if (size == HUGE_VAL) return sign | f_.infinity();
    const int exponent = std::max(std::ilogb(size), 1 - f_.bias);
    const auto significand = static_cast<uint64_t>(std::ldexp(size, f_.fraction - exponent));
    const uint64_t hidden = uint64_t{1} << f_.fraction;
    return sign | (significand < hidden
                       ? significand
                       : static_cast<uint64_t>(exponent + f_.bias) << f_.fraction | (significand - hidden));
  }
  const ExactOperation& o_;
  const FloatFormat& f_;
  mpfr_t x_[3], result_;
};

void expect_exact(const ExactOperation& o, Exact& exact, const std::vector<Column>& c, size_t mode) {
  const std::string text = std::string(o.name) + "." + kMpfrModes[mode].name + "." + o.format->type +
                           (o.from ? "." + std::string(o.from->type) : "") + " $d, $a" +
                           (o.sources > 1 ? ", $b" : "") + (o.sources > 2 ? ", $c;" : ";");
  const auto got = evaluate(text, o.format->bits, c);
  for (size_t n = 0; n < got.size(); ++n) {
    const uint64_t want = exact(c, n, kMpfrModes[mode].mode);
    const bool equal =
        got[n] == want || (!o.format->nan && o.format->is_nan(got[n]) && o.format->is_nan(want));
    if (!equal) {
      std::string of;
      for (const Column& column : c) of += " " + std::to_string(column.values[n]);
      FAIL() << text << " of" << of << " gives " << got[n] << ", not " << want;
    }
  }
}

class PtxMpfr : public testing::TestWithParam<ExactOperation> {};
TEST_P(PtxMpfr, EveryRoundingIsExact) {
  const ExactOperation& o = GetParam();
  const size_t modes = o.four ? std::size(kMpfrModes) : 1;
  const char* asked = std::getenv("ASSAY_PTX_OPERANDS");
  const size_t all = asked ? std::strtoull(asked, nullptr, 10) : 40000;
  constexpr size_t kPart = size_t{1} << 14;
  Exact exact(o);
  const auto edges = edges_of_format(o.source());
  std::vector<Column> c(o.sources, Column{o.source().bits, {}});
  for (const uint64_t a : edges)
    for (const uint64_t b : o.sources > 1 ? edges : std::vector<uint64_t>{0}) {
      c[0].values.push_back(a);
      if (o.sources > 1) c[1].values.push_back(b);
      if (o.sources > 2) c[2].values.push_back(edges[(a * 31 + b * 17) % edges.size()]);
    }
  std::atomic<size_t> tried = 0;
  for (size_t mode = 0; mode < modes; ++mode) {
    expect_exact(o, exact, c, mode);
    const size_t of_mode = (all + modes - 1) / modes;
    in_threads((of_mode + kPart - 1) / kPart, [&](size_t part) {
      Exact exact_here(o);  // MPFR's range of exponents is a thread's own
      const size_t count = std::min(kPart, of_mode - part * kPart);
      expect_exact(o, exact_here, drawn_operands(o, 1 + mode + modes * part, count), mode);
      tried += count;
    });
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(tried, all);
  RecordProperty("operands", std::to_string(tried.load()));
}
INSTANTIATE_TEST_SUITE_P(Operations, PtxMpfr, testing::ValuesIn(kExactOperations), [](const auto& p) {
  return std::string(p.param.name) + "_" + p.param.format->type +
         (p.param.from ? "_of_" + std::string(p.param.from->type) : "");
});
#else
TEST(PtxMpfr, EveryRoundingIsExact) { GTEST_SKIP() << "this build has no MPFR (libmpfr-dev)"; }
#endif

}  // namespace
}  // namespace assay::ptx
