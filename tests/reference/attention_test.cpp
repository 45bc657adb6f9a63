// Attention (N20): bytes worked by hand on both sides, and the exponential against MPFR (the whole of it:
// exponential_certificate).
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "contract/attention.h"
#include "contract/line.h"
#include "fast/lane/exponential.cuh"
#include "fast/subject_host.h"
#include "fixtures/inputs.h"
#include "reference/exponential.h"
#include "reference/subject.h"
#include "tests/reference/run_line.h"
#if ASSAY_HAVE_MPFR
#include <mpfr.h>
#endif

namespace assay {
namespace {

uint16_t bf16(float v) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16); }
Blob halves(const std::vector<float>& v) {
  std::vector<uint16_t> out;
  for (float x : v) out.push_back(bf16(x));
  return blob(out);
}
std::vector<float> floats(const Outputs& y, const std::string& plane) {
  std::vector<float> out;
  for (uint16_t code : y.u16(plane)) out.push_back(std::bit_cast<float>(uint32_t{code} << 16));
  return out;
}

// The outputs of the kernels on the host for the same line and inputs.
void expect_same_on_host(const std::string& line, const std::map<std::string, Blob>& given,
                         const Outputs& want) {
  const Problem p = problem(line);
  const auto subject = make_host_subject();
  const std::vector<Plane> read = input_planes(p), made = output_planes(p);
  std::vector<ConstBuffer> inputs;
  for (const Plane& plane : read) inputs.push_back({&plane, given.at(plane.name)});
  std::vector<std::vector<std::byte>> bytes;
  std::vector<Buffer> outputs;
  for (const Plane& plane : made) bytes.emplace_back(plane.bytes(), std::byte{0x7F});
  for (size_t i = 0; i < made.size(); ++i) outputs.push_back({&made[i], bytes[i]});
  subject->run(p, inputs, outputs, {});
  for (size_t i = 0; i < made.size(); ++i)
    EXPECT_EQ(bytes[i], want.at(made[i].name)) << line << ": " << made[i].name;
}

// Q = 0: all logits are 0, S is 1/2 everywhere, and O is the mean of two values. dO = (1, 2): dV is half of
// it for each key; dS = dO V^T; D its mean; dP = (dS - D) / 2.
TEST(Attention, TwoKeysByHand) {
  const std::string line = "attention identity 1x2 bf16 kv=2 softmax_scale=1 backward=1";
  const std::map<std::string, Blob> given = {{"q", halves({0, 0})},
                                             {"k", halves({1, 0, 0, 1})},
                                             {"v", halves({1, 2, 3, 4})},
                                             {"do", halves({1, 2})}};
  const Outputs y = run_line(line, given);
  EXPECT_EQ(floats(y, "p"), (std::vector<float>{0, 0}));
  EXPECT_EQ(floats(y, "s"), (std::vector<float>{0.5f, 0.5f}));
  EXPECT_EQ(floats(y, "out"), (std::vector<float>{2, 3}));
  EXPECT_EQ(floats(y, "dv"), (std::vector<float>{0.5f, 1, 0.5f, 1}));
  EXPECT_EQ(floats(y, "ds"), (std::vector<float>{5, 11}));
  EXPECT_EQ(floats(y, "dp"), (std::vector<float>{-1.5f, 1.5f}));
  EXPECT_EQ(floats(y, "grad.q"), (std::vector<float>{-1.5f, 1.5f}));
  EXPECT_EQ(floats(y, "grad.k"), (std::vector<float>{0, 0, 0, 0}));
  expect_same_on_host(line, given, y);
}

// N20.10: a share of 2^-149 drops what `keep` does not keep, as any share above 0 does.
TEST(Attention, TheLeastDropoutDrops) {
  const std::string line = "attention identity 1x2 bf16 kv=2 softmax_scale=1 dropout=0x00000001";
  const std::map<std::string, Blob> given = {{"q", halves({0, 0})},
                                             {"k", halves({1, 0, 0, 1})},
                                             {"v", halves({1, 2, 3, 4})},
                                             {"keep", blob(std::vector<uint8_t>{0, 1})}};
  const Outputs y = run_line(line, given);
  EXPECT_EQ(floats(y, "s"), (std::vector<float>{0, 0.5f}));
  EXPECT_EQ(floats(y, "out"), (std::vector<float>{1.5f, 2}));
  expect_same_on_host(line, given, y);
}

