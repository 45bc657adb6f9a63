// Steps of Adam and scaled states (N19): bytes worked by hand, and MPFR with one rounding for each operation
// as the third witness of the reference and of the kernels.
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>

#include "fast/subject_host.h"
#include "fixtures/inputs.h"
#include "tests/reference/run_line.h"
#if ASSAY_HAVE_MPFR
#include <mpfr.h>
#endif

namespace assay {
namespace {

uint32_t bits_of(float v) { return std::bit_cast<uint32_t>(v); }
Blob floats(const std::vector<float>& v) {
  std::vector<uint32_t> out;
  for (float f : v) out.push_back(bits_of(f));
  return blob(out);
}
std::string hexes(const std::vector<uint32_t>& v) {
  std::string out;
  char text[16];
  for (uint32_t x : v) std::snprintf(text, sizeof text, "%08X ", x), out += text;
  return out;
}

// Dyadic numbers, of which no step rounds: m' = 0.5 + 1, v' = 2 + 2, u = 1.5 / 2, p' = 1 - 0.5 * 0.75.
TEST(Adam, WorkedByHand) {
  const std::string keys = " lr=0.5 beta1=0.5 beta2=0.5 eps=0 bias_correction=0";
  for (const char* rounding : {"plain", "fma"}) {
    const Outputs y =
        run_line("adam f32 1x1 f32 adam=" + std::string(rounding) + keys,
                 {{"x", floats({2})}, {"p", floats({1})}, {"m", floats({1})}, {"v", floats({4})}});
    EXPECT_EQ(hexes(y.u32("next.m")), hexes({bits_of(1.5f)}));
    EXPECT_EQ(hexes(y.u32("next.v")), hexes({bits_of(4.0f)}));
    EXPECT_EQ(hexes(y.u32("next.p")), hexes({bits_of(0.625f)}));
  }
}

// N19.3: with p = 8 and decay 0.25, L2 makes the gradient 2 of 0, and adamw the update 2 of 0.
TEST(Adam, WeightDecay) {
  const std::string keys = " lr=0.5 beta1=0.5 beta2=0.5 eps=1 bias_correction=0 decay=0.25";
  const std::map<std::string, Blob> given = {
      {"x", floats({0})}, {"p", floats({8})}, {"m", floats({0})}, {"v", floats({2})}};
  const Outputs l2 = run_line("adam f32 1x1 f32 decoupling=l2" + keys, given);
  EXPECT_EQ(hexes(l2.u32("next.m")), hexes({bits_of(1.0f)}));
  EXPECT_EQ(hexes(l2.u32("next.v")), hexes({bits_of(3.0f)}));
  const Outputs adamw = run_line("adam f32 1x1 f32" + keys, given);
  EXPECT_EQ(hexes(adamw.u32("next.m")), hexes({bits_of(0.0f)}));
  EXPECT_EQ(hexes(adamw.u32("next.v")), hexes({bits_of(1.0f)}));
  EXPECT_EQ(hexes(adamw.u32("next.p")), hexes({bits_of(7.0f)}));
}

// N19.6, N19.7: 32752 is the largest stored magnitude, and a state of zeros has the scale 0.
TEST(Adam, ScaledStates) {
  const Outputs half = run_line("scale_state f16 1x2 f32", {{"x", floats({32752, -16376})}});
  EXPECT_EQ(hexes(half.u32("scale")), hexes({bits_of(1.0f)}));
  EXPECT_EQ(half.u16("y"), (std::vector<uint16_t>{0x77FF, 0xF3FF}));
  const Outputs zero = run_line("scale_state f16 1x2 f32", {{"x", floats({0, 0})}});
  EXPECT_EQ(hexes(zero.u32("scale")), hexes({0}));
  EXPECT_EQ(hexes(zero.u32("multiplier")), hexes({0}));
  EXPECT_EQ(zero.u16("y"), (std::vector<uint16_t>{0, 0}));
  const Outputs fp8 = run_line("scale_state e4m3 1x2 f32", {{"x", floats({896, -2})}});
  EXPECT_EQ(hexes(fp8.u32("scale")), hexes({bits_of(2.0f)}));
  EXPECT_EQ(fp8.u8("y"), (std::vector<uint8_t>{0x7E, 0xB8}));
  const Outputs nan = run_line("scale_state e4m3 1x2 f32", {{"x", floats({0, 0})}});
  EXPECT_EQ(nan.u8("y"), (std::vector<uint8_t>{0x7F, 0x7F}));
  const float quiet = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(run_line("scale_state f16 1x2 f32", {{"x", floats({1, quiet})}}).u16("y"),
            (std::vector<uint16_t>{0, 0x7FFF}));
  const Outputs back =
      run_line("scale_state f16 1x2 f16 inverse=1",
               {{"x", blob(std::vector<uint16_t>{0x3C00, 0xC000})}, {"scale", floats({0.25f})}});
  EXPECT_EQ(hexes(back.u32("y")), hexes({bits_of(0.25f), bits_of(-0.5f)}));
}

// N19.2: beta1 = 1 - 2^-15, so q1 g is exactly 1 + 2^-23, and beta1 m = 2^-24 (1 - 2^-30) lies below half a
// unit of it. One rounding leaves 1 + 2^-23. Rounded first, the product is 2^-24, a tie, and goes to the even
// neighbour; so it does in a binary64 that is rounded to binary32 afterwards.
TEST(Adam, AFmaRoundsOnce) {
  const auto reference = make_reference_subject(), host = make_host_subject();
  const float m = std::ldexp(1.0f + std::ldexp(1.0f, -15), -24),
              g = std::ldexp(1.0f + std::ldexp(1.0f, -23), 15);
  for (Subject* subject : {reference.get(), host.get()})
    for (const auto& [rounding, want] : {std::pair{"fma", 0x3F800001u}, {"plain", 0x3F800002u}}) {
      LineCase c(std::string("adam f32 1x1 f32 adam=") + rounding +
                     " beta1=0.999969482421875 beta2=0.5 eps=1 lr=0.5 bias_correction=0",
                 {{"x", floats({g})}, {"p", floats({0})}, {"m", floats({m})}, {"v", floats({1})}});
      subject->run(c.p, c.inputs, c.outputs, Environment{});
      EXPECT_EQ(hexes(codes<uint32_t>(c.out_bytes[0])), hexes({want})) << subject->name() << " " << rounding;
    }
}

// N19.6 and N19.7 on both sides: what is stored of a state, by plane.
TEST(Adam, ScaledStatesOnBothSides) {
  const auto reference = make_reference_subject(), host = make_host_subject();
  const float quiet = std::numeric_limits<float>::quiet_NaN();
  struct Row {
    const char* line;
    std::vector<float> x;
    uint32_t scale, multiplier;
    std::vector<uint32_t> y;
  };
  const Row rows[] = {
      {"scale_state f16 1x2 f32", {32752, -16376}, bits_of(1.0f), bits_of(1.0f), {0x77FF, 0xF3FF}},
      {"scale_state f16 1x2 f32", {0, 0}, 0, 0, {0, 0}},
      {"scale_state f16 1x2 f32", {1, quiet}, 0x7FFFFFFF, 0, {0, 0x7FFF}},
      {"scale_state e4m3 1x2 f32", {896, -2}, bits_of(2.0f), bits_of(0.5f), {0x7E, 0xB8}},
      {"scale_state e4m3 1x2 f32", {2, -896}, bits_of(2.0f), bits_of(0.5f), {0x38, 0xFE}},
      {"scale_state e4m3 1x2 f32", {0, 0}, 0, 0x7F800000, {0x7F, 0x7F}},
  };
  for (Subject* subject : {reference.get(), host.get()})
    for (const Row& row : rows) {
      LineCase c(row.line, {{"x", floats(row.x)}});
      subject->run(c.p, c.inputs, c.outputs, Environment{});
      const std::vector<Plane> planes = output_planes(c.p);
      for (size_t i = 0; i < planes.size(); ++i) {
        const std::string where = std::string(subject->name()) + ": " + row.line + ", " + planes[i].name;
        if (planes[i].name != "y") {
          const uint32_t want = planes[i].name == "scale" ? row.scale : row.multiplier;
          EXPECT_EQ(hexes(codes<uint32_t>(c.out_bytes[i])), hexes({want})) << where;
          continue;
        }
        std::vector<uint32_t> y;
        if (c.out_bytes[i].size() == 4)
          for (const uint16_t code : codes<uint16_t>(c.out_bytes[i])) y.push_back(code);
        else
          for (const uint8_t code : codes<uint8_t>(c.out_bytes[i])) y.push_back(code);
        EXPECT_EQ(hexes(y), hexes(row.y)) << where;
      }
    }
}

#if ASSAY_HAVE_MPFR
// Binary32 as MPFR has it: 24 digits, the exponents of binary32, subnormals by mpfr_subnormalize.
class Number {
 public:
  explicit Number(double v = 0) {
    mpfr_init2(x_, 24);
    mpfr_set_d(x_, v, MPFR_RNDN);
  }
  Number(const Number& o) : Number() { mpfr_set(x_, o.x_, MPFR_RNDN); }
  Number& operator=(const Number& o) {
    mpfr_set(x_, o.x_, MPFR_RNDN);
    return *this;
  }
  ~Number() { mpfr_clear(x_); }
  float value() const { return mpfr_get_flt(x_, MPFR_RNDN); }
  template <class Function, class... Operands> static Number of(Function f, const Operands&... operands) {
    Number out;
    const int inexact = f(out.x_, operands.x_..., MPFR_RNDN);
    mpfr_subnormalize(out.x_, mpfr_check_range(out.x_, inexact, MPFR_RNDN), MPFR_RNDN);
    return out;
  }

