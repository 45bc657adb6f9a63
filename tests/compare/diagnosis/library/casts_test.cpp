// Causes of a cast. What came is made by the tests' own arithmetic.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/library/hypotheses.h"
#include "compare/process/plain_run.h"
#include "contract/encoding.h"
#include "contract/words.h"
#include "tests/compare/diagnosis/named.h"
#include "tests/compare/diagnosis/narrow.h"
#include "tests/compare/diagnosis/planes.h"

namespace assay {
namespace {

using named::called, named::diagnosed, named::expect_named, named::Planes;
using std::string;

// E5M2 is the high byte of f16: what is cut of f16 is cut toward zero.
TEST(CastCauses, ACastByTheHighByteOfF16IsNamed) {
  const planes::Case c("cast e5m2 16x64 f32");
  Planes got = c.want;
  const std::vector<std::byte>& x = find_plane(c.inputs, "x")->bytes;
  for (size_t i = 0; i < 16 * 64; ++i) {
    float v;
    std::memcpy(&v, x.data() + 4 * i, 4);
    got.front().bytes[i] = static_cast<std::byte>(narrow::f16_code(v) >> 8);
  }
  expect_named("cast.cut_through_f16", c, got);
}

TEST(CastCauses, ACastThatRoundsTwiceIsNamed) {
  const planes::Case c("cast e4m3 64x64 f32");
  std::vector<std::byte> x = find_plane(c.inputs, "x")->bytes;
  for (size_t i = 0; i < x.size() / 4; ++i) {
    float v;
    std::memcpy(&v, x.data() + 4 * i, 4);
    v = narrow::to_bf16(v);
    std::memcpy(x.data() + 4 * i, &v, 4);
  }
  Planes read = c.inputs;
  called(read, "x").bytes = x;
  const auto got = plain_run(*make_reference_subject(), c.problem, read);
  ASSERT_TRUE(got);
  expect_named("cast.through_bf16", c, *got);
}

// ---- special values --------------------------------------------------------------------------------------

// Codes of an encoding, by its definition.
struct Target {
  const char* name;
  uint32_t nan, largest, sign, least_normal;
  bool has_nan = true;
};
constexpr Target kTargets[] = {
    {"e4m3", 0x7F, 0x7E, 0x80, 0x08},        {"e5m2", 0x7F, 0x7B, 0x80, 0x04},
    {"e2m1", 0x7, 0x7, 0x8, 0x2, false},     {"e2m3", 0x1F, 0x1F, 0x20, 0x08, false},
    {"e3m2", 0x1F, 0x1F, 0x20, 0x04, false}, {"bf16", 0x7FFF, 0x7F7F, 0x8000, 0x80},
    {"f16", 0x7FFF, 0x7BFF, 0x8000, 0x400},
};

// `x`: the element as binary32; `right`: the code that it should have.
struct Slip {
  const char* id;
  uint32_t (*code)(const Target& t, uint32_t x, uint32_t right);
  bool (*applies)(const Target& t) = [](const Target&) { return true; };
};
bool has_nan(const Target& t) { return t.has_nan; }
bool of_8_bits(const Target& t) { return t.has_nan && t.sign == 0x80; }
bool is_bf16(const Target& t) { return t.least_normal == 0x80; }
bool nan(uint32_t x) { return (x & 0x7FFFFFFF) > 0x7F800000; }
bool infinite(uint32_t x) { return (x & 0x7FFFFFFF) == 0x7F800000; }
uint32_t sign(const Target& t, uint32_t x) { return x >> 31 ? t.sign : 0; }
bool subnormal(const Target& t, uint32_t right) {
  const uint32_t magnitude = right & (t.sign - 1);
  return magnitude != 0 && magnitude < t.least_normal;
}
constexpr Slip kSlips[] = {
    {"nan_rounded",
     [](const Target&, uint32_t x, uint32_t right) {
       return nan(x) ? (x + 0x7FFF + (x >> 16 & 1)) >> 16 : right;
     },
     is_bf16},
    {"nan_cut", [](const Target&, uint32_t x, uint32_t right) { return nan(x) ? x >> 16 : right; }, is_bf16},
    {"nan_signed",
     [](const Target& t, uint32_t x, uint32_t right) { return nan(x) ? t.nan | sign(t, x) : right; }},
    {"nan_as_largest",
     [](const Target& t, uint32_t x, uint32_t right) { return nan(x) ? t.largest | sign(t, x) : right; },
     of_8_bits},
    {"nan_as_zero", [](const Target&, uint32_t x, uint32_t right) { return nan(x) ? 0 : right; }},
    {"infinity_as_nan",
     [](const Target& t, uint32_t x, uint32_t right) { return infinite(x) ? t.nan : right; }, has_nan},
    {"flushed",
     [](const Target& t, uint32_t x, uint32_t right) { return subnormal(t, right) ? sign(t, x) : right; }},
    {"flushed_positive",
     [](const Target& t, uint32_t, uint32_t right) { return subnormal(t, right) ? 0 : right; }},
    {"zero_positive", [](const Target& t, uint32_t, uint32_t right) { return right == t.sign ? 0 : right; }},
};

// NaNs with much and little payload, infinities, zeros and numbers of every size, of both signs.
uint32_t special(size_t i) {
  constexpr uint32_t kNans[] = {0x7F800001, 0x7FFFFFFF, 0x7FC00000, 0x7FA12345, 0x7F808000, 0x7F818000};
  const auto k = static_cast<uint32_t>(i);
  const uint32_t size = i % 8 == 0   ? kNans[i / 8 % std::size(kNans)]
                        : i % 8 == 1 ? 0x7F800000
                        : i % 8 == 2 ? 0
                                     : k * 0x9E3779B1 >> 1 & 0x7F7FFFFF;
  return size | (k / 64 % 2) << 31;
}

// With those values, or their upper halves.
planes::Case of_specials(const string& to, const string& source) {
  planes::Case c("cast " + to + " 32x64 " + source);
  PlaneData& x = called(c.inputs, "x");
  for (int64_t i = 0; i < 32 * 64; ++i)
    set_code(x.plane, x.bytes, i, special(static_cast<size_t>(i)) >> (source == "f32" ? 0 : 16));
  c.got = c.want = *plain_run(*make_reference_subject(), c.problem, c.inputs);
  return c;
}

TEST(CastCauses, OfSpecialValuesAreNamed) {
  for (const Target& t : kTargets)
    for (const string source : {"f32", "bf16"}) {
      if (source == t.name) continue;
      planes::Case c = of_specials(t.name, source);
      for (const Slip& slip : kSlips) {
        if (!slip.applies(t)) continue;
        const uint32_t cut = source == "f32" ? 0xFFFFFFFF : 0xFFFF0000;
        c.spoil("y", [&](int64_t row, int64_t column, uint32_t right) {
          return slip.code(t, special(static_cast<size_t>(row * 64 + column)) & cut, right);
        });
        SCOPED_TRACE(source + " to " + t.name);
        expect_named(string("cast.") + slip.id, c, c.got);
      }
    }
}

// A NaN of bf16 keeps its bits in binary32.
TEST(CastCauses, ANaNThatLosesItsSignIsNamed) {
  planes::Case c = of_specials("f32", "bf16");
  c.spoil("y", [](int64_t, int64_t, uint32_t right) { return nan(right) ? right & 0x7FFFFFFF : right; });
  expect_named("cast.nan_positive", c, c.got);
}

// A row that changes no code of any input would only take time.
TEST(CastCauses, EveryRowChangesSomeCode) {
  std::set<string> met;
  for (const EncodingInfo& source : kEncodings)
    for (const EncodingInfo& to : kEncodings) {
      const auto p = parse_line(concat({"cast ", to.name, " 64x1024 ", source.name}));
      if (!p) continue;
      Planes in = *make_inputs(*p, *make_reference_subject());
      for (int64_t i = 0; i < 64 * 1024; ++i)
        set_code(
            in[0].plane, in[0].bytes, i,
            static_cast<uint32_t>(source.bits == 32 ? i << 16 | i % 2 : i % (int64_t{1} << source.bits)));
      const auto right = plain_run(*make_reference_subject(), *p, in);
      ASSERT_TRUE(right);
      for (const Hypothesis& h : line_hypotheses(*p)) {
        if (!h.remake) continue;
        Planes made = *right;
        h.remake(*p, in, made);
        EXPECT_TRUE(made[0].bytes != (*right)[0].bytes) << h.id << ' ' << source.name << " to " << to.name;
        met.insert(h.id);
      }
    }
  std::set<string> tried = {"cast.nan_positive"};
  for (const Slip& slip : kSlips) tried.insert(string("cast.") + slip.id);
  EXPECT_EQ(met, tried);
}

}  // namespace
}  // namespace assay