// A trace tells of the key that weighs most in the element's row and head: of two heads, whose rows look at
// one key each.
TEST(Attention, TraceFollowsTheMostProbableKey) {
  const std::string line = "attention identity 2x4 bf16 heads=2 kv=2 softmax_scale=1";
  const std::vector<float> v = {1, 2, 5, 6, 3, 4, 7, 8};
  const std::map<std::string, Blob> given = {
      {"q", halves({2, 0, 0, 2, 0, 2, 2, 0})}, {"k", halves({1, 0, 1, 0, 0, 1, 0, 1})}, {"v", halves(v)}};
  const Outputs y = run_line(line, given);
  LineCase c(line, given);
  const auto subject = make_reference_subject();
  const Tracer trace = dynamic_cast<Tracing&>(*subject).tracer(c.p, c.inputs, Direction::row);
  const float beside = std::exp(-2.0f), most = 1 / (1 + beside);
  for (int64_t row : {0, 1})
    for (int64_t col : {0, 1, 2, 3}) {
      const int64_t key = (row + col / 2) % 2;
      const std::string of_key = " of key " + std::to_string(key) + ", the most probable";
      const auto steps = trace(row, col);
      std::vector<std::string> names;
      for (const TraceStep& step : steps) names.push_back(step.clause + " " + step.what);
      EXPECT_EQ(names, (std::vector<std::string>{
                           "N20.4 softmax scale", "N20.4 logit" + of_key, "N20.7 largest masked logit",
                           "N20.7 sum of exponentials", "N20.7 probability" + of_key,
                           "N20.3 probability after its cast" + of_key, "N20.3 V after its cast" + of_key,
                           "N20.11 o", "N20.11 o after its cast"}));
      ASSERT_EQ(steps.size(), 9u);
      const auto number = [&](size_t k) { return std::bit_cast<float>(steps[k].bits); };
      EXPECT_EQ(number(0), 1);
      EXPECT_EQ(steps[1].bits, bf16(2));
      EXPECT_EQ(number(2), 2);
      EXPECT_FLOAT_EQ(number(3), 1 + beside);
      EXPECT_FLOAT_EQ(number(4), most);
      EXPECT_NEAR(number(5), most, 0x1p-8);
      EXPECT_EQ(number(6), v[static_cast<size_t>(4 * key + col)]);
      for (size_t k : {7, 8}) EXPECT_EQ(steps[k].bits, y.u16("o")[static_cast<size_t>(4 * row + col)]);
    }
}