 private:
  mpfr_t x_;
};
Number operator*(const Number& a, const Number& b) { return Number::of(mpfr_mul, a, b); }
Number operator+(const Number& a, const Number& b) { return Number::of(mpfr_add, a, b); }
Number operator/(const Number& a, const Number& b) { return Number::of(mpfr_div, a, b); }

struct Exponents {
  Exponents() : low(mpfr_get_emin()), high(mpfr_get_emax()) {
    mpfr_set_emin(-148);
    mpfr_set_emax(128);
  }
  ~Exponents() {
    mpfr_set_emin(low);
    mpfr_set_emax(high);
  }
  mpfr_exp_t low, high;
};

// N19.1, with the power to the nearest binary64 from 200 digits.
float correction(float beta, int step) {
  mpfr_t b, p;
  mpfr_init2(b, 200);
  mpfr_init2(p, 53);
  mpfr_set_flt(b, beta, MPFR_RNDN);
  mpfr_pow_ui(p, b, static_cast<unsigned long>(step), MPFR_RNDN);
  const double power = mpfr_get_d(p, MPFR_RNDN);
  mpfr_clear(b);
  mpfr_clear(p);
  return static_cast<float>(1.0 - power);
}

struct Element {
  float m, v, p;
};
Element step_of(const Adam& op, float g_, float p_, float m_, float v_) {
  const auto key = [](F32Bits b) { return Number(static_cast<double>(std::bit_cast<float>(b))); };
  const float beta1 = std::bit_cast<float>(op.beta1), beta2 = std::bit_cast<float>(op.beta2);
  const float c1 = op.bias_correction ? correction(beta1, op.step) : 1,
              c2 = op.bias_correction ? correction(beta2, op.step) : 1;
  const Exponents binary32;
  const bool l2 = op.decoupling == WeightDecay::l2;
  const auto sum = [&](const Number& a, const Number& b, const Number& c) {
    return op.adam == AdamRounding::fma ? Number::of(mpfr_fma, a, b, c) : a * b + c;
  };
  const Number p(p_), m(m_), v(v_), one(1);
  Number g(g_);
  if (l2) g = sum(key(op.decay), p, g);
  const Number rest1 = Number::of(mpfr_sub, one, Number(beta1)),
               rest2 = Number::of(mpfr_sub, one, Number(beta2));
  const Number nm = sum(Number(beta1), m, rest1 * g), nv = sum(Number(beta2), v, rest2 * g * g);
  const Number root = Number::of(mpfr_sqrt, nv / Number(c2));
  Number u = (nm / Number(c1)) / (root + key(op.eps));
  if (!l2) u = sum(key(op.decay), p, u);
  const Number minus = Number::of(mpfr_neg, key(op.lr));
  return {nm.value(), nv.value(), sum(minus, u, p).value()};
}

class AdamByMpfr : public testing::TestWithParam<std::tuple<const char*, const char*, const char*>> {};

// Every element of both sides, bit for bit; NaN as NaN (its code is N1.3's).
TEST_P(AdamByMpfr, EqualsBothSides) {
  const auto& [fill, rounding, keys] = GetParam();
  const std::string line = std::string("adam f32 31x37 f32 fill=") + fill + " adam=" + rounding + " " + keys;
  const Problem p = problem(line);
  const auto reference = make_reference_subject(), host = make_host_subject();
  const auto inputs = make_inputs(p, *reference);
  ASSERT_TRUE(inputs);
  const auto word = [&](const std::vector<std::byte>& bytes, size_t i) {
    uint32_t out = 0;
    std::memcpy(&out, bytes.data() + 4 * i, 4);
    return std::bit_cast<float>(out);
  };
  const auto same = [](float a, float b) {
    return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
  };
  size_t finite = 0;
  for (Subject* subject : {reference.get(), host.get()}) {
    std::vector<Plane> planes = output_planes(p);
    std::vector<std::vector<std::byte>> bytes;
    std::vector<Buffer> outputs;
    for (const Plane& plane : planes) bytes.emplace_back(plane.bytes());
    for (size_t i = 0; i < planes.size(); ++i) outputs.push_back({&planes[i], bytes[i]});
    subject->run(p, views(*inputs), outputs, Environment{});
    for (size_t i = 0; i < static_cast<size_t>(p.x.shape.count()); ++i) {
      const auto in = [&](const char* name) { return word(find_plane(*inputs, name)->bytes, i); };
      const Element want = step_of(*p.as<Adam>(), in("x"), in("p"), in("m"), in("v"));
      const float m = word(bytes[0], i), v = word(bytes[1], i), np = word(bytes[2], i);
      finite += std::isfinite(np);
      ASSERT_TRUE(same(want.m, m) && same(want.v, v) && same(want.p, np))
          << subject->name() << ": " << line << ", element " << i << ": expected "
          << hexes({bits_of(want.m), bits_of(want.v), bits_of(want.p)}) << "found "
          << hexes({bits_of(m), bits_of(v), bits_of(np)});
    }
  }
  EXPECT_GT(finite, 100u);
}
INSTANTIATE_TEST_SUITE_P(All, AdamByMpfr,
                         testing::Combine(testing::Values("normal", "wide", "denormal", "edges", "nonfinite"),
                                          testing::Values("plain", "fma"),
                                          testing::Values("", "step=1000 decay=0.125",
                                                          "decoupling=l2 decay=0.01 lr=0.5",
                                                          "bias_correction=0 beta1=0 eps=1")));

// Powers by both sides' own ways, at the places where 1 - P loses most and least.
TEST(AdamByMpfrToo, Corrections) {
  const auto reference = make_reference_subject(), host = make_host_subject();
  for (const char* beta : {"0.9", "0.999", "0.99999994", "0.5", "1e-30", "0"})
    for (int step : {1, 2, 3, 7, 100, 4095, 65537, 10000000}) {
      const std::string line =
          "adam f32 1x1 f32 beta2=0 eps=0 lr=1 beta1=" + std::string(beta) + " step=" + std::to_string(step);
      const Problem p = problem(line);
      const Element want = step_of(*p.as<Adam>(), 1, 0, 1, 0);
      for (Subject* subject : {reference.get(), host.get()}) {
        LineCase c(line, {{"x", floats({1})}, {"p", floats({0})}, {"m", floats({1})}, {"v", floats({0})}});
        subject->run(c.p, c.inputs, c.outputs, Environment{});
        EXPECT_EQ(hexes(codes<uint32_t>(c.out_bytes[2])), hexes({bits_of(want.p)}))
            << subject->name() << line;
      }
    }
}
#else
TEST(AdamByMpfr, EqualsBothSides) {
  GTEST_SKIP() << "MPFR's header is not at hand: ci/setup installs libmpfr-dev";
}
#endif

}  // namespace
}  // namespace assay