// N20.4: of 4 elements the scale is 1/2, so 2 * 3 becomes 3; dP of the only key is 0.
TEST(Attention, ScaleByHand) {
  const std::string line = "attention identity 1x4 bf16 kv=1 backward=1";
  const std::map<std::string, Blob> given = {{"q", halves({2, 0, 0, 0})},
                                             {"k", halves({3, 0, 0, 0})},
                                             {"v", halves({1, 2, 3, 4})},
                                             {"do", halves({1, 1, 1, 1})}};
  const Outputs y = run_line(line, given);
  EXPECT_EQ(floats(y, "p"), (std::vector<float>{3}));
  EXPECT_EQ(floats(y, "out"), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(floats(y, "dp"), (std::vector<float>{0}));
  expect_same_on_host(line, given, y);
}

// N20.6: the mask is -10000 in binary32. Under a causal mask the first query sees the first key alone; a row
// of padding is zero; a valid query without keys shares itself among all keys.
TEST(Attention, MasksByHand) {
  const std::map<std::string, Blob> qkv = {
      {"q", halves({1, 1})}, {"k", halves({0, 0})}, {"v", halves({4, 8})}};
  const std::string causal = "attention identity 2x1 bf16 mask=causal";
  const Outputs y = run_line(causal, qkv);
  EXPECT_EQ(floats(y, "s"), (std::vector<float>{1, 0, 0.5f, 0.5f}));
  EXPECT_EQ(floats(y, "out"), (std::vector<float>{4, 6}));
  expect_same_on_host(causal, qkv, y);
  std::map<std::string, Blob> padded = qkv;
  padded["cu_seqlens_q"] = blob(std::vector<uint32_t>{0, 1});
  padded["cu_seqlens_kv"] = blob(std::vector<uint32_t>{0, 0});
  const std::string padding = "attention identity 2x1 bf16 lengths=1 kv_lengths=0";
  const Outputs z = run_line(padding, padded);
  EXPECT_EQ(floats(z, "s"), (std::vector<float>{0.5f, 0.5f, 0, 0}));
  expect_same_on_host(padding, padded, z);
}

// N20.1: two queries' heads share a head of keys; N20.16: their gradients are summed after the cast.
TEST(Attention, SharedHeadsByHand) {
  const std::string line = "attention identity 1x2 bf16 heads=2 kv_heads=1 kv=1 backward=1";
  const std::map<std::string, Blob> given = {
      {"q", halves({1, 2})}, {"k", halves({1})}, {"v", halves({3})}, {"do", halves({1, -0.5f})}};
  const Outputs y = run_line(line, given);
  EXPECT_EQ(floats(y, "out"), (std::vector<float>{3, 3}));
  EXPECT_EQ(floats(y, "dv"), (std::vector<float>{1, -0.5f}));
  EXPECT_EQ(floats(y, "grad.v"), (std::vector<float>{0.5f}));
  expect_same_on_host(line, given, y);
}

// One scale for Q, K and V: 448 / 896, so 3 becomes 1.5 and its step is 1/8 there.
TEST(Attention, OneScaleForThree) {
  const std::string line = "attention fp8_current 1x1 bf16";
  const Outputs y = run_line(line, {{"q", halves({3})}, {"k", halves({-1})}, {"v", halves({896})}});
  EXPECT_EQ(y.u32("qkv.amax"), (std::vector<uint32_t>{std::bit_cast<uint32_t>(896.0f)}));
  EXPECT_EQ(y.u8("qkv.data"), (std::vector<uint8_t>{0x3C, 0xB0, 0x7E}));
}

// N20.17: codes of 2 and descales that are no powers of two; both heads of Q read the only head of keys. f16
// of 2 * 0.3 is 0.6001, and the logit its square.
TEST(Attention, CodesByHand) {
  const std::string line = "attention identity 1x2 f16 heads=2 kv_heads=1 kv=1 codes=e4m3 softmax_scale=1";
  const std::map<std::string, Blob> given = {
      {"q", blob(std::vector<uint8_t>{0x40, 0x44})}, {"k", blob(std::vector<uint8_t>{0x38})},
      {"v", blob(std::vector<uint8_t>{0xC0})},       {"q.descale", blob(std::vector<float>{0.25f})},
      {"k.descale", blob(std::vector<float>{3})},    {"v.descale", blob(std::vector<float>{0.3f})}};
  const Outputs y = run_line(line, given);
  EXPECT_EQ(y.u16("p"), (std::vector<uint16_t>{0x3E00, 0x4080}));    // 0.5 * 3 and 0.75 * 3
  EXPECT_EQ(y.u16("out"), (std::vector<uint16_t>{0xB8CD, 0xB8CD}));  // -2 * 0.3 in f16
  expect_same_on_host(line, given, y);
}

// Every layout, mask, bias and format: the reference and the kernels give the same bytes from drawn inputs.
class AttentionSides : public testing::TestWithParam<const char*> {};
TEST_P(AttentionSides, Agree) {
  const auto reference = make_reference_subject();
  const auto lines = expand_sweep(GetParam());
  ASSERT_TRUE(lines) << GetParam();
  for (const std::string& line : *lines) {
    const Problem p = problem(line);
    EXPECT_EQ(problem(to_line(p)), p) << line << " prints as " << to_line(p);
    const auto inputs = make_inputs(p, *reference);
    ASSERT_TRUE(inputs) << line;
    std::map<std::string, Blob> given;
    for (const PlaneData& plane : *inputs) given[plane.plane.name] = plane.bytes;
    expect_same_on_host(line, given, run_line(line, given));
  }
}
INSTANTIATE_TEST_SUITE_P(
    All, AttentionSides,
    testing::Values(
        "attention {fp8_delayed,fp8_current,identity,fp8_current/fp8_delayed} 24x32 {bf16,f16} heads=2 "
        "backward={0,1} seed=3",
        "attention fp8_delayed 24x32 bf16 heads=2 backward=1 qkv.scale=16 s.scale=256 o.scale=8 "
        "do.element=e5m2 "
        "dp.element=e5m2 dqkv.element=e5m2 do.scale=4 dp.scale=64 dqkv.scale=32 s.prior_amax=0.5",
        "attention fp8_current 30x48 bf16 batch=2 heads=3 backward=1 "
        "layout={sbhd,bshd,sb3hd,bs3hd,sbh3d,bsh3d,sbhd_sb2hd,bshd_bs2hd,sbhd_sbh2d,bshd_bsh2d}",
        "attention fp8_current 11x48 bf16 batch=3 heads=3 backward=1 "
        "layout={thd,t3hd,th3d,thd_t2hd,thd_th2d} "
        "lengths=5,0,6",
        "attention fp8_current 11x48 f16 batch=2 heads=3 backward=1 layout={thd,thd_t2hd} lengths=5,6 "
        "kv_lengths=7,2",
        "attention fp8_current 24x32 bf16 batch=2 heads=4 kv_heads={1,2} kv={5,70} backward=1 "
        "mask={none,causal,causal_bottom_right}",
        "attention fp8_current 24x32 bf16 batch=2 kv=20 backward=1 lengths=7,12 kv_lengths=20,3 "
        "mask={none,causal,causal_bottom_right} window=any",
        "attention fp8_current 24x32 bf16 batch=2 kv=20 backward=1 lengths=7,12 kv_lengths=20,3 "
        "mask={none,causal} window=3,0",
        "attention fp8_current 24x32 bf16 batch=2 kv=20 backward=1 mask={none,causal_bottom_right} "
        "window=-1,1",
        "attention fp8_delayed 12x32 bf16 heads=2 backward=1 bias={none,pre_scale,post_scale} "
        "softmax_scale={auto,0.3} "
        "dropout={0,0.25} exp={exact,ex2}",
        "attention mxfp8 256x64 bf16 batch=2 heads=2 backward=1 layout={bshd,sbhd,bs3hd} kv_heads=2",
        "attention {mxfp8,mxfp8/fp8_current} 128x64 f16 heads=2 kv_heads=1 mask=causal backward=1 "
        "element=e5m2",
        "attention fp8_current 12x32 bf16 backward=1 "
        "fill={edges,ties,outliers,wide,zeros,denormal,nonfinite,negative_zeros}",
        "attention {identity,identity/fp8_delayed,identity/fp8_current} 24x32 {bf16,f16} batch=2 heads=4 "
        "kv_heads=2 kv=17 backward=1 codes={e4m3,e5m2}",
        "attention identity/fp8_delayed 11x48 bf16 batch=2 heads=3 codes=e4m3 "
        "layout={thd,t3hd,th3d,thd_t2hd} "
        "lengths=5,6",
        "attention fp8_current {0,1,130}x32 bf16 kv={0,1,129} backward=1"));

TEST(Exponential, Ends) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const auto& [x, want] : {std::pair{0.0f, 1.0f}, {-0.0f, 1.0f}, {-infinity, 0.0f}, {-1000.0f, 0.0f}}) {
    EXPECT_EQ(reference::exact_exponential(x), want);
    EXPECT_EQ(fast_host::exact_exponential(x), want);
    EXPECT_EQ(reference::exponential_of_two(x), want);
    EXPECT_EQ(fast_host::exponential_of_two(x), want);
  }
  EXPECT_TRUE(std::isnan(reference::exact_exponential(NAN)));
  EXPECT_TRUE(std::isnan(fast_host::exact_exponential(NAN)));
}

// exp=ex2: both sides take the nearest power of two, by two methods.
TEST(Exponential, OfTwo) {
  for (uint32_t bits = 0x80000000u; bits < 0xC3000000u; bits += 4093) {
    const float x = std::bit_cast<float>(bits);
    ASSERT_EQ(reference::exponential_of_two(x), fast_host::exponential_of_two(x)) << x;
  }
}

#if ASSAY_HAVE_MPFR
TEST(Exponential, EqualsMpfr) {
  const mpfr_exp_t low = mpfr_get_emin(), high = mpfr_get_emax();
  mpfr_set_emin(-148);
  mpfr_set_emax(128);
  mpfr_t y;
  mpfr_init2(y, 24);
  for (uint32_t bits = 0xB2FFFF00u; bits < 0xC2D10000u; bits += 4093) {
    const float x = std::bit_cast<float>(bits);
    mpfr_set_flt(y, x, MPFR_RNDN);
    const int inexact = mpfr_exp(y, y, MPFR_RNDN);
    mpfr_subnormalize(y, mpfr_check_range(y, inexact, MPFR_RNDN), MPFR_RNDN);
    const float want = mpfr_get_flt(y, MPFR_RNDN);
    ASSERT_EQ(reference::exact_exponential(x), want) << x;
    ASSERT_EQ(fast_host::exact_exponential(x), want) << x;
  }
  mpfr_clear(y);
  mpfr_set_emin(low);
  mpfr_set_emax(high);
}
#else
TEST(Exponential, EqualsMpfr) { GTEST_SKIP() << "MPFR was not found"; }
#endif

}  // namespace
}  // namespace assay
